"""Diagnosis against the catalogue rule on simulated fleets, judged by the simulation's truth.

    python -m benchmarks.fault_types --seeds 901 902 903 904 905 906 907 908

Each fleet is simulated, read through the product's own sources, and its incidents are matched
with the truth. Half of the seeds learn for the other half, and the other way round, so that every
incident is judged once by a model that never saw its fleet. Results are in
docs/benchmarks/fault_types.md.
"""

import argparse
import multiprocessing
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Final

import polars as pl

from features.core_build import (
    build_core_telemetry,
    build_health_events,
    build_jobs,
    build_node_states,
)
from features.core_tables import CoreTables
from features.diagnosis import TELEMETRY_AS_OF, build_diagnosis, diagnosis_features, with_telemetry
from features.grid import watched_grid
from features.incidents import build_incidents
from features.matrix import MatrixSpec, build_gpu_matrix, matrix_features
from features.registry import feature_names
from models.faults.diagnosis import (
    FOUND_TYPE,
    TypeAccuracy,
    compare_verdicts,
    diagnose,
    rule_verdicts,
    train_diagnosis,
)
from pipelines.sources.catalogue import load_catalogue
from pipelines.sources.site.listing import load_inputs
from pipelines.sources.site.readers import read_inputs
from simulation.fleet.generate import simulate_fleet
from simulation.regimes.load import load_regime
from simulation.writers.raw import write_fleet
from simulation.writers.truth_tables import incident_table

CONDITIONS: Final = ("all evidence", "no kernel log", "no kernel log, no reasons")
_PLANNED: Final = r"(?i)maint|patch|driver|firmware|reboot for"
_SPEC: Final = MatrixSpec(parts=("telemetry",))


def fleet_cases(seed: int, *, nodes: int, days: float) -> pl.DataFrame:
    """Incidents of one fleet under each condition, with what they turned out to be."""
    regime = load_regime("h100").model_copy(update={"hazard_multiplier": 60.0, "scrape_s": 120})
    fleet = simulate_fleet(regime, seed=seed, nodes=nodes, days=days)
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "raw"
        write_fleet(fleet, raw, Path(folder) / "truth")
        later = fleet.moment(fleet.end_s) + timedelta(days=1)
        read = read_inputs(load_inputs(raw / "inputs.yaml"), ingested_at=later).tables
    catalogue, inventory = load_catalogue(None), read["core/inventory"]
    tables = CoreTables(
        inventory=inventory,
        health_events=build_health_events(read["raw/kernel_log"], inventory).frame,
        jobs=build_jobs(read["raw/job_log"]).frame,
        node_states=build_node_states(read["raw/node_states"]).frame,
        gpu_telemetry=build_core_telemetry(read["raw/gpu_telemetry"], inventory).frame,
    )
    incidents = build_incidents(
        tables.health_events, tables.node_states, tables.jobs, inventory, catalogue=catalogue
    )
    named = pl.when(pl.col("reason").str.contains(_PLANNED)).then("reason")
    blind = replace(tables, health_events=tables.health_events.clear())
    mute = replace(blind, node_states=blind.node_states.with_columns(named.alias("reason")))
    cases = [
        build_diagnosis(incidents, seen, catalogue=catalogue).with_columns(
            pl.lit(condition).alias("condition")
        )
        for condition, seen in zip(CONDITIONS, (tables, blind, mute), strict=True)
    ]
    measured = with_telemetry(cases[0], _matrix(tables, cases[0]), names=_telemetry())
    found = _with_truth(measured, incident_table(fleet)).select(
        "incident_id", FOUND_TYPE, *_telemetry()
    )
    told = pl.concat(cases).join(found, on="incident_id", how="left", maintain_order="left")
    own_id = pl.format("{}-{}", "incident_id", pl.lit(seed))
    return told.with_columns(own_id.alias("incident_id"), pl.lit(seed).alias("seed"))


def _telemetry() -> tuple[str, ...]:
    return feature_names(matrix_features(_SPEC, CoreTables().topology))


