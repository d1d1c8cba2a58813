"""The heat map of a fleet: one small SVG per rack, cells of equal colour drawn as one path.

A frame in, tiles out; 25,000 nodes stay below 400 kB and 6,000 elements. What a colour means is
said in words by `legend`.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import polars as pl
from markupsafe import Markup, escape

from pipelines.board.words import STATE_WORDS, natural, probability

LEVELS: Final[tuple[tuple[float, str, str], ...]] = (
    (0.50, "e", "50 % and over"),
    (0.25, "d", "25 to 50 %"),
    (0.10, "c", "10 to 25 %"),
    (0.05, "b", "5 to 10 %"),
    (0.01, "a", "1 to 5 %"),
    (0.0, "q", "below 1 %"),
)
"""Lower bound, CSS class and words of each level, the highest first."""

UNKNOWN: Final = "u"
MOST_NAMED: Final = 300
"""Nodes with a tooltip of their own, by falling score; every node is in the ranked list."""

# A pattern is named in the page: a stylesheet's own address would stand before the name.
_FILLED: Final = {UNKNOWN: ' fill="url(#hatch)"'}
_NO_RACK: Final = ""
_COLUMNS: Final = 8
_LONG_COLUMNS: Final = 40
_WIDTH_PER_HEIGHT: Final = 3
"""Of a group that would be a tall strip: a whole fleet in one rack, or in none."""
_SIZES: Final = ((64, 28), (200, 20), (2_000, 13), (8_000, 8))
_SMALLEST: Final = 6


@dataclass(frozen=True)
class RackTile:
    """A rack on the map.

    Attributes:
        rack: Its name; empty: of these nodes nobody knows the rack.
        label: What a screen reader says of it.
        svg: The cells.
    """

    rack: str
    label: str
    svg: Markup


@dataclass(frozen=True)
class LegendRow:
    """One line of the legend.

    Attributes:
        sign: CSS class of its sign.
        words: What it means.
        count: Nodes that have it.
    """

    sign: str
    words: str
    count: int


def level_of(score: float | None) -> str:
    """The CSS class of a score.

    >>> [level_of(score) for score in (None, 0.0, 0.03, 0.5)]
    ['u', 'q', 'a', 'e']
    """
    if score is None:
        return UNKNOWN
    return next(sign for bound, sign, _ in LEVELS if score >= bound or bound == 0.0)


def rack_tiles(nodes: pl.DataFrame, *, horizon_h: int) -> tuple[RackTile, ...]:
    """The racks in the order people count them, those of unknown place last.

    Args:
        nodes: `node`, `rack`, `score`, `is_alert`, `is_held`, `state`; null is unknown.
        horizon_h: Horizon of the scores, hours.
    """
    size = next((px for most, px in _SIZES if nodes.height <= most), _SMALLEST)
    ranked = nodes.filter(pl.col("score").is_not_null()).sort("score", descending=True)
    named = frozenset(
        ranked.filter(pl.col("is_alert") | pl.col("is_held") | (pl.col("score") >= LEVELS[4][0]))
        .head(MOST_NAMED)["node"]
        .to_list()
    )
    rows = sorted(
        nodes.with_columns(pl.col("rack").fill_null(_NO_RACK)).iter_rows(named=True),
        key=lambda row: (row["rack"] == _NO_RACK, natural(row["rack"]), natural(row["node"])),
    )
    return tuple(
        _tile(rack, list(group), size=size, horizon_h=horizon_h, named=named)
        for rack, group in groupby(rows, key=lambda row: row["rack"])
    )


def legend(nodes: pl.DataFrame) -> tuple[LegendRow, ...]:
    """Every sign of the map in words, with how many nodes have it; arguments as `rack_tiles`."""
    signs = [level_of(score) for score in nodes["score"]]
    levels = [LegendRow(sign, words, signs.count(sign)) for _, sign, words in LEVELS]
    states = nodes["state"].to_list()
    return (
        *levels,
        LegendRow(UNKNOWN, "unknown: no score, not a good one", signs.count(UNKNOWN)),
        LegendRow("al", "above its alert threshold", int(nodes["is_alert"].sum())),
        LegendRow("hd", "held by Forewarn", int(nodes["is_held"].sum())),
        LegendRow("dr", STATE_WORDS["drain"], states.count("drain")),
        LegendRow("dn", STATE_WORDS["down"], states.count("down")),
    )


def _tile(
    rack: str,
    rows: Sequence[dict[str, Any]],
    *,
    size: int,
    horizon_h: int,
    named: frozenset[str],
) -> RackTile:
    width = _width(len(rows), _COLUMNS if rack != _NO_RACK else _LONG_COLUMNS)
    height = -(-len(rows) // width)
    cells = [level_of(row["score"]) for row in rows]
    # The most frequent colour lies below all of them, whole: most cells then need no words.
    common = max(sorted(set(cells)), key=cells.count)
    body = [_painted(common, _runs(range(len(rows)), width))]
    body += [
        _painted(sign, _runs((i for i, cell in enumerate(cells) if cell == sign), width))
        for sign in sorted({*cells} - {common})
    ]
    body.append(f'<rect width="{width}" height="{height}" fill="url(#gap)"/>')
    body += _marks(rows, width)
    body += [
        f'<rect class="t" x="{i % width}" y="{i // width}" width="1" height="1"><title>'
        f"{escape(_title(row, horizon_h))}</title></rect>"
        for i, row in enumerate(rows)
        if row["node"] in named
    ]
    svg = (
        f'<svg viewBox="0 0 {width} {height}" width="{width * size}" height="{height * size}" '
        f'aria-hidden="true">{"".join(body)}</svg>'
    )
    return RackTile(rack, _label(rack, rows, horizon_h), Markup(svg))  # noqa: S704 - escaped above


def _width(n_nodes: int, usual: int) -> int:
    """Cells side by side."""
    if n_nodes <= usual * usual:
        return min(n_nodes, usual)
    return max(usual, math.isqrt(n_nodes * _WIDTH_PER_HEIGHT))


def _painted(sign: str, path: str) -> str:
    return f'<path class="{sign}"{_FILLED.get(sign, "")} d="{path}"/>'


def _runs(places: Iterable[int], width: int) -> str:
    """Cells as rectangles, each as long as neighbours in a row go on."""
    found: list[list[int]] = []
    for place in places:
        if found and place == found[-1][0] + found[-1][1] and place % width:
            found[-1][1] += 1
        else:
            found.append([place, 1])
    # Whole rows below one another are one rectangle: most racks are of one colour.
    blocks: list[list[int]] = []
    for start, length in found:
        last = blocks[-1] if blocks else None
        if last and length == width == last[1] and start == last[0] + width * last[2]:
            last[2] += 1
        else:
            blocks.append([start, length, 1])
    return "".join(f"M{s % width} {s // width}h{n}v{h}h-{n}z" for s, n, h in blocks)


def _marks(rows: Sequence[dict[str, Any]], width: int) -> list[str]:
    """Shapes over the cells, so that nothing is said by colour alone."""
    shapes = {
        "ah": ("M{x}.5 {y}.5h.01", [row["is_alert"] for row in rows]),
        "al": ("M{x}.5 {y}.5h.01", [row["is_alert"] for row in rows]),
        "hd": ("M{x}.15 {y}.15h.7v.7h-.7z", [row["is_held"] for row in rows]),
        "dr": ("M{x}.15 {y}.85l.7-.7", [row["state"] == "drain" for row in rows]),
        "dn": ("M{x}.15 {y}.15l.7.7m0-.7l-.7.7", [row["state"] == "down" for row in rows]),
    }
    found = []
    for sign, (shape, marked) in shapes.items():
        path = "".join(
            shape.format(x=i % width, y=i // width) for i, is_one in enumerate(marked) if is_one
        )
        if path:
            found.append(f'<path class="{sign}" d="{path}"/>')
    return found


def _title(row: dict[str, Any], horizon_h: int) -> str:
    parts = [f"{row['node']}: {probability(row['score'], horizon_h)}"]
    parts += ["alert"] if row["is_alert"] else []
    parts += ["held by Forewarn"] if row["is_held"] else []
    parts += [STATE_WORDS[row["state"]]] if row["state"] in ("drain", "down") else []
    return ", ".join(parts)


def _label(rack: str, rows: Sequence[dict[str, Any]], horizon_h: int) -> str:
    known = [row["score"] for row in rows if row["score"] is not None]
    parts = [f"{len(rows)} nodes" if len(rows) != 1 else "1 node"]
    parts += [f"highest {probability(max(known), horizon_h)}"] if known else []
    for words, n in (
        ("unknown", len(rows) - len(known)),
        ("alerts", sum(bool(row["is_alert"]) for row in rows)),
        ("held", sum(bool(row["is_held"]) for row in rows)),
        ("out of service", sum(row["state"] in ("drain", "down") for row in rows)),
    ):
        parts += [f"{n} {words}"] if n else []
    return f"{f'Rack {rack}' if rack else 'Rack unknown'}: {', '.join(parts)}"
