"""Names and values of training metrics, as loggers write them: which key is the loss, what is NaN.

No format is read here (see `jobs.training_jsonl` and `tensorboard_events`).
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from features.errors import SettingsError
from pipelines.sources.local_time import to_utc

DEFAULT_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "loss": (
        "loss", "train_loss", "lm_loss", "training_loss", "train/loss", "loss/train",
        "metrics.loss", "reduced_train_loss", "loss_train", "train.loss", "train_loss_step",
        "lm_loss_training", "total_loss", "train_inner_loss",
    ),
    "grad_norm": (
        "grad_norm", "gradient_norm", "grad-norm", "gnorm", "train/grad_norm", "global_grad_norm",
        "total_grad_norm", "metrics.grad_norm", "grad_norm/train", "train.grad_norm",
    ),
    "step": (
        "step", "global_step", "iteration", "_step", "iter", "train_step", "trainer/global_step",
        "train/global_step", "current_iteration", "num_updates", "update", "step_num",
    ),
    "step_time_s": (
        "step_time", "step_time_s", "iteration_time", "iter_time", "time_per_step", "step_seconds",
        "train_step_timing", "train_step_timing_in_s", "time_per_iteration", "perf/step_time",
        "seconds_per_step", "sec_per_step", "batch_time", "train/step_time", "time_per_step_s",
        "step_time_ms", "iteration_time_ms", "elapsed_ms", "iter_time_ms", "step_ms", "time_ms",
        "elapsed_time_per_iteration_ms", "time_per_iteration_ms", "time_per_step_ms",
        "elapsed_time_per_iteration", "train/step_time_ms",
    ),
    "ts": (
        "ts", "timestamp", "time", "_timestamp", "@timestamp", "datetime", "wall_time",
        "created_at", "date", "logged_at", "asctime",
    ),
    "checkpoint_step": (
        "checkpoint_step", "last_checkpoint_step", "ckpt_step", "last_checkpoint", "checkpoint",
        "checkpoint_path", "ckpt_path", "saved_checkpoint", "last_saved_step", "checkpoint_saved",
    ),
    "job_id": ("job_id", "slurm_job_id", "jobid", "slurm_jobid", "run_id"),
}  # fmt: skip
"""Column -> keys that loggers use for it, the first one given counts; `names_alike` decides."""

_IN_MS: Final = re.compile(r"(?:_ms|_msec|_millis(?:econds)?)$")
_ALWAYS_MS: Final = frozenset({"elapsed_time_per_iteration"})  # Megatron's, with the unit cut off
_NOT_WORD: Final = re.compile(r"[^a-z0-9@]+")
_NUMBER: Final = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)
_NOT_FINITE: Final = {
    "nan": math.nan, "-nan": math.nan, "+nan": math.nan, "inf": math.inf, "+inf": math.inf,
    "infinity": math.inf, "+infinity": math.inf, "-inf": -math.inf, "-infinity": -math.inf,
}  # fmt: skip
_LAST_NUMBER: Final = re.compile(r"(\d{1,18})(?!.*\d)", re.ASCII | re.DOTALL)
_ISO_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d", re.ASCII)
_EPOCH_SCALES: Final = ((1e8, 1.0), (1e11, 1e3), (1e14, 1e6), (1e17, 1e9))
"""Counts from 1970: below 1e8 (March 1973 in seconds) a number is a duration, not a moment."""
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MOST: Final = 2**63 - 1


def names_alike(key: str) -> str:
    """A key without the differences of spelling: `lm loss`, `LM-Loss` and `lm_loss` are one.

    Args:
        key: A key or tag.

    >>> names_alike("train/Grad-Norm")
    'train_grad_norm'
    """
    return _NOT_WORD.sub("_", key.lower()).strip("_") or key


@dataclass(frozen=True)
class MetricKeys:
    """Which key of a record fills which column.

    Attributes:
        extra: Column -> the site's own keys, looked at before the default ones.
    """

    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises SettingsError for a column that is none."""
        unknown = sorted(set(self.extra) - set(DEFAULT_KEYS))
        if unknown:
            raise SettingsError(
                f"columns of training metrics: {', '.join(unknown)} is none; choose from "
                f"{', '.join(DEFAULT_KEYS)}"
            )

    def by_name(self) -> dict[str, tuple[str, int]]:
        """Name of a key (`names_alike`) -> its column and rank among the column's keys."""
        found: dict[str, tuple[str, int]] = {}
        for column, defaults in DEFAULT_KEYS.items():
            for rank, key in enumerate((*self.extra.get(column, ()), *defaults)):
                found.setdefault(names_alike(key), (column, rank))
        for column, keys in self.extra.items():  # a site's key wins over another column's default
            for rank, key in enumerate(keys):
                found[names_alike(key)] = (column, rank)
        return found


