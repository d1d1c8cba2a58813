"""Writes job accounting as `sacct --allusers --duplicates --parsable2` prints it, with steps.

Which jobs ran is in `simulation.fleet.schedule`.
"""

from collections.abc import Sequence
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Final

from simulation.fleet.generate import Fleet
from simulation.fleet.schedule import Attempt

FIELDS: Final = (
    "JobID",
    "JobName",
    "User",
    "Partition",
    "State",
    "ExitCode",
    "Submit",
    "Start",
    "End",
    "Elapsed",
    "NNodes",
    "NodeList",
    "AllocTRES",
)

_EXIT: Final = {"FAILED": "1:0", "OUT_OF_MEMORY": "0:125", "NODE_FAIL": "1:0"}
_STEP_STATE: Final = {"NODE_FAIL": "CANCELLED", "TIMEOUT": "CANCELLED", "CANCELLED": "CANCELLED"}
_CPUS_PER_GPU, _MEMORY_PER_GPU_G = 12, 240


def hostlist(names: Sequence[str]) -> str:
    """Slurm's short form of node names that share a prefix and end in equally long numbers.

    >>> hostlist(["gpu001", "gpu002", "gpu003", "gpu007"])
    'gpu[001-003,007]'
    """
    if len(names) == 1:
        return names[0]
    prefix = names[0].rstrip("0123456789")
    width = len(names[0]) - len(prefix)
    numbers = sorted(int(name[len(prefix) :]) for name in names)
    parts = []
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        span = [number for _, number in run]
        first, last = f"{span[0]:0{width}d}", f"{span[-1]:0{width}d}"
        parts.append(first if first == last else f"{first}-{last}")
    return f"{prefix}[{','.join(parts)}]"


def write_sacct(fleet: Fleet, path: Path, *, n_bad: int) -> dict[Path, int]:
    """Writes every attempt with its steps.

    Args:
        fleet: The fleet.
        path: File to write.
        n_bad: Lines cut short to put in.

    Returns:
        The file with the number of bad lines in it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [line for attempt in fleet.attempts for line in _attempt_lines(fleet, attempt)]
    cut = ["|".join(line.split("|")[:5]) for line in lines[:n_bad]]
    middle = len(lines) // 2
    text = "\n".join(["|".join(FIELDS), *lines[:middle], *cut, *lines[middle:]]) + "\n"
    path.write_text(text, encoding="utf-8", newline="\n")
    return {path: len(cut)}


def _attempt_lines(fleet: Fleet, attempt: Attempt) -> list[str]:
    job = attempt.job
    nodes = [fleet.nodes[node].node.name for node, _ in attempt.placement]
    state = "CANCELLED by 0" if attempt.state == "CANCELLED" else attempt.state
    tres = (
        f"billing={job.n_gpus},cpu={job.n_gpus * _CPUS_PER_GPU},gres/gpu={job.n_gpus},"
        f"mem={job.n_gpus * _MEMORY_PER_GPU_G}G,node={max(1, len(nodes))}"
    )
    times = [
        _time(fleet, attempt.submit_s),
        _time(fleet, attempt.start_s),
        _time(fleet, attempt.end_s),
        _elapsed(fleet, attempt),
    ]
    exit_code = _EXIT.get(attempt.state, "0:0")
    if attempt.is_own_crash:
        exit_code = "134:0"
    whole = [
        str(job.job_id), job.name, job.user, "batch", state, exit_code, *times,
        str(max(1, len(nodes))), hostlist(nodes) if nodes else "None assigned", tres,
    ]  # fmt: skip
    lines = ["|".join(whole)]
    if attempt.start_s is None:
        return lines
    step_state = _STEP_STATE.get(attempt.state, attempt.state)
    steps = [
        ("batch", "batch", step_state, nodes[:1]),
        ("extern", "extern", "COMPLETED" if attempt.end_s is not None else "RUNNING", nodes),
    ]
    if len(nodes) > 1:
        steps.append(("0", "python3", step_state, nodes))
    for step, name, outcome, where in steps:
        code = exit_code if outcome not in ("COMPLETED", "RUNNING", "CANCELLED") else "0:0"
        cells = [
            f"{job.job_id}.{step}", name, "", "", outcome, code, times[1], *times[1:],
            str(len(where)), hostlist(where), f"cpu={job.n_gpus * _CPUS_PER_GPU},node={len(where)}",
        ]  # fmt: skip
        lines.append("|".join(cells))
    return lines


def _time(fleet: Fleet, at_s: int | None) -> str:
    moment: datetime | None = None if at_s is None else fleet.moment(at_s)
    return "Unknown" if moment is None else f"{moment:%Y-%m-%dT%H:%M:%S}"


def _elapsed(fleet: Fleet, attempt: Attempt) -> str:
    if attempt.start_s is None:
        return "00:00:00"
    end = fleet.end_s if attempt.end_s is None else attempt.end_s
    days, rest = divmod(end - attempt.start_s, 86400)
    clock = f"{rest // 3600:02d}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
    return f"{days}-{clock}" if days else clock
