"""Asks a Prometheus which GPUs it scrapes, how often and since when, for `forewarn init`.

Each question is small, however large the fleet: counts, and one series at most.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from statistics import median
from typing import Any, Final

from features.errors import SourceError
from pipelines.doctor.sources import instant_query
from pipelines.site_init.facts import PrometheusFacts
from pipelines.sources.http.client import HttpClient
from pipelines.sources.prometheus.series import Matcher
from pipelines.sources.telemetry.label_names import NODE_LABELS

_METRICS: Final = ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_XID_ERRORS", "nvidia_smi_temperature_gpu")
_REPLICAS: Final = ("prometheus_replica", "replica", "__replica__")
_LONGEST: Final = timedelta(days=1096)
_HOUR: Final = timedelta(hours=1)
_LOOK_BACK: Final = "20m"
_STEPS_S: Final = (1, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600)


def look_at_prometheus(client: HttpClient, *, now: datetime) -> PrometheusFacts:
    """Asks a server.

    Args:
        client: The server.
        now: The present.

    Raises:
        SourceError: It does not answer, or scrapes no GPU.
    """
    for metric in _METRICS:
        counts = instant_query(client, f"count by (job) ({metric})")
        if counts:
            break
    else:
        raise SourceError(
            f"{client.address} has none of {', '.join(_METRICS)}: let it scrape dcgm-exporter, or "
            f"name the Prometheus that does with --prometheus."
        )
    jobs = {one["metric"].get("job", ""): int(one["value"][1]) for one in counts}
    replicas = _replicas(client, metric)
    labels = instant_query(client, f"topk(1, {metric})")[0]["metric"]
    return PrometheusFacts(
        url=client.address,
        metric=metric,
        jobs=dict(sorted(jobs.items())),
        node_label=next((name for name in labels if name.lower() in NODE_LABELS), None),
        replica_label=replicas,
        interval_s=_interval(client, labels),
        since=_since(client, metric, now),
    )


def matchers_of(facts: PrometheusFacts) -> list[str]:
    """The conditions that let these jobs' series through, and no others.

    >>> from dataclasses import replace
    >>> one = PrometheusFacts(
    ...     url="u", metric="m", jobs={"dcgm": 8}, node_label=None, replica_label=None,
    ...     interval_s=None, since=None,
    ... )
    >>> matchers_of(one), matchers_of(replace(one, jobs={"": 8}))
    (['job="dcgm"'], [])
    """
    if "" in facts.jobs:
        return []
    if len(facts.jobs) == 1:
        return [str(Matcher("job", "=", next(iter(facts.jobs))))]
    return [str(Matcher("job", "=~", "|".join(map(re.escape, facts.jobs))))]


def _replicas(client: HttpClient, metric: str) -> str | None:
    for label in _REPLICAS:
        values = instant_query(client, f"count by ({label}) ({metric})")
        if sum(bool(one["metric"].get(label)) for one in values) > 1:
            return label
    return None


def _interval(client: HttpClient, labels: dict[str, str]) -> float | None:
    """The usual time between the samples of one series, rounded to what people set."""
    name = labels.get("__name__", "")
    conditions = ", ".join(
        f'{key}="{_escaped(value)}"' for key, value in labels.items() if key != "__name__"
    )
    found: Sequence[Any] = instant_query(client, f"{name}{{{conditions}}}[30m]")
    times = [float(at) for at, _ in found[0]["values"]] if found else []
    gaps = [later - earlier for earlier, later in pairwise(times)]
    if not gaps:
        return None
    return float(min(_STEPS_S, key=lambda step: abs(step - median(gaps))))


def _since(client: HttpClient, metric: str, now: datetime) -> datetime | None:
    """The first full hour with samples, by halving; what lies before a long gap is not seen."""

    def has(hours_ago: int) -> bool:
        query = f"count(last_over_time({metric}[{_LOOK_BACK}]))"
        return bool(instant_query(client, query, at=top - hours_ago * _HOUR))

    top = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    known, unknown = 0, int(_LONGEST / _HOUR)
    if not has(known) and not has(1):
        return None
    while unknown - known > 1:
        middle = (known + unknown) // 2
        known, unknown = (middle, unknown) if has(middle) else (known, middle)
    return top - known * _HOUR


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
