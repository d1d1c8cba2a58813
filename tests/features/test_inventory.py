"""Stays of GPUs made of sights: identity is the UUID, all else is true for a time."""

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features import inventory
from features.inventory import build_stays
from features.raw_tables import RAW_INVENTORY
from features.tables import CORE_INVENTORY

T0 = datetime(2026, 1, 5, tzinfo=UTC)
PCI = "00000000:0{}:00.0"


def at(hours):
    return T0 + timedelta(hours=hours)


def sight(hours, gpu, node="n1", slot=None, pci=None, model=None):
    return {
        "ts": at(hours), "gpu_uuid": gpu, "node": node, "slot": slot,
        "pci_bus_id": None if pci is None else PCI.format(pci), "model": model,
        "source": "s", "ingested_at": at(1000),
    }  # fmt: skip


def reports(*rows):
    return pl.DataFrame(list(rows), schema=RAW_INVENTORY.schema)


def declared(*rows):
    return pl.DataFrame(list(rows), schema=CORE_INVENTORY.schema)


def stay(gpu, node="n1", slot=None, pci=None, model=None, start=None, end=None):
    return {
        "gpu_uuid": gpu, "node": node, "slot": slot,
        "pci_bus_id": None if pci is None else PCI.format(pci), "model": model, "batch": None,
        "valid_from": None if start is None else at(start),
        "valid_to": None if end is None else at(end),
    }  # fmt: skip


def built(*rows, ours=()):
    result = build_stays(reports(*rows), declared(*ours))
    assert result.n_read == len(rows) + len(ours)
    assert result.n_merged >= 0
    n_rejected = result.rejects["count"].sum()
    assert result.n_read == result.frame.height + result.n_merged + n_rejected
    return result


def stays(*rows, ours=()):
    frame = built(*rows, ours=ours).frame
    assert frame.schema == CORE_INVENTORY.schema
    return frame.select("gpu_uuid", "node", "slot", "pci_bus_id", "valid_from", "valid_to").rows()


def row(gpu, node, slot, pci, start, end):
    address = None if pci is None else PCI.format(pci)
    return (gpu, node, slot, address, at(start), None if end is None else at(end))


def test_a_stay_begins_at_the_first_sight_and_is_open_until_one_contradicts_it():
    rows = [sight(0, "a", slot="0", pci=1), sight(50, "a", slot="0", pci=1)]
    assert stays(*rows) == [row("a", "n1", "0", 1, 0, None)]


def test_an_index_that_shifts_ends_no_identity():  # case 14
    assert stays(
        sight(0, "a", slot="0", pci=1), sight(0, "b", slot="1", pci=2),
        sight(5, "b", slot="0", pci=2),
    ) == [
        row("a", "n1", "0", 1, 0, None),
        row("b", "n1", "0", 2, 5, None),
        row("b", "n1", "1", 2, 0, 5),
    ]  # fmt: skip


def test_another_uuid_under_the_same_node_and_index_is_another_gpu():  # case 14
    assert stays(sight(0, "a", slot="0"), sight(3, "a", slot="0"), sight(9, "b", slot="0")) == [
        row("a", "n1", "0", None, 0, 9),
        row("b", "n1", "0", None, 9, None),
    ]


def test_a_gpu_that_moves_leaves_its_node_when_it_is_seen_on_another():
    assert stays(sight(0, "a", pci=1), sight(9, "a", node="n2", pci=3)) == [
        row("a", "n1", None, 1, 0, 9),
        row("a", "n2", None, 3, 9, None),
    ]


def test_a_replaced_gpu_stays_until_its_successor_is_seen_so_that_its_last_events_are_its_own():
    frame = stays(sight(0, "old", pci=1), sight(2, "old", pci=1), sight(8, "new", pci=1))
    assert frame == [row("new", "n1", None, 1, 8, None), row("old", "n1", None, 1, 0, 8)]


def test_the_first_of_several_contradictions_ends_a_stay():
    assert stays(
        sight(0, "a", pci=1), sight(5, "b", pci=1), sight(7, "a", node="n2", pci=1)
    )[0] == row("a", "n1", None, 1, 0, 5)  # fmt: skip


def test_a_successor_whose_address_is_unknown_is_known_by_its_slot():
    assert stays(sight(0, "a", slot="3", pci=1), sight(5, "b", slot="3")) == [
        row("a", "n1", "3", 1, 0, 5),
        row("b", "n1", "3", None, 5, None),
    ]