def _matrix(tables: CoreTables, cases: pl.DataFrame) -> pl.DataFrame:
    moments = cases.select("node", as_of=TELEMETRY_AS_OF).unique()
    times = tuple(moments["as_of"].unique().sort())
    grid = watched_grid(tables.inventory, times, unknown_start="watched").join(
        moments, on=["node", "as_of"], how="semi", maintain_order="left"
    )
    return build_gpu_matrix(tables, grid, spec=_SPEC)


def _with_truth(cases: pl.DataFrame, truth: pl.DataFrame) -> pl.DataFrame:
    """The last true failure of the node by then; one of the same entity before any other."""
    start = pl.col("as_of") - timedelta(minutes=10)
    true = truth.select(
        "node", "onset", "end", pl.col("fault_type").alias(FOUND_TYPE), true_id="entity_id"
    )
    matched = (
        cases.select("incident_id", "entity_id", "node", "as_of")
        .join(true, on="node")
        .filter(start >= pl.col("onset") - timedelta(seconds=5), start <= pl.col("end"))
        .sort(pl.col("true_id") == pl.col("entity_id"), "onset")
        .unique("incident_id", keep="last", maintain_order=True)
    )
    return cases.join(matched.select("incident_id", FOUND_TYPE), on="incident_id", how="left")


def report(cases: pl.DataFrame, seeds: Sequence[int], *, telemetry: Sequence[str]) -> str:
    """Top-1 and top-2 of model and rule for one condition, over both halves of the seeds."""
    half = len(seeds) // 2
    true: list[str] = []
    mine: list[tuple[str, str | None]] = []
    rules: list[tuple[str, str | None]] = []
    for tested in (seeds[:half], seeds[half:]):
        is_tested = pl.col("seed").is_in(list(tested))
        model = train_diagnosis(cases.filter(~is_tested), telemetry=telemetry)
        judged = cases.filter(is_tested & pl.col(FOUND_TYPE).is_not_null())
        true += judged[FOUND_TYPE].to_list()
        mine += diagnose(model, judged)
        rules += rule_verdicts(judged, usual=model.classes)
    result = compare_verdicts(true, mine, rules)
    verdict = "beats" if result.beats_rule else "does not beat"
    counts = f"n = {result.model.n}: mended {result.n_mended}, broken {result.n_broken}"
    lines = [
        f"  {counts}; {verdict} the rule beyond chance",
        f"  model {_line(result.model)}",
        f"  rule  {_line(result.rule)}",
    ]
    for name, one in result.model.by_class.items():
        rule = result.rule.by_class[name]
        lines.append(
            f"    {name:18s} {one.n_true:4d}: model {one.n_right}/{one.n_right_in_two}, "
            f"rule {rule.n_right}/{rule.n_right_in_two}"
        )
    lines.append(f"  model's confusion: {_wrong(result.model)}")
    lines.append(f"  rule's confusion: {_wrong(result.rule)}")
    return "\n".join(lines)


def _line(found: TypeAccuracy) -> str:
    return (
        f"top-1 {found.top1:.3f} [{found.top1_interval[0]:.3f}, {found.top1_interval[1]:.3f}], "
        f"top-2 {found.top2:.3f} [{found.top2_interval[0]:.3f}, {found.top2_interval[1]:.3f}]"
    )


def _wrong(found: TypeAccuracy) -> str:
    pairs = sorted(found.confusion.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{a} as {b} {n}" for (a, b), n in pairs if a != b) or "none"


def main() -> None:
    """Simulates the fleets, one process each, and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(901, 909)))
    parser.add_argument("--nodes", type=int, default=48)
    parser.add_argument("--days", type=float, default=24.0)
    given = parser.parse_args()
    # A process for each fleet: what the readers leave behind goes with it.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:
        asked = [
            pool.submit(fleet_cases, seed, nodes=given.nodes, days=given.days)
            for seed in given.seeds
        ]
        cases = pl.concat(one.result() for one in asked)
    for condition in CONDITIONS:
        rows = cases.filter(pl.col("condition") == condition)
        for words, names in (("signs", ()), ("signs and telemetry", _telemetry())):
            print(f"{condition}; {words} ({len(diagnosis_features()) + len(names)} columns)")
            print(report(rows, given.seeds, telemetry=names), flush=True)


if __name__ == "__main__":
    main()
