"""Ticks and score rows made by hand; imports little, as a process that is killed often needs it."""

from datetime import UTC, datetime, timedelta

import polars as pl

from features.tables import GPU_SCORES, NODE_SCORES
from pipelines.serving.score_database import Tick
from pipelines.serving.score_history import HistoryRule

T0 = datetime(2026, 1, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)
RULE = HistoryRule(floor=0.01, step=2.0, most_gpu_rows=5)


def tick_of(hour: int, digest: str = "a") -> Tick:
    as_of = T0 + hour * HOUR
    return Tick(
        as_of=as_of, published_at=as_of, expires_at=as_of + HOUR, coverage=1.0,
        model_versions={24: f"m/{hour}"}, trained_on="real", digest=f"{hour}{digest}",
    )  # fmt: skip


def rows_of(kind: str, hour: int, scores: dict[str, float | None]) -> pl.DataFrame:
    contract = GPU_SCORES if kind == "gpu" else NODE_SCORES
    rows = [
        dict.fromkeys(contract.schema)
        | {
            "entity_kind": kind, "entity_id": name, "node": name if kind == "node" else "n1",
            "as_of": T0 + hour * HOUR, "horizon_h": 24, "score": score,
            "status": "unknown" if score is None else "ok", "reasons": ["hot"],
            "missing_share": 0.0, "model_version": "m", "trained_on": "real",
        }
        for name, score in scores.items()
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=contract.schema)
