"""Writes job accounting as `sacct --allusers --duplicates --parsable2` prints it, with steps.

Which jobs ran is in `simulation.fleet.schedule`.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

from simulation.fleet.generate import Fleet
from simulation.fleet.schedule import Attempt
from simulation.writers.site_clock import print_time

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
_STEP_STATE: Final = {"NODE_FAIL": "CANCELLED", "TIMEOUT": "CANCELLED"}
_STEP_EXIT: Final = {"CANCELLED": "0:15", "COMPLETED": "0:0", "RUNNING": "0:0"}
_FIRST_UID: Final = 20_000
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
    """Writes every attempt with its steps, one after another.

    Args:
        fleet: The fleet.
        path: File to write.
        n_bad: Lines cut short to put in.

    Returns:
        The file with the number of bad lines in it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    middle, torn = len(fleet.attempts) // 2, list[str]()
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write("|".join(FIELDS) + "\n")
        for number, attempt in enumerate(fleet.attempts):
            lines = list(_attempt_lines(fleet, attempt))
            if number == middle:
                torn = ["|".join(lines[0].split("|")[:5])] * n_bad
                file.writelines(f"{line}\n" for line in torn)
            file.writelines(f"{line}\n" for line in lines)
    return {path: len(torn)}


def _attempt_lines(fleet: Fleet, attempt: Attempt) -> Iterator[str]:
    """The line of an attempt, and those of its steps."""
    job = attempt.job
    names = [fleet.nodes[node].node.name for node, _ in attempt.placement]
    hosts = hostlist(names) if names else "None assigned"
    asked_nodes = -(-job.n_gpus // fleet.regime.gpus_per_node)
    start, end = (
        print_time(fleet, at_s, absent="Unknown") for at_s in (attempt.start_s, attempt.end_s)
    )
    elapsed = _elapsed(fleet, attempt)
    exit_code = "134:0" if attempt.is_own_crash else _EXIT.get(attempt.state, "0:0")
    yield "|".join(
        (
            str(job.job_id), job.name, job.user, "mig" if job.is_instance else "batch",
            _state(attempt), exit_code,
            print_time(fleet, attempt.submit_s), start, end, elapsed,
            str(len(names) or asked_nodes), hosts, _resources(fleet, attempt),
        )
    )  # fmt: skip
    if attempt.start_s is None:
        return
    state = _STEP_STATE.get(attempt.state, attempt.state)
    over = "COMPLETED" if attempt.end_s is not None else "RUNNING"
    steps = [("batch", "batch", state, 1, names[0]), ("extern", "extern", over, len(names), hosts)]
    if len(names) > 1:
        steps.append(("0", "python3", state, len(names), hosts))
    for step, name, outcome, n_nodes, where in steps:
        yield "|".join(
            (
                f"{job.job_id}.{step}", name, "", "", outcome, _STEP_EXIT.get(outcome, exit_code),
                start, start, end, elapsed, str(n_nodes), where,
                f"cpu={_cpus(fleet, attempt)},node={n_nodes}",
            )
        )  # fmt: skip


def _state(attempt: Attempt) -> str:
    """The end state; of a cancelled job with who did it: its user, or root for planned work."""
    if attempt.state != "CANCELLED" or attempt.start_s is None:
        return attempt.state
    is_own = attempt.end_s == attempt.start_s + attempt.job.duration_s
    return f"CANCELLED by {_FIRST_UID + int(attempt.job.user[1:]) if is_own else 0}"


def _share(fleet: Fleet, attempt: Attempt) -> float:
    """Of a GPU's share of the host, what one of the job's GPUs or its instance gets."""
    mig = fleet.regime.hardware.mig
    return 1 / mig.instances if mig and attempt.job.is_instance else 1.0


def _cpus(fleet: Fleet, attempt: Attempt) -> int:
    return max(1, int(attempt.job.n_gpus * _CPUS_PER_GPU * _share(fleet, attempt)))


def _resources(fleet: Fleet, attempt: Attempt) -> str:
    """AllocTRES: nothing before the job starts, the profile's name for an instance."""
    if attempt.start_s is None:
        return ""
    job, mig = attempt.job, fleet.regime.hardware.mig
    gres = f"gpu:{mig.profile}" if mig and job.is_instance else "gpu"
    memory = int(job.n_gpus * _MEMORY_PER_GPU_G * _share(fleet, attempt))
    return (
        f"billing={job.n_gpus},cpu={_cpus(fleet, attempt)},gres/{gres}={job.n_gpus},"
        f"mem={memory}G,node={len(attempt.placement)}"
    )


def _elapsed(fleet: Fleet, attempt: Attempt) -> str:
    if attempt.start_s is None:
        return "00:00:00"
    end = fleet.end_s if attempt.end_s is None else attempt.end_s
    days, rest = divmod(end - attempt.start_s, 86400)
    clock = f"{rest // 3600:02d}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
    return f"{days}-{clock}" if days else clock
