"""What a scheduler's words for node and job states mean to us.

No frames are built here.
"""

import re
from typing import Final, Literal

NodeState = Literal["up", "drain", "down", "unknown"]

_DOWN: Final = frozenset(
    {"DOWN", "FAIL", "FAILED", "ERROR", "ERR", "NODE_FAIL", "NOT_RESPONDING", "NO_RESPOND", "DEAD"}
)

_DRAIN: Final = frozenset(
    {
        "DRAIN", "DRAINED", "DRAINING", "DRNG", "FAILING", "FAILG", "MAINT", "MAINTENANCE",
        "REBOOT", "REBOOT_ISSUED", "REBOOT_REQUESTED", "BOOT", "OFFLINE",
    }
)  # fmt: skip

# A node that is switched off to save power, or that the scheduler knows nothing about, says
# nothing about its health.
_UNKNOWN: Final = frozenset(
    {
        "UNKNOWN", "UNK", "FUTURE", "FUTR", "POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN",
        "POWERING_UP", "POWER_UP", "POW_DN", "POW_UP", "INVALID", "INVALID_REG", "INVAL",
    }
)  # fmt: skip

_UP: Final = frozenset(
    {
        "UP", "IDLE", "ALLOCATED", "ALLOC", "MIXED", "MIX", "COMPLETING", "COMP", "RESERVED",
        "RESV", "PLANNED", "PLND", "BLOCKED", "CLOUD", "DYNAMIC_NORM", "PERFCTRS", "NPC",
        "RESUME", "ALIVE",
    }
)  # fmt: skip

# Slurm appends one sign to a state: no answer, power saving, reservation for maintenance, reboot.
_SIGNS: Final[dict[str, frozenset[str]]] = {
    "*": _UNKNOWN,  # does not answer: not yet declared down, so its state is not known
    "~": _UNKNOWN,
    "#": _UNKNOWN,
    "%": _UNKNOWN,
    "!": _UNKNOWN,
    "$": _DRAIN,
    "@": _UP,
    "^": _DRAIN,
    "-": _UP,
    "+": _UP,
}

_PARTS: Final = re.compile(r"[+,\s]+")

_HARDWARE: Final = frozenset({"NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED", "RECONFIG_FAIL"})
_UNEXPLAINED: Final = frozenset({"FAILED", "TIMEOUT", "DEADLINE"})


def node_state(text: str) -> NodeState:
    """What a scheduler's state text says: up, drain, down or unknown.

    Of several flags the worst counts: down, then drain, then unknown. Signs behind a flag
    (`idle*`, `drng@`) are read as Slurm documents them (man page of sinfo, *NODE STATE CODES*).

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
