"""What the kernel and the NVIDIA driver say: texts of Xids, link changes, boots and chatter.

When they say it is in `simulation.fleet.events`; how a log renders it is in `simulation.writers`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

XidText = Callable[[np.random.Generator, int], str]
"""The words of an Xid, given a stream for its details and the GPU's slot."""


@dataclass(frozen=True)
class KernelLine:
    """One message of the kernel.

    Attributes:
        at_s: Seconds since the fleet's start.
        slot: Slot of the GPU it is about; null for other messages.
        code: Xid; null for other messages.
        text: The message; for an Xid what follows the code.
        process: Process named by an Xid, with its pid; null where the driver knows none.
    """

    at_s: float
    slot: int | None
    code: int | None
    text: str
    process: tuple[int, str] | None = None


def _hex(rng: np.random.Generator, digits: int) -> str:
    return f"{int(rng.integers(16**digits)):0{digits}x}"


def _warp(rng: np.random.Generator, _: int) -> str:
    gpc, tpc, sm = rng.integers(8), rng.integers(9), rng.integers(2)
    return f"Graphics SM Warp Exception on (GPC {gpc}, TPC {tpc}, SM {sm}): Out Of Range Address"


def _mmu(rng: np.random.Generator, _: int) -> str:
    return (
        f"Ch {_hex(rng, 8)}, intr 00000000. MMU Fault: ENGINE GRAPHICS "
        f"GPCCLIENT_T1_{rng.integers(8)} faulted @ 0x7f{_hex(rng, 2)}_{_hex(rng, 8)}. "
        "Fault is of type FAULT_PDE ACCESS_TYPE_READ"
    )


def _double_bit(rng: np.random.Generator, _: int) -> str:
    return (
        "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at "
        f"physAddr 0x{_hex(rng, 10)} partition {rng.integers(12)}, subpartition {rng.integers(2)}."
    )


def _gsp_timeout(rng: np.random.Generator, slot: int) -> str:
    return (
        f"Timeout after 6s of waiting for RPC response from GPU{slot} GSP! "
        f"Expected function 76 (GSP_RM_CONTROL) (0x2080{_hex(rng, 4)} 0x{_hex(rng, 2)})."
    )


def _nvlink(rng: np.random.Generator, _: int) -> str:
    link = rng.integers(18)
    return f"NVLink: fatal error detected on link {link}(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"


def _fixed(text: str) -> XidText:
    return lambda _rng, _slot: text


XID_TEXTS: Final[dict[int, XidText]] = {
    13: _warp,
    31: _mmu,
    43: lambda rng, _: f"Ch {_hex(rng, 8)}",
    45: lambda rng, _: f"Ch {_hex(rng, 8)}",
    48: _double_bit,
    54: _fixed("Auxiliary power is not connected to the GPU board"),
    62: lambda rng, _: f"{_hex(rng, 4)}({_hex(rng, 4)}) 00000000 00000000",
    63: _fixed("Row Remapper: New row marked for remapping, reset gpu to activate."),
    64: _fixed("Row Remapper: Failed to remap a row, no spare row is left in the bank."),
    74: _nvlink,
    79: _fixed("GPU has fallen off the bus."),
    92: _fixed("High single-bit ECC error rate"),
    94: _fixed("Contained: SM (0x1). RST: No, D-RST: No"),
    95: _fixed("Uncontained: FBHUB. RST: Yes, D-RST: No"),
    109: lambda rng, _: f"Ch {_hex(rng, 8)}, errorString CTX SWITCH TIMEOUT, Info 0x{_hex(rng, 5)}",
    119: _gsp_timeout,
    120: lambda rng, _: f"GSP task exception: 0x{_hex(rng, 4)} @ pc:0x{_hex(rng, 7)}, partition:4",
    154: _fixed("GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"),
}

_PROCESSES: Final = ("python3", "pt_main_thread", "python", "vllm::EngineCor", "cache_mgr_main")
_WITHOUT_PROCESS: Final = (54, 62, 63, 64, 79, 92, 95, 154)


def draw_xid(rng: np.random.Generator, code: int, *, at_s: float, slot: int) -> KernelLine:
    """An Xid line with plausible details.

    Args:
        rng: Stream to draw from.
        code: Xid.
        at_s: When, in seconds since the fleet's start.
        slot: Which GPU.

    Returns:
        The line.
    """
    process = None
    if code not in _WITHOUT_PROCESS and rng.random() < 0.8:
        name = _PROCESSES[int(rng.integers(len(_PROCESSES)))]
        process = (int(rng.integers(2_000, 4_000_000)), name)
    return KernelLine(at_s, slot, code, XID_TEXTS[code](rng, slot), process)


