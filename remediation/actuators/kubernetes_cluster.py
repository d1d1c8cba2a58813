"""Reads the whole cluster, one node or one node's pods from a Kubernetes API; changes nothing.

What objects say is in `kubernetes_nodes` and `kubernetes_pods`.
"""

import re
from collections.abc import Callable
from typing import Final
from urllib.parse import quote

from features.errors import DataError
from remediation.actuators.exchange import Waits
from remediation.actuators.kubernetes_api import Json, KubernetesApi, Limits, Reads
from remediation.actuators.kubernetes_nodes import NodeReading, node_view
from remediation.actuators.kubernetes_pods import Pod, job_views, read_pod
from remediation.cluster.state import ClusterState, NodeView

NODES: Final = "/api/v1/nodes"
PODS: Final = "/api/v1/pods"
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)
_UNFINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"


class KubernetesCluster:
    """Reads nodes and running jobs, all of them or nothing.

    Args:
        api: The server.
        reading: Where nodes say what.
        selector: Label selector of the nodes that belong to this cluster; empty: all.
        limits: How much is asked for, and how often.
        waits: Clock and sleep.
    """

    def __init__(
        self,
        api: KubernetesApi,
        *,
        reading: NodeReading | None = None,
        selector: str = "",
        limits: Limits | None = None,
        waits: Waits | None = None,
    ) -> None:
        self.reading = reading or NodeReading()
        self.reads = Reads(api, limits, waits)
        self._selector = selector

    def read(self) -> ClusterState:
        """The state now.

        Raises:
            SourceError: It cannot be read whole; a part of a cluster is never given.
        """
        selected = {"labelSelector": self._selector} if self._selector else {}
        nodes = self.reads.whole_list(NODES, self._view, selected)
        pods = self.reads.whole_list(PODS, self._pod, {"fieldSelector": _UNFINISHED})
        now = self.reads.waits.now()
        return ClusterState(as_of=now, nodes=tuple(nodes), jobs=job_views(pods, as_of=now))

    def node(self, name: str) -> Json:
        """One node's object.

        Raises:
            DataError: No node has such a name.
            SourceError: It cannot be read.
        """
        return self.reads.get(node_path(name))

    def view(self, node: Json) -> NodeView:
        """A node's object as `read` gives it."""
        return self._view(node)

    def pods_on(self, name: str) -> list[Pod]:
        """All pods that are bound to a node, finished ones included.

        Raises:
            DataError: No node has such a name.
            SourceError: They cannot be read whole.
        """
        node_path(name)
        return self.reads.whole_list(PODS, self._pod, {"fieldSelector": f"spec.nodeName={name}"})

    def pods_in(self, namespace: str, keep: Callable[[Pod], bool]) -> list[Pod]:
        """Those pods of a namespace that `keep` keeps.

        Raises:
            SourceError: They cannot be read whole.
        """

        def read(pod: Json) -> Pod | None:
            found = self._pod(pod)
            return found if keep(found) else None

        return self.reads.whole_list(
            f"/api/v1/namespaces/{quote(namespace, safe='')}/pods",
            read,
            {"fieldSelector": _UNFINISHED},
        )

    def _view(self, node: Json) -> NodeView:
        return node_view(node, self.reading)

    def _pod(self, pod: Json) -> Pod:
        return read_pod(pod, self.reading.gpu_resources)


def is_node_name(name: str) -> bool:
    """Whether the API can have a node of this name.

    >>> [is_node_name(name) for name in ("gpu-07.rack2", "..", "a/b", "a,spec.nodeName!=a")]
    [True, False, False, False]
    """
    return bool(_NAME.fullmatch(name))


def node_path(name: str) -> str:
    """Path of a node.

    Raises:
        DataError: No node has such a name; names come from logs, and could lead elsewhere.
    """
    if not is_node_name(name):
        raise DataError(f"node name {name!r} is none of Kubernetes. Nothing was sent.")
    return f"{NODES}/{name}"


def pod_path(pod: Pod) -> str:
    """Path of a pod."""
    return f"/api/v1/namespaces/{quote(pod.namespace, safe='')}/pods/{quote(pod.name, safe='')}"
