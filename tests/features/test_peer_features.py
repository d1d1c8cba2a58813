"""Rules of the comparison with neighbours, against a self-join in plain Polars."""

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.history_rows import place_column
from features.peer_features import peer_features, peer_floor, peer_group, with_peer_scores

HOUR = timedelta(hours=1)
T0 = datetime(2026, 1, 10, tzinfo=UTC)
GAUGES = ("gpu_temp_c", "memory_clock_mhz")


def joined_scores(table: pl.DataFrame, by: str) -> pl.DataFrame:
    """Each GPU beside every other one of its group: the slow way."""

    def score(gauge: str) -> pl.Expr:
        other = pl.col(f"{gauge}:peer:other")
        spread = (other - other.median()).abs().median() * 1.4826
        distance = pl.col(f"{gauge}:peer").first() - other.median()
        return pl.when(other.count() >= 2).then(distance / spread.clip(peer_floor(gauge)))

    names = {f.inputs[0].split(".")[1]: f.name for f in peer_features(GAUGES, window=HOUR, by=by)}
    group = peer_group(by)
    mine = table.select("entity_id", group, "as_of", *(f"{gauge}:peer" for gauge in GAUGES))
    pairs = mine.join(mine, on=[group, "as_of"], suffix=":other").filter(
        pl.col("entity_id") != pl.col("entity_id:other")
    )
    scores = pairs.group_by("entity_id", "as_of").agg(
        score(gauge).alias(names[gauge]) for gauge in GAUGES
    )
    return table.join(scores, on=["entity_id", "as_of"], how="left", maintain_order="left")


def random_table(seed: int, sizes: list[int], *, distinct: int) -> pl.DataFrame:
    """Groups of given sizes in a random order; few distinct values give many ties."""
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))

    def gauge() -> pl.Series:
        exact = rng.normal(50, 4, group.size)
        values = np.round(exact, 1) if distinct else exact
        values = np.where(rng.random(group.size) < 0.15, np.nan, values)
        values = np.where(rng.random(group.size) < 0.02 * distinct, 50.0, values)
        return pl.Series(values, nan_to_null=True)

    return pl.DataFrame(
        {
            "entity_id": [f"g{i}" for i in range(group.size)],
            "node": [f"n{g}" if g else None for g in group],
            "as_of": [T0 + HOUR * int(g % 2) for g in group],
            **{f"{name}:peer": gauge() for name in GAUGES},
        },
        schema_overrides={"entity_id": pl.String, "node": pl.String},
    )


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10_000),
    st.lists(st.integers(1, 40), min_size=1, max_size=5),
    st.sampled_from([0, 1, 30]),
)
def test_scores_are_those_of_the_self_join_to_the_last_bit(
    seed: int, sizes: list[int], distinct: int
) -> None:
    table = random_table(seed, [1, *sizes], distinct=distinct)
    assert with_peer_scores(table, GAUGES, window=HOUR).equals(joined_scores(table, "node"))


@pytest.mark.parametrize("size", [63, 64, 257, 400])
def test_scores_of_a_rack_are_those_of_the_self_join_to_the_last_bit(size: int) -> None:
    table = random_table(size, [3, size, size], distinct=1).rename({"node": place_column("rack")})
    got = with_peer_scores(table, GAUGES, window=HOUR, by="rack")
    assert got.equals(joined_scores(table, "rack"))
    assert got["gpu_temp_c_rack_peer_z_1h"].drop_nulls().len() > size


def test_two_others_are_the_fewest_and_an_unknown_group_has_none() -> None:
    table = pl.DataFrame(
        {
            "entity_id": list("abcdefgh"),
            "node": ["n", "n", "n", "m", "m", None, None, None],
            "as_of": [T0] * 8,
            "gpu_temp_c:peer": [40.0, 42.0, 50.0, 40.0, 50.0, 40.0, 42.0, 50.0],
        }
    )
    z = with_peer_scores(table, ["gpu_temp_c"], window=HOUR)["gpu_temp_c_peer_z_1h"]
    assert z.is_null().to_list() == [False] * 3 + [True] * 5
    # The others of the third: 40 and 42; their middle 41, each 1 away.
    assert z[2] == pytest.approx((50 - 41) / 1.4826)
