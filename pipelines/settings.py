"""The settings of one installation: where data comes from, where it goes, what is predicted.

Nothing is read at import; the remediation hook has its own site file (`remediation.site`).
"""

import itertools
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal, Self

import yaml
from pydantic import (
    AwareDatetime,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails

from features.errors import SettingsError
from pipelines.sections.api import ApiSettings
from pipelines.sections.board import BoardSettings
from pipelines.sections.environment_values import EnvironmentValue, given_by, laid_over
from pipelines.sections.retention import RetentionSettings
from pipelines.sections.scale_out import ScaleOutSettings
from pipelines.sections.schedule import ScheduleSettings
from pipelines.sections.section import GivenPath, Section
from pipelines.sections.serving import ScoreDatabaseSettings, ServingSettings, without_password
from pipelines.sections.storage import StorageSettings
from pipelines.sections.training import TrainingSettings
from pipelines.storage.bucket_owner import owned
from pipelines.storage.object_paths import Place, bucket_path
from remediation.given_text import given_text, located
from remediation.strict_yaml import is_quotable, parse_yaml, shortly

ENVIRONMENT_VARIABLE = "FOREWARN_SETTINGS"


Horizon = Annotated[int, Field(ge=1, le=8784)]


class SplitSettings(Section):
    """Where the record is cut for training.

    Attributes:
        train_until: Training rows lie before it.
        valid_until: Calibration and threshold rows lie before it, after the embargo.
    """

    train_until: AwareDatetime
    valid_until: AwareDatetime


class RollingSplit(Section):
    """Where a record that goes on is cut, counted back from its end at each training.

    Attributes:
        valid_days: Days of calibration and thresholds, before those of the test.
        test_days: Days that are looked at once, the newest.
    """

    valid_days: int = Field(ge=1, le=3660)
    test_days: int = Field(ge=1, le=3660)


def _kind_of_split(value: object) -> str:
    """Which form a split has: of a mistake, only the form that was meant is then spoken of."""
    if isinstance(value, RollingSplit):
        return "rolling"
    is_days = isinstance(value, dict) and any(str(key).endswith("_days") for key in value)
    return "rolling" if is_days else "fixed"


Split = Annotated[
    Annotated[SplitSettings, Tag("fixed")] | Annotated[RollingSplit, Tag("rolling")],
    Discriminator(_kind_of_split),
]


class PolicySettings(Section):
    """What warning policies must hold, beside the alert budget.

    Attributes:
        high_precision: Precision that a second policy for nodes has with 95 % confidence, or else
            raises nothing; None: there is no such policy.
    """

    high_precision: float | None = Field(default=0.85, gt=0, lt=1, allow_inf_nan=False)


class Settings(Section):
    """One installation of Forewarn.

    Attributes:
        site: Name shown in reports.
        note: A line shown at the top of every report.
        inputs: YAML file that lists the inputs (`pipelines.sources.site.listing`).
        data_root: Folder of the Parquet store, the model registry and the published scores.
        start: First hour of the record.
        end: End of the record; None: it goes on.
        split: Where the record is cut for training: two times, or days back from its end.
        lead_minutes: Minimum lead L: the time a drain needs.
        horizons_h: Horizons H, in hours; the first is the one the hook acts on.
        trained_on: Whether the record is synthetic or real.
        regime: Regime of a synthetic record; reports then show how many failures announce
            themselves at all.
        alert_budget_per_1000_node_days: Alerts the operators can take; in validation fewer are
            raised, so that it is kept.
        policy: What warning policies must hold beside it.
        seed: Seed of training.
        training: How models are trained.
        remediation: Site file of the hook; None: its defaults.
        fault_catalogue: CSV of fault rules; None: the shipped one.
        fault_overrides: CSV of the site's own fault rules, each in the place of its like in the
            catalogue or before all others; None: none.
        accept_leak_suspects: Whether candidates that look like a leak may become champion: set it
            once a person has looked, and take it out again.
        uncertain_weight: Share of our own drains that are taken to have been right; rows before
            them then train as positives in part. None: they are left out.
        score_ttl_minutes: How long published scores stay valid.
        switch_level: What the topology calls the switch that a node hangs on.
        rack_level: What the topology calls the rack of a node.
        feature_set: Which telemetry features there are: `full` has more statistics over more
            windows than `standard`, and compares a GPU with those of its rack.
        data_partition: How Dagster cuts data assets: `hour` for a site that ingests hourly, `day`
            for a history that is loaded once (a partition costs Dagster 40 ms of event log).
        node_states_hold_only_trouble: Whether a node that the node states say nothing about is up
            (a list of events), rather than unknown (a full record).
        scale_out: Where features and scores of long spans are computed.
        storage: Where tables, models and Dagster's records are kept.
        score_database: Where latest scores and their history are kept beside the files.
        serving: How scores are made and told.
        api: The HTTP API and the board.
        board: The board: address, the site's time zone, how long a login lasts.
        schedule: What Dagster runs by itself, and when.
        retention: How long each kind of data is kept.
    """

    site: str
    note: str = ""
    inputs: GivenPath
    data_root: GivenPath
    start: AwareDatetime
    end: AwareDatetime | None = None
    split: Split | None = None
    lead_minutes: int = Field(default=30, ge=0, le=10_080)
    horizons_h: tuple[Horizon, ...] = Field(default=(24, 1, 168), min_length=1)
    trained_on: Literal["synthetic", "real"] = "real"
    regime: str | None = None
    alert_budget_per_1000_node_days: float = Field(default=10.0, gt=0, allow_inf_nan=False)
    policy: PolicySettings = PolicySettings()
    seed: int = 1
    training: TrainingSettings = TrainingSettings()
    remediation: GivenPath | None = None
    fault_catalogue: GivenPath | None = None
    fault_overrides: GivenPath | None = None
    accept_leak_suspects: bool = False
    uncertain_weight: float | None = Field(default=None, ge=0, le=1)
    score_ttl_minutes: int = Field(default=90, gt=0, le=1440)
    switch_level: str = "switch"
    rack_level: str = "rack"
    feature_set: Literal["standard", "full"] = "standard"
    data_partition: Literal["hour", "day"] = "hour"
    node_states_hold_only_trouble: bool = False
    scale_out: ScaleOutSettings = ScaleOutSettings()
    storage: StorageSettings = StorageSettings()
    score_database: ScoreDatabaseSettings = ScoreDatabaseSettings()
    serving: ServingSettings = ServingSettings()
    api: ApiSettings = ApiSettings()
    board: BoardSettings = BoardSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    retention: RetentionSettings = RetentionSettings()

    @model_validator(mode="after")
    def _times_in_order(self) -> Self:
        times = [self.start]
        if isinstance(self.split, SplitSettings):
            times += [self.split.train_until, self.split.valid_until]
        if self.end:
            times.append(self.end)
        if any(a >= b for a, b in itertools.pairwise(times)):
            raise ValueError("start < split.train_until < split.valid_until < end must hold")
        edges = [self.start, *([self.end] if self.end else [])]
        try:
            in_utc = [edge.astimezone(UTC) for edge in edges]
        except OverflowError as error:
            raise ValueError("start and end must lie in years 1 to 9999, UTC") from error
        if self.data_partition == "day" and any(edge.hour for edge in in_utc):
            raise ValueError("with data_partition day, start and end must be midnights, UTC")
        if any(edge.minute or edge.second or edge.microsecond for edge in in_utc):
            raise ValueError("start and end must be full hours")
        return self

    @property
    def lead(self) -> timedelta:
        """Minimum lead L."""
        return timedelta(minutes=self.lead_minutes)

    @property
    def store_root(self) -> Place:
        """Folder of the Parquet tables, on this machine or in a bucket."""
        if url := self.storage.tables:
            local = self.data_root / "buckets"
            place = bucket_path(url, how=self.storage.object_store, local=local)
            return owned(place, identity=self.data_root / "installation")
        return self.data_root / "tables"

    @property
    def landing_root(self) -> Path:
        """Folder of what the inputs gave, as received."""
        return self.data_root / "landing"

    @property
    def scores_dir(self) -> Path:
        """Folder of the published scores."""
        return self.data_root / "scores"

    @property
    def registry_dir(self) -> Path:
        """Folder of the model registry."""
        return self.data_root / "mlflow"

    @property
    def memory_dir(self) -> Path:
        """Folder of what the feature engine remembers from hour to hour."""
        return self.data_root / "memory"

    @property
    def spool_dir(self) -> Place:
        """Folder of parts that other processes have computed, until they are stored."""
        # Beside tables in a bucket: workers elsewhere reach both, and nothing of this machine.
        return self.store_root / ".spool" if self.storage.tables else self.data_root / "spool"

    @property
    def slurm_jobs_dir(self) -> Path:
        """Folder of what Slurm's workers of a run share: certificates, and what the jobs print."""
        # As deep as the spool's parts, so that retention removes what a killed run leaves.
        return self.data_root / "spool" / "slurm" / "jobs"

    @property
    def run_marks_dir(self) -> Path:
        """Folder of the marks of Dagster's runs at work; a local disk, which knows locks."""
        return self.data_root / "runs"

    @property
    def ledger_path(self) -> Path:
        """The hook's ledger."""
        return self.data_root / "ledger.sqlite"

    def data_end(self, now: datetime) -> datetime:
        """Where the record ends: its stated end, or `now` while it goes on."""
        return min(self.end, now) if self.end else now


def settings_path(path: Path | None = None) -> Path:
    """The settings file: the one given, or the one the environment names.

    Raises:
        SettingsError: Neither names one.
    """
    if path:
        return path
    if value := os.environ.get(ENVIRONMENT_VARIABLE):
        return Path(value)
    raise SettingsError(
        f"no settings file: pass --settings FILE or set {ENVIRONMENT_VARIABLE}. "
        "docs/settings.md shows one to start from."
    )


def load_settings(path: Path | None = None) -> Settings:
    """Reads a settings file, and what the environment gives in place of its values.

    Args:
        path: YAML file; None takes the one named by the environment variable
            FOREWARN_SETTINGS. Paths inside are relative to the file, and so are those that
            the environment gives (`pipelines.sections.environment_values`).

    Raises:
        SettingsError: No file is named, it cannot be read, or a value is wrong; the text
            names the file, the key, what was expected and what was found.
    """
    named = settings_path(path)
    try:
        content = parse_yaml(given_text(named))
    except OSError as error:
        raise SettingsError(f"settings file {named}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"settings file {named} is not YAML: {error}") from error
    given = given_by(os.environ, Settings)
    if given.mistakes:
        said = "; ".join(f"{name}: {wrong}" for name, wrong in given.mistakes.items())
        raise SettingsError(f"environment: {said}. `forewarn config check` names all mistakes.")
    return settings_from(content, origin=named, given=given.values)


def settings_from(
    content: object, *, origin: Path, given: Sequence[EnvironmentValue] = ()
) -> Settings:
    """Checks settings given as plain values.

    Args:
        content: What the YAML file holds.
        origin: The file, for messages and as the base of relative paths.
        given: What counts before the file.

    Raises:
        SettingsError: As in `load_settings`.
    """
    if not isinstance(content, dict):
        found = type(content).__name__
        raise SettingsError(f"settings file {origin}: expected keys and values, got {found}")
    try:
        settings = Settings.model_validate(laid_over(content, given))
    except ValidationError as error:
        variables: dict[tuple[int | str, ...], str] = {
            one.key: f" (from {one.variable})" for one in given
        }
        lines = [
            f"{'.'.join(map(str, e['loc'])) or '(file)'}: {e['msg']}{_got(e)}"
            f"{variables.get(e['loc'], '')}"
            for e in error.errors()
        ]
        raise SettingsError(f"settings file {origin}: " + "; ".join(lines)) from error
    return located(settings, origin.parent.absolute())


def _got(found: ErrorDetails) -> str:
    # Never writes a large value out, nor what may be a secret, nor the password of an address.
    if not is_quotable(found):
        return ""
    value = found["input"]
    shown = without_password(value) if isinstance(value, str) else value
    return f", got {shortly(shown)}"
