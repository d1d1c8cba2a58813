"""Rules of times up and down: which outage is solo, mass or short, and what is counted of them."""

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from features.errors import DataError
from features.history_outages import OutageRule, classify_outages, outage_incidents
from features.history_states import StateSpec, build_states, state_features
from features.registry import feature_names
from features.tables import CORE_NODE_STATES, CORE_TOPOLOGY

T0 = datetime(2026, 1, 5, tzinfo=UTC)  # a Monday
RULE = OutageRule(level="rack", most_together=1)
NODES = ("n1", "n2", "n3")


def at(minutes: float) -> datetime:
    return T0 + timedelta(minutes=minutes)


def table(contract, rows):
    names = contract.schema.names()
    return pl.DataFrame([{**dict.fromkeys(names), **r} for r in rows], schema=contract.schema)


TOPOLOGY = table(
    CORE_TOPOLOGY,
    [{"node": n, "level": "rack", "place": "r2" if n == "n3" else "r1"} for n in NODES],
)


def states(*downs: tuple[str, float, float | None], first_down: tuple[str, ...] = ()):
    """Each node is up from the day before; downs are (node, from, to)."""
    rows = []
    for node in NODES:
        since = at(-1440)
        rows_of = sorted((a, z) for n, a, z in downs if n == node)
        if node in first_down:
            rows.append({"node": node, "state": "down", "valid_from": at(-2880), "valid_to": since})
        for begin, end in rows_of:
            rows.append({"node": node, "state": "up", "valid_from": since, "valid_to": at(begin)})
            until = None if end is None else at(end)
            down = {"node": node, "state": "down", "valid_from": at(begin), "valid_to": until}
            rows.append(down)
            since = until
        if since is not None:
            rows.append({"node": node, "state": "up", "valid_from": since})
    return table(CORE_NODE_STATES, rows)


def kinds(*downs, **more):
    found = classify_outages(states(*downs, **more), TOPOLOGY, rule=RULE)
    return dict(zip(found["node"], found["kind"], strict=True))


def test_an_outage_is_short_below_the_least_length_and_not_at_it():
    assert kinds(("n1", 0, 4.99), ("n3", 0, 5)) == {"n1": "short", "n3": "solo"}


def test_outages_of_one_place_in_one_slice_are_mass_and_those_of_another_place_are_not():
    assert kinds(("n1", 1, 60), ("n2", 4, 60), ("n3", 1, 60)) == {
        "n1": "mass",
        "n2": "mass",
        "n3": "solo",
    }
    assert kinds(("n1", 4, 60), ("n2", 5, 60)) == {"n1": "solo", "n2": "solo"}


def test_a_short_outage_still_counts_among_those_that_went_down_together():
    assert kinds(("n1", 1, 2), ("n2", 3, 60)) == {"n1": "short", "n2": "mass"}


def test_with_what_a_record_begins_is_no_outage_and_one_that_goes_on_is():
    assert kinds(first_down=("n1",)) == {}
    assert kinds(("n1", 0, None)) == {"n1": "solo"}


def test_solo_outages_are_incidents_of_their_nodes():
    outages = classify_outages(states(("n1", 0, 60), ("n2", 30, 31)), TOPOLOGY, rule=RULE)
    found = outage_incidents(outages, rule=RULE)
    assert found.select("entity_kind", "entity_id", "start", "end").rows() == [
        ("node", "n1", at(0), at(60))
    ]


SPEC = StateSpec(rule=RULE, windows=(timedelta(1), timedelta(7)), levels=("rack",))


def build(now: float, *downs, spec: StateSpec = SPEC):
    grid = pl.DataFrame(
        {"entity_id": ["n2"], "node": ["n2"], "as_of": [at(now)]},
        schema_overrides={"as_of": pl.Datetime("us", "UTC")},
    )
    found = build_states(grid, node_states=states(*downs), topology=TOPOLOGY, spec=spec)
    assert found.columns == ["entity_id", "as_of", *feature_names(state_features(spec))]
    return found.row(0, named=True)


def test_outages_are_counted_by_kind_for_the_node_and_its_place():
    row = build(120, ("n1", 10, 11), ("n2", 21, 60), ("n1", 22, 60))
    assert row["own_short_outage_count_24h"] == 0
    assert row["rack_short_outage_count_24h"] == 1
    assert (row["own_mass_outage_count_24h"], row["rack_mass_outage_count_24h"]) == (1, 2)
    assert row["own_down_days_24h"] == pytest.approx(39 / 1440, abs=1e-6)
    assert row["rack_down_days_24h"] == pytest.approx((39 + 38 + 1) / 1440, abs=1e-6)
    assert row["own_days_up"] == pytest.approx(60 / 1440)


def test_an_outage_counts_once_its_kind_is_known():
    downs = (("n1", 21, 60), ("n2", 21, 60))
    assert build(26, *downs)["own_mass_outage_count_24h"] == 0
    assert build(26.1, *downs)["own_mass_outage_count_24h"] == 1


@pytest.mark.parametrize("now", [20, 21, 23, 26, 26.5, 40, 60, 90])
def test_what_the_record_says_of_as_of_and_later_changes_nothing(now):
    downs = [("n1", 10, 11), ("n2", 21, 60), ("n1", 22, 60), ("n2", 70, 72), ("n3", 25, None)]
    cut = [(n, a, z if z is not None and z < now else None) for n, a, z in downs if a < now]
    assert build(now, *cut) == build(now, *downs)


def test_the_day_of_the_week_is_a_feature_where_it_is_asked_for():
    assert "weekday" not in build(10)
    assert build(10, spec=StateSpec(rule=RULE, has_weekday=True))["weekday"] == 1


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"most_together": 0}, "must be positive"), ({"fault_type": "odd"}, "no fault type")],
)
def test_a_rule_that_means_nothing_is_refused(wrong, said):
    with pytest.raises(DataError, match=said):
        OutageRule(level="rack", **wrong)