def is_in_ms(name: str) -> bool:
    """Whether a key's name says that its value counts milliseconds."""
    return name in _ALWAYS_MS or _IN_MS.search(name) is not None


def number_of(value: object) -> float | None:
    """A number, also one written as text; NaN and infinity stay.

    Args:
        value: A value of a record.

    Returns:
        The number, or None where it is none.

    >>> number_of("1e-3"), number_of("-Infinity"), number_of("fast"), number_of(True)
    (0.001, -inf, None, None)
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            return None
    if isinstance(value, str):
        text = value.strip()
        if text.lower() in _NOT_FINITE:
            return _NOT_FINITE[text.lower()]
        return float(text) if len(text) <= 100 and _NUMBER.fullmatch(text) else None
    return None


def step_of(value: object) -> int | None:
    """A step: a whole number from 0 that 64 bits hold; else None."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value if 0 <= value <= _MOST else None
    number = number_of(value)
    if number is None or not math.isfinite(number) or number != math.floor(number):
        return None
    return int(number) if 0 <= number < _MOST else None


def checkpoint_of(value: object, *, step: int) -> int | None:
    """The step of a checkpoint: a number, the last number of its path, or this step.

    Args:
        value: What a record says of a checkpoint.
        step: The record's own step, which `true` means.

    Returns:
        The step, or None where it says nothing.

    >>> checkpoint_of("/ckpt/global_step1000/mp_rank_00.pt", step=1002)
    1000
    """
    if isinstance(value, bool):
        return step if value else None
    if isinstance(value, str) and number_of(value) is None:
        # The folder of a step, not the part of a model that a file holds.
        named = re.search(
            r"(?:step|iter|iteration|checkpoint|ckpt|epoch)[_=-]*(\d{1,18})", value, re.IGNORECASE
        )
        found = named or _LAST_NUMBER.search(value)
        return int(found[1]) if found else None
    return step_of(value)


class NoMomentError(ValueError):
    """A value that should tell a time and does not."""


def moment_of(value: object, *, zone: ZoneInfo) -> datetime | None:
    """A time: seconds, milli-, micro- or nanoseconds since 1970, or ISO 8601.

    Args:
        value: A value of a record.
        zone: Zone of times without an offset.

    Returns:
        UTC time; None where there is no value, or only a duration.

    Raises:
        NoMomentError: It is something else.

    >>> from zoneinfo import ZoneInfo
    >>> moment_of(1767225600123, zone=ZoneInfo("UTC")).isoformat()
    '2026-01-01T00:00:00.123000+00:00'
    """
    number = number_of(value)
    if value is None or (number is not None and abs(number) < _EPOCH_SCALES[0][0]):
        return None
    if number is not None:
        return _from_epoch(number)
    text = value.strip() if isinstance(value, str) else ""
    if not _ISO_DATE.match(text):
        raise NoMomentError
    try:
        moment = datetime.fromisoformat(text.replace(",", "."))
    except ValueError as error:
        raise NoMomentError from error
    try:
        utc = to_utc(moment, zone) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError as error:
        raise NoMomentError from error
    if utc is None:
        raise NoMomentError
    return utc


def _from_epoch(number: float) -> datetime:
    if number < 0:
        raise NoMomentError
    scale = max((s for least, s in _EPOCH_SCALES if number >= least), default=1.0)
    try:
        return EPOCH + timedelta(microseconds=round(number / scale * 1e6))
    except (OverflowError, ValueError) as error:
        raise NoMomentError from error
