"""Which GPUs Kubernetes says are in a node: ResourceSlices of DRA drivers, registers of plugins.

Labels only tell product and count, no identity, and so give no device.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

import orjson

from pipelines.sources.kubernetes.objects import (
    Json,
    RefusedError,
    annotations_of,
    items,
    labels_of,
    mapping,
    name_of,
    text,
    whole,
)
from pipelines.sources.pci_address import canonical_pci
from pipelines.sources.telemetry.gpu_identity import canonical_gpu_uuid

GPU_DRIVERS: Final = frozenset({"gpu.nvidia.com", "gpu.amd.com", "gpu.intel.com"})
"""DRA drivers whose devices are GPUs."""

_PRODUCT: Final = ("nvidia.com/gpu.product", "amd.com/gpu.product-name")
_REGISTERS: Final = ("hami.io/node-nvidia-register", "volcano.sh/node-vgpu-register")
"""Annotations in which device plugins list the node's GPUs."""


def node_devices(node: Json, *, seen_at: datetime) -> Iterator[dict[str, Any]]:
    """GPUs that a device plugin registered on a node's annotations.

    Args:
        node: A Node as the API gives it.
        seen_at: When it was read.

    Yields:
        Rows of raw/inventory without source and ingested_at.

    Raises:
        RefusedError: The node has no name.
    """
    name, labels, notes = name_of(node), labels_of(node), annotations_of(node)
    product = next((labels[key] for key in _PRODUCT if labels.get(key)), None)
    seen: set[str] = set()
    for register in _REGISTERS:
        for uuid, slot, model in _registered(notes.get(register, "")):
            gpu = canonical_gpu_uuid(uuid)
            if gpu is None or gpu in seen:
                continue
            seen.add(gpu)
            yield {
                "ts": seen_at,
                "gpu_uuid": gpu,
                "node": name,
                "slot": slot,
                "model": product or model,
            }


def slice_devices(resource_slice: Json, *, seen_at: datetime) -> list[dict[str, Any]] | None:
    """GPUs that a DRA driver publishes.

    Args:
        resource_slice: A ResourceSlice of any version from v1beta1 to v1. Partitions of a GPU
            (MIG) name their parent and give no device of their own.
        seen_at: When it was read.

    Returns:
        Rows of raw/inventory without source and ingested_at; None where the slice is not about
        GPUs or not about one node.

    Raises:
        RefusedError: The slice has no name or no driver.
    """
    name_of(resource_slice)
    spec = mapping(resource_slice, "spec")
    driver = text(spec, "driver")
    if driver is None:
        raise RefusedError("spec.driver is missing")
    if driver not in GPU_DRIVERS:
        return None
    rows = {}
    for device in items(spec, "devices"):
        # v1beta1 wraps what later versions have in the device itself.
        body = mapping(device, "basic") or device
        node = text(spec, "nodeName") or text(body, "nodeName")
        values = _attributes(mapping(body, "attributes"))
        uuid = _first(values, "parentUUID", "uuid")
        gpu = canonical_gpu_uuid(uuid) if uuid else None
        if node is None or gpu is None:
            continue
        index, address = _first(values, "index", "parentIndex"), _first(values, "pciBusID")
        rows[gpu] = {
            "ts": seen_at,
            "gpu_uuid": gpu,
            "node": node,
            "slot": index,
            "pci_bus_id": canonical_pci(address) if address else None,
            "model": _first(values, "productName"),
        }
    return list(rows.values()) or None


def _attributes(attributes: Json) -> dict[str, str]:
    """Attributes by lower-case name without the domain; each wraps its value by type."""
    values = {}
    for name in attributes:
        wrapped = mapping(attributes, name)
        number = whole(wrapped, "int")
        value = text(wrapped, "string") or (str(number) if number is not None else None)
        if value is not None:
            values[name.rpartition("/")[2].lower()] = value
    return values


def _first(values: dict[str, str], *names: str) -> str | None:
    return next((values[name.lower()] for name in names if name.lower() in values), None)


def _registered(register: str) -> Iterator[tuple[str, str | None, str | None]]:
    """UUID, index and product of each device; the register is JSON, in older releases text.

    The text has one device per colon, its fields parted by commas: UUID, share count, memory,
    cores, product, NUMA node, health and, lately, index.
    """
    if register.lstrip().startswith("["):
        try:
            devices = orjson.loads(register)
        except ValueError:
            return
        for device in devices:  # a list, for it begins with a bracket
            if isinstance(device, dict) and (uuid := text(device, "id")):
                index = whole(device, "index")
                yield uuid, None if index is None else str(index), text(device, "type")
        return
    for device in register.split(":"):
        fields = device.split(",")
        if fields[0][:4].upper() == "GPU-":
            yield fields[0], None, fields[4] if len(fields) > 4 and fields[4] else None
