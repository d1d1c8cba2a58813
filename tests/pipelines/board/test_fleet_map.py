"""Rules of the heat map: every node is drawn once, in its own colour, and the page stays small."""

import re
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.board.fleet_map import LEVELS, UNKNOWN, legend, level_of, rack_tiles

SCHEMA = {
    "node": pl.String,
    "rack": pl.String,
    "score": pl.Float64,
    "is_alert": pl.Boolean,
    "is_held": pl.Boolean,
    "state": pl.String,
}
PATH = re.compile(r'<path class="(\w+)"[^>]*? d="([^"]*)"/>')
BLOCK = re.compile(r"M(\d+) (\d+)h(\d+)v(\d+)h-\d+z")


def fleet(scores: list[float | None], *, per_rack: int = 8, **marks: Any) -> pl.DataFrame:
    """Nodes n0, n1, ... in racks of a size."""
    rows = [
        {
            "node": f"n{i}",
            "rack": f"r{i // per_rack}",
            "score": score,
            "is_alert": score is not None and score > 0.5,
            "is_held": False,
            "state": "up",
        }
        | marks
        for i, score in enumerate(scores)
    ]
    return pl.DataFrame(rows, schema=SCHEMA)


def drawn(svg: str) -> dict[tuple[int, int], str]:
    """The colour of each cell: what is painted last lies on top."""
    found: dict[tuple[int, int], str] = {}
    for sign, path in PATH.findall(svg):
        for x, y, w, h in (map(int, block) for block in BLOCK.findall(path)):
            for at in ((x + i, y + j) for i in range(w) for j in range(h)):
                found[at] = sign
    return found


@given(
    st.lists(st.sampled_from([None, 0.0, 0.02, 0.07, 0.2, 0.3, 0.9]), min_size=1, max_size=60),
    st.integers(1, 40),
)
def test_every_node_is_one_cell_of_its_own_colour(
    scores: list[float | None], per_rack: int
) -> None:
    tiles = rack_tiles(fleet(scores, per_rack=per_rack), horizon_h=24)
    for number, tile in enumerate(tiles):
        expected = scores[number * per_rack : (number + 1) * per_rack]
        width = min(len(expected), 8)
        cells = {(i % width, i // width): level_of(one) for i, one in enumerate(expected)}
        assert drawn(tile.svg) == cells


@given(st.floats(0, 1))
def test_a_known_score_is_never_shown_as_unknown(score: float) -> None:
    bounds = {sign: bound for bound, sign, _ in LEVELS}
    assert bounds[level_of(score)] <= score


def test_unknown_is_hatched_and_named_in_the_legend() -> None:
    nodes = fleet([None, 0.001])
    assert '<path class="u" fill="url(#hatch)"' in rack_tiles(nodes, horizon_h=24)[0].svg
    rows = {one.sign: one for one in legend(nodes)}
    assert (rows[UNKNOWN].count, rows["q"].count) == (1, 1)
    assert "not a good one" in rows[UNKNOWN].words


@pytest.mark.parametrize(
    ("marks", "sign"),
    [({"is_held": True}, "hd"), ({"state": "drain"}, "dr"), ({"state": "down"}, "dn")],
)
def test_what_is_not_in_service_has_a_shape_of_its_own(marks: dict[str, Any], sign: str) -> None:
    assert f'<path class="{sign}"' in rack_tiles(fleet([0.2], **marks), horizon_h=24)[0].svg


def test_racks_are_in_the_order_people_count_them() -> None:
    nodes = fleet([0.1] * 12, per_rack=1)
    assert [one.rack for one in rack_tiles(nodes, horizon_h=24)] == [f"r{i}" for i in range(12)]


def test_nodes_without_a_rack_are_shown_last() -> None:
    nodes = fleet([0.1, 0.2], per_rack=1).with_columns(
        rack=pl.when(pl.col("node") == "n0").then(None).otherwise(pl.lit("rack"))
    )
    assert [one.rack for one in rack_tiles(nodes, horizon_h=24)] == ["rack", ""]


@pytest.mark.parametrize("rack", ["r1", None])
def test_a_fleet_in_one_rack_is_no_endless_strip(rack: str | None) -> None:
    many = fleet([0.1] * 3000).with_columns(rack=pl.lit(rack, dtype=pl.String))
    (tile,) = rack_tiles(many, horizon_h=24)
    found = re.search(r'width="(\d+)" height="(\d+)"', tile.svg)
    assert found is not None
    assert 2 < int(found[1]) / int(found[2]) < 4


def test_a_hostile_name_is_escaped_in_the_tooltip() -> None:
    nodes = fleet([0.9]).with_columns(node=pl.lit("</title><script>"))
    assert "<script>" not in rack_tiles(nodes, horizon_h=24)[0].svg


@pytest.mark.parametrize("worst", [0.02, 0.9])
def test_the_map_of_25000_nodes_is_small(worst: float) -> None:
    quiet: list[float | None] = [0.001] * 25_000
    quiet[::10] = [worst] * 2_500
    quiet[5::100] = [None] * 250
    tiles = rack_tiles(fleet(quiet, per_rack=32), horizon_h=24)
    body = "".join(f'<li><a href="?rack={t.rack}" aria-label="{t.label}">{t.svg}' for t in tiles)
    assert len(body) < 400_000
    assert body.count("<") - body.count("</") < 9_000
