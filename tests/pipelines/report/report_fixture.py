"""A made-up site for the report's tests: 12 nodes, 10 days, one failing GPU, seeded.

The numbers look like those of a small fleet but stand for nothing.
"""

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl

from features.contracts import TableContract
from features.monitoring_tables import QUARANTINE, READS
from features.tables import (
    CORE_GPU_TELEMETRY,
    CORE_HEALTH_EVENTS,
    CORE_INCIDENTS,
    DECISIONS,
    NODE_SCORES,
)
from models.evaluation.event_metrics import EventMetrics
from models.evaluation.row_metrics import Bootstrap, Estimate, RowMetrics, compare, row_metrics
from models.faults.types import FaultTypeMetrics
from pipelines.report.input import (
    EvaluationResult,
    FaultClass,
    GpuTimeline,
    Method,
    Missing,
    ModelCard,
    ReportInput,
)
from pipelines.storage.store import Span

START = datetime(2026, 1, 20, tzinfo=UTC)
AS_OF = datetime(2026, 1, 30, tzinfo=UTC)
ONSET = datetime(2026, 1, 27, 14, 20, tzinfo=UTC)
NODES = tuple(f"gpu-{i:02d}" for i in range(1, 13))
FEW = Bootstrap(resamples=20)


def table(contract: TableContract, rows: list[dict[str, object]]) -> pl.DataFrame:
    """A frame of the contract's types; columns a row does not name are null."""
    return pl.DataFrame(rows, schema=contract.schema)


def score_rows(node: str, as_of: datetime, score: float | None, horizon_h: int = 24) -> dict:
    """One row of scores/node_scores."""
    return {
        "entity_kind": "node",
        "entity_id": node,
        "node": node,
        "as_of": as_of,
        "horizon_h": horizon_h,
        "score": score,
        "status": "unknown" if score is None else "ok",
        "status_reason": "no telemetry for 2 h" if score is None else None,
        "fault_type": None if score is None else "hbm_uncorrectable",
        "fault_probability": None if score is None else 0.44,
        "reasons": [
            "error counters: ecc_sbe_volatile grew by 412 in 24 h (above usual)",
            "telemetry: memory_temp_c mean 94.1 degC in 1 h (above usual)",
        ]
        if score is not None and score > 0.1
        else [],
        "missing_share": 0.04 if score is not None else 1.0,
        "model_version": "7",
        "trained_on": "synthetic",
    }


def node_scores(every: timedelta = timedelta(hours=2)) -> pl.DataFrame:
    """Scores of all nodes over ten days; gpu-02 rises, gpu-05 is lost for a day."""
    rng = np.random.default_rng(7)
    rows = []
    n_moments = int((AS_OF - START) / every) + 1
    for place, node in enumerate(NODES):
        noise = rng.normal(0, 0.35, n_moments)
        walk = np.convolve(noise, 0.9 ** np.arange(30))[:n_moments] - 3.8 + 0.12 * place
        if node == "gpu-02":
            walk[-30:] += np.linspace(0, 5.2, 30)
        for i in range(n_moments):
            at = START + i * every
            if 40 <= i < 44:
                continue
            is_lost = (node == "gpu-05" and 84 <= i < 96) or (node == "gpu-11" and i > 115)
            score = None if is_lost else float(1 / (1 + np.exp(-np.clip(walk[i], -7, 3))))
            rows.append(score_rows(node, at, score))
            if at == AS_OF:
                rows.append(score_rows(node, at, score and score / 8, 1))
    return table(NODE_SCORES, rows)


def decision(node: str, wanted: str, action: str, score: float, **more: object) -> dict:
    """One row of remediation/decisions."""
    return {
        "decision_id": f"d-{node}",
        "node": node,
        "as_of": AS_OF,
        "decided_at": AS_OF + timedelta(minutes=1),
        "wanted": wanted,
        "action": action,
        "score": score,
        "horizon_h": 24,
        "fault_type": "hbm_uncorrectable",
        "cost_of_acting": 12.5,
        "cost_of_waiting": 88.0,
        "sentence": f"{node}: score {100 * score:.0f} % within 24 h, most likely an uncorrectable "
        "HBM error; waiting is expected to cost 88 GPU-hours, acting 12.5.",
        "blocked_by": [],
        "model_version": "7",
        "is_dry_run": True,
        **more,
    }


def decisions() -> pl.DataFrame:
    """One drain, one held back, one to watch, the rest nothing."""
    rows = [
        decision("gpu-02", "drain_after_jobs", "drain_after_jobs", 0.72),
        decision(
            "gpu-08",
            "drain_after_jobs",
            "watch",
            0.13,
            blocked_by=["rack cap: gpu-02 of rack r1 is being drained, at most 1 per rack"],
        ),
        decision("gpu-12", "watch", "watch", 0.11, cost_of_waiting=None),
        *(decision(node, "none", "none", 0.02) for node in ("gpu-01", "gpu-03")),
    ]
    return table(DECISIONS, rows)


