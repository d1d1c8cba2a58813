"""Asks a Kubernetes API server for nodes, pods, jobs, events and devices, in bounded pages.

What an object says is read in `kubernetes.reader`; credentials are the business of
`kubernetes.client`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import quote

from features.errors import SourceError
from features.raw_tables import (
    RAW_INVENTORY,
    RAW_JOB_LOG,
    RAW_KERNEL_LOG,
    RAW_NODE_STATES,
)
from pipelines.sources.http.errors import HttpError
from pipelines.sources.kubernetes.client import KubernetesApi
from pipelines.sources.kubernetes.lists import ListLimits, Waits, get_json, list_pages
from pipelines.sources.kubernetes.nodes import DOWN_AFTER, LEVELS
from pipelines.sources.kubernetes.objects import SOURCE, items, text
from pipelines.sources.kubernetes.pods import USER_LABELS
from pipelines.sources.kubernetes.reader import KubernetesOptions, KubernetesReader, coverage
from pipelines.sources.result import ReadTally, SourceResult

EVENTS_LIVE: Final = timedelta(hours=1)
"""How long the API server keeps events by default (`--event-ttl`)."""

_DEVICES: Final = "resource.k8s.io"
_VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
_REFUSED: Final = frozenset({403})
_ABSENT: Final = frozenset({404, 405})


@dataclass(frozen=True, kw_only=True)
class KubernetesQuery:
    """What is asked for.

    Attributes:
        namespaces: Namespaces of pods, jobs and claims; empty: all.
        site: Name of the cluster, for coverage.
        levels: Labels by level of place.
        user_labels: Labels that may name a pod's user.
        down_after: How long a kubelet may be silent before its node is down.
        limits: Size of pages, number of tries.
    """

    namespaces: tuple[str, ...] = ()
    site: str = SOURCE
    levels: Mapping[str, Sequence[str]] = field(default_factory=lambda: LEVELS)
    user_labels: Sequence[str] = USER_LABELS
    down_after: timedelta = DOWN_AFTER
    limits: ListLimits = field(default_factory=ListLimits)


@dataclass(frozen=True)
class _Target:
    """One list: its path, the table it is for, selectors, and whether a cluster may lack it."""

    path: str
    table: str
    kind: str
    params: Mapping[str, str] = field(default_factory=dict)
    is_needed: bool = False


def pull_kubernetes(
    api: KubernetesApi,
    span_start: datetime,
    span_end: datetime,
    *,
    query: KubernetesQuery | None = None,
    ingested_at: datetime,
    waits: Waits | None = None,
) -> Iterator[SourceResult]:
    """Reads what the API server holds now.

    A server keeps no history: whatever the span, the answer is the present, with the times at
    which its conditions and pods began and ended. What ended before the span is passed over; what
    began after it is given all the same, for it may be gone when it is asked for again.

    Args:
        api: The server.
        span_start: Start of the span, UTC.
        span_end: End of the span, exclusive.
        query: What is asked for.
        ingested_at: When it is asked, UTC; the moment of which the states are true.
        waits: Clock and chance.

    Yields:
        A result per page with raw/node_states, raw/job_log, raw/kernel_log, raw/inventory and
        core/topology; then the attempts of jobs of several pods, and raw/coverage. A list that the
        user may not read gives one note in the quarantine, and the others are read.

    Raises:
        HttpError: The server cannot be reached, refuses the user, or gives up within a list.
        SourceError: Neither nodes nor pods may be read.
    """
    query, waits = query or KubernetesQuery(), waits or Waits()
    options = _options(query, since=span_start, now=ingested_at)
    reader = KubernetesReader(options)
    refused: dict[str, HttpError] = {}
    for target in _targets(api, query, waits):
        pages = list_pages(api, target.path, params=target.params, limits=query.limits, waits=waits)
        try:
            for page in pages:
                origin = f"{api.address}{target.path}"
                yield reader.read(page.objects, origin=origin, kind=page.kind or target.kind)
        except HttpError as error:
            if error.status in _ABSENT and not target.is_needed:
                continue
            if error.status not in _REFUSED:
                raise
            refused[target.kind] = error
            yield _note(api, target, error)
    if {"Node", "Pod"} <= refused.keys():
        raise SourceError(
            f"{api.address}: this user may list neither nodes nor pods: {refused['Node']} Bind it "
            f"to a ClusterRole that may list nodes, pods, events, jobs of batch, and "
            f"resourceslices and resourceclaims of resource.k8s.io."
        )
    yield reader.finish(origin=api.address)
    if "Node" not in refused and "Pod" not in refused:
        # Further back than events live, pods that came and went were not seen by anyone.
        start = max(span_start, ingested_at - EVENTS_LIVE)
        every_s = (span_end - span_start).total_seconds()
        yield coverage(options, origin=api.address, start=start, every_s=every_s)


def _options(query: KubernetesQuery, *, since: datetime, now: datetime) -> KubernetesOptions:
    return KubernetesOptions(
        ingested_at=now,
        seen_at=now,
        since=since,
        site=query.site,
        levels=query.levels,
        user_labels=query.user_labels,
        down_after=query.down_after,
    )


def _targets(api: KubernetesApi, query: KubernetesQuery, waits: Waits) -> list[_Target]:
    """The lists, in an order in which each finds what it needs of the others."""
    targets = []
    version = _device_version(api, query, waits)
    if version is not None:
        base = f"/apis/{_DEVICES}/{version}"
        claims = _within(query, base, "resourceclaims")
        targets += [_Target(path, RAW_JOB_LOG.asset_key, "ResourceClaim") for path in claims]
        slices = f"{base}/resourceslices"
        targets.append(_Target(slices, RAW_INVENTORY.asset_key, "ResourceSlice"))
    nodes = RAW_NODE_STATES.asset_key
    targets.append(_Target("/api/v1/nodes", nodes, "Node", is_needed=True))
    for path in _within(query, "/apis/batch/v1", "jobs"):
        targets.append(_Target(path, RAW_JOB_LOG.asset_key, "Job"))
    for path in _within(query, "/api/v1", "pods"):
        targets.append(_Target(path, RAW_JOB_LOG.asset_key, "Pod", is_needed=True))
    # Events of nodes stand in the namespace `default`, whatever namespaces are asked for.
    about_nodes = {"fieldSelector": "involvedObject.kind=Node"}
    events = "/api/v1/events" if not query.namespaces else "/api/v1/namespaces/default/events"
    targets.append(_Target(events, RAW_KERNEL_LOG.asset_key, "Event", params=about_nodes))
    return targets


def _within(query: KubernetesQuery, base: str, plural: str) -> list[str]:
    if not query.namespaces:
        return [f"{base}/{plural}"]
    return [f"{base}/namespaces/{quote(name, safe='')}/{plural}" for name in query.namespaces]


def _device_version(api: KubernetesApi, query: KubernetesQuery, waits: Waits) -> str | None:
    """The newest known version of the device API that the cluster has; None: it has none."""
    try:
        group = get_json(api, f"/apis/{_DEVICES}", {}, limits=query.limits, waits=waits)
    except HttpError as error:
        if error.status in _ABSENT | _REFUSED:
            return None
        raise
    served = {text(version, "version") for version in items(group, "versions")}
    return next((version for version in _VERSIONS if version in served), None)


def _note(api: KubernetesApi, target: _Target, error: HttpError) -> SourceResult:
    """A list that may not be read, as one refused record."""
    origin = f"{api.address}{target.path}"
    tally = ReadTally(table=target.table, source=SOURCE, origin=origin)
    tally.read()
    tally.quarantined(f"list of {target.kind} objects is forbidden", str(error))
    return tally.result({})
