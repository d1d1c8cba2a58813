"""Whether the secrets that settings name can be had, and whether others could read them too.

A secret's content is looked at for being there, never kept and never shown.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from pipelines.config.documents import Checked, Level, Problem
from pipelines.config.yaml_lines import in_words
from pipelines.sections.known_keys import Place

_FILES: Final = ("file", "key_file")
_VARIABLES: Final = ("variable", "env", "key_variable", "postgres_variable")
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
# A key that signs requests to the hook: it is refused where others could read it.
_STRICT: Final = "inbox"


@dataclass(frozen=True)
class Reference:
    """Where a secret is said to be.

    Attributes:
        place: Place of the reference in its document.
        file: The file; None: a variable has it.
        variable: The variable; None: a file has it.
    """

    place: Place
    file: Path | None = None
    variable: str | None = None


def references(value: Any, place: Place = ()) -> Iterator[Reference]:
    """Every reference to a secret within a document's value.

    Args:
        value: A section, or what it holds.
        place: Its place.
    """
    if isinstance(value, BaseModel):
        for name in type(value).model_fields:
            inner = getattr(value, name)
            at = (*place, name)
            if name in _VARIABLES and isinstance(inner, str):
                yield Reference(at, variable=inner)
            elif name in _FILES and isinstance(inner, Path):
                yield Reference(at, file=inner)
            else:
                yield from references(inner, at)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from references(inner, (*place, key))
    elif isinstance(value, tuple):
        for number, inner in enumerate(value):
            yield from references(inner, (*place, number))


def check_secrets(checked: Checked[Any], environment: Mapping[str, str]) -> Iterator[Problem]:
    """Problems of the secrets that a document names.

    Args:
        checked: The document; relative files are relative to it.
        environment: Variables of the process.
    """
    for one in references(checked.value):
        if one.variable is not None:
            if not environment.get(one.variable, "").strip():
                yield _problem(
                    checked,
                    one,
                    level="warning",
                    expected=f"variable {one.variable} is not set here",
                    do="Set it for the service that uses it; nothing is wrong if only that has it.",
                )
        elif one.file is not None:
            yield from _of_file(checked, one, checked.document.path.parent / one.file)


def _of_file(checked: Checked[Any], one: Reference, path: Path) -> Iterator[Problem]:
    try:
        mode = path.stat().st_mode
        # What has no end, or is read once, is left to those whom it is for.
        is_stream = stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)
        is_empty = not is_stream and not path.read_bytes().strip()
    except OSError as error:
        yield _problem(
            checked,
            one,
            expected=f"the secret's file {path} cannot be read: {error.strerror}",
            do=f"Put the secret there, readable by {_user()} alone, or correct the path.",
        )
        return
    if is_empty:
        yield _problem(
            checked, one, expected=f"the secret's file {path} is empty", do="Put the secret there."
        )
    if mode & _OTHERS:
        yield _problem(
            checked,
            one,
            level="error" if _STRICT in one.place else "warning",
            expected=f"others than its owner may use the secret's file {path}",
            got=f"mode {stat.S_IMODE(mode):04o}",
            do=f"chmod 0600 {path}",
        )


def _problem(
    checked: Checked[Any],
    one: Reference,
    *,
    expected: str,
    do: str,
    got: str = "",
    level: Level = "error",
) -> Problem:
    return Problem(
        level=level,
        file=str(checked.document.path),
        line=checked.document.line_of(one.place),
        key=in_words(one.place),
        expected=expected,
        got=got,
        do=do,
    )


def _user() -> str:
    return os.environ.get("USER") or f"user {os.geteuid()}"