def link_lines(at_s: float, *, is_up: bool) -> tuple[KernelLine, ...]:
    """A port of the node's network card changing its state."""
    state = "up" if is_up else "down"
    line = KernelLine(at_s, None, None, f"mlx5_core 0000:5e:00.0 ens10f0np0: Link {state}")
    if not is_up:
        return (line,)
    ready = "IPv6: ADDRCONF(NETDEV_CHANGE): ens10f0np0: link becomes ready"
    return (line, KernelLine(at_s + 0.002, None, None, ready))


def aer_line(at_s: float, *, bus: str) -> KernelLine:
    """A corrected PCIe error of a GPU."""
    text = f"pcieport 0000:{bus}:00.0: AER: Corrected error received: 0000:{bus}:00.0"
    return KernelLine(at_s, None, None, text)


def off_bus_banner(at_s: float, *, bus: str) -> tuple[KernelLine, ...]:
    """The driver's way of saying that a GPU is gone without giving an Xid."""
    texts = (
        f"NVRM: The NVIDIA GPU 0000:{bus}:00.0",
        "NVRM: (PCI ID: 10de:2330) installed in this system has",
        "NVRM: fallen off the bus and is not responding to commands.",
    )
    return tuple(KernelLine(at_s + 1e-6 * i, None, None, text) for i, text in enumerate(texts))


def boot_lines(at_s: float, *, driver: str) -> tuple[KernelLine, ...]:
    """What a boot says, seconds after the kernel has started."""
    texts = (
        (0.0, "Linux version 5.15.0-113-generic (buildd@lcy02) (gcc 11.4.0) #123-Ubuntu SMP"),
        (0.9, "ACPI: PM-Timer IO Port: 0x408"),
        (7.3, "nvidia: loading out-of-tree module taints kernel."),
        (7.9, f"NVRM: loading NVIDIA UNIX x86_64 Kernel Module  {driver}"),
        (8.6, "nvidia-uvm: Loaded the UVM driver, major device number 508."),
        (9.1, "mlx5_core 0000:5e:00.0 ens10f0np0: Link up"),
        (9.2, "IPv6: ADDRCONF(NETDEV_CHANGE): ens10f0np0: link becomes ready"),
    )
    return tuple(KernelLine(at_s + after, None, None, text) for after, text in texts)


def oom_line(rng: np.random.Generator, at_s: float) -> KernelLine:
    """The kernel ending a process for lack of host memory."""
    text = (
        f"Memory cgroup out of memory: Killed process {rng.integers(2_000, 4_000_000)} (python3) "
        f"total-vm:{rng.integers(40_000_000, 400_000_000)}kB, anon-rss:{rng.integers(20_000_000)}kB"
    )
    return KernelLine(at_s, None, None, text)


def chatter_lines(
    rng: np.random.Generator, at_s: float, *, clock_s: float
) -> tuple[KernelLine, ...]:
    """Something a healthy kernel says.

    Args:
        rng: Stream to draw from.
        at_s: When, in seconds since the fleet's start.
        clock_s: The same moment in seconds since 1970.

    Returns:
        One line; two where a file server is late and then answers.
    """
    cali = _hex(rng, 11)
    texts = (
        f"IPv6: ADDRCONF(NETDEV_CHANGE): cali{cali}: link becomes ready",
        f"IPv6: ADDRCONF(NETDEV_CHANGE): eth{rng.integers(2)}: link becomes ready",
        (
            f"audit: type=1400 audit({clock_s:.3f}:{312 + int(at_s) // 45}): "
            'apparmor="STATUS" operation="profile_load"'
        ),
        "perf: interrupt took too long (2504 > 2500), lowering kernel.perf_event_max_sample_rate",
        "TCP: request_sock_TCP: Possible SYN flooding on port 29500. Sending cookies.",
        f"docker0: port {rng.integers(1, 9)}(veth{cali[:7]}) entered forwarding state",
        f"python3[{rng.integers(2_000, 4_000_000)}]: segfault at 0 ip 00007f{cali[:10]} error 4",
        "nfs: server nas01 not responding, still trying",
    )
    chosen = int(rng.integers(len(texts)))
    line = KernelLine(at_s, None, None, texts[chosen])
    if chosen < len(texts) - 1:
        return (line,)
    answered_s = at_s + float(rng.uniform(5, 120))
    return (line, KernelLine(answered_s, None, None, "nfs: server nas01 OK"))
