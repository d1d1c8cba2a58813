"""The hook's site file: costs, caps, levels, lists, windows and the kill switch, typed and checked.

No decision is made here; what a setting means for a node is in `remediation.policy.choice` and
`remediation.guards.judge`.
"""

from datetime import datetime, time, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import yaml
from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from features.errors import SettingsError
from features.vocabulary import FAULT_TYPES, POLICY_LEVELS
from remediation.cluster.hold_out import HoldOut
from remediation.given_text import given_text
from remediation.strict_yaml import is_quotable, parse_yaml, said_of, shortly

ANY = "*"

Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
_WEEK: tuple[Weekday, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


_MOST: Final = 1_000_000
"""No number of a site is greater: so many hours are a century, and more is no time at all."""


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="after")
    def _numbers_can_be(self) -> Self:
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, int | float) and value > _MOST:
                raise ValueError(f"{name} = {value:g}: expected at most {_MOST:,}")
        return self


class Costs(_Strict):
    """What failures and drains cost here; every default is an assumption that a site can replace.

    Attributes:
        restart_minutes: From a job's interruption until it computes again.
        detection_minutes: How long a job hangs on a failed node before anyone or anything notices.
        lost_work_minutes: Work since the last checkpoint where its age is unknown: half of an
            hourly interval.
        remaining_hours: How long a job still runs where that is unknown.
        notice_minutes: Time jobs get to write a checkpoint before a drain by deadline.
        drain_hours: Time out of service of a drained node that turns out healthy (check, return).
        repair_hours: Time out of service after a failure under load.
        planned_repair_hours: Time out of service when a drained node really was failing. Not
            assumed to be shorter, for no published number says so.
        wait_minutes: How long an interrupted job waits for another node where no replacement is
            known.
        standby_restart_minutes: From interruption until a job computes again on a warm standby
            node; ByteRobust (SOSP'25) reports about a minute.
        recall_minutes: Until a loaned server is back, or an elastic job has given up a node; Lyra
            (EuroSys'23) measures 63 s.
    """

    restart_minutes: float = Field(default=15.0, ge=0)
    detection_minutes: float = Field(default=30.0, ge=0)
    lost_work_minutes: float = Field(default=30.0, ge=0)
    remaining_hours: float = Field(default=12.0, ge=0)
    notice_minutes: float = Field(default=30.0, ge=0)
    drain_hours: float = Field(default=0.5, ge=0)
    repair_hours: float = Field(default=8.0, ge=0)
    planned_repair_hours: float = Field(default=8.0, ge=0)
    wait_minutes: float = Field(default=30.0, ge=0)
    standby_restart_minutes: float = Field(default=1.0, ge=0)
    recall_minutes: float = Field(default=1.0, ge=0)


class Caps(_Strict):
    """How many nodes the hook may hold, and how fast it may act. Held = cordoned or drained by us.

    Attributes:
        held_percent: Share of the manageable nodes held at once; rounded down, but at least one.
        held_most: Nodes held at once, whatever the share allows.
        partition_percent: The same share within each partition; rounded down, but at least one.
        per_rack: Nodes held at once in one rack; nodes of unknown rack count as one rack. None:
            no limit.
        per_job: Nodes held at once under one running job.
        actions_per_hour: Actions within any 60 minutes.
        attempts: Tries per decision before it goes to a person.
        dry_run_hold_hours: How long a node that a dry run would have taken counts as held; None:
            the horizon.
    """

    held_percent: float = Field(default=2.0, ge=0, le=100)
    held_most: int = Field(default=10, ge=0)
    partition_percent: float = Field(default=10.0, ge=0, le=100)
    per_rack: int | None = Field(default=1, ge=0)
    per_job: int = Field(default=1, ge=0)
    actions_per_hour: int = Field(default=2, ge=0)
    attempts: int = Field(default=3, ge=1)
    dry_run_hold_hours: float | None = Field(default=None, gt=0)


class Drains(_Strict):
    """How long a hold may take, and what then.

    Attributes:
        longest_hours: From taking a node until its jobs have ended; after it the drain is stuck.
        is_stuck_returned: Whether a stuck node is given back; otherwise a person is told only.
    """

    longest_hours: float = Field(default=72.0, gt=0)
    is_stuck_returned: bool = False