def judged_rows() -> pl.DataFrame:
    """Test rows with a label and three scores of falling skill."""
    rng = np.random.default_rng(3)
    n = 4000
    risk = rng.normal(-3.6, 1.3, n)
    truth = 1 / (1 + np.exp(-risk))
    return pl.DataFrame(
        {
            "entity_id": [f"g{i % 96}" for i in range(n)],
            "label": (rng.random(n) < truth).astype(np.int8),
            "score": truth,
            "history": risk + rng.normal(0, 1.6, n),
            "rules": (risk + rng.normal(0, 2.5, n) > 0.5).astype(float),
        }
    )


def metrics_of(rows: pl.DataFrame, score: str) -> RowMetrics:
    kind = "probability" if score == "score" else "rank"
    return row_metrics(rows, score=score, kind=kind, bootstrap=FEW)


def events() -> EventMetrics:
    """31 incidents, 14 caught."""
    rng = np.random.default_rng(5)
    leads = tuple(sorted(float(x) for x in rng.gamma(2.0, 4.5, 14).clip(0.6, 24.4)))
    return EventMetrics(
        n_alerts=40,
        n_true=19,
        n_false=17,
        n_unjudged=4,
        precision=Estimate(19 / 36, 0.36, 0.68),
        n_incidents=31,
        n_caught=14,
        recall=Estimate(14 / 31, 0.28, 0.63),
        lead_h=leads,
        lead_quantiles_h=(1.0, 3.0, 7.5, 12.0, 19.0),
        alerts_per_1000_nodes_per_day=333.0,
        node_days=120.0,
    )


def evaluation() -> EvaluationResult:
    rows = judged_rows()
    methods = [
        Method(name="Forewarn", role="model", rows=metrics_of(rows, "score"), events=events())
    ]
    names = {"history": "History count", "rules": "Static DCGM and Xid rules"}
    for score, name in names.items():
        gain = compare(rows, score="score", other=score, bootstrap=FEW)
        methods.append(Method(name=name, role="baseline", rows=metrics_of(rows, score), gain=gain))
    return EvaluationResult(
        test=Span(START + timedelta(days=2), AS_OF),
        unit="GPU and hour",
        methods=tuple(methods),
        threshold=0.18,
        threshold_note="Lowest threshold within the budget of 400 alerts per 1,000 nodes and day.",
        top_unit="GPU-8c1e0d52-77aa-4b1f-9d0c-000000000017",
        without_top_unit=metrics_of(rows.filter(pl.col("entity_id") != "g17"), "score"),
        classes=(
            FaultClass(fault_type="off_bus", n_incidents=12, n_caught=2, ceiling=0.3),
            FaultClass(fault_type="hbm_uncorrectable", n_incidents=64, n_caught=30, ceiling=0.5),
            FaultClass(fault_type="sdc", n_incidents=2, n_caught=0),
        ),
        recall_ceiling=0.46,
        fault_types=FaultTypeMetrics(31, 0.48, 0.71, 0.32, 0.55, 0.41),
    )


def telemetry() -> pl.DataFrame:
    """Three days of one GPU, every 15 min, with a hole of four hours and a counter reset."""
    rng = np.random.default_rng(11)
    first = ONSET - timedelta(days=2, hours=14, minutes=20)
    rows: list[dict[str, object]] = []
    errors, replays = 40, 3
    for i in range(288):
        at = first + timedelta(minutes=15 * i)
        if 100 <= i < 116:
            continue
        late = max(0.0, (i - 190) / 60)
        errors = 0 if i == 60 else errors + int(rng.poisson(0.05 + 9 * late))
        replays += int(rng.poisson(0.02))
        rows.append(
            {
                "gpu_uuid": "GPU-8c1e",
                "ts": at,
                "node": "gpu-02",
                "gpu_temp_c": 61 + 6 * np.sin(i / 15) + rng.normal(0, 1),
                "memory_temp_c": 78 + 5 * np.sin(i / 15) + 9 * late + rng.normal(0, 1),
                "power_w": 480 + 120 * np.sin(i / 9) + rng.normal(0, 15),
                "gpu_util_pct": 85.0 if i % 40 else None,
                "ecc_sbe_volatile": errors,
                "pcie_replay_count": replays,
            }
        )
    return table(CORE_GPU_TELEMETRY, rows)


