"""Rules of event and job features, against plain-Python counts."""

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.catalogue import FaultCatalogue
from features.event_features import EventSpec, build_events
from features.job_features import JobSpec, build_job_features
from features.tables import CORE_HEALTH_EVENTS, CORE_JOBS

T0 = datetime(2026, 1, 10, tzinfo=UTC)
ROW = {"pattern": "", "fault_type": "", "note": ""}
CATALOGUE = FaultCatalogue.from_rows(
    [
        {
            **ROW,
            "kind": "xid",
            "code": "48",
            "role": "primary",
            "fault_type": "hbm_uncorrectable",
            "group": "hbm",
        },
        {**ROW, "kind": "xid", "code": "13", "role": "noise", "group": "app"},
        {**ROW, "kind": "xid", "code": "45", "role": "secondary", "group": "other"},
    ],
    version="t",
)
GROUP = {48: "hbm", 13: "app", 7: "other"}
HOURS = (1, 24, 168)
ROWS = pl.DataFrame(
    {"entity_id": ["a", "b"], "node": ["n", "n"], "as_of": [T0, T0]},
    schema_overrides={"as_of": pl.Datetime("us", "UTC")},
)


def at(hours: float) -> datetime:
    return T0 + timedelta(hours=hours)


def fill(contract: Any, rows: list[dict[str, Any]]) -> pl.DataFrame:
    names = contract.schema.names()
    return pl.DataFrame([{**dict.fromkeys(names), **row} for row in rows], schema=contract.schema)


events = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", None]),
        st.sampled_from([48, 13, 7]),
        st.sampled_from([-800.0, -168.0, -167.5, -24.0, -23.0, -1.0, -0.5, -1e-9, 0.0, 2.0]),
    ),
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(events)
def test_event_counts_and_times_are_those_of_a_plain_loop(
    given_events: list[tuple[str | None, int, float]],
) -> None:
    rows = [
        {
            "event_id": str(i),
            "ts": at(h),
            "node": "n",
            "gpu_uuid": g,
            "kind": "xid",
            "code": c,
            "count": 9,
        }
        for i, (g, c, h) in enumerate(given_events)
    ]
    got = build_events(ROWS, fill(CORE_HEALTH_EVENTS, rows), catalogue=CATALOGUE, spec=EventSpec())
    for row in got.iter_rows(named=True):
        own = [(c, at(h)) for g, c, h in given_events if g == row["entity_id"]]
        for group in ("hbm", "app", "other"):
            times = [t for c, t in own if GROUP[c] == group and t < T0]
            for name, hours in zip(("1h", "24h", "7d"), HOURS, strict=True):
                expected = sum(t >= at(-hours) for t in times)
                assert row[f"{group}_event_count_{name}"] == expected
            recent = [t for t in times if t >= at(-720)]
            since = (T0 - max(recent)).total_seconds() / 3600 if recent else None
            value = row[f"hours_since_{group}_event"]
            assert (value is None) == (since is None)
            assert since is None or abs(value - since) < 1e-3
        assert row["distinct_xid_count_24h"] == len({c for c, t in own if at(-24) <= t < T0})
        of_node = [at(h) for g, _, h in given_events if g is None and at(-24) <= at(h) < T0]
        assert row["node_event_count_24h"] == len(of_node)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b"]),
            st.sampled_from([-721.0, -168.0, -30.0, -24.0, -23.9, -23.8, -1.0, -1e-9, 0.0, 0.1]),
        ),
        max_size=8,
    )
)
def test_bursts_of_application_xids_are_those_of_a_plain_loop(
    given_events: list[tuple[str, float]],
) -> None:
    rows = [
        {"ts": at(h), "node": "n", "gpu_uuid": g, "kind": "xid", "code": 13}
        for g, h in given_events
    ]
    got = build_events(ROWS, fill(CORE_HEALTH_EVENTS, rows), catalogue=CATALOGUE, spec=EventSpec())
    for row in got.iter_rows(named=True):
        for name, of in (("app_burst_count", row["entity_id"]), ("node_app_burst_count", None)):
            times = sorted({at(h) for g, h in given_events if of in {g, None}})
            first = [
                t
                for t, before in zip(times, [None, *times], strict=False)
                if before is None or t - before >= timedelta(minutes=10)
            ]
            for window, hours in (("24h", 24), ("7d", 168), ("30d", 720)):
                expected = sum(at(-hours) <= t < T0 for t in first)
                assert row[f"{name}_{window}"] == expected


