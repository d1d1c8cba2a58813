"""Drift of an installation: the last weeks of each champion's inputs and scores.

What drift is, and its words, are in `models.drift`; Dagster only calls this.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import polars as pl

from features.contracts import TableContract
from features.monitoring_tables import DRIFT
from features.tables import GPU_MATRIX, GPU_SCORES, LABELS
from models.bundle import ModelBundle
from models.drift.calibration import CalibrationWeek, calibration_by_week, calibration_moments
from models.drift.inputs import (
    SCORE,
    WEEK,
    FeatureDrift,
    find_drift,
    one_row_per_entity,
    sample_moments,
    week_start,
)
from models.drift.words import describe_calibration, describe_feature_drift, group_of
from models.evaluation.gate import features_not_built
from models.registry.model_registry import CHAMPION
from pipelines.flow.steps import TICK, registered_name, registry_of
from pipelines.settings import Settings
from pipelines.storage.store import Span, TableStore

WEEKS: Final = 8
"""Weeks looked at by default: long enough that labels of a 7-day horizon have come in."""

_MICROSECOND: Final = timedelta(microseconds=1)


def drift_of(settings: Settings, *, now: datetime, n_weeks: int = WEEKS) -> pl.DataFrame:
    """Holds the last whole weeks against what each champion was trained on.

    Args:
        settings: Store, registry, horizons.
        now: Where an open record ends.
        n_weeks: Weeks to look at.

    Returns:
        monitoring/drift: per champion and week a row per feature, one for the score, and one for
        calibration where outcomes are known. Weeks the champion was trained on are left out.
    """
    end = week_start(settings.data_end(now) + _MICROSECOND)
    weeks = [end - step * WEEK for step in range(n_weeks, 0, -1)]
    registry, store = registry_of(settings), TableStore(settings.store_root)
    bundles = {}
    for horizon_h in settings.horizons_h:
        champion = registry.version_of(registered_name(settings, horizon_h), CHAMPION)
        if champion is not None:
            bundles[champion.label] = registry.load(champion)
    parts = [DRIFT.empty()]
    for start in weeks if bundles else ():
        if start < settings.start:
            continue
        rows = _week_rows(store, start)
        for label, bundle in bundles.items():
            if start >= bundle.model.data_span[1]:
                told = _calibration(store, bundle, label=label, start=start)
                parts.append(_table(rows, bundle, told, label=label, start=start))
    return pl.concat(parts)


def drift_in_words(found: pl.DataFrame) -> tuple[str, int]:
    """The newest week of each model in words, and the exit code: 1 where something drifted.

    Args:
        found: monitoring/drift.
    """
    if found.is_empty():
        said = "Nothing to compare: there is no champion, or no whole week since its training."
        return said, 0
    lines, is_alarm = [], False
    for (label,), rows in found.group_by("model_version", maintain_order=True):
        last = rows.filter(pl.col("week") == pl.col("week").max(), pl.col("kind") != "calibration")
        calibration = rows.filter(pl.col("kind") == "calibration").tail(1)
        newest: datetime = rows.select(pl.col("week").max()).item()
        lines.append(f"{label}, week from {newest:%Y-%m-%d}")
        lines += [f"  {sentence}" for sentence in _alarms(last)]
        lines += [f"  Calibration: {sentence}" for sentence in calibration["sentence"]]
        is_alarm = is_alarm or bool(pl.concat([last, calibration])["is_alarm"].any())
    return "\n".join(lines), int(is_alarm)


def _alarms(week: pl.DataFrame) -> list[str]:
    """Alarms of a week, one per group of features made from the same inputs, strongest first."""
    if week.is_empty():
        return ["Inputs were not compared: too few GPUs, or a version without a reference."]
    alarms = week.filter("is_alarm").sort(pl.col("psi") / pl.col("psi_limit"), descending=True)
    if alarms.is_empty():
        return [f"{week.height} inputs and scores are as in training."]
    groups = alarms.group_by("group", maintain_order=True).agg(
        pl.col("sentence").first(), others=pl.len() - 1
    )
    return [
        sentence + (f" So have {others} more made from it." if others else "")
        for sentence, others in groups.select("sentence", "others").iter_rows()
    ]


def _week_rows(store: TableStore, start: datetime) -> pl.DataFrame:
    """The matrix at the moments of a week that are looked at: 7 hours of 168."""
    hours = _at(store, GPU_MATRIX, sample_moments(start))
    return one_row_per_entity(hours, start=start)


def _at(store: TableStore, contract: TableContract, moments: Sequence[datetime]) -> pl.DataFrame:
    """The rows of a table at some moments; those not stored are left out."""
    hours = [_stored(store, contract, Span(at - TICK, at)) for at in moments]
    rows = [hour for hour in hours if hour.height] or [contract.empty()]
    return pl.concat(rows, how="diagonal")


def _stored(store: TableStore, contract: TableContract, span: Span) -> pl.DataFrame:
    if not store.files(contract, span=span):
        return contract.empty()
    return store.read(contract, span=span)


def _calibration(
    store: TableStore, bundle: ModelBundle, *, label: str, start: datetime
) -> CalibrationWeek | None:
    """The scores that the champion gave in a week against what came."""
    horizon = timedelta(hours=bundle.model.horizon_h)
    moments = calibration_moments(start, horizon=horizon)
    scores = _at(store, GPU_SCORES, moments).filter(pl.col("model_version") == label)
    days = Span(start, start + WEEK)
    labels = _stored(store, LABELS, days).filter(
        pl.col("entity_kind") == "gpu", pl.col("horizon_h") == bundle.model.horizon_h
    )
    scored = scores.select("entity_id", "as_of", "score").join(
        labels.select("entity_id", "as_of", "label"), on=["entity_id", "as_of"]
    )
    return calibration_by_week(scored, start=start, horizon=horizon)


def _table(
    rows: pl.DataFrame,
    bundle: ModelBundle,
    told: CalibrationWeek | None,
    *,
    label: str,
    start: datetime,
) -> pl.DataFrame:
    records = [_calibration_record(told)] if told else []
    absent = features_not_built(bundle.model.feature_names, rows.columns)
    if absent and rows.height:
        records = [_absent_record(absent, bundle, n_rows=rows.height), *records]
    elif bundle.drift is not None and rows.height:
        drifts = find_drift(rows, bundle.drift, scores=bundle.model.scores(rows))
        records = [_feature_record(one, bundle) for one in drifts] + records
    common = {"model_version": label, "horizon_h": bundle.model.horizon_h, "week": start}
    every = dict.fromkeys(DRIFT.schema)
    return pl.DataFrame([every | common | record for record in records], schema=DRIFT.schema)


def _absent_record(absent: Sequence[str], bundle: ModelBundle, *, n_rows: int) -> dict[str, Any]:
    """Nothing can be compared, and nothing scored: the loudest drift there is."""
    named = ", ".join(absent[:3]) + (", ..." if len(absent) > 3 else "")
    return {
        "kind": "feature",
        "name": "features",
        "group": "features",
        "is_alarm": True,
        "n_rows": n_rows,
        "sentence": f"{len(absent)} of the {len(bundle.model.feature_names)} features that the "
        f"model reads are not built any more ({named}): it cannot score. Build them as when it was "
        "trained (feature_set and topology of the site), or train again.",
    }


def _feature_record(found: FeatureDrift, bundle: ModelBundle) -> dict[str, Any]:
    feature = next((one for one in bundle.features if one.name == found.name), None)
    return {
        "kind": SCORE if found.name == SCORE else "feature",
        "name": found.name,
        "group": group_of(feature),
        "is_alarm": found.is_alarm,
        "psi": found.psi,
        "psi_limit": found.limit,
        "n_rows": found.n_rows,
        "null_share": found.null_share,
        "training_null_share": found.training.null_share,
        "median": found.median,
        "training_median": found.training.median,
        "sentence": describe_feature_drift(found, feature),
    }


def _calibration_record(week: CalibrationWeek) -> dict[str, Any]:
    return {
        "kind": "calibration",
        "name": "calibration",
        "group": "calibration",
        "is_alarm": week.is_alarm,
        "n_rows": week.n_rows,
        "expected": week.expected,
        "observed": week.observed,
        "ratio_low": week.low,
        "ratio_high": week.high,
        "sentence": describe_calibration(week),
    }
