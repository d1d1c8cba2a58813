"""The files of a benchmark: a protocol, and the settings that all protocols share.

What a protocol means is in `models.benchmark.protocol`; nothing is run here. A protocol names the
mapping that turns its files into tables, the label, the origins, and whom the model is held
against. Features and training are in the shared file alone, so that no data set has settings of
its own.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal

import yaml
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from features.core_tables import CoreTables
from features.errors import ForewarnError, SettingsError
from features.history_counters import CounterSpec, counter_names
from features.history_features import HistorySpec
from features.history_outages import OutageRule
from features.history_states import StateSpec
from features.matrix import MatrixSpec, Part
from models.benchmark.protocol import BenchmarkProtocol, Ranking, Rival
from models.evaluation.row_metrics import Bootstrap
from models.specs import TrainSpec
from remediation.given_text import given_text
from remediation.strict_yaml import parse_yaml

MAPPINGS: Final = Path(__file__).parents[2] / "mappings"
SHARED: Final = MAPPINGS / "shared.yaml"
_SUFFIX: Final = "_protocol.yaml"
_WEEK: Final = timedelta(days=7)


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FeatureSettings(_Section):
    """The features of every benchmark, in days; see `HistorySpec`, `CounterSpec`, `StateSpec`.

    Of the windows those are used that are not shorter than the horizon.
    """

    windows_d: tuple[int, ...]
    scopes: tuple[str, ...] = ("own", "batch", "model")
    weeks: int = Field(0, ge=0)
    spans_d: tuple[int, ...] = (30,)


class TrainSettings(_Section):
    """Training; see `TrainSpec`."""

    num_leaves: int
    learning_rate: float
    rounds: int
    min_data_in_leaf: int
    lambda_l2: float
    feature_fraction: float
    bagging_fraction: float = 0.8
    extra_trees: bool = False
    path_smooth: float = Field(0.0, ge=0.0)
    negative_share: float = 1.0
    seeds: tuple[int, ...]

    def spec(self) -> TrainSpec:
        """The same as a value of training."""
        return TrainSpec(**self.model_dump())


class SharedSettings(_Section):
    """What is the same in every benchmark; the scores of all trainings are averaged."""

    features: FeatureSettings
    train: tuple[TrainSettings, ...] = Field(min_length=1)
    resamples: int = Field(200, ge=0)


class OutageSettings(_Section):
    """Which times down are incidents; see `OutageRule`."""

    level: str
    least_min: float = Field(5.0, ge=0.0)
    together_min: float = Field(5.0, gt=0.0)
    most_together: int = Field(2, ge=1)
    fault_type: str = "host"

    def rule(self) -> OutageRule:
        """The same as a value of the features."""
        return OutageRule(
            level=self.level,
            least=timedelta(minutes=self.least_min),
            together=timedelta(minutes=self.together_min),
            most_together=self.most_together,
            fault_type=self.fault_type,
        )


class RankingSettings(_Section):
    """A baseline without training; see `Ranking`."""

    name: str
    features: tuple[str, ...] = Field(min_length=1)
    above: float | None = None


class RivalSettings(_Section):
    """Another model; see `Rival`."""

    name: str
    features: tuple[str, ...] = Field(min_length=1)
    train: TrainSettings


class ProtocolSettings(_Section):
    """A protocol file: which files are read by which mapping, and how models are tested.

    See `BenchmarkProtocol` for what the fields mean. `files` are names or patterns in the data's
    folder; where not `has_parts`, each file of a pattern is a version of the whole record, of which
    one is read; `data_end` is by default the latest time in the record; `clocks` are counters that
    count hours; `ordinal_levels` are levels whose places are numbers with a meaning in their order.
    """

    mapping: str
    files: tuple[str, ...] = Field(min_length=1)
    has_parts: bool = True
    entity: Literal["gpu", "node"] = "gpu"
    data_end: AwareDatetime | None = None
    first_as_of: AwareDatetime
    every_d: int = Field(gt=0)
    lead_h: float = Field(ge=0.0)
    horizon_d: int = Field(gt=0)
    test_d: int = Field(gt=0)
    origins: tuple[AwareDatetime, ...] = Field(min_length=1)
    old_before: AwareDatetime | None = None
    place_level: str | None = None
    ordinal_levels: tuple[str, ...] = ()
    clocks: tuple[str, ...] = ()
    outages: OutageSettings | None = None
    rankings: tuple[RankingSettings, ...] = ()
    rivals: tuple[RivalSettings, ...] = ()

    def protocol(
        self, name: str, *, shared: SharedSettings, tables: CoreTables
    ) -> BenchmarkProtocol:
        """The same as a value of the benchmark, for the tables that were read."""
        end = self.data_end or _last_moment(tables)
        return BenchmarkProtocol(
            name=name,
            entity_kind=self.entity,
            first_as_of=self.first_as_of.astimezone(UTC),
            every=timedelta(self.every_d),
            data_end=end.astimezone(UTC),
            lead=timedelta(hours=self.lead_h),
            horizon_h=self.horizon_d * 24,
            origins=tuple(origin.astimezone(UTC) for origin in self.origins),
            test=timedelta(self.test_d),
            old_before=self.old_before.astimezone(UTC) if self.old_before else None,
            place_level=self.place_level,
            outages=self.outages.rule() if self.outages else None,
            features=self._matrix(shared.features, tables),
            train=tuple(training.spec() for training in shared.train),
            rankings=tuple(Ranking(**ranking.model_dump()) for ranking in self.rankings),
            rivals=tuple(
                Rival(
                    name=rival.name,
                    features=rival.features,
                    train=rival.train.spec(),
                )
                for rival in self.rivals
            ),
            bootstrap=Bootstrap(resamples=shared.resamples),
        )

    def _matrix(self, shared: FeatureSettings, tables: CoreTables) -> MatrixSpec:
        """Features of every table that the record gives."""
        rule = self.outages.rule() if self.outages else None
        horizon = timedelta(self.horizon_d)
        windows = tuple(w for w in map(timedelta, shared.windows_d) if w >= horizon)
        # Over a week and more every day of the week comes in equal number.
        has_weekday = horizon < _WEEK
        history = HistorySpec(
            windows=windows,
            scopes=shared.scopes,
            ordinal_levels=self.ordinal_levels,
            weeks=shared.weeks if has_weekday else 0,
            known_after=rule.known_after if rule else timedelta(0),
        )
        parts: list[Part] = ["history"]
        counters, states = CounterSpec(), StateSpec()
        if not tables.counters.is_empty():
            parts.append("counters")
            counters = CounterSpec(
                names=counter_names(tables.counters),
                clocks=self.clocks,
                spans=tuple(map(timedelta, shared.spans_d)),
            )
        if rule is not None:
            parts.append("states")
            levels = tuple(sorted(tables.topology["level"].unique().to_list()))
            states = StateSpec(rule=rule, windows=windows, levels=levels, has_weekday=has_weekday)
        return MatrixSpec(parts=tuple(parts), history=history, counters=counters, states=states)


def benchmark_names() -> tuple[str, ...]:
    """The benchmarks that come with the product."""
    return tuple(sorted(p.name.removesuffix(_SUFFIX) for p in MAPPINGS.glob(f"*{_SUFFIX}")))


def protocol_path(name: str) -> Path:
    """The protocol file of a benchmark that comes with the product.

    Raises:
        SettingsError: There is no such benchmark.
    """
    if name not in benchmark_names():
        raise SettingsError(
            f"benchmark {name!r} is not known; there are: {', '.join(benchmark_names())}. For data "
            f"of your own write a protocol and give it by --history."
        )
    return MAPPINGS / f"{name}{_SUFFIX}"


def load_protocol(path: Path) -> ProtocolSettings:
    """Reads a protocol file.

    Raises:
        SettingsError: It cannot be read, or does not hold the grammar.
    """
    return ProtocolSettings.model_validate(_parsed(path, ProtocolSettings))


def load_shared(path: Path = SHARED) -> SharedSettings:
    """Reads the shared settings.

    Raises:
        SettingsError: They cannot be read, or do not hold the grammar.
    """
    return SharedSettings.model_validate(_parsed(path, SharedSettings))


def _parsed(path: Path, grammar: type[_Section]) -> _Section:
    try:
        document: Any = parse_yaml(given_text(path))
        return grammar.model_validate(document)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingsError(f"benchmark protocol {path} cannot be read: {error}") from error
    except ValidationError as error:
        found = "; ".join(
            f"{'.'.join(map(str, part['loc'])) or 'document'}: {part['msg']}"
            for part in error.errors()
        )
        raise SettingsError(
            f"benchmark protocol {path} has {error.error_count()} mistake(s): {found}. Correct "
            f"them there; docs/benchmarks/own_history.md has the grammar and an example."
        ) from error
    except ForewarnError as error:
        raise SettingsError(f"benchmark protocol {path}: {error}") from error


def _last_moment(tables: CoreTables) -> datetime:
    """The latest time of the record."""
    columns = (
        *(tables.inventory[name] for name in ("valid_from", "valid_to")),
        *(tables.incidents[name] for name in ("start",)),
        *(tables.node_states[name] for name in ("valid_from", "valid_to")),
    )
    known = [moment for column in columns if isinstance(moment := column.max(), datetime)]
    if not known:
        raise SettingsError(
            "benchmark: the record holds no time at all, so its end is not known. Check the "
            "mapping, or say data_end in the protocol."
        )
    return max(known)
