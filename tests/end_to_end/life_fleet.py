"""A small fleet, simulated once, whose files come to a drop folder as time passes.

Nothing is delivered before it has happened. Who reads the files is not known here.
"""

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import polars as pl
import yaml

from simulation.regimes.load import load_regime
from simulation.writers.raw import simulate_to

T0: Final = datetime(2026, 1, 1, tzinfo=UTC)
HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)

_NODES, _SCRAPE_S, _SEED = 12, 600, 7
_MULTIPLIER: Final = 250
_TELEMETRY: Final = "telemetry/*/*.parquet"
_ISO: Final = re.compile(r"(20\d\d)[-/](\d\d)[-/](\d\d)[T ](\d\d):(\d\d):(\d\d)")
_CTIME: Final = re.compile(r"\[\w{3} (\w{3} +\d+ \d\d:\d\d:\d\d 20\d\d)\]")
_NAME: Final = re.compile(r"__(20\d\d-\d\d-\d\dT\d\d-\d\d-\d\dZ)")
_TIMES: Final = "%Y-%m-%dT%H:%M:%S"

Change = Callable[[pl.DataFrame], pl.DataFrame]


def make_fleet(folder: Path) -> Path:
    """Simulates the fleet: failures are many, and nearly all announce themselves.

    With the demonstration's 30 % a month is too short for a champion, and thus for its downfall.

    Args:
        folder: Where the site's files are written, with the truth beside them.

    Returns:
        Folder of the site's files.
    """
    signs = {"share_without": 0.05, "lead_h": [12.0, 48.0]}
    demo = load_regime("demo")
    decoys = [decoy.kind for decoy in demo.decoys]
    faults = {
        fault.fault_type: {"downtime": {"range_h": [1.0, 3.0]}, "silent_share": 0.0}
        | ({"precursor": signs} if fault.precursor else {})
        for fault in demo.faults
    }
    regime = folder / "life.yaml"
    regime.write_text(
        yaml.safe_dump(
            {
                "extends": "demo",
                "name": "life",
                "hazard_multiplier": _MULTIPLIER,
                "scrape_s": _SCRAPE_S,
                "faults": faults,
                "decoys": {kind: {"per_precursor": 0.0} for kind in decoys},
            }
        )
    )
    simulate_to(
        folder / "site",
        truth_dir=folder / "truth",
        regime=str(regime),
        nodes=_NODES,
        seed=_SEED,
    )
    return folder / "site"


