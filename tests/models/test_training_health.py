"""Training that hangs, slows or diverges: what is found, what is not, and nothing from later."""

from datetime import UTC, datetime, timedelta
from math import inf, isfinite, nan
from statistics import median

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.tables import CORE_GPU_TELEMETRY, CORE_JOBS, CORE_TRAINING_METRICS
from models.training_health import (
    ACTIVITY_SCHEMA,
    TRAFFIC_SCHEMA,
    HealthRules,
    find_divergence,
    find_slowdowns,
    find_stalls,
    job_activity,
)

T = datetime(2026, 1, 5, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
FEW = HealthRules(usual_steps=2)
NO_TRAFFIC = pl.DataFrame(schema=TRAFFIC_SCHEMA)
NO_ACTIVITY = pl.DataFrame(schema=ACTIVITY_SCHEMA)
NO_METRICS = CORE_TRAINING_METRICS.empty()


def steps(*values, column="loss", every=MINUTE, until=T):
    """A step per value, the last one `every` before `until`."""
    first = until - every * len(values)
    rows = [
        {"job_id": "j", "step": n, "ts": first + every * n, column: value}
        for n, value in enumerate(values)
    ]
    return pl.DataFrame(rows, schema=CORE_TRAINING_METRICS.schema)


def samples(schema, values, *, until=T, every=MINUTE):
    first = until - every * len(values)
    rows = [("j", first + every * n, value) for n, value in enumerate(values)]
    return pl.DataFrame(rows, schema=schema, orient="row")


def divergence(*values, column="loss"):
    found = find_divergence(steps(*values, column=column), as_of=T, rules=FEW)
    return found.select("kind", "signal", "value", "usual").rows()


@pytest.mark.parametrize("bad", [nan, inf, -inf])
@pytest.mark.parametrize("column", ["loss", "grad_norm"])
def test_a_value_that_is_not_finite_is_found(column, bad):
    [(kind, signal, value, usual)] = divergence(2.0, 2.0, bad, 2.0, column=column)
    assert (kind, signal, usual) == ("nan", column, None)
    assert not isfinite(value)


@pytest.mark.parametrize(("reached", "found"), [(9.99, []), (10.0, [("jump", "loss", 10.0, 2.0)])])
def test_a_jump_to_five_times_the_usual_is_found(reached, found):
    assert divergence(2.0, 2.0, reached) == found


def test_values_before_which_nothing_is_usual_are_no_jump():
    assert divergence(0.1, 50.0) == []
    assert divergence(-1.0, -1.0, 50.0) == []
    assert divergence(None, None, 50.0) == []


@given(st.lists(st.one_of(st.none(), st.floats(0, 100), st.just(nan)), max_size=9))
def test_jumps_are_those_of_the_plain_definition(values):
    finite = [(n, v) for n, v in enumerate(values) if v is not None and isfinite(v)]
    jumps = [
        n
        for place, (n, v) in enumerate(finite)
        if place >= 2
        and (usual := median(v for _, v in finite[place - 2 : place])) > 0
        and v >= 5 * usual
    ]
    found = find_divergence(steps(*values), as_of=T, rules=FEW).filter(kind="jump")
    assert found["at"].to_list() == [T - MINUTE * (len(values) - n) for n in jumps[:1]]


def stalls(traffic, metrics=NO_METRICS, **rules):
    found = find_stalls(metrics, traffic, as_of=T, rules=HealthRules(**rules))
    return found.select("signal", "at").rows()


def test_no_traffic_for_ten_minutes_is_a_hang_since_it_ceased():
    assert stalls(samples(TRAFFIC_SCHEMA, [5.0] + [0.0] * 11)) == [
        ("rdma_traffic", T - 11 * MINUTE)
    ]


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([5.0] + [0.0] * 9, id="too short"),
        pytest.param([5.0] + [0.0] * 10 + [1.0], id="it flows again"),
        pytest.param([0.0] * 12, id="it never flowed"),
        pytest.param([5.0, 0.0] + [None] * 9 + [0.0], id="a gap is unknown"),
        pytest.param([5.0] + [0.0] * 5 + [None] * 7, id="the end is unknown"),
        pytest.param([5.0] + [None] * 12, id="nothing is known"),
    ],
)
def test_what_is_no_hang(values):
    assert stalls(samples(TRAFFIC_SCHEMA, values)) == []