def test_a_slot_taken_at_another_address_ends_no_stay():
    assert stays(sight(0, "a", slot="3", pci=1), sight(5, "b", slot="3", pci=2)) == [
        row("a", "n1", "3", 1, 0, None),
        row("b", "n1", "3", 2, 5, None),
    ]


def test_what_one_source_leaves_out_contradicts_nothing():
    assert stays(
        sight(0, "a", slot="0"), sight(1, "a", pci=1), sight(2, "a"), sight(3, "a", slot="0")
    ) == [row("a", "n1", "0", 1, 0, None)]  # fmt: skip


def test_sources_that_count_slots_differently_end_no_stay():
    rows = [sight(h / 10, "a", slot=str(h % 2), pci=1) for h in range(9)]
    assert stays(*rows) == [row("a", "n1", "0", 1, 0, None)]


def test_model_names_that_differ_by_source_end_no_stay():
    frame = built(sight(0, "a", model="H100"), sight(1, "a", model="NVIDIA H100 80GB")).frame
    assert frame["model"].to_list() == ["H100"]


def test_a_cloned_machine_is_set_aside_and_counted():
    rows = [sight(h / 10, "a", node="n1" if h % 3 else "clone", pci=1) for h in range(10)]
    result = built(*rows)
    assert result.frame["node"].to_list() == ["n1"]
    assert result.rejects.select("rule", "count").rows() == [
        ("the GPU is seen on two nodes at once", 4)
    ]


def test_a_blip_between_two_true_moves_does_not_cost_a_stay():
    rows = [sight(h, "a", node="n1") for h in range(5)]
    rows += [sight(4.2, "a", node="n2"), sight(4.4, "a", node="n1")]
    rows += [sight(h, "a", node="n2") for h in range(6, 40)]
    assert [(r[1], r[4], r[5]) for r in stays(*rows)] == [("n1", at(0), at(6)), ("n2", at(6), None)]


def test_a_gpu_that_is_back_after_days_has_been_away():
    assert [(r[1], r[4], r[5]) for r in stays(
        sight(0, "a"), sight(30, "a", node="n2"), sight(60, "a")
    )] == [("n1", at(0), at(30)), ("n1", at(60), None), ("n2", at(30), at(60))]  # fmt: skip


def test_two_gpus_that_take_turns_at_one_address_are_a_contradiction():
    rows = [sight(h / 10, "b" if h == 4 else "a", pci=1) for h in range(9)]
    result = built(*rows)
    assert result.frame["gpu_uuid"].to_list() == ["a"]
    assert result.rejects["rule"].to_list() == ["two GPUs are seen in one place at once"]


def test_two_gpus_at_one_address_at_one_moment_are_counted():
    result = built(sight(0, "a", pci=1), sight(0, "b", pci=1))
    assert result.frame["gpu_uuid"].to_list() == ["a"]
    assert result.rejects["rule"].to_list() == ["two GPUs are seen in one place at once"]


@pytest.mark.parametrize(
    ("ours", "expected"),
    [
        # the site says where it was, from before the first sight on and for ever
        ([stay("a", "rack9")], [("rack9", None, None)]),
        # the site's stay ended before: the sight after it counts
        ([stay("a", start=-9, end=-1)], [("n1", -9, -1), ("n1", 0, None)]),
        # it covers the first sights only
        ([stay("a", start=-9, end=5)], [("n1", -9, 5), ("n1", 5, None)]),
        # nothing was seen after it ended: no sight, no stay
        ([stay("a", start=-9, end=50)], [("n1", -9, 50)]),
        # it begins later
        ([stay("a", "n2", start=5)], [("n1", 0, 5), ("n2", 5, None)]),
        # another GPU is declared at the address
        ([stay("z", pci=1, start=5)], [("n1", 0, 5), ("n1", 5, None)]),
        # two, with a sight in the gap between them
        (
            [stay("a", start=-9, end=5), stay("a", start=15, end=16)],
            [("n1", -9, 5), ("n1", 5, 15), ("n1", 15, 16), ("n1", 16, None)],
        ),
    ],
)
def test_a_declared_stay_wins_where_it_overlaps(ours, expected):
    frame = built(*(sight(h, "a", pci=1) for h in (0, 10, 20)), ours=ours).frame
    moments = [None if m is None else at(m) for _, *edges in expected for m in edges]
    found = frame.sort("valid_from", "node", nulls_last=False)
    assert found["node"].to_list() == [node for node, *_ in expected]
    assert [m for r in found.select("valid_from", "valid_to").rows() for m in r] == moments


