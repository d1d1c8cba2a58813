"""Asks a live Kubernetes what `forewarn init` needs to know of it; nothing is changed.

What ingest reads later is in `pipelines.sources.kubernetes`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from features.errors import SourceError
from pipelines.site_init.facts import KubernetesFacts
from pipelines.sources.http.errors import HttpError
from pipelines.sources.kubernetes.client import KubernetesApi
from pipelines.sources.kubernetes.lists import list_pages
from pipelines.sources.kubernetes.nodes import LEVELS

_GPU_RESOURCES: Final = ("nvidia.com/gpu", "amd.com/gpu")
_EXPORTER: Final = "dcgm-exporter"
_PORT: Final = 9400


def look_at_kubernetes(
    api: KubernetesApi, *, kubeconfig: Path | None = None, context: str | None = None
) -> KubernetesFacts:
    """Asks a cluster.

    Args:
        api: The cluster.
        kubeconfig: File by which it is reached, kept for the settings.
        context: Context in it.

    Raises:
        SourceError: It does not answer, or has no GPU.
    """
    nodes = list(_objects(api, "/api/v1/nodes"))
    found: Counter[str] = Counter()
    labels: Counter[str] = Counter()
    n_gpu_nodes = 0
    for node in nodes:
        gpus = _gpus(node)
        found.update(gpus)
        n_gpu_nodes += bool(gpus)
        labels.update(_labels(node).keys() if gpus else ())
    if not found:
        raise SourceError(
            f"{api.address}: none of {len(nodes)} nodes has {' or '.join(_GPU_RESOURCES)}. Install "
            f"the device plugin, or name the cluster with --kubeconfig and --context."
        )
    racks = [name for name in LEVELS["rack"] if labels[name]]
    return KubernetesFacts(
        address=api.address,
        n_nodes=len(nodes),
        n_gpu_nodes=n_gpu_nodes,
        n_gpus=sum(found.values()),
        gpu_resources=tuple(found),
        rack_label=racks[0] if racks else None,
        exporters=_exporters(api),
        kubeconfig=kubeconfig,
        context=context,
    )


def _exporters(api: KubernetesApi) -> dict[str, str]:
    """Pages of dcgm-exporter's pods, with their nodes; none where pods may not be listed."""
    pages = {}
    try:
        for pod in _objects(api, "/api/v1/pods"):
            words = [*_labels(pod).values(), str(pod.get("metadata", {}).get("name", ""))]
            address, node = pod.get("status", {}).get("podIP"), pod.get("spec", {}).get("nodeName")
            if address and node and any(_EXPORTER in word for word in words):
                host = f"[{address}]" if ":" in address else address
                pages[f"http://{host}:{_port(pod)}/metrics"] = node
    except HttpError:
        return {}
    return dict(sorted(pages.items(), key=lambda page: page[1]))


def _port(pod: Mapping[str, Any]) -> int:
    """The port of the pod's metrics, by its name; else the exporter's usual one."""
    for container in pod.get("spec", {}).get("containers", []):
        for port in container.get("ports", []):
            if "metrics" in str(port.get("name", "")):
                return int(port["containerPort"])
    return _PORT


def _gpus(node: Mapping[str, Any]) -> dict[str, int]:
    allocatable = node.get("status", {}).get("allocatable", {})
    counts = {name: int(allocatable.get(name, 0)) for name in _GPU_RESOURCES}
    return {name: count for name, count in counts.items() if count}


def _labels(found: Mapping[str, Any]) -> dict[str, str]:
    labels: dict[str, str] = found.get("metadata", {}).get("labels") or {}
    return labels


def _objects(api: KubernetesApi, path: str) -> Iterator[Mapping[str, Any]]:
    for page in list_pages(api, path):
        yield from (one for one in page.objects if isinstance(one, dict))
