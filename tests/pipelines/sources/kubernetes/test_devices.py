"""GPUs of nodes as DRA drivers and device plugins name them."""

from typing import Any

import pytest

from pipelines.sources.kubernetes.devices import node_devices, slice_devices
from pipelines.sources.kubernetes.objects import RefusedError
from tests.pipelines.sources.kubernetes.fixture import NOW, Object, node

UUID = "GPU-4404041a-04cf-1ccf-9e70-f139a9b1e23c"
OTHER = "GPU-5404041a-04cf-1ccf-9e70-f139a9b1e23c"


def attributes(**more: Any) -> Object:
    return {
        "uuid": {"string": UUID.upper().replace("GPU-", "GPU-")},
        "productName": {"string": "NVIDIA H100"},
        "index": {"int": 3},
        "resource.kubernetes.io/pciBusID": {"string": "0000:3B:00.0"},
        **more,
    }


def published(*devices: Object, **spec: Any) -> Object:
    about = {"driver": "gpu.nvidia.com", "nodeName": "gpu001", "pool": {"name": "gpu001"}}
    return {"metadata": {"name": "s"}, "spec": {**about, "devices": list(devices), **spec}}


@pytest.mark.parametrize(
    "wrap", [lambda a: {"attributes": a}, lambda a: {"basic": {"attributes": a}}]
)
def test_a_device_is_read_in_every_version_of_the_api(wrap: Any):
    (row,) = slice_devices(published({"name": "gpu-3", **wrap(attributes())}), seen_at=NOW) or []
    assert row == {
        "ts": NOW,
        "gpu_uuid": UUID,
        "node": "gpu001",
        "slot": "3",
        "pci_bus_id": "00000000:3b:00.0",
        "model": "NVIDIA H100",
    }


def test_slices_of_a_gpu_are_the_gpu_once():
    parts = [
        {
            "name": f"mig-{n}",
            "attributes": {"uuid": {"string": f"MIG-{n}"}, "parentUUID": {"string": UUID}},
        }
        for n in range(2)
    ]
    rows = slice_devices(published(*parts), seen_at=NOW)
    assert [row["gpu_uuid"] for row in rows or []] == [UUID]


@pytest.mark.parametrize(
    "found",
    [
        published({"name": "x", "attributes": attributes()}, driver="dra.net"),
        published({"name": "x", "attributes": attributes()}, nodeName=None),
        published({"name": "x", "attributes": {"uuid": "text"}}),
        published({"name": "x"}),
        published(),
    ],
)
def test_a_slice_without_a_gpu_of_a_node_gives_nothing(found: Object):
    assert slice_devices(found, seen_at=NOW) is None


def test_a_slice_without_a_driver_is_refused():
    with pytest.raises(RefusedError, match="driver"):
        slice_devices({"metadata": {"name": "s"}}, seen_at=NOW)


@pytest.mark.parametrize(
    ("register", "rows"),
    [
        (
            f"{UUID},10,24576,100,NVIDIA-Tesla P4,0,true:{OTHER},9,8,7,NVIDIA-Tesla P4,0,true:",
            [(UUID, None, "NVIDIA-Tesla P4"), (OTHER, None, "NVIDIA-Tesla P4")],
        ),
        (
            f'[{{"id":"{UUID}","index":1,"type":"NVIDIA A10"}},{{"id":null}},3]',
            [(UUID, "1", "NVIDIA A10")],
        ),
        (f"{UUID}:{UUID}", [(UUID, None, None)]),
        ("[", []),
        ('["\\ud800"]', []),
        ("", []),
        ("no devices", []),
    ],
)
def test_registers_of_device_plugins_name_gpus(register: str, rows: Any):
    found = node(metadata={"annotations": {"hami.io/node-nvidia-register": register}})
    devices = list(node_devices(found, seen_at=NOW))
    assert [(d["gpu_uuid"], d["slot"], d["model"]) for d in devices] == rows


def test_the_products_label_is_preferred_and_alone_names_no_gpu():
    labels = {"nvidia.com/gpu.product": "H100-SXM", "nvidia.com/gpu.count": "8"}
    assert list(node_devices(node(metadata={"labels": labels}), seen_at=NOW)) == []
    notes = {"volcano.sh/node-vgpu-register": f"{UUID},1,1,1,x"}
    (device,) = node_devices(node(metadata={"labels": labels, "annotations": notes}), seen_at=NOW)
    assert device["model"] == "H100-SXM"
