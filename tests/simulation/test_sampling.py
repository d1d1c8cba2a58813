from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulation.fleet import gpu_tables as to
from simulation.fleet.climate import Air
from simulation.fleet.events import Boot, Mark, NodeEvents, tell_node
from simulation.fleet.fields import BLANK_INT, FIELDS
from simulation.fleet.generate import Fleet, simulate_failures, simulate_fleet
from simulation.fleet.incidents import NodeTruth
from simulation.fleet.kernel_lines import KernelLine
from simulation.fleet.regime import Regime
from simulation.fleet.regime_site import Mig
from simulation.fleet.schedule import attempts_by_node
from simulation.fleet.telemetry import Block, NodeSampler, sample_node, sample_times

HOUR_S = 3600
COUNTERS = {
    "dbe": "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
    "remap_correctable": "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
    "remap_uncorrectable": "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
}


@pytest.fixture(scope="module")
def pair(demo: Regime) -> Fleet:
    """Two nodes over four days, in the worst of which little works."""
    return simulate_fleet(
        demo.model_copy(update={"hazard_multiplier": 400.0}), seed=3, nodes=2, days=4
    )


def _sample(fleet: Fleet, index: int, cuts: list[int]) -> np.ndarray:
    """A node's samples, taken in stretches; one row per sample, fields and time in columns."""
    truth = fleet.nodes[index]
    attempts = attempts_by_node(fleet.attempts, len(fleet.nodes))[index]
    events = tell_node(fleet.regime, truth, attempts, seed=fleet.seed)
    air = Air(fleet.regime, seed=fleet.seed)
    sampler = NodeSampler(fleet.regime, truth, attempts, events, air=air, seed=fleet.seed)
    parts = []
    bounds = [0, *sorted(cuts), fleet.end_s]
    for from_s, to_s in pairwise(bounds):
        block = Block.with_room(8 * ((to_s - from_s) // fleet.regime.scrape_s + 1))
        rows = slice(0, sampler.sample(from_s, to_s, block, row=0, first_gpu=0))
        columns = [block.gpu[rows], block.at_s[rows]]
        columns += [block.field(name, rows) for name in FIELDS]
        parts.append(np.column_stack([column.astype(np.float64) for column in columns]))
    whole = np.concatenate(parts)
    return whole[np.lexsort((whole[:, 1], whole[:, 0]))]


@given(cuts=st.lists(st.integers(0, 4 * 86400), max_size=5))
@settings(max_examples=12, deadline=None)
def test_samples_do_not_depend_on_how_the_record_is_cut(pair: Fleet, cuts: list[int]) -> None:
    whole = _sample(pair, 0, [])
    assert whole.shape[0] > 1000
    assert np.array_equal(_sample(pair, 0, cuts), whole)


@given(
    steps=st.lists(
        st.tuples(
            st.integers(0, 86400 - 1), st.sampled_from([*COUNTERS, "remap_failure", "boot", "xid"])
        ),
        max_size=12,
        unique_by=lambda step: step[0],
    )
)
@settings(max_examples=25, deadline=None)
def test_counters_agree_with_counting_one_by_one(
    quiet: tuple[Regime, NodeTruth], steps: list[tuple[int, str]]
) -> None:
    regime, truth = quiet
    events = NodeEvents(
        lines=tuple(KernelLine(at, 2, 31, "") for at, kind in sorted(steps) if kind == "xid"),
        marks=tuple(
            Mark(at, 2, kind)  # type: ignore[arg-type]
            for at, kind in sorted(steps)
            if kind in {*COUNTERS, "remap_failure"}
        ),
        boots=tuple(Boot(at, at) for at, kind in sorted(steps) if kind == "boot"),
    )
    seen = sample_node(regime, truth, (), events, seed=1)
    rows = seen.rows(seen.slot == 2)
    history = next(stay.gpu.history for stay in truth.stays if stay.gpu.slot == 2)
    for i, at_s in enumerate(rows.at_s):
        past = [(at, kind) for at, kind in sorted(steps) if at <= at_s]
        booted = max((at for at, kind in past if kind == "boot"), default=-1)
        since = [kind for at, kind in past if at > booted]
        expected = {
            COUNTERS["dbe"]: since.count("dbe"),
            COUNTERS["remap_correctable"]: history[1]
            + sum(kind == "remap_correctable" for _, kind in past),
            COUNTERS["remap_uncorrectable"]: sum(kind == "remap_uncorrectable" for _, kind in past),
            "DCGM_FI_DEV_ROW_REMAP_PENDING": int(
                any(kind in {"remap_correctable", "remap_uncorrectable"} for kind in since)
            ),
            # A failed remap stays known of the GPU over any boot.
            "DCGM_FI_DEV_ROW_REMAP_FAILURE": int(any(kind == "remap_failure" for _, kind in past)),
            "DCGM_FI_DEV_XID_ERRORS": 31 if "xid" in since else 0,
        }
        assert {name: int(rows.fields[name][i]) for name in expected} == expected


@pytest.fixture(scope="module")
def quiet(demo: Regime) -> tuple[Regime, NodeTruth]:
    """A node to which nothing happens in a day, watched without a gap."""
    calm = demo.disturbances.model_copy(
        update={"missed_scrape_share": 0.0, "blank_share": 0.0, "outages": ()}
    )
    regime = demo.model_copy(update={"disturbances": calm, "hazard_multiplier": 0.0, "decoys": ()})
    (truth,) = simulate_fleet(regime, seed=1, nodes=1, days=1).nodes
    return regime.with_size(nodes=1, days=1), truth


def _loads(kind: float, *, days: int = 1) -> np.ndarray:
    row = np.zeros((1, to.N_LOAD_COLUMNS))
    row[0, : to.RAMP_PER_S + 1] = [0, days * 86400, kind, 100, 0.8, 0.5, 60000, 1 / 600]
    row[0, to.SAVES_PER_S :] = [1 / 3600, 0.05, 0.2]
    return row


def _levels(
    kind: float, at_s: np.ndarray, *, key: int = 7, start_of_day_s: float = 0.0
) -> np.ndarray:
    loads, keys = _loads(kind), np.array([key])
    carried = np.zeros(to.N_CARRIED, dtype=np.int64)
    load_at = to.load_at.py_func
    return np.array([load_at(loads, keys, carried, float(at), start_of_day_s)[0] for at in at_s])


def test_training_ramps_up_then_runs_flat_but_for_checkpoints() -> None:
    at_s = np.arange(0, 86400, 60)
    levels = _levels(to.TRAINING, at_s)
    assert (np.diff(levels[:10]) > 0).any()
    assert np.isin(np.round(levels[20:], 6), [100.0, 20.0]).all()
    assert (levels[20:] < 50).mean() == pytest.approx(0.05, abs=0.02)


def test_inference_swings_with_the_day_between_its_bounds() -> None:
    at_s = np.arange(HOUR_S, 86400, 600)
    levels = _levels(to.INFERENCE, at_s)
    assert at_s[levels.argmax()] / HOUR_S == pytest.approx(15, abs=2.5)
    assert levels.min() / levels.max() == pytest.approx(0.42 / 0.95, abs=0.05)


def test_inference_follows_the_clock_whenever_the_record_begins() -> None:
    at_s = np.arange(HOUR_S, 86400, 600)
    levels = _levels(to.INFERENCE, at_s, start_of_day_s=9 * HOUR_S)
    assert at_s[levels.argmax()] / HOUR_S == pytest.approx(15 - 9, abs=2.5)


def test_all_gpus_of_a_job_pause_together_and_jobs_differ() -> None:
    at_s = np.arange(HOUR_S, 86400, 300)
    first, same, other = (_levels(to.DEBUG, at_s, key=key) for key in (7, 7, 8))
    assert np.array_equal(first, same)
    assert 0.2 < (first > 0).mean() < 0.5
    assert not np.array_equal(first, other)


def test_load_makes_heat(pair: Fleet) -> None:
    part = sample_node(
        pair.regime,
        pair.nodes[1],
        attempts_by_node(pair.attempts, 2)[1],
        NodeEvents((), (), ()),
        seed=pair.seed,
    )
    power, temp = part.fields["DCGM_FI_DEV_POWER_USAGE"], part.fields["DCGM_FI_DEV_GPU_TEMP"]
    known = (power < 1e6) & (temp < 1000)
    assert np.corrcoef(power[known], temp[known])[0, 1] > 0.9


def test_a_partitioned_gpu_reports_no_utilisation_of_the_whole(demo: Regime) -> None:
    hardware = demo.hardware.model_copy(update={"mig": Mig(node_share=1.0, instances=7)})
    regime = demo.model_copy(update={"hardware": hardware, "hazard_multiplier": 0.0})
    fleet = simulate_fleet(regime, seed=2, nodes=1, days=1)
    part = sample_node(fleet.regime, fleet.nodes[0], fleet.attempts, NodeEvents((), (), ()), seed=2)
    assert fleet.nodes[0].node.is_mig
    assert (part.fields["DCGM_FI_DEV_GPU_UTIL"] == BLANK_INT).all()
    assert (part.fields["DCGM_FI_DEV_GPU_TEMP"] < 120).all()


def test_monitoring_outages_hide_a_rack_and_an_exporter_at_random(demo: Regime) -> None:
    plan = demo.disturbances.model_copy(
        update={"rack_outages_per_year": 100.0, "exporter_deaths_per_node_year": 50.0}
    )
    calm = demo.model_copy(update={"disturbances": plan, "hazard_multiplier": 0.0})
    fleet = simulate_fleet(calm, seed=4, nodes=4, days=20)
    seen = [
        sample_node(fleet.regime, truth, (), NodeEvents((), (), ()), seed=4)
        for truth in fleet.nodes
    ]
    hours = [set(np.unique(part.at_s // HOUR_S)) for part in seen]
    dark = [set(range(20 * 24)) - there for there in hours]
    assert set.intersection(*dark), "the rack's collector fails for all four"
    assert any(own - set.intersection(*dark) for own in dark), "an exporter dies alone"


@pytest.mark.parametrize(
    ("from_s", "to_s", "expected"),
    [(0, 600, [7, 307]), (7, 8, [7]), (8, 307, []), (300, 601, [307]), (600, 608, [607])],
)
def test_a_stretch_holds_the_scrapes_within_it(
    demo: Regime, from_s: int, to_s: int, expected: list[int]
) -> None:
    assert sample_times(demo, from_s, to_s, offset_s=7).tolist() == expected


def test_a_replaced_gpu_begins_with_counters_of_its_own(demo: Regime) -> None:
    fleet = simulate_failures(demo.with_size(nodes=8, days=20), seed=3)
    swapped = [
        stay
        for truth in fleet.nodes
        for stay in truth.stays
        if stay.from_s is not None and stay.from_s < 15 * 86400
    ]
    assert swapped
    truth = next(t for t in fleet.nodes if swapped[0] in t.stays)
    part = sample_node(fleet.regime, truth, (), NodeEvents((), (), ()), seed=3)
    rows = part.rows(part.gpu_uuid == swapped[0].gpu.gpu_uuid)
    assert (rows.at_s >= swapped[0].from_s).all()
    first = rows.fields["DCGM_FI_DEV_ECC_SBE_AGG_TOTAL"][0]
    assert abs(first - swapped[0].gpu.history[0]) <= 1


def test_what_a_gpu_counts_since_its_boot_is_as_much_as_its_uptime_allows(demo: Regime) -> None:
    fleet = simulate_fleet(demo, seed=4, nodes=8, days=0.1)
    for truth in fleet.nodes:
        part = sample_node(fleet.regime, truth, (), NodeEvents((), (), ()), seed=4)
        first = {
            name: part.fields[name][np.unique(part.slot, return_index=True)[1]] for name in FIELDS
        }
        joules = first["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"] / 1000
        mean_w = joules / truth.node.up_before_s
        assert (mean_w > demo.hardware.idle_w).all()
        assert (mean_w < demo.hardware.max_w).all()
        assert (first["DCGM_FI_DEV_POWER_VIOLATION"] > 0).any()
        volatile, lifetime = (first[f"DCGM_FI_DEV_ECC_SBE_{span}_TOTAL"] for span in ("VOL", "AGG"))
        assert (volatile <= lifetime).all()
    assert len({truth.node.up_before_s for truth in fleet.nodes}) == 8
