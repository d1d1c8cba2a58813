"""One row per job and step: the latest known value of each metric, in whatever order rows come."""

import math
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.raw_tables import RAW_TRAINING_METRICS
from features.tables import CORE_TRAINING_METRICS
from features.training import build_training_metrics

T0 = datetime(2026, 1, 5, tzinfo=UTC)


def report(step=1, minute=0, *, job="a", source="s", **values):
    return {
        "job_id": job, "step": step,
        "ts": None if minute is None else T0 + timedelta(minutes=minute),
        "loss": None, "grad_norm": None, "step_time_s": None, "checkpoint_step": None,
        "source": source, "ingested_at": T0, **values,
    }  # fmt: skip


def built(*rows):
    result = build_training_metrics(pl.DataFrame(list(rows), schema=RAW_TRAINING_METRICS.schema))
    assert result.frame.schema == CORE_TRAINING_METRICS.schema
    n_rejected = result.rejects["count"].sum()
    assert result.n_read == len(rows) == result.frame.height + result.n_merged + n_rejected
    return result.frame


def test_metrics_of_a_step_that_come_one_by_one_are_one_row():
    frame = built(report(loss=2.0), report(minute=1, grad_norm=3.0), report(2, loss=4.0))
    assert frame.select("step", "ts", "loss", "grad_norm").rows() == [
        (1, T0 + timedelta(minutes=1), 2.0, 3.0),
        (2, T0, 4.0, None),
    ]


def test_a_step_done_again_after_a_restart_is_what_it_was_last():
    frame = built(report(minute=90, loss=1.5, step_time_s=2.0), report(minute=5, loss=2.0))
    assert frame.select("ts", "loss", "step_time_s").rows() == [
        (T0 + timedelta(minutes=90), 1.5, 2.0)
    ]


def test_a_report_without_a_time_is_older_than_any_with_one():
    assert built(report(minute=None, loss=9.0), report(loss=1.0))["loss"].to_list() == [1.0]


def test_nan_is_a_value_and_null_is_not():
    frame = built(report(loss=2.0, grad_norm=math.inf), report(minute=1, loss=math.nan))
    assert math.isnan(frame["loss"].item())
    assert frame["grad_norm"].item() == math.inf


def test_jobs_do_not_mix():
    assert built(report(loss=1.0), report(job="b", loss=2.0))["loss"].to_list() == [1.0, 2.0]


def test_no_reports_are_an_empty_table():
    assert built().is_empty()


@pytest.mark.parametrize("bad", [{"step_time_s": math.nan}, {"step_time_s": -1.0}, {"step": -1}])
def test_what_breaks_the_contract_is_counted(bad):
    assert built({**report(loss=1.0), **bad}).is_empty()


NUMBERS = st.none() | st.sampled_from([0.0, 1.0, math.nan, math.inf])


@settings(max_examples=100)
@given(
    st.lists(
        st.builds(
            report,
            st.integers(0, 2),
            st.none() | st.integers(0, 2),
            job=st.sampled_from("ab"),
            source=st.sampled_from("st"),
            loss=NUMBERS,
            grad_norm=NUMBERS,
            checkpoint_step=st.none() | st.integers(0, 2),
        ),
        max_size=9,
    ),
    st.data(),
)
def test_order_and_repeats_change_nothing(rows, data):
    shuffled = data.draw(st.permutations(rows + rows[:2]))
    assert built(*shuffled).equals(built(*rows))
