"""A site's list of inputs (YAML): which files there are, of which kind, and how each is read.

What an input may say is in `pipelines.sources.site.inputs`, how it is read in
`pipelines.sources.site.readers`, and settings of the installation are in `pipelines.settings`.

The list, with paths relative to it::

    site: demo
    time_zone: Europe/Berlin        # of clocks that print no offset; an input may have its own
    inputs:
      - {kind: history, path: inventory.csv, mapping: mappings/inventory.yaml}
      - {kind: dcgm_text, path: "dcgm/*.prom"}          # <node>__2026-01-05T00-05-00Z.prom
      - {kind: nvidia_smi_csv, path: "nvidia_smi/*.csv"}                       # <node>.csv
      - {kind: kernel_log, path: "kernel/*.log", time_zone: UTC}               # <node>.log
      - {kind: sacct, path: "sacct/*.txt"}
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from features.errors import SettingsError, SourceError
from pipelines.sources.http.auth import safe_url
from pipelines.sources.site.input_base import FileInput
from pipelines.sources.site.inputs import KINDS, InputList
from remediation.given_text import given_text
from remediation.strict_yaml import is_quotable, parse_yaml, shortly

_UNFINISHED: Final = (".", "_temporary")  # hidden files, and what a crashed writer leaves behind


@dataclass(frozen=True)
class SiteInputs:
    """A list of inputs and where it lies.

    Attributes:
        spec: What the list says.
        path: The list's file; its folder is where relative paths start.
    """

    spec: InputList
    path: Path

    def files(self, spec: FileInput) -> tuple[Path, ...]:
        """The files of one input, sorted.

        Args:
            spec: One of the inputs.

        Raises:
            SourceError: There is none, and there should be.
        """
        pattern, kind = Path(spec.path), getattr(spec, "kind", "?")
        base = Path(pattern.anchor) if pattern.is_absolute() else self.path.parent
        relative = pattern.relative_to(base) if pattern.is_absolute() else pattern
        try:
            named = frozenset(relative.parts)
            listed = base.glob(str(relative))
            found = sorted(path for path in listed if _is_input(path, base, named=named))
        except (ValueError, IndexError, NotImplementedError) as error:
            raise SettingsError(
                f"{self.path}: {spec.path!r} (kind {kind}) is no file name or pattern: "
                f"{error}. Write one such as logs/*.log."
            ) from error
        except OSError as error:
            raise SourceError(
                f"{self.path}: files of {spec.path!r} (kind {kind}) cannot be listed: "
                f"{error.strerror or error}. Correct the pattern, or what it points to."
            ) from error
        if not found and not spec.may_be_absent:
            raise SourceError(
                f"{self.path}: no file matches {spec.path!r} (kind {kind}) in {base}. "
                f"Correct the pattern, or take the input out of the list."
            )
        return tuple(found)


def load_inputs(path: Path) -> SiteInputs:
    """Reads a list of inputs.

    Args:
        path: YAML file, in the form of this module's docstring.

    Returns:
        The inputs; that their files exist is checked when they are read.

    Raises:
        SettingsError: The file cannot be read, is no YAML, or says something else.
    """
    try:
        document: Any = parse_yaml(given_text(path))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        # Dates that are none, numbers too long and nests too deep are no YAMLError to PyYAML.
        raise SettingsError(
            f"list of inputs {path} cannot be read: {error}. Give a UTF-8 YAML file with site, "
            f"time_zone and inputs."
        ) from error
    if not isinstance(document, dict):
        raise SettingsError(
            f"list of inputs {path}: expected the keys site, time_zone and inputs, got "
            f"{type(document).__name__}. See docs/inputs.md for an example."
        )
    try:
        return SiteInputs(InputList.model_validate(document), path)
    except ValidationError as error:
        mistakes = "; ".join(
            _mistake(part["loc"], part["msg"], _shown(part)) for part in error.errors()
        )
        raise SettingsError(
            f"list of inputs {path}: {mistakes}. Correct it; docs/inputs.md has an example."
        ) from error


def _is_input(path: Path, base: Path, *, named: frozenset[str]) -> bool:
    """Whether it is a file, and not hidden or unfinished unless the pattern names it so (`..`)."""
    parts = (part for part in path.relative_to(base).parts if part not in named)
    return path.is_file() and not any(part.startswith(_UNFINISHED) for part in parts)


def _shown(found: ErrorDetails) -> str:
    """What is there; nothing where it may be a secret."""
    if not is_quotable(found):
        return ""
    value = found["input"]
    is_address = isinstance(value, str) and ("@" in value or "://" in value)
    return f", got {shortly(safe_url(value) if is_address else value)}"


def _mistake(place: Sequence[int | str], expected: str, shown: str) -> str:
    """One mistake: its key path, what was expected and what is there."""
    steps = [step for at, step in enumerate(place) if not (at == 2 and step in KINDS)]
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    reason = expected.removeprefix("Value error, ")
    return f"{path.lstrip('.')}: {reason}{shown}" if path else reason
