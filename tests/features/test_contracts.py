"""Rules of table contracts: structure is an error, bad rows are counted rejects."""

import math

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.contracts import Column, TableContract
from features.errors import StructureError
from features.tables import TABLES

SIMPLE = TableContract(
    "core/simple",
    "A table for these tests",
    (
        Column("gpu", pl.String(), "identity"),
        Column("temp_c", pl.Float64(), "temperature", nullable=True, minimum=0, maximum=100),
        Column("kind", pl.String(), "kind", values=("a", "b")),
    ),
    key=("gpu",),
)


def frame(*rows: tuple[str | None, float | None, str | None]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=SIMPLE.schema, orient="row")


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        ((None, 1.0, "a"), "gpu is null"),
        (("x", -0.1, "a"), "temp_c < 0"),
        (("x", 100.1, "a"), "temp_c > 100"),
        (("x", float("nan"), "a"), "temp_c is not finite"),
        (("x", 1.0, "c"), "kind not in a|b"),
        (("g", 2.0, "b"), "duplicate key (gpu)"),
    ],
)
def test_a_bad_row_is_rejected_under_its_rule(
    row: tuple[str | None, float | None, str | None], rule: str
) -> None:
    enforced = SIMPLE.enforce(frame(("g", None, "a"), row))
    assert enforced.frame.equals(frame(("g", None, "a")))
    assert enforced.rejects.select("rule", "count").rows() == [(rule, 1)]


rows = st.tuples(
    st.none() | st.sampled_from("gh"),
    st.none() | st.floats(-50, 200) | st.just(float("nan")),
    st.none() | st.sampled_from("abc"),
)


@given(st.lists(rows, max_size=8))
def test_every_row_is_kept_or_counted_once(given_rows: list[tuple[str, float, str]]) -> None:
    enforced = SIMPLE.enforce(frame(*given_rows))
    assert enforced.frame.height + enforced.rejects["count"].sum() == len(given_rows)
    assert SIMPLE.enforce(enforced.frame).rejects.is_empty()


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (frame().drop("kind"), "'kind' \\(String\\) is missing"),
        (frame().with_columns(extra=pl.lit(1)), "'extra' is not part"),
        (frame().with_columns(temp_c=pl.lit("x")), "'temp_c' must be Float64, got String"),
    ],
)
def test_wrong_structure_is_one_error_that_names_it(bad: pl.DataFrame, message: str) -> None:
    with pytest.raises(StructureError, match=message) as caught:
        SIMPLE.conform(bad)
    assert "core/simple" in str(caught.value)


def test_columns_are_put_in_order() -> None:
    shuffled = frame(("g", 1.0, "a")).select("kind", "gpu", "temp_c")
    assert SIMPLE.conform(shuffled).columns == ["gpu", "temp_c", "kind"]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.asset_key)
def test_every_table_is_well_formed(table: TableContract) -> None:
    names = [column.name for column in table.columns]
    assert len(set(names)) == len(names)
    assert set(table.key) <= set(names)
    assert table.partition == "none" or table.time_column is not None
    assert table.time_column is None or table.time_column in names
    assert table.enforce(table.empty()).frame.is_empty()


ODD = (None, -1.0, 0.5, 2.0, math.nan, math.inf, -math.inf)


@pytest.mark.parametrize("must_be_finite", [True, False])
@given(st.lists(st.sampled_from(ODD), max_size=4))
def test_no_value_out_of_range_passes_among_odd_ones(
    must_be_finite: bool, values: list[float | None]
) -> None:
    column = Column("x", pl.Float64(), "m", minimum=0, maximum=1, must_be_finite=must_be_finite)
    given_rows = pl.DataFrame({"x": values}, schema={"x": pl.Float64})
    enforced = TableContract("room/odd", "m", (column,), key=()).enforce(given_rows)
    assert enforced.frame["x"].to_list() == [v for v in values if v == 0.5]
    assert enforced.rejects["count"].sum() == sum(v != 0.5 for v in values)