jobs = st.lists(
    st.tuples(
        st.sampled_from([-200.0, -30.0, -24.0, -5.0, -1.0, 0.0, 3.0]),
        st.none() | st.sampled_from([0.0, 0.5, 1.0, 4.0, 5.0, 40.0]),
        st.sampled_from(["FAILED", "COMPLETED", "NODE_FAIL"]),
    ),
    max_size=6,
)


@settings(max_examples=60, deadline=None)
@given(jobs)
def test_job_features_are_those_of_a_plain_loop(
    given_jobs: list[tuple[float, float | None, str]],
) -> None:
    spans = [(at(s), None if n is None else at(s + n), state) for s, n, state in given_jobs]
    rows = [
        {"job_id": str(i), "attempt": 0, "nodes": ["m", "n"], "start": s, "end": e, "end_state": x}
        for i, (s, e, x) in enumerate(spans)
    ]
    got = build_job_features(ROWS, fill(CORE_JOBS, rows), spec=JobSpec()).row(0, named=True)
    real = [(s, e, x) for s, e, x in spans if e is None or e > s]
    running = [s for s, e, _ in real if s < T0 and (e is None or e >= T0)]
    assert got["running_job_count"] == len(running)
    assert got["job_start_count_24h"] == sum(at(-24) <= s < T0 for s, _, _ in real)
    bad = [e for _, e, x in real if e is not None and e < T0 and x != "COMPLETED"]
    assert got["failed_job_count_24h"] == sum(e >= at(-24) for e in bad)
    starts = [s for s, _, _ in real if s < T0]
    assert (got["hours_since_job_start"] is None) == (not starts)


@pytest.mark.parametrize(
    ("seconds", "gpu", "counted"),
    [(0, "a", 0), (5, "a", 0), (5.1, "a", 1), (-1, "a", 1), (5, "b", 1)],
)
def test_a_secondary_event_soon_after_a_primary_one_of_its_gpu_is_an_echo(
    seconds: float, gpu: str, counted: int
) -> None:
    xids = [("a", 48, 0.0), (gpu, 45, seconds)]
    rows = [
        {
            "ts": at(-0.5) + timedelta(seconds=s),
            "node": "n",
            "gpu_uuid": g,
            "kind": "xid",
            "code": c,
        }
        for g, c, s in xids
    ]
    spec = EventSpec(echo_within=timedelta(seconds=5))
    got = build_events(ROWS, fill(CORE_HEALTH_EVENTS, rows), catalogue=CATALOGUE, spec=spec)
    assert got["other_event_count_1h"].sum() == counted
    assert got["hbm_event_count_1h"].sum() == 1
    assert got["distinct_xid_count_24h"].sum() == 1 + counted


def test_links_of_a_node_are_counted_apart_from_its_other_events() -> None:
    told = [("oom", -0.5), ("link", -2.0), ("link", -30.0), ("link", 0.0), ("edac", -3.0)]
    rows = [
        {"event_id": str(i), "ts": at(h), "node": "n", "kind": kind, "count": 1}
        for i, (kind, h) in enumerate(told)
    ]
    got = build_events(ROWS, fill(CORE_HEALTH_EVENTS, rows), catalogue=CATALOGUE, spec=EventSpec())
    row = got.row(0, named=True)
    assert [row[f"node_link_event_count_{w}"] for w in ("1h", "24h", "7d")] == [0, 1, 2]
    assert row["node_event_count_24h"] == 3
    assert row["hours_since_node_link_event"] == pytest.approx(2.0)