def timeline() -> GpuTimeline:
    seen = telemetry()
    moments = [seen["ts"][0] + timedelta(hours=h) for h in range(70)]
    risk = [0.012 + 0.4 / (1 + np.exp(-(h - 50) / 4)) for h in range(70)]
    health = [
        ("xid", 63, timedelta(hours=20), 1),
        ("xid", 94, timedelta(hours=5), 3),
        ("xid", 94, timedelta(hours=2), 1),
        ("link", None, timedelta(hours=31), 2),
        ("xid", 48, timedelta(0), 1),
    ]
    return GpuTimeline(
        gpu_uuid="GPU-8c1e0d52-77aa-4b1f-9d0c-000000000017",
        node="gpu-02",
        slot="3",
        fault_type="hbm_uncorrectable",
        start=ONSET,
        telemetry=seen,
        scores=pl.DataFrame({"as_of": moments, "score": [*risk[:60], *[None] * 10]}),
        threshold=0.18,
        chosen_because="it has the longest lead of the 14 incidents caught; most are shorter.",
        health_events=table(
            CORE_HEALTH_EVENTS,
            [
                {
                    "event_id": f"e{i}",
                    "ts": ONSET - before,
                    "node": "gpu-02",
                    "kind": kind,
                    "code": code,
                    "count": count,
                }
                for i, (kind, code, before, count) in enumerate(health)
            ],
        ),
    )


def incidents() -> pl.DataFrame:
    onsets = [("gpu-02", ONSET), ("gpu-07", START + timedelta(days=4, hours=3))]
    return table(
        CORE_INCIDENTS,
        [
            {
                "incident_id": f"i-{node}",
                "entity_kind": "gpu",
                "entity_id": f"GPU-{node}",
                "node": node,
                "start": at,
                "fault_type": "hbm_uncorrectable",
                "evidence": "Xid 48",
                "detected_by": "xid",
                "catalogue_version": "1",
            }
            for node, at in onsets
        ],
    )


def reads() -> pl.DataFrame:
    return table(
        READS,
        [
            {
                "source": source,
                "origin": origin,
                "n_read": n_read,
                "n_parsed": n_parsed,
                "n_skipped": n_read - n_parsed - refused,
                "n_quarantined": refused,
            }
            for source, origin, n_read, n_parsed, refused in (
                ("dcgm_text", "dcgm/2026-01-29.prom", 48_210, 48_190, 3),
                ("dcgm_text", "dcgm/2026-01-30.prom", 47_800, 47_800, 0),
                ("kernel_log", "kernel/gpu-02.log", 9_120, 61, 2),
                ("sacct", "sacct/january.txt", 1_204, 1_190, 4),
            )
        ],
    )


def quarantine() -> pl.DataFrame:
    return table(
        QUARANTINE,
        [
            {
                "table": "raw/gpu_telemetry",
                "source": "dcgm_text",
                "origin": "dcgm/2026-01-29.prom",
                "rule": "power_w > 3000",
                "count": 3,
                "example": 'DCGM_FI_DEV_POWER_USAGE{gpu="3",UUID="GPU-8c1e"} 4294967295',
            },
            {
                "table": "raw/job_log",
                "source": "sacct",
                "origin": "sacct/january.txt",
                "rule": "line has 9 fields, header has 12",
                "count": 4,
                "example": "812|train a | grep b|COMPLETED",
            },
        ],
    )


def report_input(**changes: object) -> ReportInput:
    """The whole report; `changes` replace fields."""
    fields: dict[str, object] = {
        "site": "Demo site",
        "note": "Synthetic demo fleet: 12 nodes of 8 GPUs, failure rates 60 times those of "
        "published fleets. Base rates and alert volumes are not those of a real fleet.",
        "span": Span(datetime(2026, 1, 1, tzinfo=UTC), AS_OF),
        "as_of": AS_OF,
        "horizon_h": 24,
        "lead": timedelta(minutes=30),
        "models": (
            ModelCard(
                name="Failure score, 24 h",
                version="7",
                trained_on="synthetic",
                detail="61 incidents, 214 features",
            ),
        ),
        "node_scores": node_scores(),
        "node_threshold": 0.25,
        "coverage": 0.958,
        "decisions": decisions(),
        "evaluation": evaluation(),
        "timeline": timeline(),
        "incidents": incidents(),
        "reads": reads(),
        "quarantine": quarantine(),
    }
    return ReportInput(**{**fields, **changes})  # type: ignore[arg-type]


def bare_input() -> ReportInput:
    """A report whose every optional part is missing."""
    return report_input(
        note="",
        models=(),
        node_scores=table(NODE_SCORES, [score_rows("gpu-01", AS_OF, None)]),
        node_threshold=None,
        coverage=None,
        decisions=Missing("the hook did not run"),
        evaluation=Missing("fewer than 50 incidents"),
        timeline=Missing("no incident with telemetry before it"),
        incidents=CORE_INCIDENTS.empty(),
        reads=READS.empty(),
        quarantine=QUARANTINE.empty(),
    )
