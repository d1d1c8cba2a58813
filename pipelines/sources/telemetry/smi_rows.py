"""What nvidia-smi's output gives, in any of its forms: readings, sightings, lost GPUs, coverage.

No text is parsed here but the address in a line about a lost GPU.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import polars as pl

from features.raw_tables import RAW_COVERAGE, RAW_INVENTORY, RAW_KERNEL_LOG
from features.telemetry_metrics import Metric
from pipelines.sources.pci_address import first_pci
from pipelines.sources.result import as_table
from pipelines.sources.telemetry.rows import TELEMETRY, TelemetryRows
from pipelines.sources.telemetry.sightings import (
    SIGHTS,
    Reading,
    Sight,
    build_coverage,
    build_inventory,
    microseconds,
)
from pipelines.sources.telemetry.smi_fields import UNKNOWN

_GPU_BEFORE: Final = re.compile(r"GPU ?(?=[0-9A-Fa-f]{4,8}:)")


@dataclass(frozen=True)
class _Lost:
    """A GPU that nvidia-smi could not reach, in a line that has no time."""

    line: str
    after: datetime | None  # the last time seen before the line


class SmiRows:
    """Tables under construction.

    Args:
        source: Kind of source.
        origin: File or address.
        node: Node the output is from.
        ingested_at: When it is read, UTC.
    """

    def __init__(
        self, source: str, *, origin: str, node: str | None, ingested_at: datetime
    ) -> None:
        self._source = source
        self._origin = origin
        self._node = node
        self._ingested_at = ingested_at
        self._telemetry = TelemetryRows(source, ingested_at)
        self._seen: dict[tuple[str, datetime], Sight] = {}
        self._waiting: list[_Lost] = []
        self._events: list[dict[str, Any]] = []
        self._times: list[datetime] = []

    def touch(
        self, gpu_uuid: str, ts: datetime, *, index: str, pci_bus_id: str | None, model: str
    ) -> None:
        """Takes the sight of a GPU.

        Args:
            gpu_uuid: The GPU.
            ts: When, UTC.
            index: Its index, as printed.
            pci_bus_id: Its address.
            model: Its name, as printed.
        """
        is_index = index.isascii() and index.isdecimal() and len(index) < 6
        number = int(index) if is_index else None
        self._telemetry.touch(gpu_uuid, ts, node=self._node, gpu_index=number)
        slot = None if number is None else str(number)
        name = None if UNKNOWN.fullmatch(model.strip()) else model.strip()
        sight = (0, microseconds(ts), gpu_uuid, self._node, slot, pci_bus_id, name)
        self._seen.setdefault((gpu_uuid, ts), sight)

    def put(self, gpu_uuid: str, ts: datetime, *, metric: Metric, value: float) -> str | None:
        """Takes a reading; the rule it breaks, or None. See `TelemetryRows.put`."""
        return self._telemetry.put(gpu_uuid, ts, metric=metric, value=value)

    def settle(self, ts: datetime) -> None:
        """Learns the time; lost GPUs that waited for one have it."""
        self._times.append(ts)
        for lost in self._waiting:
            self.emit(lost.line, ts=ts)
        self._waiting.clear()

    def lose(self, line: str) -> None:
        """Keeps a line about a lost GPU until something tells the time."""
        self._waiting.append(_Lost(line, self._times[-1] if self._times else None))

    def emit(self, line: str, *, ts: datetime | None, pci_bus_id: str | None = None) -> None:
        """Makes a lost-GPU event.

        Args:
            line: What said so.
            ts: When, UTC.
            pci_bus_id: Address of the GPU; None: as the line says.
        """
        # "device handle for GPU0000:8A:00.0" has no space before the address.
        found = pci_bus_id or first_pci(_GPU_BEFORE.sub(" ", line))
        self._events.append(
            {
                "node": self._node,
                "ts": ts,
                "kind": "off_bus",
                "pci_bus_id": found,
                "line": line,
                "source": self._source,
                "ingested_at": self._ingested_at,
            }
        )

    def tables(self, *, default_ts: datetime | None) -> Mapping[str, pl.DataFrame]:
        """The tables.

        Args:
            default_ts: When the output was made, where nothing in it tells.

        Returns:
            Frames by asset key; `raw/kernel_log` only where a GPU was lost.
        """
        for lost in self._waiting:
            self.emit(lost.line, ts=lost.after or default_ts)
        self._waiting.clear()
        seen = pl.DataFrame(list(self._seen.values()), SIGHTS, orient="row")
        about: dict[str, Any] = {"source": self._source, "ingested_at": self._ingested_at}
        times = self._times or ([default_ts] if default_ts else [])
        readings = [Reading(self._origin, self._node, min(times), max(times))] if times else []
        tables = {
            TELEMETRY: self._telemetry.frame(),
            RAW_INVENTORY.asset_key: build_inventory(seen, **about),
            RAW_COVERAGE.asset_key: build_coverage(readings, seen, **about),
        }
        if self._events:
            tables[RAW_KERNEL_LOG.asset_key] = as_table(RAW_KERNEL_LOG, self._events)
        return tables
