"""Examples of refused records that hold the name or a job of a person: the example is cut out.

How often something was refused, where and by which rule, stays.
"""

import re
from collections.abc import Collection, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import polars as pl

from features.monitoring_tables import QUARANTINE
from pipelines.landing.forgotten import HIDDEN
from pipelines.landing.schema import landing_errors, open_journal
from pipelines.storage.object_paths import files_between
from pipelines.storage.store import TableStore
from pipelines.storage.table_files import read_file, write_table

_PLACES: Final = (("refusals", "example"), ("failures", "error"))


def hide_in_journal(root: Path, words: Collection[str], *, is_done: bool = True) -> int:
    """Cuts examples out of the landing's journal.

    Args:
        root: Folder of the landing.
        words: Names and jobs.
        is_done: False: they are only counted.

    Returns:
        How many hold one of the words.
    """
    path = root / "journal.sqlite"
    if not path.exists():
        return 0
    found = 0
    with landing_errors(path), closing(open_journal(path)) as sql:
        sql.execute("BEGIN IMMEDIATE")
        for table, column in _PLACES:
            rows = sql.execute(f"SELECT rowid, {column} FROM {table}").fetchall()  # noqa: S608 - our own words
            hits = holding([text for _, text in rows], words)
            theirs = [(HIDDEN, row) for (row, _), hit in zip(rows, hits, strict=True) if hit]
            found += len(theirs)
            if is_done:
                sql.executemany(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", theirs)  # noqa: S608 - our own words
        sql.execute("COMMIT")
        if is_done:
            sql.execute("VACUUM")  # what was there, or was removed long ago, is left in free pages
    return found


def hide_in_tables(store: TableStore, words: Collection[str], *, is_done: bool = True) -> int:
    """Cuts examples out of `monitoring/quarantine` and of its parts; as `hide_in_journal`."""
    found = 0
    if store.has(QUARANTINE):
        rows = store.read(QUARANTINE)
        n_theirs, left = _hidden(rows, words)
        found += n_theirs
        if is_done and n_theirs:
            store.write(QUARANTINE, left)
    for path in files_between(store.parts_folder(QUARANTINE), ".parquet"):
        n_theirs, left = _hidden(read_file(path), words)
        found += n_theirs
        if is_done and n_theirs:
            write_table(path, left)
    return found


def holding(texts: Sequence[str], words: Collection[str]) -> list[bool]:
    """Which texts hold one of some words, as a word of its own.

    >>> holding(["user=ann|job 123_4", "hannah", "job 123_4"], {"ann", "123"})
    [True, False, True]
    """
    # Thousands of jobs in thousands of texts: which words can be in a text is found at once.
    possible = pl.Series(texts, dtype=pl.String).str.extract_many(sorted(words), overlapping=True)
    return [
        any(_is_word(word, text) for word in set(found))
        for text, found in zip(texts, possible, strict=True)
    ]


def _is_word(word: str, text: str) -> bool:
    return bool(re.search(rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])", text))


def _hidden(rows: pl.DataFrame, words: Collection[str]) -> tuple[int, pl.DataFrame]:
    is_theirs = pl.Series(holding(rows["example"].to_list(), words), dtype=pl.Boolean)
    example = pl.when(is_theirs).then(pl.lit(HIDDEN)).otherwise("example").alias("example")
    return int(is_theirs.sum()), rows.with_columns(example)