class Warning(_Strict):  # noqa: A001 - the vocabulary's word; the builtin is not used in this module
    """When a score is an alert: at or above `threshold` in `n` of the last `k` ticks.

    Attributes:
        threshold: Score from which on a tick counts.
        n: Ticks that are needed.
        k: Ticks looked back on, the present one included.
        tick_minutes: Time between two ticks.
    """

    threshold: float = Field(default=0.5, gt=0, le=1)
    n: int = Field(default=2, ge=1)
    k: int = Field(default=3, ge=1)
    tick_minutes: float = Field(default=15.0, gt=0)

    @model_validator(mode="after")
    def _n_within_k(self) -> Self:
        if self.n > self.k:
            raise ValueError(f"n = {self.n} of k = {self.k} ticks can never be; n <= k must hold")
        return self


class Burst(_Strict):
    """When many new alerts at once are a common cause, and thus a person's.

    Attributes:
        within_minutes: Alerts that are new within this time belong together.
        quiet_hours: A node is new if it was not above the threshold for this long before.
        fleet_percent: Share of manageable nodes that makes a burst of the fleet.
        fleet_nodes: Nodes at least for a burst of the fleet.
        component_nodes: Nodes that make a burst of one rack or switch.
        hold_hours: How long automation stays stopped unless a person acknowledges it.
    """

    within_minutes: float = Field(default=30.0, gt=0)
    quiet_hours: float = Field(default=24.0, gt=0)
    fleet_percent: float = Field(default=10.0, gt=0, le=100)
    fleet_nodes: int = Field(default=5, ge=1)
    component_nodes: int = Field(default=3, ge=1)
    hold_hours: float = Field(default=24.0, gt=0)


class LevelRule(_Strict):
    """How far automation may go for a group and a fault type; the first rule that fits counts.

    Attributes:
        group: Name of a group of the site file, or `*`.
        fault_type: Fault type, or `*`; `*` alone also fits a score without fault type.
        level: Policy level.
    """

    group: str = ANY
    fault_type: str = ANY
    level: str

    @field_validator("fault_type")
    @classmethod
    def _known_fault_type(cls, value: str) -> str:
        if value not in (ANY, *FAULT_TYPES):
            raise ValueError(f"unknown fault type; use * or one of {', '.join(FAULT_TYPES)}")
        return value

    @field_validator("level")
    @classmethod
    def _known_level(cls, value: str) -> str:
        if value not in POLICY_LEVELS:
            raise ValueError(f"unknown level; use one of {', '.join(POLICY_LEVELS)}")
        return value


class Window(_Strict):
    """Maintenance: in [start, end) the hook leaves these nodes alone.

    Attributes:
        name: What it is, for the verdict.
        start: Start, inclusive, with a time zone.
        end: End, exclusive.
        nodes: Patterns of node names (`gpu-1*`).
    """

    name: str
    start: AwareDatetime
    end: AwareDatetime
    nodes: tuple[str, ...] = (ANY,)

    @model_validator(mode="after")
    def _not_empty(self) -> Self:
        if self.start >= self.end:
            raise ValueError(f"window {self.name!r} is empty; start < end must hold")
        return self


