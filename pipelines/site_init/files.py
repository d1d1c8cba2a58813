"""The texts of the files that `forewarn init` writes for a site, from what it found.

They observe and act on nothing. Finding out is in the modules beside this one.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from math import ceil
from typing import Any, Final

import yaml

from pipelines.site_init.facts import KubernetesFacts, PrometheusFacts, SlurmFacts
from pipelines.site_init.prometheus import matchers_of

SETTINGS: Final = "forewarn.yaml"
INPUTS: Final = "inputs.yaml"
SITE: Final = "remediation.yaml"
HOOK: Final = "hook.yaml"

_LEAST_DAYS: Final = 15
_NO_TELEMETRY: Final = """\
# No telemetry was found. Without it no GPU gets a score: add an input of kind prometheus or
# scrape (docs/inputs.md).
"""
_LOGS: Final = """\
# Kernel logs say what a GPU met with (Xid). Where they are collected, add for example:
#   - {kind: kernel_log, path: /var/log/hosts/*/kern.log, time_zone: UTC}
"""


def site_files(
    cluster: SlurmFacts | KubernetesFacts,
    prometheus: PrometheusFacts | None,
    *,
    site: str,
    now: datetime,
) -> dict[str, str]:
    """File names with their texts.

    Args:
        cluster: The cluster.
        prometheus: Where telemetry comes from; None: none was named.
        site: Name of the site.
        now: The present.
    """
    head = f"# Written by forewarn init, {now:%Y-%m-%d %H:%M}Z, from {_seen(cluster)}.\n"
    return {
        SETTINGS: head + _settings(prometheus, site=site, now=now),
        INPUTS: head + _inputs(cluster, prometheus, site=site, now=now),
        SITE: head + _site(),
        HOOK: head + _hook(cluster),
    }


def _seen(cluster: SlurmFacts | KubernetesFacts) -> str:
    what = cluster.version if isinstance(cluster, SlurmFacts) else cluster.address
    what = " ".join(what.split())  # a banner of --via would end the comment
    return (
        f"{what}: {cluster.n_gpus:,} GPUs in {cluster.n_gpu_nodes:,} of {cluster.n_nodes:,} nodes"
    )


def _settings(prometheus: PrometheusFacts | None, *, site: str, now: datetime) -> str:
    since = prometheus.since if prometheus else None
    start = since or now.replace(minute=0, second=0, microsecond=0)
    told = "the oldest sample that was found" if since else "no older telemetry was found"
    return (
        "# docs/settings.md has every key; `forewarn config show` the values in force.\n"
        + _yaml({"site": site, "inputs": INPUTS, "data_root": "data"})
        + f"start: {start:%Y-%m-%dT%H:00:00Z}  # {told}\n"
        + "split: {valid_days: 14, test_days: 14}  # counted back from the end at each training\n"
        + _yaml({"remediation": SITE})
    )


def _inputs(
    cluster: SlurmFacts | KubernetesFacts,
    prometheus: PrometheusFacts | None,
    *,
    site: str,
    now: datetime,
) -> str:
    days = _LEAST_DAYS
    if prometheus is not None and prometheus.since is not None:
        days = max(days, ceil((now - prometheus.since) / timedelta(days=1)))
    entries = []
    if prometheus is not None:
        entries.append(_prometheus(prometheus, days))
    elif isinstance(cluster, KubernetesFacts) and cluster.exporters:
        entries.append(
            {"kind": "scrape", "urls": list(cluster.exporters), "nodes": cluster.exporters}
        )
    missing = "" if entries else _NO_TELEMETRY
    entries.append(
        _slurm(cluster, days) if isinstance(cluster, SlurmFacts) else _kubernetes(cluster)
    )
    return missing + _LOGS + _yaml({"site": site, "inputs": entries})


def _prometheus(found: PrometheusFacts, days: int) -> dict[str, Any]:
    entry: dict[str, Any] = {"kind": "prometheus", "url": found.url, "keep_days": days}
    if matchers := matchers_of(found):
        entry["matchers"] = matchers
    if found.interval_s is not None:
        entry["interval_s"] = found.interval_s
        if found.replica_label is not None:
            entry["replica_label"] = found.replica_label
    return entry


def _slurm(found: SlurmFacts, days: int) -> dict[str, Any]:
    questions = ["nodes", "queue", "reservations"]
    questions += ["accounting", "events"] if found.has_accounting else []
    questions += ["topology"] if found.has_topology else []
    entry: dict[str, Any] = {"kind": "slurm", "questions": questions, "keep_days": days}
    return entry | ({"command_prefix": list(found.prefix)} if found.prefix else {})


def _kubernetes(found: KubernetesFacts) -> dict[str, Any]:
    return {"kind": "kubernetes", **_reached(found)}


def _reached(found: KubernetesFacts) -> dict[str, Any]:
    config = {} if found.kubeconfig is None else {"kubeconfig": str(found.kubeconfig.absolute())}
    return config | ({} if found.context is None else {"context": found.context})


def _site() -> str:
    return (
        "# What the hook may do to which nodes: as it stands, every node is only observed.\n"
        "# docs/remediation.md takes you from here to acting within a week.\n"
        + _yaml({"horizon_h": 24, "levels": [], "kill_switch": "STOP"})
    )


def _hook(cluster: SlurmFacts | KubernetesFacts) -> str:
    if isinstance(cluster, SlurmFacts):
        found: dict[str, Any] = {"kind": "slurm"}
        found |= {"prefix": list(cluster.prefix)} if cluster.prefix else {}
    else:
        found = {"kind": "kubernetes", **_reached(cluster)}
        if cluster.gpu_resources != ("nvidia.com/gpu",):
            found["gpu_resources"] = list(cluster.gpu_resources)
    values = {
        "state": "hook",
        "scores": {"folder": "data/scores"},
        "cluster": found,
        "actuator": {"kind": "dry_run"},
        "site": SITE,
    }
    return "# The hook's own settings: a dry run that does nothing.\n" + _yaml(values)


def _yaml(values: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(values), sort_keys=False, width=100)
