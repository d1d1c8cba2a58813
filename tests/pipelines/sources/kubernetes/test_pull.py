"""Pulling lists from a server: pages, expiry, tries, partial rights, and what a span leaves out."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest

from features.errors import SourceError
from pipelines.sources.http.errors import AnswerError, HttpError
from pipelines.sources.kubernetes.client import ApiAnswer
from pipelines.sources.kubernetes.lists import ListLimits, Waits, get_json, list_pages
from pipelines.sources.kubernetes.pull import KubernetesQuery, pull_kubernetes
from pipelines.sources.result import SourceResult, merge
from tests.pipelines.sources.kubernetes.fixture import (
    NOW,
    Object,
    at,
    container,
    ended,
    event,
    node,
    pod,
    utc,
)

PODS = "/api/v1/pods"
Answer = Callable[[Mapping[str, str]], ApiAnswer]


def fine(document: Any) -> ApiAnswer:
    return ApiAnswer(200, json.dumps(document).encode())


def refusal(code: int, message: str = "no", *, wait: str = "", goes_on: str = "") -> ApiAnswer:
    status = {"kind": "Status", "message": message, "code": code, "metadata": {"continue": goes_on}}
    return ApiAnswer(code, json.dumps(status).encode(), wait)


@dataclass
class FakeApi:
    """A server made of lists; `answers` replace those of some paths."""

    lists: dict[str, list[Any]] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)
    calls: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    address: str = "https://k8s.example:6443"

    def get(self, path: str, params: Mapping[str, str]) -> ApiAnswer:
        self.calls.append((path, dict(params)))
        if path in self.answers:
            return self.answers[path](params)
        if path not in self.lists:
            return refusal(404, "the server could not find the requested resource")
        return self.page(path, params)

    def page(self, path: str, params: Mapping[str, str]) -> ApiAnswer:
        first, size = int(params.get("continue") or 0), int(params["limit"])
        found = self.lists[path][first : first + size]
        more = str(first + size) if first + size < len(self.lists[path]) else ""
        return fine({"kind": "List", "metadata": {"continue": more}, "items": found})


@dataclass
class FakeWaits:
    """Remembers how long was waited."""

    waited: list[float] = field(default_factory=list)

    def waits(self) -> Waits:
        return Waits(sleep=self.waited.append, jitter=lambda: 0.0, now=lambda: NOW)


def listed(api: FakeApi, **more: Any) -> list[Any]:
    limits = more.pop("limits", ListLimits(page_size=2))
    waits = more.pop("waits", FakeWaits().waits())
    pages = list_pages(api, PODS, limits=limits, waits=waits, **more)
    return [found for page in pages for found in page.objects]


def test_a_list_is_asked_for_page_by_page():
    api = FakeApi({PODS: list(range(5))})
    assert listed(api, params={"labelSelector": "a=b"}) == list(range(5))
    assert [call[1].get("continue") for call in api.calls] == [None, "2", "4"]
    assert all(call[1]["labelSelector"] == "a=b" for call in api.calls)


def test_an_expired_list_goes_on_with_the_token_it_is_offered():
    api = FakeApi({PODS: list(range(5))})

    def expired(params: Mapping[str, str]) -> ApiAnswer:
        del api.answers[PODS]
        return refusal(410, f"{params['continue']} is too old", goes_on="2")

    api.answers[PODS] = lambda params: (
        expired(params) if params.get("continue") else api.page(PODS, params)
    )
    assert listed(api) == list(range(5))


def test_an_expired_list_without_a_token_is_started_anew_some_times():
    api = FakeApi({PODS: list(range(3))})
    api.answers[PODS] = lambda params: (
        refusal(410, "too old") if params.get("continue") else api.page(PODS, params)
    )
    with pytest.raises(HttpError, match="410 too old"):
        listed(api, limits=ListLimits(page_size=2, restarts=2))
    assert len(api.calls) == 6


@pytest.mark.parametrize("code", [429, 500, 502, 503, 504])
def test_what_may_pass_is_tried_again_with_growing_waits(code: int):
    api, waits = FakeApi({PODS: [1]}), FakeWaits()
    left = [refusal(code)] * 3
    api.answers[PODS] = lambda params: left.pop() if left else api.page(PODS, params)
    assert listed(api, waits=waits.waits()) == [1]
    assert waits.waited == [0.5, 1.0, 2.0]


@pytest.mark.parametrize("code", [400, 401, 403, 404, 409, 410, 422])
def test_what_will_not_pass_is_told_at_once(code: int):
    api = FakeApi(answers={PODS: lambda _: refusal(code, "because")})
    with pytest.raises(HttpError, match=f"HTTP {code} because") as refused:
        get_json(api, PODS, {}, waits=FakeWaits().waits())
    assert refused.value.status == code
    assert len(api.calls) == 1


@pytest.mark.parametrize(
    ("asked", "waited"),
    [("7", 7.0), ("0", 0.5), ("Mon, 05 Jan 2026 12:00:09 GMT", 9.0), ("soon", 0.5), ("", 0.5)],
)
def test_the_wait_that_the_server_asks_for_is_kept(asked: str, waited: float):
    api, waits = FakeApi({PODS: [1]}), FakeWaits()
    left = [refusal(429, wait=asked)]
    api.answers[PODS] = lambda params: left.pop() if left else api.page(PODS, params)
    listed(api, waits=waits.waits())
    assert waits.waited == [waited]


def test_a_server_that_asks_for_too_long_a_wait_is_an_error():
    api = FakeApi(answers={PODS: lambda _: refusal(429, wait="3600")})
    with pytest.raises(HttpError, match="asks to wait 3600 s"):
        listed(api)
    assert len(api.calls) == 1


def test_tries_are_limited_and_counted():
    api = FakeApi(answers={PODS: lambda _: refusal(503)})
    with pytest.raises(HttpError, match=r"503 no \(5 tries\)"):
        listed(api)


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"", b'{"items":'])
def test_an_answer_that_is_no_object_is_asked_for_again(body: bytes):
    api = FakeApi({PODS: [1]})
    left = [ApiAnswer(200, body)]
    api.answers[PODS] = lambda params: left.pop() if left else api.page(PODS, params)
    assert listed(api) == [1]


def test_a_connection_that_breaks_is_tried_again_and_a_bad_certificate_is_not():
    api = FakeApi({PODS: [1]})

    def broken(params: Mapping[str, str], *, may_pass: bool) -> ApiAnswer:
        del api.answers[PODS]
        raise AnswerError("broken", may_pass=may_pass)

    api.answers[PODS] = lambda params: broken(params, may_pass=True)
    assert listed(api) == [1]
    api.answers[PODS] = lambda params: broken(params, may_pass=False)
    with pytest.raises(HttpError, match="broken"):
        listed(api)


@pytest.mark.parametrize("document", [{}, {"items": {}}, {"items": "x"}, {"kind": "Status"}])
def test_an_answer_that_is_no_list_is_no_empty_list(document: Object):
    with pytest.raises(HttpError, match="no list"):
        listed(FakeApi(answers={PODS: lambda _: fine(document)}))


def test_an_optional_list_that_is_none_is_not_passed_over_in_silence():
    with pytest.raises(HttpError, match="no list"):
        pull(cluster(**{"/api/v1/events": lambda _: fine({})}))


def test_a_list_that_never_ends_is_an_error():
    endless = {"metadata": {"continue": "same"}, "items": [1]}
    with pytest.raises(HttpError, match="without end"):
        listed(FakeApi(answers={PODS: lambda _: fine(endless)}))


def pull(api: FakeApi, *, since: datetime | None = None, **query: Any) -> SourceResult:
    start = since or NOW - timedelta(minutes=15)
    wanted = KubernetesQuery(limits=ListLimits(page_size=2), **query)
    results = pull_kubernetes(
        api, start, NOW, query=wanted, ingested_at=NOW, waits=FakeWaits().waits()
    )
    return merge(results)


def cluster(**answers: Answer) -> FakeApi:
    lists: dict[str, list[Any]] = {
        "/api/v1/nodes": [node("gpu001"), node("gpu002"), node("gpu003")],
        "/apis/batch/v1/jobs": [],
        PODS: [
            pod("llm-1", owner=("PyTorchJob", "llm")),
            pod("llm-2", owner=("PyTorchJob", "llm"), node="gpu002"),
            pod("llm-3", owner=("PyTorchJob", "llm"), node="gpu003"),
            pod("old", phase="Succeeded", containerStatuses=[container(ended(0, "02:00:00"))]),
        ],
        "/api/v1/events": [event("Rebooted", "x", lastTimestamp=at("11:50:00"))],
    }
    return FakeApi(lists, dict(answers))


def test_a_pull_reads_all_lists_and_joins_pods_across_pages():
    result = pull(cluster())
    jobs = result.table("raw/job_log").filter(pl.col("step").is_null())
    assert jobs.select("job_id", "nodes", "n_gpus").rows() == [
        ("ml/pytorchjob/llm", ["gpu001", "gpu002", "gpu003"], 24)
    ]
    assert result.table("raw/node_states").height == 6
    assert result.table("raw/kernel_log").select("kind", "ts").rows() == [
        ("reboot", utc("11:50:00"))
    ]
    counts = result.reads.select("origin", "n_read", "n_parsed", "n_skipped").rows()
    address = "https://k8s.example:6443"
    assert counts == [
        (f"{address}/api/v1/nodes", 3, 3, 0),
        (f"{address}{PODS}", 4, 3, 1),
        (f"{address}/api/v1/events", 1, 1, 0),
        (address, 0, 0, 0),
    ]


def test_only_what_had_ended_before_the_span_is_passed_over():
    whole = pull(cluster(), since=utc("00:00:00"))
    assert "ml/pod/old" in whole.table("raw/job_log")["job_id"].to_list()
    assert whole.table("raw/kernel_log")["ts"].to_list() == [utc("06:00:00"), utc("11:50:00")]


def test_what_ended_at_the_very_start_of_the_span_is_told():
    result = pull(cluster(), since=utc("02:00:00"))
    assert "ml/pod/old" in result.table("raw/job_log")["job_id"].to_list()


def test_a_pull_says_what_it_covers_also_of_an_empty_cluster():
    empty = {"/api/v1/nodes": [], PODS: [], "/api/v1/events": []}
    (row,) = pull(FakeApi(empty), site="hall1").table("raw/coverage").rows(named=True)
    assert (row["entity_kind"], row["entity_id"], row["expected_every_s"]) == (
        "site",
        "hall1",
        900.0,
    )
    assert (row["start"], row["end"]) == (NOW - timedelta(minutes=15), NOW)
    (old,) = (
        pull(FakeApi(empty), since=NOW - timedelta(days=3)).table("raw/coverage").rows(named=True)
    )
    assert old["start"] == NOW - timedelta(hours=1)


def test_a_list_that_may_not_be_read_is_one_note_and_the_others_are_read():
    forbidden = "events is forbidden: User bob cannot list resource events"
    result = pull(cluster(**{"/api/v1/events": lambda _: refusal(403, forbidden)}))
    (note,) = result.quarantine.rows(named=True)
    assert note["rule"] == "list of Event objects is forbidden"
    assert forbidden in note["example"]
    assert (note["table"], note["count"]) == ("raw/kernel_log", 1)
    assert result.table("raw/job_log").height
    assert result.table("raw/coverage").height == 1


def test_without_nodes_nothing_is_said_to_be_covered():
    result = pull(cluster(**{"/api/v1/nodes": lambda _: refusal(403)}))
    assert result.table("raw/coverage").is_empty()
    assert result.table("raw/job_log").height


def test_a_user_who_may_read_neither_nodes_nor_pods_is_told_what_is_needed():
    api = cluster(**{path: lambda _: refusal(403) for path in ("/api/v1/nodes", PODS)})
    with pytest.raises(SourceError, match="ClusterRole"):
        pull(api)


@pytest.mark.parametrize("code", [401, 404])
def test_a_server_that_does_not_know_us_or_the_api_is_an_error(code: int):
    with pytest.raises(HttpError) as refused:
        pull(cluster(**{"/api/v1/nodes": lambda _: refusal(code)}))
    assert refused.value.status == code


def test_namespaces_part_the_lists_and_node_events_stay_in_default():
    api = cluster()
    for name in ("a", "b/c"):
        api.lists[f"/api/v1/namespaces/{name.replace('/', '%2F')}/pods"] = []
    api.lists["/api/v1/namespaces/default/events"] = []
    pull(api, namespaces=("a", "b/c"))
    paths = [path for path, _ in api.calls]
    assert "/api/v1/namespaces/b%2Fc/pods" in paths
    assert "/apis/batch/v1/namespaces/a/jobs" in paths
    assert "/api/v1/namespaces/default/events" in paths
    assert PODS not in paths


@pytest.mark.parametrize(
    ("served", "used"), [(["v1beta1", "v1"], "v1"), (["v1beta1"], "v1beta1"), (["v1alpha1"], None)]
)
def test_devices_are_asked_for_in_the_newest_version_that_is_served(served: Any, used: Any):
    api = cluster()
    group = {"versions": [{"version": version} for version in served]}
    api.answers["/apis/resource.k8s.io"] = lambda _: fine(group)
    pull(api)
    asked = [path for path, _ in api.calls if "resourceslices" in path]
    assert asked == ([] if used is None else [f"/apis/resource.k8s.io/{used}/resourceslices"])


def test_objects_that_come_twice_after_an_expiry_count_once():
    api = cluster()
    for found in api.lists[PODS]:
        found["metadata"]["resourceVersion"] = "1"
    expiries = [refusal(410)]

    def once(params: Mapping[str, str]) -> ApiAnswer:
        if params.get("continue") and expiries:
            return expiries.pop()
        return api.page(PODS, params)

    api.answers[PODS] = once
    result = pull(api)
    reads = result.reads.filter(pl.col("origin").str.ends_with(PODS)).row(0, named=True)
    assert (reads["n_read"], reads["n_parsed"], reads["n_skipped"]) == (6, 3, 3)
    steps = result.table("raw/job_log").filter(pl.col("step").is_not_null())
    assert steps["step"].to_list() == ["llm-1", "llm-2", "llm-3"]


def test_pages_of_any_size_give_the_same():
    def rows(size: int) -> SourceResult:
        limits = ListLimits(page_size=size)
        query = KubernetesQuery(limits=limits)
        return merge(pull_kubernetes(cluster(), utc("00:00:00"), NOW, query=query, ingested_at=NOW))

    whole, cut = rows(500), rows(1)
    assert all(cut.table(key).equals(whole.table(key)) for key in whole.tables)
    assert cut.reads.equals(whole.reads)


def test_an_odd_list_is_no_crash():
    odd: Object = {"items": [None, 5, {"metadata": None}, {"metadata": {"name": "x"}}]}
    api = cluster(**{PODS: lambda _: fine(odd), "/api/v1/events": lambda _: fine({"items": None})})
    result = pull(api)
    reads = result.reads.filter(pl.col("origin").str.ends_with(PODS)).row(0, named=True)
    assert (reads["n_read"], reads["n_skipped"], reads["n_quarantined"]) == (4, 1, 3)


def test_waits_default_to_the_real_clock():
    assert abs(Waits().now() - datetime.now(UTC)) < timedelta(seconds=5)
