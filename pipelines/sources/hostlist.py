"""Slurm's hostlists: `rack[0-1]_blade[00-31],login1` written out, zero padding kept.

Whether such nodes exist is not known here.
"""

import math
import re
from collections.abc import Iterator
from itertools import product
from typing import Final, NoReturn

from features.errors import DataError

MOST_HOSTS: Final = 1_000_000
"""A hostlist that names more is a mistake or an attack: no cluster has so many nodes."""

_PIECE: Final = re.compile(r"\[(?P<ranges>[^\[\]]*)\]|(?P<text>[^\[\],\s]+)")
_RANGE: Final = re.compile(r"(?P<low>\d{1,18})(?:-(?P<high>\d{1,18}))?", re.ASCII)


def expand_hostlist(text: str) -> list[str]:
    """Writes a hostlist out.

    Args:
        text: Names and bracketed ranges, separated by commas; brackets may stand several
            times in a name (the last varies fastest).

    Returns:
        The names in order, repeats kept.

    Raises:
        DataError: Brackets or ranges are malformed, or the list is absurdly long.

    Example:
        >>> expand_hostlist("foo0[10-12],foo-m11-16")
        ['foo010', 'foo011', 'foo012', 'foo-m11-16']
        >>> expand_hostlist("rack[0-1]_blade[08,10]")
        ['rack0_blade08', 'rack0_blade10', 'rack1_blade08', 'rack1_blade10']
    """
    hosts: list[str] = []
    for word in _words(text):
        parts = [_part(found, text) for found in _pieces(word, text)]
        _check_size(len(hosts) + math.prod(map(len, parts)), text)
        hosts.extend("".join(names) for names in product(*parts))
    return hosts


def _words(text: str) -> Iterator[str]:
    """Cuts at the commas outside brackets."""
    depth, start = 0, 0
    for at, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if depth not in (0, 1):
            _refuse(text, "brackets do not match")
        if character == "," and depth == 0:
            yield text[start:at].strip()
            start = at + 1
    if depth:
        _refuse(text, "a bracket is not closed")
    yield text[start:].strip()


def _pieces(word: str, text: str) -> Iterator[re.Match[str]]:
    at = 0
    while at < len(word):
        found = _PIECE.match(word, at)
        if found is None:
            _refuse(text, f"{word[at]!r} is not part of a node name")
        yield found
        at = found.end()
    if not word:
        _refuse(text, "a name is empty")


def _part(found: re.Match[str], text: str) -> list[str]:
    """The alternatives of one piece of a name."""
    if found["ranges"] is None:
        return [found["text"]]
    alternatives: list[str] = []
    for piece in found["ranges"].split(","):
        span = _RANGE.fullmatch(piece.strip())
        if span is None:
            _refuse(text, f"{piece!r} is not a range")
        low, high = span["low"], span["high"] or span["low"]
        if int(high) < int(low):
            _refuse(text, f"range {piece} runs backwards")
        _check_size(len(alternatives) + int(high) - int(low), text)
        width = len(low)
        alternatives.extend(f"{number:0{width}d}" for number in range(int(low), int(high) + 1))
    return alternatives


def _check_size(n_hosts: int, text: str) -> None:
    if n_hosts > MOST_HOSTS:
        _refuse(text, f"it names more than {MOST_HOSTS} nodes")


def _refuse(text: str, reason: str) -> NoReturn:
    shown = text if len(text) <= 80 else f"{text[:79]}…"
    raise DataError(
        f"hostlist {shown!r}: {reason}. Expected names such as gpu[001-016],login1; correct it "
        f"where it comes from."
    )
