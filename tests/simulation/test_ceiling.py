from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from features.errors import DataError, SourceError, StructureError
from simulation.fleet.ceiling import (
    CEILING_SCHEMA,
    HORIZONS_H,
    Reader,
    TruthTables,
    check_for_leak,
    recall_ceiling,
)
from simulation.fleet.generate import Fleet, simulate_failures
from simulation.fleet.regime import Regime
from simulation.regimes.load import load_regime
from simulation.writers.truth_tables import (
    CLASS_SCHEMA,
    HAZARD_SCHEMA,
    INCIDENT_SCHEMA,
    air_table,
    describe_ceiling,
    hazard_table,
    read_truth,
    truth_tables,
    write_truth,
)

START = datetime(2026, 1, 1, tzinfo=UTC)


def _at(hours: float | None) -> datetime | None:
    return None if hours is None else START + timedelta(hours=hours)


def _truth(
    failures: list[tuple[str, float, float | None]], *, factors: dict[str, float], hours: int = 100
) -> TruthTables:
    """GPUs by name -> hazard factor; failures as (GPU, onset, first sign), in hours."""
    incidents = [
        {
            "incident_id": str(number),
            "fault_type": "gsp",
            "entity_kind": "gpu",
            "entity_id": gpu,
            "onset": _at(onset),
            "is_noticed": True,
            "precursor_start": _at(sign),
        }
        for number, (gpu, onset, sign) in enumerate(failures)
    ]
    hazards = [
        {
            "entity_kind": "gpu",
            "entity_id": gpu,
            "start": _at(0),
            "end": _at(hours),
            "hazard_factor": factor,
            "has_new_driver": False,
            "air_offset_c": 0.0,
        }
        for gpu, factor in factors.items()
    ]
    classes = [
        {
            "fault_type": "gsp",
            "entity_kind": "gpu",
            "per_gpu_year": 0.1,
            "new_driver_factor": 1.0,
            "heat_doubling_c": None,
        }
    ]
    return TruthTables(
        incidents=pl.DataFrame(incidents, schema=INCIDENT_SCHEMA),
        hazards=pl.DataFrame(hazards, schema=HAZARD_SCHEMA),
        classes=pl.DataFrame(classes, schema=CLASS_SCHEMA),
        air=pl.DataFrame({"at": [_at(h) for h in range(hours)], "above_c": [0.0] * hours}),
    )


def _row(truth: TruthTables, *, horizon_h: float, reader: Reader) -> dict[str, float]:
    table = recall_ceiling(truth, horizons_h=[horizon_h], reader=reader)
    return table.row(by_predicate=pl.col("fault_type") == "gsp", named=True)


@pytest.mark.parametrize(
    ("sign_h", "is_in_time"),
    [
        (None, False),
        (2.0, True),
        (8.99, True),  # seen at 9:00, an hour ahead
        (9.0, False),  # not yet seen at 9:00; 10:00 is 12 min ahead
        (9.9, False),
    ],
)
def test_signs_count_when_a_look_at_them_comes_the_lead_ahead(
    sign_h: float | None, *, is_in_time: bool
) -> None:
    truth = _truth([("a", 10.2, sign_h)], factors={"a": 1.0, "b": 1.0})
    row = _row(truth, horizon_h=6, reader=Reader())
    assert row["announced"] == (sign_h is not None)
    assert row["ceiling_by_signs"] == is_in_time


def test_a_horizon_shorter_than_a_tick_misses_what_lies_between() -> None:
    truth = _truth([("a", 10.2, 1.0), ("b", 10.6, 1.0)], factors={"a": 1.0, "b": 1.0})
    # 9:00 + 0.5 h covers 9:30 to 9:45, 10:00 + 0.5 h covers 10:30 to 10:45.
    assert _row(truth, horizon_h=0.25, reader=Reader())["ceiling_by_signs"] == 0.5