class WorkingHours(_Strict):
    """Hours of the week in which the hook may act; without any, it may act at all times.

    Attributes:
        days: Days on which the hours start.
        start: Local start, inclusive.
        end: Local end, exclusive; at or before `start`: on the next day.
        time_zone: IANA name.
    """

    days: tuple[Weekday, ...] = _WEEK
    start: time
    end: time
    time_zone: str

    @field_validator("start", "end", mode="before")
    @classmethod
    def _quoted(cls, value: object) -> object:
        # YAML reads an unquoted 17:00 as the number 1020, which would become 00:17.
        if not isinstance(value, str | time):
            raise ValueError('write the time in quotes, such as "17:00"')  # noqa: TRY004 - pydantic's
        return value

    @field_validator("start", "end")
    @classmethod
    def _local(cls, value: time) -> time:
        if value.tzinfo is not None:
            raise ValueError("leave the zone out of the time; time_zone names it")
        return value

    @field_validator("time_zone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ValueError("unknown time zone; use an IANA name such as Europe/Berlin") from error
        return value

    def holds(self, now: datetime) -> bool:
        """Whether `now` lies in the hours."""
        local = now.astimezone(ZoneInfo(self.time_zone))
        clock = local.time()
        today = _WEEK[local.weekday()] in self.days
        if self.start < self.end:
            return today and self.start <= clock < self.end
        yesterday = _WEEK[(local - timedelta(days=1)).weekday()] in self.days
        return (today and clock >= self.start) or (yesterday and clock < self.end)


class Site(_Strict):
    """One site's settings for the hook. The defaults act on nothing: every level is *observe*.

    Attributes:
        horizon_h: Horizon of the scores acted on.
        costs: What failures and drains cost.
        caps: How much the hook may hold.
        drains: How long a hold may take.
        warning: When a score is an alert.
        burst: When alerts are a common cause.
        groups: Patterns of node names by group name.
        levels: How far automation may go; the first fitting rule counts, otherwise *observe*.
        allow: Patterns of nodes the hook may touch.
        deny: Patterns of nodes it must not, whatever `allow` says.
        hold_out: Nodes that are scored and never acted on, to learn what alerts are worth.
        standby: Patterns of nodes kept as warm standby; those that are up and idle count as
            replacements in their partitions.
        loaned: Patterns of servers of another pool that are lent when idle.
        interruptible_partitions: Partitions whose jobs may be interrupted although it is unknown,
            or denied, that they may be requeued.
        maintenance: Times in which nodes are left alone.
        working_hours: Hours in which the hook may act; empty: always.
        undrain_cooldown_hours: After a node we held was let go, by whomever.
        kill_switch: A file that stops all action while it exists.
        is_stopped: The same by setting.
    """

    horizon_h: int = Field(default=24, ge=1)
    costs: Costs = Costs()
    caps: Caps = Caps()
    drains: Drains = Drains()
    warning: Warning = Warning()
    burst: Burst = Burst()
    groups: dict[str, tuple[str, ...]] = {}
    levels: tuple[LevelRule, ...] = ()
    allow: tuple[str, ...] = (ANY,)
    deny: tuple[str, ...] = ()
    hold_out: HoldOut = HoldOut()
    standby: tuple[str, ...] = ()
    loaned: tuple[str, ...] = ()
    interruptible_partitions: tuple[str, ...] = ()
    maintenance: tuple[Window, ...] = ()
    working_hours: tuple[WorkingHours, ...] = ()
    undrain_cooldown_hours: float = Field(default=24.0, ge=0)
    kill_switch: Path | None = None
    is_stopped: bool = False

    @model_validator(mode="after")
    def _groups_exist(self) -> Self:
        for rule in self.levels:
            if rule.group != ANY and rule.group not in self.groups:
                known = ", ".join(sorted(self.groups)) or "(none)"
                raise ValueError(f"levels name group {rule.group!r}; groups are {known}")
        return self

    def level_of(self, node: str, fault_type: str | None) -> tuple[str, str]:
        """How far automation may go.

        Args:
            node: Node name.
            fault_type: Most probable fault type, None where unknown.

        Returns:
            The level, and which rule gave it, in words.
        """
        for rule in self.levels:
            in_group = rule.group == ANY or matches(node, self.groups[rule.group])
            if in_group and rule.fault_type in (ANY, fault_type):
                return rule.level, f"group {rule.group}, fault {rule.fault_type}"
        return POLICY_LEVELS[0], "no rule fits: default"


def matches(node: str, patterns: tuple[str, ...]) -> bool:
    """Whether a node's name fits any of the patterns (case matters).

    >>> matches("gpu-12", ("gpu-1*",)), matches("login-1", ("gpu-*", "cpu-*"))
    (True, False)
    """
    return any(fnmatchcase(node, pattern) for pattern in patterns)


def load_site(path: Path) -> Site:
    """Reads a site file (YAML); a relative kill switch is relative to the file.

    Raises:
        SettingsError: The file cannot be read or says something that cannot be carried out; the
            text names file, key, problem and value.
    """
    try:
        content = parse_yaml(given_text(path))
    except OSError as error:
        raise SettingsError(
            f"site file {path}: {error.strerror}. Name an existing file, or none for the "
            f"defaults, which act on nothing."
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"site file {path} is not YAML: {error}") from error
    return site_from(content, origin=path)


def site_from(content: object, *, origin: Path) -> Site:
    """Checks settings given as plain values.

    Args:
        content: What the YAML file holds.
        origin: The file, for messages and as the base of a relative kill switch.

    Raises:
        SettingsError: As in `load_site`.
    """
    if not isinstance(content, dict):
        found = type(content).__name__
        raise SettingsError(f"site file {origin}: expected keys and values, got {found}")
    try:
        site = Site.model_validate(content)
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, found['loc'])) or '(file)'}: {said_of(found)}"
            + (f", got {shortly(found['input'])}" if is_quotable(found) else "")
            for found in error.errors()
        ]
        raise SettingsError(f"site file {origin}: {'; '.join(problems)}") from error
    if site.kill_switch is None:
        return site
    return site.model_copy(update={"kill_switch": origin.parent / site.kill_switch})
