"""Settings of what surrounds the hook: its inbox, its checks, its lease.

What the hook may do to nodes is in `remediation.site`; the file as a whole is in
`remediation.hook_settings`.
"""

from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from remediation.checks import Check
from remediation.signed_requests import ANY, NEEDS


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class KeySource(_Strict):
    """Where a key that signs requests is found; exactly one of file and variable.

    Attributes:
        file: A file of mode 0600.
        variable: An environment variable.
        actors: Whose requests it may sign.
    """

    file: Path | None = None
    variable: str | None = None
    actors: tuple[str, ...] = (ANY,)

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.file is None) == (self.variable is None):
            raise ValueError("name either a file or an environment variable")
        return self


class InboxSettings(_Strict):
    """The inbox of signed requests.

    Attributes:
        folder: Its folder.
        keys: Keys by id; two at a time let one be exchanged without a gap.
        actors: What each person may ask for: names of requests, or `*`.
    """

    folder: Path
    keys: dict[str, KeySource] = Field(min_length=1)
    actors: dict[str, tuple[str, ...]] = Field(min_length=1)

    @field_validator("actors")
    @classmethod
    def _known_requests(cls, value: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        unknown = {what for may in value.values() for what in may} - {ANY, *NEEDS}
        if unknown:
            raise ValueError(f"{sorted(unknown)} can not be asked for; use {', '.join(NEEDS)}")
        return value


class ReturnRules(_Strict):
    """When a node comes back too often.

    Attributes:
        offences: So many drains for a cause send the node to repair.
        within_days: Within this time.
        check_holds_hours: How long a check that passed counts.
    """

    offences: int = Field(default=5, ge=2)
    within_days: float = Field(default=7.0, gt=0, le=3650)
    check_holds_hours: float = Field(default=6.0, gt=0, le=8760)


class ReturnSettings(_Strict):
    """How nodes that we hold come back.

    Attributes:
        check: The check under load that a node must pass; a script of several is one too. None:
            no node comes back by itself.
        at_once: Checks that may run at a time.
        rules: When a node comes back too often, and how long a check counts.
    """

    check: Check | None = None
    at_once: int = Field(default=2, ge=1)
    rules: ReturnRules = ReturnRules()

    @field_validator("check")
    @classmethod
    def _loads(cls, value: Check | None) -> Check | None:
        if value is not None and not value.is_under_load:
            raise ValueError("set is_under_load, for only a check under load returns a node")
        return value


class LeaseSettings(_Strict):
    """The lease, for a hook that runs in several copies.

    Attributes:
        seconds: How long it holds; a copy that dies is followed after this time at the latest.
        act_seconds: How long one act may take, all retries included.
    """

    seconds: float = Field(default=600.0, gt=0, le=86_400)
    act_seconds: float = Field(default=180.0, gt=0)

    @model_validator(mode="after")
    def _acts_fit(self) -> Self:
        if 2 * self.act_seconds > self.seconds:
            raise ValueError("seconds must be at least twice act_seconds")
        return self
