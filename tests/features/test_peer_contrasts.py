"""Rules of differences from a node's other GPUs, against plain Python."""

from datetime import UTC, datetime, timedelta
from statistics import median

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.peer_contrasts import (
    HEAT_C_PER_W,
    node_contrasts,
    peer_differences,
    with_contrasts,
)

HOURS = tuple(timedelta(hours=h) for h in (1, 6, 24))
KNOWN = frozenset({"gpu_temp_c", "power_w"})
T0 = datetime(2026, 1, 10, tzinfo=UTC)

groups = st.lists(
    st.lists(st.sampled_from([None, 0.0, 1.0, 1.5, 7.0, -3.0]), max_size=9), max_size=5
)


@settings(max_examples=100, deadline=None)
@given(groups)
def test_a_difference_is_from_the_median_of_the_known_others(
    given_groups: list[list[float | None]],
) -> None:
    values = np.array([np.nan if v is None else v for g in given_groups for v in g], dtype=float)
    ends = np.cumsum([len(g) for g in given_groups], dtype=np.int64)
    expected = []
    for group in given_groups:
        for at, value in enumerate(group):
            others = [v for i, v in enumerate(group) if i != at and v is not None]
            is_known = value is not None and len(others) >= 2
            expected.append(value - median(others) if is_known and value is not None else np.nan)
    np.testing.assert_array_equal(peer_differences(values, ends), expected)


def test_heat_is_told_apart_from_power() -> None:
    # All but the last do 100 W more work, and are as much warmer as that explains.
    warm, cool = 50.0 + 100.0 * HEAT_C_PER_W, 50.0
    table = pl.DataFrame(
        {"node": ["n"] * 4, "as_of": [T0] * 4}
        | {f"gpu_temp_c_mean_{w}": [warm, warm, warm + 3.0, cool] for w in ("1h", "6h", "24h")}
        | {f"power_w_mean_{w}": [400.0, 400.0, 400.0, 300.0] for w in ("1h", "6h", "24h")}
        | {f"power_w_std_{w}": [20.0, 20.0, 20.0, 90.0] for w in ("1h", "6h")}
    )
    contrasts = node_contrasts(HOURS, KNOWN)
    got = with_contrasts(table, contrasts)
    assert got["excess_heat_c_peer_1h"].to_list() == pytest.approx([0.0, 0.0, 3.0, 0.0])
    assert got["excess_heat_rise_c_peer_6h"].to_list() == pytest.approx([0.0] * 4)
    assert got["power_swing_w_peer_6h"].to_list() == pytest.approx([0.0, 0.0, 0.0, 70.0])
    assert [one.feature.name for one in contrasts] == got.columns[10:]


def test_an_unknown_part_makes_the_contrast_unknown_and_an_unknown_node_has_none() -> None:
    names = [part.name for one in node_contrasts(HOURS, KNOWN) for part, _ in one.parts]
    table = pl.DataFrame(
        {"node": ["n", "n", "n", "n", None], "as_of": [T0] * 5}
        | {name: [1.0, 2.0, 3.0, 4.0, 5.0] for name in names}
    ).with_columns(gpu_temp_c_mean_1h=pl.Series([None, 2.0, 3.0, 4.0, 5.0]))
    got = with_contrasts(table, node_contrasts(HOURS, KNOWN))["excess_heat_c_peer_1h"]
    assert got.is_null().to_list() == [True, False, False, False, True]


@pytest.mark.parametrize(
    ("known", "words"), [({"power_w"}, {"power_swing"}), ({"gpu_temp_c"}, set()), (set(), set())]
)
def test_a_site_has_the_contrasts_of_its_metrics(known: set[str], words: set[str]) -> None:
    found = node_contrasts(HOURS, frozenset(known))
    assert {one.feature.name[:11] for one in found} == words