@pytest.mark.parametrize(
    ("budget", "horizon_h", "share"),
    [
        (0.25, 1.0, 0.75),  # one of four GPUs at every tick; it carries 9 of 12 parts of the hazard
        (0.25 / 24, 24.0, 0.75),  # the same, once a day
        (0.125 / 24, 24.0, 0.375),  # every other day
        (0.5, 1.0, 0.75 + 1 / 12),
        (1.0, 1.0, 1.0),
        (0.0, 24.0, 0.0),
    ],
)
def test_a_budget_covers_the_riskiest_units_a_whole_horizon_by_one_alert(
    budget: float, horizon_h: float, share: float
) -> None:
    factors = {"lemon": 9.0, "a": 1.0, "b": 1.0, "c": 1.0}
    truth = _truth([("a", 50.0, None)], factors=factors)  # an unlucky failure changes nothing
    row = _row(truth, horizon_h=horizon_h, reader=Reader(budget=budget))
    assert row["ceiling_at_budget"] == pytest.approx(share)


def test_units_at_equal_risk_are_guessed_no_better_than_by_chance() -> None:
    truth = _truth([("a", 50.0, None)], factors=dict.fromkeys("abcd", 1.0))
    row = _row(truth, horizon_h=1, reader=Reader(budget=0.1))
    assert row["ceiling_at_budget"] == pytest.approx(0.1)


def test_signs_are_paid_for_before_risk() -> None:
    factors = {"lemon": 9.0, "a": 1.0, "b": 1.0, "c": 1.0}
    truth = _truth([("a", 50.2, 40.0), ("lemon", 60.0, None)], factors=factors)
    # Looks from 41:00 to 49:00 at 400 unit-ticks: 9 alerts; what is left covers the lemon's time.
    for alerts, by_risk in ((8, 0.75 * 0.08), (9, 0.0), (59, 0.75 * 0.5), (109, 0.75)):
        row = _row(truth, horizon_h=1, reader=Reader(budget=alerts / 400))
        caught = (by_risk if alerts < 9 else 1.0) + by_risk
        assert row["ceiling_at_budget"] == pytest.approx(caught / 2), alerts


def test_failures_nobody_noticed_are_no_part_of_the_ceiling() -> None:
    truth = _truth([("a", 50.0, 40.0), ("b", 60.0, None)], factors={"a": 1.0, "b": 1.0})
    hidden = truth.incidents.with_columns(is_noticed=pl.col("entity_id") == "b")
    table = TruthTables(hidden, truth.hazards, truth.classes, truth.air)
    assert _row(table, horizon_h=6, reader=Reader())["incidents"] == 1


@pytest.fixture(scope="module")
def fleet(demo: Regime) -> Fleet:
    return simulate_failures(demo.model_copy(update={"nodes": 48}), seed=3)


@pytest.fixture(scope="module")
def truth(fleet: Fleet) -> TruthTables:
    return truth_tables(fleet)


BUDGET = 0.008


@pytest.fixture(scope="module")
def ceiling(truth: TruthTables) -> pl.DataFrame:
    return recall_ceiling(truth, reader=Reader(budget=BUDGET))


def test_the_table_has_every_class_and_horizon_and_sound_intervals(
    fleet: Fleet, ceiling: pl.DataFrame
) -> None:
    assert ceiling.schema == CEILING_SCHEMA
    kinds = {incident.fault.fault_type for incident in fleet.incidents} | {"all"}
    assert ceiling.height == len(kinds) * len(HORIZONS_H)
    for name, column in (("by_signs", "ceiling_by_signs"), ("at_budget", "ceiling_at_budget")):
        inside = pl.col(column).is_between(pl.col(f"{name}_low"), pl.col(f"{name}_high"))
        assert ceiling.select(inside.all()).item()
    assert (ceiling["ceiling_at_budget"] >= ceiling["ceiling_by_signs"]).all()


def test_signs_give_what_a_walk_over_all_ticks_finds(fleet: Fleet, ceiling: pl.DataFrame) -> None:
    for horizon_h in HORIZONS_H:
        caught = 0
        for incident in fleet.incidents:
            signs = incident.precursor
            caught += signs is not None and any(
                tick * 3600 > signs.start_s
                and 1800 <= incident.onset_s - tick * 3600 < 1800 + horizon_h * 3600
                for tick in range(int(fleet.regime.days * 24))
            )
        row = ceiling.row(
            by_predicate=(pl.col("fault_type") == "all") & (pl.col("horizon_h") == horizon_h),
            named=True,
        )
        assert row["ceiling_by_signs"] * row["incidents"] == pytest.approx(caught)


