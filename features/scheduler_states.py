"""What a scheduler's words for node and job states mean to us.

No frames are built here.
"""

import re
from typing import Final, Literal

NodeState = Literal["up", "drain", "down", "unknown"]

_DOWN: Final = frozenset({"DOWN", "FAIL", "FAILED", "ERROR", "ERR", "NODE_FAIL", "DEAD"})

# Out of service by somebody's or the scheduler's decision. A node that registered with less than
# its configuration says (INVAL: a GPU is missing) gets no jobs, but the ones it has go on.
_DRAIN: Final = frozenset(
    {
        "DRAIN", "DRAINED", "DRAINING", "DRNG", "FAILING", "FAILG", "MAINT", "MAINTENANCE",
        "REBOOT", "REBOOT_ISSUED", "BOOT", "OFFLINE", "INVAL", "INVALID", "INVALID_REG",
        "POWER_DRAIN",
    }
)  # fmt: skip

# A node that is switched off to save power, that does not answer but is not declared down, or
# that the scheduler knows nothing about, says nothing about its health.
_UNKNOWN: Final = frozenset(
    {
        "UNKNOWN", "UNK", "FUTURE", "FUTR", "DYNAMIC_FUTURE", "POWERED_DOWN", "POWERING_DOWN",
        "POWER_DOWN", "POWERING_UP", "POWER_UP", "POW_DN", "POW_UP", "POWER_SAVING",
        "NOT_RESPONDING", "NO_RESPOND",
    }
)  # fmt: skip

_UP: Final = frozenset(
    {
        "UP", "IDLE", "ALLOCATED", "ALLOC", "MIXED", "MIX", "COMPLETING", "COMP", "RESERVED",
        "RESV", "RES", "PLANNED", "PLND", "BLOCKED", "BLOCK", "CLOUD", "DYNAMIC_NORM", "DYNAMIC",
        "PERFCTRS", "NPC", "RESUME", "ALIVE", "REBOOT_REQUESTED", "REBOOT_CANCELED", "EXTERNAL",
        "UNDRAIN", "NO_CHANGE",
    }
)  # fmt: skip

# Slurm appends one sign to a state: no answer, power saving, reservation for maintenance, reboot.
_SIGNS: Final[dict[str, frozenset[str]]] = {
    "*": _UNKNOWN,
    "~": _UNKNOWN,
    "#": _UNKNOWN,
    "%": _UNKNOWN,
    "!": _UNKNOWN,
    "$": _DRAIN,
    "@": _UP,  # a reboot is asked for: until it is issued jobs go on
    "^": _DRAIN,
    "-": _UP,
    "+": _UP,
}

_PARTS: Final = re.compile(r"[+,\s]+")

UNSTARTED_JOB_STATES: Final = frozenset({"PENDING", "CONFIGURING", "REQUEUE_HOLD", "REQUEUE_FED"})
"""States of a job that has not begun: the start time it shows is the scheduler's guess."""

OPEN_JOB_STATES: Final = frozenset(
    {
        *UNSTARTED_JOB_STATES, "RUNNING", "SUSPENDED", "RESIZING", "SIGNALING", "STOPPED",
        "COMPLETING", "EXPEDITING", "POWER_UP_NODE", "STAGE_OUT", "UPDATE_DB",
    }
)  # fmt: skip
"""States of a job that has not ended: the end time it shows is start plus time limit."""

_HARDWARE: Final = frozenset({"NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED", "RECONFIG_FAIL"})
_UNEXPLAINED: Final = frozenset({"FAILED", "TIMEOUT", "DEADLINE"})


def node_state(text: str) -> NodeState:
    """What a scheduler's state text says: up, drain, down or unknown.

    Of several flags the worst counts: down, then drain, then unknown. Signs behind a flag
    (`idle*`, `drng@`) are read as Slurm documents them (man page of sinfo, *NODE STATE CODES*).

    Slurm's JSON has the same flags as a list; joined by `+` they mean the same.

    >>> [node_state(s) for s in ("MIXED+DRAIN", "DOWN*+DRAIN", "drng@", "idle*", "mixed-", "?")]
    ['drain', 'down', 'drain', 'unknown', 'up', 'unknown']
    """
    found: set[NodeState] = set()
    for part in _PARTS.split(text.strip().upper()):
        flag = part.rstrip("".join(_SIGNS))
        signs = part[len(flag) :]
        if flag in _DOWN:
            found.add("down")
        elif flag in _DRAIN:
            found.add("drain")
        elif flag in _UP:
            found.add("up")
        elif flag or signs:
            found.add("unknown")
        if any(_SIGNS[sign] is _UNKNOWN for sign in signs):
            found.add("unknown")
        if any(_SIGNS[sign] is _DRAIN for sign in signs):
            found.add("drain")
    order: tuple[NodeState, ...] = ("down", "drain", "unknown", "up")
    return next((state for state in order if state in found), "unknown")


def job_cause(state: str) -> str | None:
    """Why a job ended badly, as far as its end state alone tells; None: it did not.

    A job that failed or ran out of time may have done so for any reason: `unknown`.

    >>> job_cause("NODE_FAIL"), job_cause("OUT_OF_MEMORY"), job_cause("FAILED")
    ('hardware', 'oom', 'unknown')
    >>> job_cause("COMPLETED") is None
    True
    """
    if state in _HARDWARE:
        return "hardware"
    if state == "OUT_OF_MEMORY":
        return "oom"
    return "unknown" if state in _UNEXPLAINED else None
