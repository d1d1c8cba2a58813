"""What kernel messages report."""

import time

import pytest

from pipelines.sources.kernel.events import (
    MARKERS,
    KernelEvent,
    UnreadableXidError,
    parts_of,
    read_event,
)

GPU = "00000000:8a:00.0"


def is_marked(message):
    return any(marker in message for marker in MARKERS)


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
            KernelEvent("xid", 149, GPU, severity="nonfatal"),
        ),
        (
            "NVRM: Xid (PCI:0000:8a:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 09 (0x1 0x2)",
            KernelEvent("xid", 149, GPU, severity="fatal"),
        ),
        (
            "NVRM: Xid (PCI:0000:8a:00): 31, pid=1, name=nonfatal, Ch 00000003",
            KernelEvent("xid", 31, GPU, 1, "nonfatal"),
        ),
        ("NVRM: XID (pci:0000:8A:00): 13, Graphics", KernelEvent("xid", 13, GPU)),
        ("NVRM: Xid (GPU-5f4e-aa): 94, Contained", KernelEvent("xid", 94)),
        ("NVRM: Xid (PCI:0000:8a:00): 79", KernelEvent("xid", 79, GPU, may_go_on=True)),
        ("NVRM: Xid (PCI:0000:8a:00 GPU-I:05): 31, pid=1, Ch 1", KernelEvent("xid", 31, GPU, 1)),
        ("NVRM: Xid (PCI:0000:8a:00): 43, pid='12', Ch 1", KernelEvent("xid", 43, GPU, 12)),
        (
            "NVRM: Xid (PCI:0000:8a:00): 31, pid=1, name=\x1b[31mevil\x00, Ch 1",
            KernelEvent("xid", 31, GPU, 1, "[31mevil"),
        ),
        (
            "NVRM: Xid (PCI:0000:8a:00): 45, pid=9, name=python3, Ch 1 caused by previous Xid 149",
            KernelEvent("xid", 45, GPU, 9, "python3"),
        ),
        (
            "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress",
            KernelEvent("sxid", 12028, "00000000:05:00.0", severity="nonfatal"),
        ),
        (
            "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Severity 1 Engine instance 62",
            KernelEvent("sxid", 20034, "00000000:05:00.0", severity="fatal"),
        ),
        (
            "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 11111, Data {0x50610002, 0x10100030}",
            KernelEvent("sxid", 11111, "00000000:05:00.0"),
        ),
        (
            "[ERROR] detected NVSwitch non-fatal error 12028 on fid 0 on pci bus id 0000:86:00.0",
            KernelEvent("sxid", 12028, "00000000:86:00.0", severity="nonfatal"),
        ),
        (
            "nv-fabricmanager[7]: detected NVSwitch fatal error 20034 on pci bus id 0000:86:00.0",
            KernelEvent("sxid", 20034, "00000000:86:00.0", severity="fatal"),
        ),
        (
            "[ERROR] [tid 7] Fabric Manager detected GPU NVL Non Fatal error on :",
            KernelEvent("nvlink", severity="nonfatal"),
        ),
        (
            "[WARNING] [tid 7] Trunk port failure detected for switch GUID 0x1 port number 61",
            KernelEvent("nvlink"),
        ),
        (
            "[ERROR] [tid 7] NVSwitch 3 did not answer",
            KernelEvent("unknown"),
        ),
        ("NVRM: GPU 0000:8a:00.0: GPU has fallen off the bus.", KernelEvent("off_bus", None, GPU)),
        ("NVRM: _kgspLogXid119: ***** GSP Timeout *****", KernelEvent("gsp")),
        (
            "NVRM: GPU 0000:8a:00.0: GSP RPC timed out after 6s",
            KernelEvent("gsp", None, GPU),
        ),
        (
            "pcieport 0000:80:01.0: AER: Corrected error received: 0000:8a:00.0",
            KernelEvent("aer", None, GPU, severity="corrected"),
        ),
        (
            "pcieport 0000:80:01.0: AER: Uncorrectable error message received from 0000:8a:00.0",
            KernelEvent("aer", None, GPU, severity="uncorrected"),
        ),
        (
            "pcieport 0000:80:01.0: AER: Uncorrected (Non-Fatal) error received: 0000:8a:00.0",
            KernelEvent("aer", None, GPU, severity="nonfatal"),
        ),
        (
            "nvidia 0000:8a:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction",
            KernelEvent("aer", None, GPU, severity="fatal"),
        ),
        (
            "nvidia 0000:8a:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer",
            KernelEvent("aer", None, GPU, severity="corrected"),
        ),
        ("mce: [Hardware Error]: Machine check events logged", KernelEvent("mce")),
        (
            "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_Ha#0",
            KernelEvent("edac", severity="corrected"),
        ),
        ("EDAC MC1: 1 UE memory read error", KernelEvent("edac", severity="uncorrected")),
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
            "mlx5_core 0000:8a:00.0: Port module event[error]: module 0, Cable unplugged",
            KernelEvent("link", None, GPU),
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
    assert is_marked(message)
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
        "systemd[1]: Shutting down.",
        "nvidia-nvswitch2: open (major=510)",
        "[INFO] [tid 7] multicast group 0 is freed.",
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
    assert is_marked(message)
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


@pytest.mark.parametrize(
    ("text", "process"),
    [
        ("Out of memory: Killed process 7 ((sd-pam)) total-vm:5kB", "(sd-pam)"),
        ("Killed process 7 (python3 (deleted)) total-vm:5kB, anon-rss:5kB", "python3 (deleted)"),
        ("Killed process 7 (a) b (c), UID 0, total-vm:5kB", "a) b (c"),
        ("Killed process 7, UID 1000, (java) total-vm:5kB", "java"),
        ("Killed process 7 (java)", "java"),
    ],
)
def test_a_killed_process_may_have_brackets_in_its_name(text, process):
    assert read_event(text) == KernelEvent("oom", pid=7, process=process)


@pytest.mark.parametrize(
    "before",
    ["n1 sshd[3]: Invalid user ", "n1 sudo:  bob : COMMAND=/bin/grep ", "audit: type=1300 argv=",
     "n1 CRON[5]: (root) CMD ", "su: "],
)  # fmt: skip
def test_what_a_user_typed_is_no_word_of_the_driver(before):
    assert read_event(f"{before}NVRM: Xid (PCI:0000:8a:00): 79, pid=1, fallen off the bus") is None


def test_poison_of_an_amd_gpu_is_kept_in_either_case():
    message = "amdgpu 0000:8a:00.0: amdgpu: Poison is consumed"
    assert read_event(message) == KernelEvent("unknown", pci_bus_id=GPU)


@pytest.mark.parametrize("message", ["", "NVRM: Xid (a): 1, b", "NVRM: loading"])
def test_a_message_alone_is_one_part(message):
    assert parts_of(message) == [message]


def test_messages_that_ran_together_come_apart_at_each_xid():
    parts = ["[x] NVRM: Xid (a): 1, b[1.5] ", "NVRM: Xid (c): 2, d ", "NVRM: Xid (e"]
    assert parts_of("".join(parts)) == parts


@pytest.mark.parametrize(
    ("message", "is_loss"),
    [
        ("NVRM: GPU 0000:8a:00.0: GPU has fallen off the bus.", True),
        ("fallen off the bus.", True),  # the end of a wrapped line
        ("00): 79, GPU has fallen off", True),
        ("a climber has fallen off the bus stop", False),
    ],
)
def test_only_gpus_fall_off_the_bus(message, is_loss):
    event = read_event(message)
    assert (event is not None and event.kind == "off_bus") == is_loss
