"""How Slurm's JSON writes numbers, times, states and exit codes, from 21.08 to 25.05.

Which record holds what is in `slurm.json_documents` and `slurm.json_jobs`.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pipelines.sources.slurm.fields import JOB_STATES, RefusedError

_NO_NUMBERS: Final = frozenset(
    {2**16 - 1, 2**16 - 2, 2**32 - 1, 2**32 - 2, 2**64 - 1, 2**64 - 2, -1, -2}
)
"""INFINITE and NO_VAL of 16, 32 and 64 bits, also as signed numbers."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAYS_UNSET: Final = 2 * 86_400
_LATEST: Final = 2**33
_FEWEST: Final = 2**32 - 2


def as_number(value: object) -> int | None:
    """A number that may be written as `{"set": true, "infinite": false, "number": 7}`.

    Args:
        value: A decoded JSON value.

    Returns:
        The number; None where it is unset, infinite, or none.

    Example:
        >>> as_number({"set": True, "infinite": False, "number": 7}), as_number(7), as_number(None)
        (7, 7, None)
        >>> as_number({"set": False, "infinite": False, "number": 0}) is None
        True
    """
    if isinstance(value, Mapping):
        if value.get("set") is False or value.get("infinite") is True:
            return None
        return as_number(value.get("number"))
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        word = value.strip()
        return int(word) if word.isascii() and word.isdecimal() and len(word) <= 18 else None
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 2**63 else None
    return value if isinstance(value, int) else None


def as_count(value: object) -> int | None:
    """A number of things; Slurm's "no value" and "infinite" are none.

    Args:
        value: A decoded JSON value.
    """
    number = as_number(value)
    return None if number is None or number < 0 or number >= _FEWEST else number


def as_moment(value: object) -> datetime | None:
    """A time in seconds since the epoch; 0 means never.

    Args:
        value: A decoded JSON value.

    Raises:
        RefusedError: It lies beyond all reason.
    """
    number = as_number(value)
    if number is None or number in _NO_NUMBERS or abs(number) < _DAYS_UNSET:
        return None
    if not 0 < number < _LATEST:
        raise RefusedError("a time that cannot be")
    return _EPOCH + timedelta(seconds=number)


def as_text(value: object) -> str | None:
    """A text that says something.

    Args:
        value: A decoded JSON value.
    """
    if isinstance(value, str):
        return value or None
    return None


def as_words(value: object) -> list[str]:
    """A word, or a list of them (since 23.02).

    Args:
        value: A decoded JSON value.
    """
    if isinstance(value, str):
        return [value] if value else []
    if isinstance(value, list):
        return [word for word in value if isinstance(word, str) and word]
    return []


def as_job_state(value: object) -> str:
    """The state of a job or step: a word, a list of state and flags, or `{"current": ...}`.

    Args:
        value: A decoded JSON value.

    Raises:
        RefusedError: It is no state.
    """
    if isinstance(value, Mapping):
        value = value.get("current")
    words = [word.upper() for word in as_words(value)]
    state = next((word for word in words if word in JOB_STATES), None)
    if state is None:
        raise RefusedError("State is not a state of a Slurm job")
    return state


def as_exit(value: object, state: str) -> tuple[int | None, int | None]:
    """Exit code and signal.

    A number is the status word of wait(2). 22.05 writes SUCCESS for jobs that failed: a code
    that contradicts the state is unknown.

    Args:
        value: A decoded JSON value.
        state: State of the job.

    Returns:
        Code and signal; None where unknown.
    """
    if isinstance(value, Mapping) and "number" not in value:
        code, signal = as_count(value.get("return_code")), _signal(value.get("signal"))
        is_ended = "PENDING" not in [word.upper() for word in as_words(value.get("status"))]
    else:
        status = as_count(value)
        code = None if status is None else status >> 8 & 0xFF
        signal = None if status is None else status & 0x7F
        is_ended = True
    if not is_ended or (state == "FAILED" and not code and not signal):
        return None, None
    if code is None and signal is None:
        return None, None
    return _small(code or 0), _small(signal or 0)


def _signal(value: Any) -> int | None:
    if isinstance(value, Mapping):
        return as_count(value["signal_id"] if "signal_id" in value else value.get("id"))
    return as_count(value)


def _small(number: int) -> int | None:
    """Exit codes and signals fit into 16 bits; what does not is none."""
    return number if number < 2**16 else None