def test_a_declared_stay_takes_its_address_from_the_sights_that_agree_on_it():
    frame = built(
        sight(0, "a", slot="0", pci=1, model="H100"), sight(5, "a", slot="1", pci=1),
        ours=[stay("a")],
    ).frame  # fmt: skip
    assert frame.select("slot", "pci_bus_id", "model").rows() == [(None, PCI.format(1), "H100")]


def test_no_reports_and_nothing_declared_is_an_empty_table():
    assert built().frame.equals(CORE_INVENTORY.empty())


SIGHTS = st.lists(
    st.builds(
        sight,
        st.integers(0, 12).map(lambda n: n / 2),
        st.sampled_from("abc"),
        st.sampled_from(["n1", "n2"]),
        st.none() | st.sampled_from(["0", "1"]),
        st.none() | st.integers(1, 2),
        st.none() | st.just("H100"),
    ),
    max_size=14,
)
STAYS = st.lists(
    st.builds(
        lambda gpu, node, pci, start, length: stay(
            gpu, node, None, pci, None, start, None if start is None else start + length
        ),
        st.sampled_from("abc"),
        st.sampled_from(["n1", "n2"]),
        st.none() | st.integers(1, 2),
        st.none() | st.integers(0, 12).map(lambda n: n / 2),
        st.integers(1, 8),
    ),
    max_size=3,
    unique_by=lambda row: row["gpu_uuid"],
)


@settings(max_examples=40)
@given(rows=SIGHTS, ours=STAYS, data=st.data())
def test_order_and_repeats_change_nothing(rows, ours, data):
    shuffled = data.draw(st.permutations(rows + rows[: len(rows) // 2]))
    once = build_stays(reports(*rows), declared(*ours))
    again = build_stays(reports(*shuffled), declared(*reversed(ours)))
    assert again.frame.equals(once.frame)
    assert again.rejects.equals(once.rejects)


@settings(max_examples=40)
@given(rows=SIGHTS, ours=STAYS)
def test_gpus_that_stay_put_are_known_by_sums_as_by_following_each_sight(rows, ours):
    fast = build_stays(reports(*rows), declared(*ours))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inventory, "_settled", lambda sights: (CORE_INVENTORY.empty(), sights))
        slow = build_stays(reports(*rows), declared(*ours))
    assert fast.frame.equals(slow.frame)
    assert fast.rejects.equals(slow.rejects)


def overlaps(frame, key):
    far = datetime(9999, 1, 1, tzinfo=UTC)
    for _, group in frame.drop_nulls(key).group_by(key):
        in_time = group.sort("valid_from").with_columns(pl.col("valid_to").fill_null(far))
        late = in_time["valid_from"].shift(-1) < in_time["valid_to"]
        if late.any():
            return True
    return False


@settings(max_examples=40)
@given(rows=SIGHTS)
def test_a_gpu_is_in_one_place_and_an_address_holds_one_gpu(rows):
    result = built(*rows)
    assert not overlaps(result.frame, ["gpu_uuid"])
    assert not overlaps(result.frame, ["node", "pci_bus_id"])


@settings(max_examples=40)
@given(rows=SIGHTS, ours=STAYS)
def test_a_declared_gpu_is_nowhere_else_meanwhile(rows, ours):
    result = built(*rows, ours=ours)
    early = datetime(1, 1, 1, tzinfo=UTC)
    frame = result.frame.with_columns(pl.col("valid_from").fill_null(early))
    assert not overlaps(frame, ["gpu_uuid"])


@settings(max_examples=40)
@given(rows=SIGHTS)
def test_every_sight_lies_in_a_stay_or_is_counted(rows):
    result = built(*rows)
    lost = 0
    for gpu, node, ts in {(r["gpu_uuid"], r["node"], r["ts"]) for r in rows}:
        is_there = (pl.col("valid_from") <= ts) & (ts < pl.col("valid_to")).fill_null(value=True)
        of_gpu = (pl.col("gpu_uuid") == gpu) & (pl.col("node") == node)
        lost += result.frame.filter(of_gpu & is_there).is_empty()
    assert lost <= result.rejects["count"].sum()
