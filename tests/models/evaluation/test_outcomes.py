"""Rules of live outcomes: what is a hit, a false alarm, a miss, and what cannot be told."""

from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.contracts import UTC_TIME
from features.errors import DataError
from features.monitoring_tables import LIVE_OUTCOMES, LIVE_QUALITY
from features.tables import CORE_INCIDENTS, LABELS, NODE_SCORES
from models.evaluation.outcomes import calibration_sums, judge_alerts, live_quality, with_labels

T0 = datetime(2026, 1, 7, tzinfo=UTC)  # a Wednesday
HOUR = timedelta(hours=1)
MONDAY = datetime(2026, 1, 5, tzinfo=UTC)


def scores(*rows: tuple[str, int, float | None], model: str = "m/1") -> pl.DataFrame:
    made = [
        dict.fromkeys(NODE_SCORES.schema)
        | {"node": n, "entity_id": n, "as_of": T0 + h * HOUR, "horizon_h": 24, "score": score,
           "model_version": model}
        for n, h, score in rows
    ]  # fmt: skip
    return pl.DataFrame(made, schema=NODE_SCORES.schema)


def labels(*rows: tuple[str, int, int | None, str | None]) -> pl.DataFrame:
    """Node, hour, label, and the incident or what censored it."""
    made: list[dict[str, Any]] = []
    for node, hour, label, word in rows:
        row = {"entity_kind": "node", "entity_id": node, "as_of": T0 + hour * HOUR}
        row |= {"horizon_h": 24, "label": label}
        row |= {"incident_id": word} if label else {"censored_by": word}
        made.append(dict.fromkeys(LABELS.schema) | row)
    return pl.DataFrame(made, schema=LABELS.schema)


INCIDENTS = pl.DataFrame(
    [
        dict.fromkeys(CORE_INCIDENTS.schema)
        | {"incident_id": name, "start": T0 + hour * HOUR, "fault_type": "nvlink"}
        for name, hour in (("i1", 10), ("i2", 20))
    ],
    schema=CORE_INCIDENTS.schema,
)


def judged(alerts: pl.DataFrame, rows: pl.DataFrame) -> list[tuple[Any, ...]]:
    found = judge_alerts(alerts, rows, incidents=INCIDENTS)
    assert LIVE_OUTCOMES.enforce(found).rejects.is_empty()
    return found.select("node", "outcome", "incident_id", "lead_h").rows()


ROWS = (("a", 0, 0.9), ("a", 1, 0.8), ("b", 0, 0.1), ("c", 0, 0.7), ("d", 0, 0.7), ("e", 0, 0.7))
LABELLED = labels(
    ("a", 0, 1, "i1"), ("a", 1, 1, "i1"), ("b", 0, 1, "i2"), ("c", 0, 0, None),
    ("d", 0, None, "own_action"), ("e", 0, None, "data_end"),
)  # fmt: skip


def test_each_alert_has_its_outcome_once_it_can_be_known() -> None:
    rows = with_labels(scores(*ROWS), LABELLED)
    alerts = scores(("a", 0, 0.9), ("c", 0, 0.7), ("d", 0, 0.7), ("e", 0, 0.7))
    assert judged(alerts, rows) == [
        ("a", "hit", "i1", 10.0),
        ("b", "miss", "i2", None),
        ("c", "false_alarm", None, None),
        ("d", "censored", None, None),
    ]


def test_an_incident_that_only_unknown_scores_preceded_is_missed() -> None:
    rows = with_labels(scores(("a", 0, None)), labels(("a", 0, 1, "i1")))
    found = judge_alerts(scores().clear(), rows, incidents=INCIDENTS)
    assert found.select("outcome", "score").rows() == [("miss", None)]


def test_a_miss_is_told_at_the_last_moment_for_an_alert() -> None:
    rows = with_labels(scores(*ROWS[:2]), LABELLED)
    found = judge_alerts(scores().clear(), rows, incidents=INCIDENTS)
    assert found.select("as_of", "score").rows() == [(T0 + HOUR, 0.8)]


