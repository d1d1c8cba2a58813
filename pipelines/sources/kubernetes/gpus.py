"""How many GPUs a pod takes: device plugin resources, shares, MIG slices and DRA claims.

What the pod does with them is in `kubernetes.pods`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from pipelines.sources.kubernetes.devices import GPU_DRIVERS
from pipelines.sources.kubernetes.objects import (
    Json,
    annotations_of,
    items,
    mapping,
    quantity,
    text,
)

MOST_GPUS: Final = 10_000
"""More GPUs than any one pod can have: a larger number is a slip, and the number is not known."""

_WHOLE: Final = re.compile(r"(?:nvidia|amd)\.com/gpu|gpu\.intel\.com/(?:i915|xe)", re.ASCII)
# Slices and shares of GPUs: how many whole ones are behind them is not told.
_PART: Final = re.compile(
    r"nvidia\.com/(?:mig-.+|gpu\.shared|gpumem(?:-percentage)?|gpucores|priority-gpu|vgpu.*)|"
    r"nvidia\.com/gpu-.*|amd\.com/gpu-.*|gpu\.intel\.com/.+|volcano\.sh/v?gpu-.+|"
    r"aliyun\.com/gpu-.+|tencent\.com/vcuda-.+|run\.ai/gpu.*|nos\.nebuly\.com/gpu.*",
    re.ASCII,
)
_FRACTIONS: Final = ("gpu-fraction", "gpu-memory", "run.ai/gpu-fraction", "run.ai/gpu-memory")

Claims = Mapping[tuple[str, str], int | None]
"""GPUs by (namespace, name) of a ResourceClaim; None: GPUs, but not known how many; 0: none."""


@dataclass(frozen=True)
class GpuRequest:
    """What a pod asks for.

    Attributes:
        count: Whole GPUs; None: not known (slices, shares, claims that were not read).
        containers: Names of the containers that use them, in order; empty: not told.
    """

    count: int | None
    containers: tuple[str, ...]


def gpu_request(pod: Json, claims: Claims | None = None) -> GpuRequest | None:
    """The GPUs of a pod.

    Init containers run before the others and one by one: of them the largest counts, unless all
    others together are larger. One that restarts always is a sidecar and stays beside whatever
    starts after it (Kubernetes documentation, *Sidecar containers*, "Resource sharing").

    Args:
        pod: A Pod as the API gives it.
        claims: Claims that were read; None: none were.

    Returns:
        The request, or None where the pod asks for no GPU.
    """
    spec = mapping(pod, "spec")
    names = _resource_names(spec)
    amounts = {name: _effective(spec, name) for name in names}
    asked = {name: amount for name, amount in amounts.items() if amount is None or amount > 0}
    claimed, has_claims = _claimed(pod, claims)
    has_fraction = any(annotations_of(pod).get(key) for key in _FRACTIONS)
    if not asked and not has_claims and not has_fraction:
        return None
    count: int | None = None
    is_known = not has_fraction and all(_WHOLE.fullmatch(name) for name in asked)
    wholes = list(asked.values())
    if is_known and None not in wholes and claimed is not None:
        total = sum((amount for amount in wholes if amount is not None), Decimal(claimed))
        is_number = total == total.to_integral_value() and total <= MOST_GPUS
        count = int(total) if is_number else None
    return GpuRequest(count, _users(spec, frozenset(asked)))


def claim_gpus(claim: Json) -> int | None:
    """GPUs of a DRA ResourceClaim: those allocated, else those asked for where that is plain.

    Args:
        claim: A ResourceClaim as the API gives it.

    Returns:
        How many; 0 where it is about other devices; None: GPUs, but not known how many.
    """
    results = mapping(claim, "status", "allocation", "devices")
    allocated = list(items(results, "results"))
    if allocated:
        of_gpus = [found for found in allocated if text(found, "driver") in GPU_DRIVERS]
        devices = {(text(found, "pool"), text(found, "device")) for found in of_gpus}
        is_part = any("mig" in (device or "mig").lower() for _, device in devices)
        return None if is_part else len(devices)
    requests = [
        mapping(request, "exactly") or request
        for request in items(mapping(claim, "spec", "devices"), "requests")
    ]
    classes = [text(request, "deviceClassName") for request in requests]
    return 0 if classes and all(name and not _is_gpu_class(name) for name in classes) else None


def _is_gpu_class(name: str) -> bool:
    return "gpu" in name.lower() or "mig" in name.lower()


def _claimed(pod: Json, claims: Claims | None) -> tuple[int | None, bool]:
    """GPUs of the pod's claims, and whether any of these may be about GPUs."""
    namespace = text(mapping(pod, "metadata"), "namespace") or "default"
    made = {
        text(status, "name"): text(status, "resourceClaimName")
        for status in items(mapping(pod, "status"), "resourceClaimStatuses")
    }
    wanted = [
        text(claim, "resourceClaimName") or made.get(text(claim, "name"))
        for claim in items(mapping(pod, "spec"), "resourceClaims")
    ]
    counts = [
        (claims or {}).get((namespace, name)) if name is not None else None for name in wanted
    ]
    of_gpus = [count for count in counts if count != 0]
    known = [count for count in of_gpus if count is not None]
    return (sum(known) if len(known) == len(of_gpus) else None), bool(of_gpus)


def _resource_names(spec: Json) -> list[str]:
    """GPU resources named by any container, in order of first mention."""
    names: dict[str, None] = {}
    for container in _containers(spec):
        for kind in ("limits", "requests"):
            for name in mapping(container, "resources", kind):
                if _WHOLE.fullmatch(name) or _PART.fullmatch(name):
                    names[name] = None
    return list(names)


def _effective(spec: Json, name: str) -> Decimal | None:
    """Amount of one resource over all containers; None: one of them is no amount."""
    beside, largest = Decimal(0), Decimal(0)
    for container in items(spec, "initContainers"):
        amount = _amount(container, name)
        if amount is None:
            return None
        if text(container, "restartPolicy") == "Always":
            beside += amount
            largest = max(largest, beside)
        else:
            largest = max(largest, beside + amount)
    total = beside
    for container in items(spec, "containers"):
        amount = _amount(container, name)
        if amount is None:
            return None
        total += amount
    return max(total, largest)


def _amount(container: Json, name: str) -> Decimal | None:
    """What a container asks for; 0: nothing; None: something that is no amount."""
    for kind in ("limits", "requests"):
        found: Any = mapping(container, "resources", kind).get(name)
        if found is not None:
            amount = quantity(found)
            return amount if amount is not None and amount >= 0 else None
    return Decimal(0)


def _users(spec: Json, names: frozenset[str]) -> tuple[str, ...]:
    """Main containers that use GPUs, by resource or by claim."""
    users = []
    for container in items(spec, "containers"):
        amounts = [_amount(container, name) for name in names]
        has_claim = next(items(mapping(container, "resources"), "claims"), None) is not None
        own = text(container, "name")
        if own is not None and (has_claim or any(amount != 0 for amount in amounts)):
            users.append(own)
    return tuple(users)


def _containers(spec: Json) -> list[Json]:
    return [*items(spec, "initContainers"), *items(spec, "containers")]