def test_rates_in_the_tables_add_up_to_the_nodes_exact_expectation() -> None:
    regime = load_regime("hot-summer").with_size(nodes=6, days=90)
    fleet = simulate_failures(regime, seed=2)
    classes = {fault.fault_type: fault for fault in regime.faults}
    above = air_table(fleet)["above_c"].to_numpy()
    total = 0.0
    for row in hazard_table(fleet).iter_rows(named=True):
        hours = np.arange(above.size)
        start, end = ((row[k] - regime.start) / timedelta(hours=1) for k in ("start", "end"))
        inside = np.clip(np.minimum(hours + 1, end) - np.maximum(hours, start), 0, None)
        for fault in classes.values():
            if fault.entity_kind != row["entity_kind"]:
                continue
            rate = fault.per_gpu_year * row["hazard_factor"] / (365.25 * 24)
            if fault.heat_doubling_c:
                rate = rate * 2 ** ((above + row["air_offset_c"]) / fault.heat_doubling_c)
            total += float((rate * inside).sum())
    assert total == pytest.approx(sum(node.expected for node in fleet.nodes), rel=1e-6)


Alerts = dict[str, list[float]]


def _hours(moment: datetime, fleet: Fleet) -> float:
    return (moment - fleet.regime.start) / timedelta(hours=1)


def _honest_alerts(fleet: Fleet, truth: TruthTables, kind: str, horizon_h: float) -> Alerts:
    """Of a reader that knows rates and which signs are true, but no onset beforehand.

    It alerts at the first tick with a true sign and again once the horizon has passed; what is
    left of its budget goes to stretches in service of the highest rate.
    """
    alerts: Alerts = defaultdict(list)
    for row in truth.incidents.filter(pl.col("entity_kind") == kind).iter_rows(named=True):
        if row["precursor_start"] is not None:
            first = int(_hours(row["precursor_start"], fleet)) + 1
            last = _hours(row["onset"], fleet)
            alerts[row["entity_id"]] += np.arange(first, last, horizon_h).tolist()
    stretches = truth.hazards.filter(pl.col("entity_kind") == kind)
    spans = [
        (row["hazard_factor"], row["entity_id"], *(_hours(row[k], fleet) for k in ("start", "end")))
        for row in stretches.iter_rows(named=True)
    ]
    left = BUDGET * sum(end - start for *_, start, end in spans) - sum(map(len, alerts.values()))
    for _, entity, start, end in sorted(spans, reverse=True):
        ticks = np.arange(int(start) + 1, end, horizon_h).tolist()
        alerts[entity] += ticks[: max(0, int(left))]
        left -= len(ticks)
    return alerts


def _peeking_alerts(fleet: Fleet, truth: TruthTables) -> Alerts:
    alerts: Alerts = defaultdict(list)
    for row in truth.incidents.iter_rows(named=True):
        alerts[row["entity_id"]].append(float(int(_hours(row["onset"], fleet) - 0.5)))
    return alerts


def _caught_by(fleet: Fleet, truth: TruthTables, *, is_peeking: bool) -> pl.DataFrame:
    rows = []
    for horizon_h in HORIZONS_H:
        for kind in ("gpu", "node"):
            alerts = (
                _peeking_alerts(fleet, truth)
                if is_peeking
                else _honest_alerts(fleet, truth, kind, horizon_h)
            )
            for row in truth.incidents.filter(pl.col("entity_kind") == kind).iter_rows(named=True):
                onset = _hours(row["onset"], fleet)
                leads = [onset - at for at in alerts.get(row["entity_id"], [])]
                is_caught = any(0.5 <= lead < 0.5 + horizon_h for lead in leads)
                rows.append((row["fault_type"], horizon_h, is_caught))
    return pl.DataFrame(rows, schema=["fault_type", "horizon_h", "is_caught"], orient="row")


def test_an_honest_oracle_comes_near_the_ceiling_and_passes(
    fleet: Fleet, truth: TruthTables, ceiling: pl.DataFrame
) -> None:
    caught = _caught_by(fleet, truth, is_peeking=False)
    check_for_leak(caught, ceiling)
    for horizon_h, part in caught.group_by("horizon_h"):
        row = ceiling.row(
            by_predicate=(pl.col("fault_type") == "all") & (pl.col("horizon_h") == horizon_h[0]),
            named=True,
        )
        recall = part["is_caught"].mean()
        assert row["ceiling_at_budget"] - 0.1 < recall < row["at_budget_high"], horizon_h


