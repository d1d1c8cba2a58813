"""Tables of Markdown for the reference pages.

What stands in them is made in the other modules of this package.
"""

from collections.abc import Iterable, Sequence


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    r"""A table; a cell's bar and line breaks are made harmless.

    Args:
        head: Column heads.
        rows: As many cells each.

    >>> print(markdown_table(["key", "meaning"], [["`a`", "one | two"]]))
    | key | meaning |
    |---|---|
    | `a` | one \| two |
    """
    lines = [_row(head), "|" + "---|" * len(head)]
    return "\n".join([*lines, *(_row(row) for row in rows)])


def _row(cells: Sequence[str]) -> str:
    safe = (" ".join(cell.split()).replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(safe)} |"
