"""What Parquet files say of themselves in their metadata; of a bucket's, read once per object.

What the words mean is known to `pipelines.storage.store` and `pipelines.storage.day_content`.
"""

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import polars as pl
from polars.exceptions import PolarsError

from features.errors import DataError
from pipelines.storage.atomic_files import replace_file
from pipelines.storage.object_paths import ObjectPath, Place, at_once, version_word

_OURS: Final = "forewarn."


def metadata_of(files: Sequence[Place], *, folder: Place) -> list[Mapping[str, str]]:
    """Our own words in the metadata of each file.

    Args:
        files: Files of one folder; of a bucket, as a listing gave them.
        folder: The folder.

    Raises:
        DataError: One is damaged.
    """
    if isinstance(folder, Path):
        return [_read(file) for file in files]
    return _remembered(files, folder)


def _remembered(files: Sequence[Place], folder: ObjectPath) -> list[Mapping[str, str]]:
    """Those of objects; what was read of one stays true until its tag changes.

    A year of hours is 8,760 objects: half a minute of requests, were each asked each time.
    """
    digest = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
    kept_at = folder.bucket.local / "metadata" / f"{folder.name}-{digest}.json"
    known = _kept(kept_at)
    tags = {file.name: version_word(file) for file in files}
    new = [file for file in files if known.get(file.name, ("",))[0] != tags[file.name]]
    if new:
        for file, said in zip(new, at_once(_read, new, where=folder), strict=True):
            known[file.name] = (tags[file.name], said)
        kept = {name: known[name] for name in tags}
        replace_file(kept_at, json.dumps(kept).encode())
    return [known[file.name][1] for file in files]


def _kept(path: Path) -> dict[str, tuple[str, Mapping[str, str]]]:
    try:
        return {name: (tag, said) for name, (tag, said) in json.loads(path.read_bytes()).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}  # it only saves requests


def _read(file: Place) -> Mapping[str, str]:
    # Of a file on this machine the footer is enough.
    source = file if isinstance(file, Path) else io.BytesIO(file.read_bytes())
    try:
        said = pl.read_parquet_metadata(source)
    except (PolarsError, OSError) as error:
        raise DataError(
            f"{file} cannot be read: {str(error).splitlines()[0]}. Materialise its partition again."
        ) from error
    return {name: value for name, value in said.items() if name.startswith(_OURS)}