def test_an_oracle_that_peeks_at_onsets_is_found_out(
    fleet: Fleet, truth: TruthTables, ceiling: pl.DataFrame
) -> None:
    caught = _caught_by(fleet, truth, is_peeking=True)
    assert caught["is_caught"].mean() > 0.95
    with pytest.raises(DataError, match=r"other_gpu at 1 h: recall 1\.000 of n = \d+ against") as e:
        check_for_leak(caught, ceiling)
    assert "p = " in str(e.value)


def _caught(n: int, k: int, fault_type: str = "gsp") -> pl.DataFrame:
    return pl.DataFrame(
        {"fault_type": fault_type, "horizon_h": 6.0, "is_caught": [i < k for i in range(n)]}
    )


def test_a_leak_is_told_from_luck_by_an_exact_test() -> None:
    ceiling = pl.DataFrame({"fault_type": ["gsp"], "horizon_h": [6.0], "ceiling_at_budget": [0.5]})
    check_for_leak(_caught(9, 9), ceiling)  # 2 ** -9 > 0.001
    with pytest.raises(DataError, match="gsp at 6 h: recall 1.000 of n = 10 .* ceiling of 0.500"):
        check_for_leak(_caught(10, 10), ceiling)


def test_nothing_may_be_caught_where_nothing_can_be() -> None:
    ceiling = pl.DataFrame({"fault_type": ["gsp"], "horizon_h": [6.0], "ceiling_by_signs": [0.0]})
    check_for_leak(_caught(20, 0), ceiling, bound="ceiling_by_signs")
    with pytest.raises(DataError, match="gsp"):
        check_for_leak(_caught(20, 1), ceiling, bound="ceiling_by_signs")


def test_a_class_without_a_ceiling_cannot_be_judged(ceiling: pl.DataFrame) -> None:
    with pytest.raises(StructureError, match="host at 6 h"):
        check_for_leak(_caught(3, 0, "host"), ceiling)


def test_in_the_silent_regime_signs_tell_nothing() -> None:
    regime = load_regime("no-precursor").with_size(nodes=100, days=60)
    table = recall_ceiling(truth_tables(simulate_failures(regime, seed=1)))
    assert table["announced"].sum() == 0
    assert set(table["ceiling_by_signs"]) == {0.0}


def test_ceilings_of_a_written_truth_are_those_of_the_fleet(
    fleet: Fleet, ceiling: pl.DataFrame, tmp_path: Path
) -> None:
    paths = write_truth(fleet, tmp_path)
    assert all(path.is_file() for path in paths)
    again = recall_ceiling(read_truth(tmp_path), reader=Reader(budget=BUDGET))
    assert again.equals(ceiling)
    text = describe_ceiling(tmp_path, reader=Reader(budget=BUDGET))
    assert "192 alerts a day per 1,000 GPUs" in text
    assert len(text.splitlines()) == 4 + ceiling.height


def test_a_fleet_without_failures_has_no_ceiling(demo: Regime, tmp_path: Path) -> None:
    calm = demo.model_copy(update={"hazard_multiplier": 0.0, "nodes": 2})
    write_truth(simulate_failures(calm, seed=1), tmp_path)
    assert recall_ceiling(read_truth(tmp_path)).is_empty()
    assert describe_ceiling(tmp_path).endswith("Nothing failed.")


def test_a_folder_without_truth_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="simulate fleet --truth"):
        read_truth(tmp_path)


def test_a_truth_table_with_other_columns_is_one_clear_error(fleet: Fleet, tmp_path: Path) -> None:
    write_truth(fleet, tmp_path)
    pl.DataFrame({"at": [1], "below_c": [0.0]}).write_parquet(tmp_path / "air.parquet")
    with pytest.raises(SourceError, match="air.parquet|column at|above_c"):
        read_truth(tmp_path)


@pytest.mark.parametrize(
    "change", [{"tick_h": float("inf")}, {"tick_h": 0.0}, {"lead_h": float("nan")}, {"budget": 1.1}]
)
def test_a_reader_that_cannot_be_is_refused(change: dict[str, float]) -> None:
    with pytest.raises(DataError, match="expected a finite lead"):
        Reader(**change)
