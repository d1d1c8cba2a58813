"""Reading the fault catalogue: the shipped CSV file, or a site's own.

What its columns mean, and every check of them, is in `features.catalogue`.
"""

import csv
import hashlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Final

from features.catalogue import CATALOGUE_COLUMNS, FaultCatalogue
from features.errors import SettingsError
from remediation.given_text import given_bytes

SHIPPED_CATALOGUE: Final = Path(__file__).parents[1] / "catalogue" / "fault_catalogue.csv"


def load_catalogue(path: Path | None = None, *, overrides: Path | None = None) -> FaultCatalogue:
    """Reads a fault catalogue.

    Args:
        path: CSV file (UTF-8, comma, header); None: the shipped one.
        overrides: CSV file with a site's own rows, each in the place of its like or before all
            others; None: no such rows.

    Returns:
        The catalogue. Its version is each file's name with the start of its SHA-256, so that
        an incident can be traced to the rules that typed it.

    Raises:
        SettingsError: A file cannot be read, is no CSV, or breaks a rule of `features.catalogue`.
    """
    path = path or SHIPPED_CATALOGUE
    rows, version = _read(path)
    catalogue = _named(path, lambda: FaultCatalogue.from_rows(rows, version=version))
    if overrides is None:
        return catalogue
    own, own_version = _read(overrides)
    return _named(overrides, lambda: catalogue.with_overrides(own, version=own_version))


def _named(path: Path, build: Callable[[], FaultCatalogue]) -> FaultCatalogue:
    try:
        return build()
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from error


def _read(path: Path) -> tuple[list[dict[str, str]], str]:
    """The rows of a file and its version."""
    try:
        data = given_bytes(path)
        text = data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"fault catalogue {path} cannot be read: {error}. Give a UTF-8 CSV file with the "
            f"columns {', '.join(CATALOGUE_COLUMNS)}, or none to use the shipped one."
        ) from error
    try:
        rows = _rows(text, path)
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from error
    return rows, f"{path.stem}@{hashlib.sha256(data).hexdigest()[:8]}"


def _rows(text: str, path: Path) -> list[dict[str, str]]:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        rows = list(reader)
    except csv.Error as error:
        raise SettingsError(
            f"line {reader.line_num} is no CSV: {error}. Check its quotes."
        ) from error
    if not rows:
        raise SettingsError(
            f"{path.name} has no rows below its header. A catalogue without rules would see no "
            f"fault anywhere; give it rows or leave the setting out."
        )
    for number, row in enumerate(rows, start=1):
        if None in row or None in row.values():
            n_fields = sum(value is not None for value in row.values())
            found = f"{n_fields} fields" if None not in row else "too many fields"
            raise SettingsError(
                f"row {number} has {found}, expected {len(reader.fieldnames or ())}: "
                f"{next(iter(row.values()))!r}... Quote a field that holds a comma."
            )
    return rows