@dataclass
class DropFolder:
    """The folder that inputs are read from, and what has not come to it yet.

    Attributes:
        record: The site's files of the whole month.
        folder: The drop folder.
        changes: What happens to telemetry from a moment on, such as another firmware.
        until: Up to where everything was delivered, apart from what is withheld.
        n_samples: Samples of telemetry delivered.
        n_unreadable: Of these, samples in files that cannot be read at the moment.
        telemetry: Where files of samples are put.
    """

    record: Path
    folder: Path
    changes: list[tuple[datetime, Change]] = field(default_factory=list)
    until: datetime = T0
    n_samples: int = 0
    n_unreadable: int = 0

    def __post_init__(self) -> None:
        shutil.copytree(self.record / "mappings", self.folder / "mappings")
        for name in ("kernel", "sacct", "sinfo", "telemetry", "dcgm", "nvidia_smi"):
            (self.folder / name).mkdir(exist_ok=True)
        for name in ("inputs.yaml", "topology.csv", "maintenance.csv"):
            shutil.copy(self.record / name, self.folder / name)
        files = sorted(self.record.glob(_TELEMETRY))
        self._samples = pl.concat(map(pl.read_parquet, files), how="diagonal_relaxed")
        self._jobs = (self.record / "sacct" / "jobs.txt").read_text().splitlines()
        self.telemetry = self.folder / "telemetry"
        self._held: list[pl.DataFrame] = []

    def deliver(self, now: datetime, *, withhold: pl.Expr | None = None) -> Path:
        """Delivers what has happened since the last time.

        Args:
            now: The present.
            withhold: Samples that do not come now, but with `deliver_late`.

        Returns:
            The file of telemetry.
        """
        since, self.until = self.until, now
        self._deliver_tables(now)
        self._deliver_jobs(since, now)
        for path in _files(self.record, ("sinfo", "dcgm")):
            if since <= _time_of(path) < now:
                shutil.copy(path, self.folder / path.relative_to(self.record))
        for path in _files(self.record, ("kernel", "nvidia_smi")):
            self._grow(path, now)
        samples = self._between(since, now)
        if withhold is not None:
            self._held.append(samples.filter(withhold))
            samples = samples.filter(~withhold)
        return self._put(samples, f"{since:{_STAMP}}-{now:{_STAMP}}")

    def deliver_late(self, name: str) -> int:
        """Delivers what was withheld, in a file of its own.

        Args:
            name: Name of the file.

        Returns:
            Number of samples.
        """
        late, self._held = pl.concat(self._held), []
        self._put(late, name)
        return late.height

    def _put(self, samples: pl.DataFrame, name: str) -> Path:
        path = self.telemetry / name[:8] / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        self.n_samples += samples.height
        samples.write_parquet(path)
        return path

    def _between(self, since: datetime, now: datetime) -> pl.DataFrame:
        at = pl.col("timestamp")
        # Rows whose time is broken come with the file that they were in.
        samples = self._samples.filter((at >= since) & (at < now))
        for begin, change in self.changes:
            if begin <= since:
                samples = change(samples)
        return samples

    def _deliver_tables(self, now: datetime) -> None:
        """What the asset list and the scheduler's log of nodes say now."""
        said = f"{now:{_TIMES}}"
        lines = (self.record / "inventory.csv").read_text().splitlines()
        kept = [lines[0]]
        for line in lines[1:]:
            *start, installed, removed = line.split(",")
            if installed[:19] < said:
                kept.append(",".join([*start, installed, removed if removed < said else ""]))
        _write(self.folder / "inventory.csv", kept)
        lines = (self.record / "node_events.csv").read_text().splitlines()
        kept = [lines[0]]
        for line in lines[1:]:
            cells = line.split("|")
            if len(cells) > 3 and cells[2] < said:
                cells[3] = cells[3] if cells[3] < said else "Unknown"
                kept.append("|".join(cells))
        _write(self.folder / "node_events.csv", kept)

    def _deliver_jobs(self, since: datetime, now: datetime) -> None:
        """Jobs that have ended, as a nightly `sacct` has them."""
        header, *lines = self._jobs
        at = header.split("|").index("End")
        ended = [
            line
            for line in lines
            if len(cells := line.split("|")) > at
            and f"{since:{_TIMES}}" <= cells[at] < f"{now:{_TIMES}}"
        ]
        _write(self.folder / "sacct" / f"jobs-{now:{_STAMP}}.txt", [header, *ended])

    def _grow(self, path: Path, now: datetime) -> None:
        """A log as far as it is written; what has no readable time goes with the line before."""
        kept = []
        for line in path.read_text(errors="surrogateescape").splitlines(keepends=True):
            at = _moment(line)
            if at is not None and at >= now:
                break
            kept.append(line)
        if len(kept) > 1 or path.parent.name == "kernel":
            target = self.folder / path.relative_to(self.record)
            target.write_text("".join(kept), errors="surrogateescape")


_STAMP: Final = "%Y%m%dT%H%M"


def _write(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join(lines) + "\n")


def _files(record: Path, names: tuple[str, ...]) -> Iterator[Path]:
    for name in names:
        yield from sorted((record / name).iterdir())


def _time_of(path: Path) -> datetime:
    found = _NAME.search(path.name)
    assert found is not None, path
    return datetime.strptime(found[1], "%Y-%m-%dT%H-%M-%SZ").replace(tzinfo=UTC)


def _moment(line: str) -> datetime | None:
    head = line[:60]
    try:
        if found := _ISO.search(head):
            return datetime(*map(int, found.groups()), tzinfo=UTC)  # type: ignore[arg-type, misc]
        if found := _CTIME.search(head):
            return datetime.strptime(found[1], "%b %d %H:%M:%S %Y").replace(tzinfo=UTC)
    except ValueError:
        pass
    return None
