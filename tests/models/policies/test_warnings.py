"""Rules of turning scores into alerts, against a slow reading of the definition."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.contracts import UTC_TIME
from features.errors import DataError
from models.policies.warnings import WarningPolicy, raise_alerts

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def scores_of(entries: dict[tuple[str, int], float | None]) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "entity_id": [entity for entity, _ in entries],
            "as_of": [START + hour * HOUR for _, hour in entries],
            "score": list(entries.values()),
        },
        schema={"entity_id": pl.String, "as_of": UTC_TIME, "score": pl.Float64},
    )


ENTRIES = st.dictionaries(
    st.tuples(st.sampled_from("ab"), st.integers(0, 30)),
    st.one_of(st.none(), st.sampled_from([0.1, 0.5, 0.9])),
    max_size=40,
)
POLICIES = st.builds(
    lambda n, more, cooldown: WarningPolicy(
        threshold=0.5, n=n, k=n + more, tick=HOUR, cooldown=cooldown * HOUR
    ),
    st.integers(1, 3),
    st.integers(0, 3),
    st.integers(0, 8),
)


def slow_alerts(entries, policy: WarningPolicy) -> set[tuple[str, datetime]]:
    """The definition read word for word, hour by hour."""
    alerts: set[tuple[str, datetime]] = set()
    cooldown, k = policy.cooldown // HOUR, policy.k
    for entity in "ab":
        fired: list[int] = []
        for hour in range(31):
            above = [
                h
                for h in range(hour - k + 1, hour + 1)
                if (entries.get((entity, h)) or 0.0) >= policy.threshold
            ]
            is_quiet = not any(hour - cooldown < h < hour for h in fired)
            if hour in above and len(above) >= policy.n and is_quiet:
                fired.append(hour)
                alerts.add((entity, START + hour * HOUR))
    return alerts


def as_set(alerts: pl.DataFrame) -> set[tuple[str, datetime]]:
    return set(alerts.select("entity_id", "as_of").iter_rows())


@given(ENTRIES, POLICIES)
def test_alerts_are_those_of_the_definition(entries, policy) -> None:
    assert as_set(raise_alerts(scores_of(entries), policy)) == slow_alerts(entries, policy)


@pytest.mark.parametrize(("k", "n_alerts"), [(2, 0), (3, 1)])
def test_a_score_k_ticks_ago_is_out_of_the_window(k, n_alerts) -> None:
    scores = scores_of({("a", 0): 0.9, ("a", 2): 0.9})
    policy = WarningPolicy(threshold=0.5, n=2, k=k, tick=HOUR, cooldown=HOUR)
    assert raise_alerts(scores, policy).height == n_alerts


@given(ENTRIES, POLICIES, st.integers(0, 30))
def test_two_runs_raise_what_one_run_raises(entries, policy, cut) -> None:
    scores = scores_of(entries)
    moment = START + cut * HOUR
    first = raise_alerts(scores.filter(pl.col("as_of") < moment), policy)
    recent = scores.filter(pl.col("as_of") >= moment - policy.k * HOUR)
    second = raise_alerts(recent, policy, earlier=first)
    new = {alert for alert in as_set(second) if alert[1] >= moment}
    assert as_set(second) - as_set(first) == new
    assert as_set(first) | new == as_set(raise_alerts(scores, policy))


@given(ENTRIES, POLICIES)
def test_a_second_run_over_the_same_scores_raises_nothing(entries, policy) -> None:
    scores = scores_of(entries)
    alerts = raise_alerts(scores, policy)
    assert raise_alerts(scores, policy, earlier=alerts).is_empty()


@given(ENTRIES, POLICIES, st.randoms())
def test_the_order_of_scores_does_not_matter(entries, policy, random) -> None:
    items = list(entries.items())
    random.shuffle(items)
    shuffled = raise_alerts(scores_of(dict(items)), policy)
    assert shuffled.equals(raise_alerts(scores_of(entries), policy))


def test_an_unknown_score_is_not_above() -> None:
    policy = WarningPolicy(threshold=0.0, tick=HOUR, cooldown=0 * HOUR)
    assert raise_alerts(scores_of({("a", 0): None}), policy).is_empty()


def test_two_scores_of_one_moment_are_refused() -> None:
    scores = scores_of({("a", 0): 0.5})
    policy = WarningPolicy(threshold=0.5, tick=HOUR, cooldown=HOUR)
    with pytest.raises(DataError, match="share entity_id and as_of"):
        raise_alerts(pl.concat([scores, scores]), policy)


def test_a_missing_column_is_named() -> None:
    policy = WarningPolicy(threshold=0.5, tick=HOUR, cooldown=HOUR)
    with pytest.raises(DataError, match="'score' is missing"):
        raise_alerts(scores_of({}).drop("score"), policy)


@pytest.mark.parametrize(
    "values",
    [
        {"n": 0, "k": 1, "tick": HOUR, "cooldown": HOUR},
        {"n": 3, "k": 2, "tick": HOUR, "cooldown": HOUR},
        {"n": 1, "k": 1, "tick": 0 * HOUR, "cooldown": HOUR},
        {"n": 1, "k": 1, "tick": HOUR, "cooldown": -HOUR},
    ],
)
def test_a_policy_no_row_can_satisfy_is_refused(values) -> None:
    with pytest.raises(DataError, match="warning policy"):
        WarningPolicy(threshold=0.5, **values)


@given(POLICIES)
def test_a_policy_survives_json(policy) -> None:
    assert WarningPolicy.from_dict(policy.to_dict()) == policy


def test_importing_the_policy_loads_no_trainer() -> None:
    code = (
        "import sys, models.policies.warnings; "
        "sys.exit(any(m in sys.modules for m in ('lightgbm', 'mlflow', 'sklearn', 'pandas')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
