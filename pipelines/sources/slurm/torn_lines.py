"""Lines of delimited text put together again where a field holds line breaks.

Which fields can is known to each format.
"""

from collections.abc import Iterator, Sequence
from typing import Final

_MOST_LINES: Final = 100


def join_torn(lines: Sequence[str], *, delimiter: str, width: int) -> Iterator[str]:
    r"""Joins a short line with those after it until it has all fields.

    A whole line is never joined to a short one before it.

    Args:
        lines: The lines.
        delimiter: What stands between fields.
        width: Fields of a record.

    Yields:
        Records; joined with the line breaks between them, they are the lines.

    Example:
        >>> list(join_torn(["a|b", "c", "d|e", "f"], delimiter="|", width=2))
        ['a|b', 'c', 'd|e', 'f']
        >>> list(join_torn(["1|x", "y|2"], delimiter="|", width=3))
        ['1|x\ny|2']
    """
    torn: list[str] = []
    n_delimiters = 0
    for line in lines:
        here = line.count(delimiter)
        if torn and here >= width - 1:
            yield from torn
            torn, n_delimiters = [], 0
        torn.append(line)
        n_delimiters += here
        if n_delimiters >= width - 1:
            yield "\n".join(torn)
            torn, n_delimiters = [], 0
        elif len(torn) >= _MOST_LINES or (len(torn) == 1 and not line.strip()):
            yield torn.pop(0)
            n_delimiters = sum(other.count(delimiter) for other in torn)
    yield from torn
