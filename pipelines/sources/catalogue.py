"""Reading the fault catalogue: the shipped CSV file, or a site's own.

What its columns mean, and every check of them, is in `features.catalogue`.
"""

import csv
import hashlib
import io
from pathlib import Path
from typing import Final

from features.catalogue import CATALOGUE_COLUMNS, FaultCatalogue
from features.errors import SettingsError

SHIPPED_CATALOGUE: Final = Path(__file__).parents[1] / "catalogue" / "fault_catalogue.csv"


def load_catalogue(path: Path | None = None) -> FaultCatalogue:
    """Reads a fault catalogue.

    Args:
        path: CSV file (UTF-8, comma, header); None: the shipped one.

    Returns:
        The catalogue. Its version is the file's name with the start of its SHA-256, so that
        an incident can be traced to the rules that typed it.

    Raises:
        SettingsError: The file cannot be read, is no CSV, or breaks a rule of
            `features.catalogue`.
    """
    path = path or SHIPPED_CATALOGUE
    try:
        data = path.read_bytes()
        text = data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"fault catalogue {path} cannot be read: {error}. Give a UTF-8 CSV file with the "
            f"columns {', '.join(CATALOGUE_COLUMNS)}, or none to use the shipped one."
        ) from error
    version = f"{path.stem}@{hashlib.sha256(data).hexdigest()[:8]}"
    try:
        return FaultCatalogue.from_rows(_rows(text, path), version=version)
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from error


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
