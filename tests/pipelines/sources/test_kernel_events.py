"""What kernel messages report."""

import time

import pytest

from pipelines.sources.kernel_events import (
    KernelEvent,
    UnreadableXidError,
    may_report,
    read_event,
)

GPU = "00000000:8a:00.0"


@pytest.mark.parametrize(
    ("message", "event"),
    [
        (
            "NVRM: Xid (PCI:0000:8a:00): 119, pid=28098, name=gpu-feature-dis, Timeout after 45s",
            KernelEvent("xid", 119, GPU, 28098, "gpu-feature-dis"),
        ),
        (
            "NVRM: Xid (PCI:0000:8A:00.0): 13, pid='<unknown>', name=<unknown>, Graphics Exception",
            KernelEvent("xid", 13, GPU),
        ),
        ("NVRM: Xid (0000:8a:00): 8, Channel 00000020", KernelEvent("xid", 8, GPU)),
        (
            "NVRM: Xid (PCI:0000:8a:00): 119, pid=7, name=nvc:[driver], Timeout after 6s",
            KernelEvent("xid", 119, GPU, 7, "nvc:[driver]"),
        ),
        ("NVRM: Xid (PCI:...): 137, RLW_RXPIPE interrupt hit", KernelEvent("xid", 137)),
        (
            "NVRM: Xid (PCI:0000:8a:00): 154, GPU recovery action changed from 0x0) (None to 0x4",
            KernelEvent("xid", 154, GPU),
        ),
        (
            "NVRM: Xid (PCI:0000:8a:00): 149, NETIR_LINK_EVT Nonfatal XC0 i1 Link -1 (0x1 0x2)",
            KernelEvent("xid", 149, GPU),
        ),
        (
            "NVRM: Xid (PCI:0000:8a:00): 45, pid=9, name=python3, Ch 1 caused by previous Xid 149",
            KernelEvent("xid", 45, GPU, 9, "python3"),
        ),
        (
            "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress",
            KernelEvent("sxid", 12028, "00000000:05:00.0"),
        ),
        ("NVRM: GPU 0000:8a:00.0: GPU has fallen off the bus.", KernelEvent("off_bus", None, GPU)),
        ("NVRM: _kgspLogXid119: ***** GSP Timeout *****", KernelEvent("gsp")),
        (
            "NVRM: GPU 0000:8a:00.0: GSP RPC timed out after 6s",
            KernelEvent("gsp", None, GPU),
        ),
        (
            "pcieport 0000:80:01.0: AER: Corrected error received: 0000:8a:00.0",
            KernelEvent("aer", None, GPU),
        ),
        (
            "pcieport 0000:80:01.0: AER: Uncorrectable error message received from 0000:8a:00.0",
            KernelEvent("aer", None, GPU),
        ),
        (
            "nvidia 0000:8a:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer",
            KernelEvent("aer", None, GPU),
        ),
        ("mce: [Hardware Error]: Machine check events logged", KernelEvent("mce")),
        ("EDAC MC0: 1 CE memory read error on CPU_SrcID#0_Ha#0", KernelEvent("edac")),
        (
            "Out of memory: Killed process 4242 (python3) total-vm:1kB",
            KernelEvent("oom", pid=4242, process="python3"),
        ),
        (
            "INFO: task kworker/u8:1:77 blocked for more than 120 seconds.",
            KernelEvent("hung_task", pid=77, process="kworker/u8:1"),
        ),
        (
            "mlx5_core 0000:0c:00.0 ibp12s0: Link down",
            KernelEvent("link", None, "00000000:0c:00.0"),
        ),
        (
            "i40e 0000:0c:00.0 eth0: NIC Link is Down",
            KernelEvent("link", None, "00000000:0c:00.0"),
        ),
        (
            "amdgpu 0000:8a:00.0: amdgpu: 1 uncorrectable hardware errors detected in umc block",
            KernelEvent("unknown", None, GPU),
        ),
        (
            "NVRM: GPU 0000:8a:00.0: RmInitAdapter failed! (0x62:0xffff:2351)",
            KernelEvent("unknown", None, GPU),
        ),
    ],
)
def test_messages_about_trouble(message, event):
    assert may_report(message)
    assert read_event(message) == event


@pytest.mark.parametrize(
    "message",
    [
        "IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready",
        "NVRM: GPU Board Serial Number: 1710424007242",
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.90.07",
        "pcieport 0000:00:01.0: AER: enabled with IRQ 29",
        "EDAC MC: Ver: 3.0.0",
        "mce: CPU supports 32 MCE banks",
        "mlx5_core 0000:0c:00.0 ibp12s0: Link up",
        "python3 invoked oom-killer: gfp_mask=0x1",
        "gpud found the Xid of a friend",
    ],
)
def test_messages_about_something_else(message):
    assert read_event(message) is None


@pytest.mark.parametrize(
    "message",
    [
        "NVRM: Xid (PCI:0000:8a:00): , no code",
        "NVRM: Xid (PCI:0000:",
        "NVRM: Xid something new",
        "nvidia-nvswitch0: SXid (PCI:0000:05:00.0)",
        "NVRM: Xid (PCI:0000:8a:00): 99999999999999, impossible",
    ],
)
def test_a_message_that_says_xid_and_not_which_is_told_apart(message):
    assert may_report(message)
    with pytest.raises(UnreadableXidError):
        read_event(message)


@pytest.mark.parametrize("word", ["NVRM GSP ", "amdgpu ", "EDAC CE ", "Xid (", "mlx5 ink down "])
def test_a_hostile_line_takes_no_longer_than_a_long_one(word):
    message = (word * 4096)[:4096]
    start = time.perf_counter()
    for _ in range(3):
        try:
            read_event(message)
        except UnreadableXidError:
            continue
    assert time.perf_counter() - start < 1.0
