"""Slurm's hostlists: `rack[0-1]_blade[00-31],login1` written out, zero padding kept.

Whether such nodes exist is not known here.
"""

import math
import re
from itertools import product
from typing import Final, NoReturn

from features.errors import DataError

MOST_HOSTS: Final = 1_000_000
"""A hostlist that names more is a mistake or an attack: no cluster has so many nodes."""

_WORD: Final = re.compile(r"[^\S\n]*+((?:[^\[\],\s]++|\[[^\[\]]*+\])++)[^\S\n]*+(?:,|\Z)")
_PLAIN: Final = re.compile(r"[^\[\],\s]+")
_SIMPLE: Final = re.compile(r"([^\[\],\s]+)\[(\d{1,18})-(\d{1,18})\]", re.ASCII)
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
    return _written_out(_checked(text)[1])


def expand_short(text: str, *, most: int) -> tuple[int, list[str] | None]:
    """Counts the names of a hostlist and writes them out where they are few.

    Args:
        text: See `expand_hostlist`.
        most: The most names to write out.

    Returns:
        How many names there are, and the names, or None where they are more than `most`.

    Raises:
        DataError: See `expand_hostlist`.

    Example:
        >>> expand_short("n[1-3]", most=3), expand_short("n[1-4]", most=3)
        ((3, ['n1', 'n2', 'n3']), (4, None))
    """
    simple = _SIMPLE.fullmatch(text)
    if simple is not None and (low := int(simple[2])) <= (high := int(simple[3])) < low + most:
        name, width = simple[1], len(simple[2])
        return high - low + 1, [f"{name}{n:0{width}d}" for n in range(low, high + 1)]
    size, words = _checked(text)
    return size, _written_out(words) if size <= most else None


def count_hosts(text: str) -> int:
    """How many names a hostlist stands for, without writing them out.

    Args:
        text: See `expand_hostlist`.

    Returns:
        The number of names.

    Raises:
        DataError: See `expand_hostlist`.

    Example:
        >>> count_hosts("rack[0-1]_blade[08,10],login1")
        5
    """
    return _checked(text)[0]


Ranges = list[tuple[int, int, int]]


def _checked(text: str) -> tuple[int, list[list[str | Ranges]]]:
    """The number of names and their pieces, if there are not too many."""
    if _PLAIN.fullmatch(text):
        return 1, [[text]]
    words = _parsed(text)
    return _check_size(words, text), words


def _written_out(words: list[list[str | Ranges]]) -> list[str]:
    hosts: list[str] = []
    for pieces in words:
        parts = [
            [piece]
            if isinstance(piece, str)
            else [f"{n:0{width}d}" for low, high, width in piece for n in range(low, high + 1)]
            for piece in pieces
        ]
        hosts.extend(map("".join, product(*parts)))
    return hosts


def _parsed(text: str) -> list[list[str | Ranges]]:
    """For each name of the list its pieces: plain text, or first, last and width of each range."""
    words, at = [], 0
    while True:
        found = _WORD.match(text, at)
        if found is None:
            _explain(text, at)
        words.append([_piece(piece, text) for piece in _PIECE.finditer(found[1])])
        at = found.end()
        if at == len(text):
            if text.endswith(","):
                _refuse(text, "a name is empty")
            return words


def _piece(found: re.Match[str], text: str) -> str | Ranges:
    if found["ranges"] is None:
        return found["text"]
    spans = []
    for piece in found["ranges"].split(","):
        span = _RANGE.fullmatch(piece.strip())
        if span is None:
            _refuse(text, f"{piece!r} is not a range")
        low, high = span["low"], span["high"] or span["low"]
        if int(high) < int(low):
            _refuse(text, f"range {piece} runs backwards")
        spans.append((int(low), int(high), len(low)))
    return spans


def _check_size(words: list[list[str | Ranges]], text: str) -> int:
    """How many names there are, if not too many."""
    n_hosts = 0
    for pieces in words:
        n_hosts += math.prod(
            1 if isinstance(piece, str) else sum(high - low + 1 for low, high, _ in piece)
            for piece in pieces
        )
        if n_hosts > MOST_HOSTS:
            _refuse(text, f"it names more than {MOST_HOSTS} nodes")
    return n_hosts


def _explain(text: str, at: int) -> NoReturn:
    """Says why no name begins at `at`."""
    rest = text[at:]
    if not rest.strip() or rest.lstrip().startswith(","):
        _refuse(text, "a name is empty")
    if rest.count("[") != rest.count("]") or re.search(r"\[[^\]]*\[", rest):
        _refuse(text, "brackets do not match")
    _refuse(text, f"{rest[:20]!r} does not begin with a node name")


def _refuse(text: str, reason: str) -> NoReturn:
    shown = text if len(text) <= 80 else f"{text[:79]}…"
    raise DataError(
        f"hostlist {shown!r}: {reason}. Expected names such as gpu[001-016],login1; correct it "
        f"where it comes from."
    )