def test_a_job_that_ceased_to_report_steps_is_a_hang():
    until = T - 9 * MINUTE
    metrics = steps(*[1.0] * 12, until=until)
    assert stalls(NO_TRAFFIC, metrics) == [("steps", until - MINUTE)]
    assert stalls(NO_TRAFFIC, metrics, missed_steps=11) == []
    assert stalls(NO_TRAFFIC, metrics, quiet=11 * MINUTE) == []


def slow(activity=NO_ACTIVITY, metrics=NO_METRICS, rules=HealthRules()):  # noqa: B008
    found = find_slowdowns(metrics, activity, as_of=T, rules=rules)
    return found.select("signal", "value", "usual").rows()


def test_tensor_activity_below_half_of_the_usual_for_ten_minutes_is_slow():
    low = samples(ACTIVITY_SCHEMA, [0.5] * 12 + [0.2] * 10)
    assert slow(low) == [("tensor_activity", 0.2, 0.5)]
    assert slow(samples(ACTIVITY_SCHEMA, [0.5] * 12 + [0.2] * 9 + [0.3])) == []
    assert slow(samples(ACTIVITY_SCHEMA, [0.5] * 9 + [0.2] * 10)) == []


def test_steps_that_take_half_as_long_again_are_slow():
    metrics = steps(2.0, 2.0, 3.0, 3.0, column="step_time_s")
    assert slow(metrics=metrics, rules=FEW) == [("step_time", 3.0, 2.0)]
    assert slow(metrics=metrics.head(3), rules=FEW) == []


def test_activity_is_the_mean_over_the_gpus_of_a_job_and_shared_nodes_tell_nothing():
    jobs = pl.DataFrame(
        [
            {"job_id": "a", "attempt": 0, "nodes": ["n1", "n2"], "start": T, "end": T + MINUTE},
            {"job_id": "b", "attempt": 0, "nodes": ["n2"], "start": T},
        ],
        schema=CORE_JOBS.schema,
    )
    telemetry = pl.DataFrame(
        [
            ("g1", T, "n1", 0.2),
            ("g2", T, "n1", 0.4),
            ("g3", T, "n2", 0.9),
            ("g3", T + MINUTE, "n2", 0.9),
            ("g4", T, "n2", None),
        ],
        schema={
            name: CORE_GPU_TELEMETRY.schema[name]
            for name in ("gpu_uuid", "ts", "node", "tensor_active_ratio")
        },
        orient="row",
    )
    found = job_activity(jobs, telemetry)
    assert found.schema == ACTIVITY_SCHEMA
    assert [(j, t, round(v, 3)) for j, t, v in found.iter_rows()] == [
        ("a", T, 0.3),
        ("b", T + MINUTE, 0.9),
    ]


@given(
    later=st.lists(st.sampled_from([0.0, 0.1, 1.0, 100.0, nan]), max_size=6),
    cut=st.integers(0, 20),
)
def test_what_is_reported_at_or_after_as_of_changes_nothing(later, cut):
    as_of = T - cut * MINUTE
    past_loss = [1.0] * 14 + [30.0, nan] + [1.0] * 4
    metrics = steps(*past_loss).with_columns(step_time_s=pl.col("loss").fill_nan(1.0))
    more = steps(*later, until=T + len(later) * MINUTE).with_columns(pl.col("step") + 1000)
    both = pl.concat([metrics, more])
    traffic = samples(TRAFFIC_SCHEMA, [1.0] * 5 + [0.0] * 15)
    activity = samples(ACTIVITY_SCHEMA, [0.5] * 10 + [0.1] * 10)
    added = [
        samples(schema, later, until=T + len(later) * MINUTE)
        for schema in (TRAFFIC_SCHEMA, ACTIVITY_SCHEMA)
    ]

    def found(metrics, traffic, activity):
        rules = HealthRules(usual_steps=3)
        return [
            find_divergence(metrics, as_of=as_of, rules=rules),
            find_stalls(metrics, traffic, as_of=as_of, rules=rules),
            find_slowdowns(metrics, activity, as_of=as_of, rules=rules),
        ]

    known = found(*(frame.filter(pl.col("ts") < as_of) for frame in (metrics, traffic, activity)))
    told = found(both, pl.concat([traffic, added[0]]), pl.concat([activity, added[1]]))
    assert all(a.equals(b) for a, b in zip(known, told, strict=True))


def test_a_report_without_a_time_may_be_from_later_and_is_left():
    metrics = steps(1.0, 1.0, nan).with_columns(ts=pl.lit(None, dtype=pl.Datetime("us", "UTC")))
    assert find_divergence(metrics, as_of=T, rules=FEW).is_empty()
