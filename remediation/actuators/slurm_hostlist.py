"""Writes Slurm's node lists out: `rack[0-1]n[08-10],login1`.

Whether such nodes exist is not known here.
"""

import re
from functools import lru_cache
from itertools import product
from typing import Final

from features.errors import DataError

MOST_NODES: Final = 200_000
"""A list that names more is no cluster's."""

_WORD = re.compile(r"(?:[^\[\],\s]|\[[0-9,-]+\])+")
_PIECE = re.compile(r"\[([^\]]+)\]|([^\[\]]+)")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


@lru_cache(maxsize=65_536)
def expand_nodes(text: str) -> tuple[str, ...]:
    """The names of a node list, in order.

    Raises:
        DataError: It is malformed, or names absurdly many.

    >>> expand_nodes("rack[0-1]n[08,10],login1")
    ('rack0n08', 'rack0n10', 'rack1n08', 'rack1n10', 'login1')
    """
    names: list[str] = []
    at = 0
    while True:
        found = _WORD.match(text, at)
        if found is None:
            raise _refused(text)
        pieces = [_piece(ranges, plain, text) for ranges, plain in _PIECE.findall(found[0])]
        names += map("".join, product(*pieces))
        at = found.end()
        if at == len(text):
            return tuple(names)
        if text[at] != ",":
            raise _refused(text)
        at += 1


def _piece(ranges: str, plain: str, text: str) -> list[str]:
    if plain:
        return [plain]
    numbers: list[str] = []
    for part in ranges.split(","):
        found = _RANGE.fullmatch(part)
        if found is None:
            raise _refused(text)
        low, high = found[1], found[2] or found[1]
        if not int(low) <= int(high) < int(low) + MOST_NODES - len(numbers):
            raise _refused(text)
        numbers += [f"{n:0{len(low)}d}" for n in range(int(low), int(high) + 1)]
    return numbers


def _refused(text: str) -> DataError:
    return DataError(
        f"node list {text[:80]!r} cannot be read; expected such as gpu[001-016],login1"
    )
