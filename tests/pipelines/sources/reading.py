"""Reading whole files in tests: what a source streams, joined. The product takes chunk by chunk."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from pipelines.sources.result import SourceResult, merge


def read_all(
    stream: Callable[..., Iterator[SourceResult]], paths: Iterable[Path], **options: Any
) -> SourceResult:
    return merge(chunk for path in paths for chunk in stream(path, **options))
