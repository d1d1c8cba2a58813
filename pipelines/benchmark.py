"""The benchmarks behind `forewarn benchmark NAME`: protocol file, reading, table of results, JSON.

What is computed is in `models.benchmark`; a benchmark is two YAML files in `pipelines/mappings`.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import yaml
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from features.core_tables import CoreTables
from features.errors import ForewarnError, SettingsError
from features.history_features import HistorySpec
from models.benchmark import BenchmarkProtocol, benchmark_rows, run_protocol
from models.benchmark_result import BenchmarkResult, WindowResult
from models.evaluation import Estimate, RowMetrics
from models.specs import TrainSpec
from pipelines.sources.history.files import read_history
from remediation.strict_yaml import parse_yaml

MAPPINGS: Final = Path(__file__).parent / "mappings"
_SUFFIX: Final = "_protocol.yaml"


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class HistorySettings(_Section):
    """History features, in days and hours; see `HistorySpec`."""

    windows_d: tuple[int, ...]
    scopes: tuple[str, ...] = ("own", "node", "batch")
    levels: tuple[str, ...] | None = None
    ordinal_levels: tuple[str, ...] = ()
    repeat_gap_h: float = Field(0.0, ge=0.0)

    def spec(self) -> HistorySpec:
        """The same as a value of the feature engine."""
        return HistorySpec(
            windows=tuple(timedelta(days) for days in self.windows_d),
            scopes=self.scopes,
            levels=self.levels,
            ordinal_levels=self.ordinal_levels,
            repeat_gap=timedelta(hours=self.repeat_gap_h),
        )


class TrainSettings(_Section):
    """Training; see `TrainSpec`."""

    num_leaves: int
    learning_rate: float
    rounds: int
    min_data_in_leaf: int
    lambda_l2: float
    feature_fraction: float
    bagging_fraction: float = 0.8
    negative_share: float = 1.0
    seeds: tuple[int, ...]


class ProtocolSettings(_Section):
    """A protocol file: which files are read by which mapping, and how models are tested.

    See `BenchmarkProtocol` for what the fields mean.
    """

    mapping: str
    files: tuple[str, ...] = Field(min_length=1)
    data_end: AwareDatetime
    first_as_of: AwareDatetime
    every_d: int = Field(gt=0)
    lead_h: float = Field(ge=0.0)
    horizon_d: int = Field(gt=0)
    test_d: int = Field(gt=0)
    origins: tuple[AwareDatetime, ...] = Field(min_length=1)
    old_before: AwareDatetime
    place_level: str
    history: HistorySettings
    train: TrainSettings

    def protocol(self, name: str) -> BenchmarkProtocol:
        """The same as a value of the benchmark."""
        return BenchmarkProtocol(
            name=name,
            first_as_of=self.first_as_of.astimezone(UTC),
            every=timedelta(self.every_d),
            data_end=self.data_end.astimezone(UTC),
            lead=timedelta(hours=self.lead_h),
            horizon_h=self.horizon_d * 24,
            origins=tuple(origin.astimezone(UTC) for origin in self.origins),
            test=timedelta(self.test_d),
            old_before=self.old_before.astimezone(UTC),
            place_level=self.place_level,
            history=self.history.spec(),
            train=TrainSpec(**self.train.model_dump()),
        )


def benchmark_names() -> tuple[str, ...]:
    """The benchmarks there are."""
    return tuple(sorted(p.name.removesuffix(_SUFFIX) for p in MAPPINGS.glob(f"*{_SUFFIX}")))


def load_protocol(name: str) -> ProtocolSettings:
    """Reads a benchmark's protocol file.

    Args:
        name: Its name.

    Returns:
        The settings.

    Raises:
        SettingsError: There is no such benchmark, or its file does not hold the grammar.
    """
    if name not in benchmark_names():
        raise SettingsError(
            f"benchmark {name!r} is not known; there are: {', '.join(benchmark_names())}."
        )
    path = MAPPINGS / f"{name}{_SUFFIX}"
    try:
        return ProtocolSettings.model_validate(parse_yaml(path.read_text(encoding="utf-8")))
    except (yaml.YAMLError, ValidationError) as error:
        raise SettingsError(f"benchmark protocol {path} is not valid: {error}") from error


def read_benchmark_tables(settings: ProtocolSettings, data_dir: Path) -> CoreTables:
    """Reads a benchmark's files.

    Args:
        settings: Which files, by which mapping.
        data_dir: Folder that holds them.

    Returns:
        The tables.

    Raises:
        SourceError: A file is absent or not as the mapping says.
    """
    read = read_history(
        [data_dir / name for name in settings.files],
        MAPPINGS / settings.mapping,
        ingested_at=datetime.now(UTC),
    )
    return CoreTables(
        inventory=read.table("core/inventory"),
        topology=read.table("core/topology"),
        incidents=read.table("core/incidents"),
        maintenance=read.table("core/maintenance"),
    )


def run_benchmark(
    name: str,
    *,
    data_dir: Path,
    origins: Sequence[datetime] | None = None,
    json_path: Path | None = None,
) -> BenchmarkResult:
    """Runs a benchmark.

    Args:
        name: Which: `titan`.
        data_dir: Folder with its data.
        origins: Times S; default: those of the protocol. Without a zone they are UTC.
        json_path: Where to write the result as JSON, if anywhere.

    Returns:
        The result.

    Raises:
        SettingsError: The benchmark is not known.
        SourceError: Its data is absent or of another form.
        DataError: An origin has no training incident before it or no row after it.
        ForewarnError: The JSON cannot be written; a folder that is not there is found out first.
    """
    started = time.monotonic()
    if json_path is not None and not json_path.parent.is_dir():
        raise ForewarnError(
            f"{json_path}: there is no folder {json_path.parent}. Make it, or give --json another."
        )
    settings = load_protocol(name)
    protocol = settings.protocol(name)
    if origins:
        protocol = replace(protocol, origins=tuple(map(_as_utc, origins)))
    rows, features = benchmark_rows(read_benchmark_tables(settings, data_dir), protocol)
    result = run_protocol(rows, features, protocol=protocol)
    result = replace(result, seconds=time.monotonic() - started)
    if json_path is not None:
        _write_json(result, json_path)
    return result


def _as_utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _write_json(result: BenchmarkResult, path: Path) -> None:
    text = json.dumps(result.to_dict(), indent=1, default=_plain)
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_text(text + "\n", encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise ForewarnError(
            f"{path}: the result cannot be written: {error}. Give --json a place that can be."
        ) from error


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def render(result: BenchmarkResult) -> str:
    """The result as text for a terminal.

    Args:
        result: See `run_benchmark`.

    Returns:
        One table per window: population, scorer, rows, base rate, AUC, AP, precision in the
        top 1 %; the model's with 95 % intervals over entities.
    """
    head = (
        f"{result.name}: {result.n_features} features, {result.n_incidents} incidents in labels, "
        f"{result.seconds:.0f} s. Intervals: 95 %, bootstrap over entities."
    )
    return "\n\n".join([head, *(_render_window(window) for window in result.windows)])


def _render_window(window: WindowResult) -> str:
    lines = [
        (
            f"S = {window.origin:%Y-%m-%d}: trained on {window.n_train} rows, "
            f"{window.n_train_positive} positive"
        ),
        _line("population", "scorer", "rows", "pos", "base %", _COLUMNS),
    ]
    population = ""
    for row in window.rows:
        shown = row.population if row.population != population else ""
        population = row.population
        metrics = row.metrics
        base = f"{100 * (metrics.prevalence or 0.0):.2f}"
        figures = _figures(metrics, row.gain)
        lines.append(
            _line(shown, row.scorer, str(metrics.n_rows), str(metrics.n_positive), base, figures)
        )
    lines.append(f"  top units: {', '.join(window.top_units) or 'none'}")
    lines.append(f"  fault types told apart before the onset: AUC {window.fault_types}")
    lines += [f"  not available: {reason}" for reason in window.unavailable]
    return "\n".join(lines)


_COLUMNS: Final = f"{'AUC':21}  {'AP':21}  {'precision top 1 %':18}  model's AUC gain"


def _line(population: str, scorer: str, rows: str, positive: str, base: str, figures: str) -> str:
    return f"  {population:27}{scorer:24}{rows:>7}{positive:>6}{base:>8}  {figures}".rstrip()


def _figures(metrics: RowMetrics, gain: Estimate | None) -> str:
    precision = _percent(metrics.precision_top_1pct)
    return (
        f"{metrics.auc!s:21}  {metrics.average_precision!s:21}  {precision:18}  "
        f"{'' if gain is None else gain}"
    )


def _percent(estimate: Estimate) -> str:
    if estimate.value is None:
        return "not defined"
    text = f"{100 * estimate.value:.1f}"
    if estimate.low is None or estimate.high is None:
        return text
    return f"{text} [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"
