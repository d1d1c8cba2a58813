"""Why a pod ended, in Slurm's words: by its status, its disruption condition, its containers.

When a pod counts as ended is in `kubernetes.pods`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from pipelines.sources.kubernetes.objects import Json, items, mapping, moment, text, whole


@dataclass(frozen=True)
class Ending:
    """How a run ended.

    Attributes:
        state: End state in Slurm's words.
        end: When; None: not told.
        exit_code: Exit code of the container that decided.
        exit_signal: Signal that ended it.
    """

    state: str
    end: datetime | None
    exit_code: int | None = None
    exit_signal: int | None = None


_BY_REASON: Final[Mapping[str, str]] = {
    "NodeLost": "NODE_FAIL",
    # Graceful node shutdown: the kubelet ends pods before the machine goes down.
    "NodeShutdown": "NODE_FAIL",
    "Shutdown": "NODE_FAIL",
    "Terminated": "NODE_FAIL",
    "Preempting": "PREEMPTED",
    "DeadlineExceeded": "TIMEOUT",
    # The device plugin could not hand out the GPUs that the scheduler had counted on.
    "UnexpectedAdmissionError": "LAUNCH_FAILED",
}
# The kubelet refuses the pod on arrival because of what the pod asks for: it never ran.
_REFUSED: Final = re.compile(
    r"OutOf.+|NodeAffinity|NodeName|NodePorts?|NodeSelector|Topology\w+|AppArmor\w*|\w*Sysctl\w*|"
    r"PodOSSelector\w*|TaintToleration|Unschedulable"
)
_BY_DISRUPTION: Final[Mapping[str, str]] = {
    "PreemptionByScheduler": "PREEMPTED",
    "PreemptionByKubeScheduler": "PREEMPTED",
    "DeletionByTaintManager": "NODE_FAIL",
    "DeletionByPodGC": "NODE_FAIL",  # its node is gone
    "EvictionByEvictionAPI": "PREEMPTED",  # someone drains the node
    "TerminationByKubelet": "PREEMPTED",
}
_BY_CONTAINER: Final[Mapping[str, str]] = {
    "OOMKilled": "OUT_OF_MEMORY",
    # The node came back without knowing of the container: it was restarted under the pod.
    "ContainerStatusUnknown": "NODE_FAIL",
}
_STARTING: Final = frozenset(
    {"StartError", "ContainerCannotRun", "CreateContainerError", "RunContainerError"}
)
_DRIVER: Final = re.compile(
    r"nvidia-container-(?:cli|runtime)|nvml|/dev/nvidia|libcuda|libnvidia", re.I
)
# Old kubelets name the condition, new ones the resource. A volume may be called anything.
_LOW_MEMORY: Final = re.compile(
    r"low on resource: \[?memory|consumption of memory|condition: \[[\w ]*memory", re.IGNORECASE
)
_SIGNALS: Final = 64


def failure(pod: Json, containers: Sequence[Json]) -> Ending:
    """Why a failed pod failed: what its status says, then who disrupted it, then its containers.

    Args:
        pod: A Pod of phase Failed.
        containers: Statuses of the containers that decide.

    Returns:
        The ending; of containers the first that failed decides.
    """
    status = mapping(pod, "status")
    culprit = _first_failed(containers) or _first_failed(items(status, "containerStatuses"))
    culprit = culprit or _first_failed(items(status, "initContainerStatuses"))
    ended = [termination(container, "state").end for container in containers]
    end = max((time for time in ended if time is not None), default=None)
    of_container = culprit or Ending("FAILED", end)
    disrupted, since = disruption(pod)
    state = _by_status(text(status, "reason"), text(status, "message") or "")
    state = state or disrupted or of_container.state
    return replace(of_container, state=state, end=end or of_container.end or since)


def disruption(pod: Json) -> tuple[str | None, datetime | None]:
    """Who ended a pod from outside, by its DisruptionTarget condition.

    Args:
        pod: A Pod as the API gives it.

    Returns:
        End state and since when; None where nobody did.
    """
    for condition in items(mapping(pod, "status"), "conditions"):
        if text(condition, "type") == "DisruptionTarget" and text(condition, "status") == "True":
            state = _BY_DISRUPTION.get(text(condition, "reason") or "", "PREEMPTED")
            return state, moment(condition, "lastTransitionTime")
    return None, None


def termination(container: Json, which: str) -> Ending:
    """How a container ended.

    An exit code above 128 is how runtimes report a signal, 128 plus its number.

    Args:
        container: A container status.
        which: `state`, or `lastState` for the run before the last restart.

    Example:
        >>> died = {"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
        >>> ending = termination(died, "state")
        >>> ending.state, ending.exit_code, ending.exit_signal
        ('OUT_OF_MEMORY', 137, 9)
    """
    ended = mapping(container, which, "terminated")
    code, signal, reason = whole(ended, "exitCode"), whole(ended, "signal"), text(ended, "reason")
    if not signal:
        signal = code - 128 if code is not None and 128 < code <= 128 + _SIGNALS else None
    state = _BY_CONTAINER.get(reason or "")
    if state is None and code == 0 and not signal:
        state = "COMPLETED"
    elif state is None and reason in _STARTING and _DRIVER.search(text(ended, "message") or ""):
        state = "LAUNCH_FAILED"
    return Ending(state or "FAILED", moment(ended, "finishedAt"), code, signal)


def _by_status(reason: str | None, message: str) -> str | None:
    if reason is None:
        return None
    if reason == "Evicted":
        # By the kubelet. Limits the pod broke are its own fault, a full node is not.
        if _LOW_MEMORY.search(message):
            return "OUT_OF_MEMORY"
        return "FAILED" if re.search(r"exceed", message, re.IGNORECASE) else "PREEMPTED"
    if _REFUSED.fullmatch(reason):
        return "CANCELLED"
    return _BY_REASON.get(reason)


def _first_failed(containers: Iterable[Json]) -> Ending | None:
    """How the container ended that failed first; those without a time come last."""
    endings = [
        termination(container, "state")
        for container in containers
        if mapping(container, "state", "terminated")
    ]
    failed = [ending for ending in endings if ending.state != "COMPLETED"]
    timed = [ending for ending in failed if ending.end is not None]
    return min(timed, key=lambda e: e.end.timestamp() if e.end else 0.0, default=None) or next(
        iter(failed), None
    )