def test_an_alert_given_twice_is_refused() -> None:
    twice = scores(("a", 0, 0.9), ("a", 0, 0.9))
    with pytest.raises(DataError, match="two alerts share"):
        judge_alerts(twice, with_labels(twice, LABELLED), incidents=INCIDENTS)


def test_quality_counts_alerts_for_precision_and_incidents_for_recall() -> None:
    rows = with_labels(scores(*ROWS), LABELLED)
    alerts = scores(("a", 0, 0.9), ("a", 1, 0.8), ("c", 0, 0.7), ("d", 0, 0.7))
    outcomes = judge_alerts(alerts, rows, incidents=INCIDENTS)
    quality = live_quality(outcomes, calibration_sums(rows))
    assert LIVE_QUALITY.enforce(quality).rejects.is_empty()
    row = quality.row(0, named=True)
    assert row["week"] == MONDAY
    assert [row[f"n_{name}"] for name in ("alerts", "hits", "misses", "censored", "rows")] == [
        3, 2, 1, 1, 4,
    ]  # fmt: skip
    assert row["precision"] == pytest.approx(2 / 3)
    assert row["recall"] == pytest.approx(1 / 2)  # two alerts, one incident of two
    assert row["mean_score"] == pytest.approx((0.9 + 0.8 + 0.1 + 0.7) / 4)
    assert row["observed_rate"] == pytest.approx(3 / 4)
    assert row["brier"] == pytest.approx((0.01 + 0.04 + 0.81 + 0.49) / 4)
    assert row["median_lead_h"] == pytest.approx(9.5)


def test_a_week_without_alerts_has_no_precision_and_no_row_without_anything() -> None:
    rows = with_labels(scores(("c", 0, 0.2)), LABELLED)
    outcomes = judge_alerts(scores().clear(), rows, incidents=INCIDENTS)
    row = live_quality(outcomes, calibration_sums(rows)).row(0, named=True)
    assert (row["precision"], row["recall"], row["n_rows"]) == (None, None, 1)
    assert live_quality(outcomes, calibration_sums(rows.clear())).is_empty()


def test_the_hour_that_ends_at_midnight_belongs_to_the_week_it_lies_in() -> None:
    at = MONDAY + timedelta(days=7)
    hour = (at - T0) // HOUR
    rows = with_labels(scores(("c", hour, 0.2)), labels(("c", hour, 0, None)))
    assert calibration_sums(rows)["week"].to_list() == [MONDAY]


def test_models_are_told_apart() -> None:
    both = pl.concat([scores(("a", 0, 0.9)), scores(("c", 0, 0.7), model="m/2")])
    sums = calibration_sums(with_labels(both, LABELLED))
    assert sums["model_version"].to_list() == ["m/1", "m/2"]


ROW = st.tuples(st.sampled_from("abc"), st.integers(0, 5))


@given(st.dictionaries(ROW, st.sampled_from([0, 1, None]), max_size=8), st.sets(ROW, max_size=4))
def test_every_alert_with_a_known_label_is_judged_once_and_no_incident_twice(
    course: dict[tuple[str, int], int | None], alerted: set[tuple[str, int]]
) -> None:
    word = {0: None, 1: "i1", None: "data_end"}
    labelled = labels(*((n, h, label, word[label]) for (n, h), label in course.items()))
    rows = with_labels(scores(*((n, h, 0.5) for n, h in course)), labelled)
    alerts = scores(*((n, h, 0.5) for n, h in alerted))
    found = judge_alerts(alerts, rows, incidents=INCIDENTS)
    known = [key for key in alerted if course.get(key) is not None]
    assert found.filter(pl.col("outcome") != "miss").height == len(known)
    for node in "abc":
        own = found.filter(pl.col("node") == node, pl.col("incident_id") == "i1")
        has_incident = any(n == node and label == 1 for (n, _), label in course.items())
        kinds = set(own["outcome"])
        assert len(kinds) == has_incident  # caught or missed, never both
        assert (own["outcome"] == "miss").sum() <= 1


