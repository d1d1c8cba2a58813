"""Writes telemetry as text: saved dcgm-exporter scrapes, and the CSV of `nvidia-smi --query-gpu`.

Which samples go here is decided in `simulation.writers.raw`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import numpy as np

from simulation.fleet.fields import BLANK_FLOAT, BLANK_INT
from simulation.fleet.regime import Regime
from simulation.fleet.telemetry import NodeTelemetry

HELP: Final = {
    "DCGM_FI_DEV_SM_CLOCK": ("gauge", "SM clock frequency (in MHz)."),
    "DCGM_FI_DEV_MEM_CLOCK": ("gauge", "Memory clock frequency (in MHz)."),
    "DCGM_FI_DEV_MEMORY_TEMP": ("gauge", "Memory temperature (in C)."),
    "DCGM_FI_DEV_GPU_TEMP": ("gauge", "GPU temperature (in C)."),
    "DCGM_FI_DEV_POWER_USAGE": ("gauge", "Power draw (in W)."),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": (
        "counter",
        "Total energy consumption since boot (in mJ).",
    ),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": ("counter", "Total number of PCIe retries."),
    "DCGM_FI_DEV_GPU_UTIL": ("gauge", "GPU utilization (in %)."),
    "DCGM_FI_DEV_MEM_COPY_UTIL": ("gauge", "Memory utilization (in %)."),
    "DCGM_FI_DEV_XID_ERRORS": ("gauge", "Value of the last XID error encountered."),
    "DCGM_FI_DEV_POWER_VIOLATION": ("counter", "Throttling duration due to power (in us)."),
    "DCGM_FI_DEV_THERMAL_VIOLATION": ("counter", "Throttling duration due to heat (in us)."),
    "DCGM_FI_DEV_FB_FREE": ("gauge", "Framebuffer memory free (in MiB)."),
    "DCGM_FI_DEV_FB_USED": ("gauge", "Framebuffer memory used (in MiB)."),
}
"""Types and help texts of the fields for which the exporter's own list gives units."""

_XID_TEXTS: Final = {13: "Graphics Engine Exception", 31: "GPU memory page fault"}


@dataclass(frozen=True)
class Host:
    """What the text formats say of a node beside its samples."""

    name: str
    regime: Regime
    new_driver_s: float
    is_mig: bool = False

    def moment(self, at_s: float) -> datetime:
        """UTC time of a second since the fleet's start."""
        return self.regime.start + timedelta(seconds=float(at_s))

    def driver(self, at_s: float) -> str:
        """Release of the driver at a second since the fleet's start."""
        plan = self.regime.disturbances
        return plan.driver_after if at_s >= self.new_driver_s else plan.driver_before

    @property
    def instances(self) -> tuple[dict[str, str], ...]:
        """Labels of a partitioned GPU's instances; one empty set for a GPU in one piece."""
        mig = self.regime.hardware.mig
        if not (self.is_mig and mig):
            return ({},)
        first = 7  # smallest slices are numbered from 7 on
        return tuple(
            {"GPU_I_PROFILE": mig.profile, "GPU_I_ID": str(first + i)} for i in range(mig.instances)
        )

    def bus_id(self, slot: int) -> str:
        """PCI address as NVML gives it."""
        return f"00000000:{self.regime.hardware.pci_buses[slot].upper()}:00.0"


def write_scrapes(
    host: Host, telemetry: NodeTelemetry, folder: Path, *, n_bad: int
) -> dict[Path, int]:
    """Writes one file per scrape, `<node>__<time>.prom`.

    Args:
        host: The node.
        telemetry: Its samples.
        folder: Folder to write to.
        n_bad: Broken lines to put into the first file.

    Returns:
        The files with the number of bad lines in each.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written: dict[Path, int] = {}
    for at_s in np.unique(telemetry.at_s):
        lines = _scrape_lines(host, telemetry.rows(telemetry.at_s == at_s))
        bad = 0
        if not written:
            lines += ['DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-'] * n_bad  # cut off in mid-write
            bad = n_bad
        path = folder / f"{host.name}__{host.moment(at_s):%Y-%m-%dT%H-%M-%SZ}.prom"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
        written[path] = bad
    return written


def _scrape_lines(host: Host, rows: NodeTelemetry) -> list[str]:
    lines = []
    for field, values in rows.fields.items():
        kind, text = HELP.get(field, ("gauge", field))
        lines += [f"# HELP {field} {text}", f"# TYPE {field} {kind}"]
        for uuid, slot, value in zip(rows.gpu_uuid, rows.slot, values, strict=True):
            labels = {
                "gpu": str(slot),
                "UUID": uuid,
                "pci_bus_id": host.bus_id(slot),
                "device": f"nvidia{slot}",
                "modelName": host.regime.hardware.model,
                "Hostname": host.name,
                "DCGM_FI_DRIVER_VERSION": host.driver(rows.at_s[0]),
            }
            if field == "DCGM_FI_DEV_XID_ERRORS" and 0 < value < BLANK_INT:
                labels |= {"err_code": str(value), "err_msg": _XID_TEXTS.get(int(value), "Unknown")}
            # The exporter repeats the whole GPU's value for each instance of a partitioned one.
            number = f"{value:.6f}" if isinstance(value, np.floating) else str(value)
            for instance in host.instances:
                every = (labels | instance).items()
                shown = ",".join(f'{name}="{label}"' for name, label in every)
                lines.append(f"{field}{{{shown}}} {number}")
    return lines


def _plain(field: str, unit: str = "") -> Callable[[NodeTelemetry, int], str]:
    """A cell that shows a DCGM field as nvidia-smi would; its blanks are `[N/A]`."""

    def cell(rows: NodeTelemetry, i: int) -> str:
        value = rows.fields[field][i]
        if value in (BLANK_INT, BLANK_FLOAT):
            return "[N/A]"
        number = f"{value:.2f}" if isinstance(value, np.floating) else str(value)
        return f"{number} {unit}".strip()

    return cell


def _bit_mask(rows: NodeTelemetry, i: int) -> str:
    value = int(rows.fields["DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"][i])
    return "[N/A]" if value == BLANK_INT else f"0x{value:016X}"


_QUERY: Final[dict[str, Callable[[NodeTelemetry, int], str]]] = {
    "temperature.gpu": _plain("DCGM_FI_DEV_GPU_TEMP"),
    "temperature.memory": _plain("DCGM_FI_DEV_MEMORY_TEMP"),
    "power.draw [W]": _plain("DCGM_FI_DEV_POWER_USAGE", "W"),
    "clocks.current.sm [MHz]": _plain("DCGM_FI_DEV_SM_CLOCK", "MHz"),
    "clocks.current.memory [MHz]": _plain("DCGM_FI_DEV_MEM_CLOCK", "MHz"),
    "utilization.gpu [%]": _plain("DCGM_FI_DEV_GPU_UTIL", "%"),
    "utilization.memory [%]": _plain("DCGM_FI_DEV_MEM_COPY_UTIL", "%"),
    "memory.used [MiB]": _plain("DCGM_FI_DEV_FB_USED", "MiB"),
    "memory.free [MiB]": _plain("DCGM_FI_DEV_FB_FREE", "MiB"),
    "clocks_throttle_reasons.active": _bit_mask,
    "ecc.errors.corrected.volatile.total": _plain("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"),
    "ecc.errors.uncorrected.volatile.total": _plain("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"),
    "ecc.errors.corrected.aggregate.total": _plain("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL"),
    "ecc.errors.uncorrected.aggregate.total": _plain("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL"),
}


def write_query_csv(
    host: Host, telemetry: NodeTelemetry, folder: Path, *, n_bad: int
) -> dict[Path, int]:
    """Writes `nvidia-smi --query-gpu=... --format=csv` run at each sample, one file per day.

    Args:
        host: The node.
        telemetry: Its samples.
        folder: Folder to write to.
        n_bad: Lines cut short to put into each file.

    Returns:
        The files with the number of bad lines in each.
    """
    folder.mkdir(parents=True, exist_ok=True)
    header = ["timestamp", "index", "uuid", "pci.bus_id", "name", "driver_version", *_QUERY]
    by_day: dict[str, list[str]] = {}
    for i in np.lexsort((telemetry.slot, telemetry.at_s)):
        at, slot = host.moment(telemetry.at_s[i]), int(telemetry.slot[i])
        cells = [
            f"{at:%Y/%m/%d %H:%M:%S}.{slot * 7:03d}",
            str(slot),
            telemetry.gpu_uuid[i],
            host.bus_id(slot),
            host.regime.hardware.model,
            host.driver(telemetry.at_s[i]),
            *(cell(telemetry, int(i)) for cell in _QUERY.values()),
        ]
        by_day.setdefault(f"{at:%Y-%m-%d}", []).append(", ".join(cells))
    written = {}
    for day, lines in by_day.items():
        path = folder / f"{host.name}__{day}.csv"
        cut = [line[: len(line) // 2].rsplit(", ", 2)[0] for line in lines[:n_bad]]
        text = "\n".join([", ".join(header), *lines, *cut]) + "\n"
        path.write_text(text, encoding="utf-8", newline="\n")
        written[path] = len(cut)
    return written