def slow_quality(
    found: pl.DataFrame, rows: pl.DataFrame
) -> dict[tuple[Any, ...], dict[str, float | None]]:
    """Quality by week and model, counted one row at a time."""

    def monday(at: datetime) -> datetime:
        day = at - timedelta(microseconds=1)
        midnight = day.replace(hour=0, minute=0, second=0, microsecond=0)
        return midnight - timedelta(days=midnight.weekday())

    def share(part: float, whole: float) -> float | None:
        return part / whole if whole else None

    groups: dict[tuple[Any, ...], tuple[list[Any], list[Any]]] = {}
    for side, frame in enumerate((found, rows)):
        for row in frame.iter_rows(named=True):
            is_known = side == 0 or (row["score"] is not None and row["label"] is not None)
            if is_known:
                group = (monday(row["as_of"]), row["model_version"])
                groups.setdefault(group, ([], []))[side].append(row)
    made = {}
    for group, (judged_rows, scored) in groups.items():
        hits = [row for row in judged_rows if row["outcome"] == "hit"]
        false = [row for row in judged_rows if row["outcome"] == "false_alarm"]
        caught = {row["incident_id"] for row in hits}
        missed = [row for row in judged_rows if row["outcome"] == "miss"]
        errors = [(row["score"] - row["label"]) ** 2 for row in scored]
        made[group] = {
            "precision": share(len(hits), len(hits) + len(false)),
            "recall": share(len(caught), len(caught) + len(missed)),
            "mean_score": share(sum(row["score"] for row in scored), len(scored)),
            "observed_rate": share(sum(row["label"] for row in scored), len(scored)),
            "brier": share(sum(errors), len(scored)),
            "median_lead_h": median(row["lead_h"] for row in hits) if hits else None,
        }
    return made


PLACE = st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.sampled_from(["m/1", "m/2"]))
SEEN = st.tuples(st.sampled_from([0.1, 0.8, None]), st.sampled_from(["i1", "i2", "own_action", ""]))


@given(st.dictionaries(PLACE, SEEN, max_size=12), st.sets(PLACE, max_size=6))
def test_live_quality_is_what_counting_by_hand_gives(
    course: dict[tuple[str, int, str], tuple[float | None, str]],
    alerted: set[tuple[str, int, str]],
) -> None:
    # Half a day apart from Saturday on: a week ends among them.
    once = {(n, h * 12 - 96 + 24 * 6): (m, *seen) for (n, h, m), seen in course.items()}
    frame = pl.concat(
        [scores(), *(scores((n, h, s), model=m) for (n, h), (m, s, _) in once.items())]
    )
    labelled = labels(
        *(
            (n, h, 1, word) if word[:1] == "i" else (n, h, None if word else 0, word or None)
            for (n, h), (_, _, word) in once.items()
        )
    )
    rows = with_labels(frame, labelled)
    at = {(n, h * 12 - 96 + 24 * 6) for n, h, _ in alerted} & once.keys()
    alerts = pl.concat([scores(), *(scores((n, h, 0.9), model=once[n, h][0]) for n, h in at)])
    incidents = INCIDENTS.with_columns(start=pl.lit(T0 + 200 * HOUR).cast(UTC_TIME))
    found = judge_alerts(alerts, rows, incidents=incidents)
    fast = live_quality(found, calibration_sums(rows))
    slow = slow_quality(found, rows)
    assert {(row["week"], row["model_version"]) for row in fast.to_dicts()} == slow.keys()
    for row in fast.to_dicts():
        for name, value in slow[row["week"], row["model_version"]].items():
            assert row[name] == (None if value is None else pytest.approx(value)), name
