"""A Slurm in memory that answers as the real one does, and fails on demand; no assertion here.

Its lines have the form of the recorded ones, which come from a real Slurm 22.05.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from remediation.actuators.slurm_records import JOB_FIELDS
from remediation.actuators.slurm_run import CLOCK, Ran

RECORDED = Path(__file__).parent / "recorded_slurm"
FAULTS = (
    "refused", "fails_before", "fails_after", "late_before", "late_after", "garbage", "cut",
)  # fmt: skip
_LINE = (RECORDED / "nodes.txt").read_text().splitlines()[0]
_VALUES = {"TimeLimit": "UNLIMITED", "EndTime": "NONE", "StartTime": "1795993555"}


@dataclass
class FakeNode:
    base: str = "IDLE"
    flags: frozenset[str] = frozenset()
    reason: str | None = None
    actor: str = "root"
    started: int = 1795993535

    @property
    def state(self) -> str:
        return "+".join([self.base, *sorted(self.flags)])


@dataclass
class FakeJob:
    number: str
    nodes: tuple[str, ...]
    job_id: str = ""
    requeue: str = "1"
    partition: str = "batch"
    state: str = "RUNNING"
    more: Mapping[str, str] = field(default_factory=dict)


@dataclass
class FakeSlurm:
    """Answers commands; a `CommandRunner` for reading and for acting.

    Attributes:
        nodes: Its nodes.
        jobs: Its jobs that have nodes.
        fault: Which command goes wrong, counted from 0, and how (one of `FAULTS`).
        before_update: What others do after our last look and before our change arrives.
        asked: Every command, without the clock's words.
        effects: Every command that changed something.
    """

    nodes: dict[str, FakeNode]
    jobs: list[FakeJob] = field(default_factory=list)
    fault: tuple[int, str] | None = None
    before_update: Callable[["FakeSlurm"], None] | None = None
    asked: list[tuple[str, ...]] = field(default_factory=list)
    effects: list[tuple[str, ...]] = field(default_factory=list)

    def run(
        self,
        command: Sequence[str],
        *,
        timeout_s: float,
        meanwhile: Callable[[], None] | None = None,
    ) -> Ran:
        words = tuple(command)
        plain = words[len(CLOCK) :] if words[: len(CLOCK)] == CLOCK else words
        turn = len(self.asked)
        self.asked.append(plain)
        fault = self.fault[1] if self.fault and self.fault[0] == turn else ""
        if fault == "refused":
            return Ran(command=words, code=1, err="slurm_update error: Invalid user id")
        if fault == "fails_before":
            return Ran(command=words, code=1, err="slurm_update error: Socket timed out")
        if fault == "late_before":
            return Ran(command=words, code=None)
        if plain[:2] == ("scontrol", "update") and self.before_update is not None:
            others, self.before_update = self.before_update, None
            others(self)
        if meanwhile is not None:
            meanwhile()
        code, out, err = self._answer(plain)
        if fault == "fails_after":
            return Ran(command=words, code=1, err="slurm_update error: Socket timed out")
        if fault == "late_after":
            return Ran(command=words, code=None)
        if fault == "garbage":
            out = "\x00\x01 gar=bage\n"
        if fault == "cut":
            out = out[: len(out) // 2]
        return Ran(command=words, code=code, out=out, err=err)

    def _answer(self, words: tuple[str, ...]) -> tuple[int, str, str]:
        match words:
            case ("scontrol", "--all", "--oneliner", "show", "node", *names):
                return self._show(names)
            case ("sinfo", *_):
                answer = 0, "".join(f"{name}\n" for name in self.nodes), ""
            case ("scontrol", "show", "topology"):
                answer = 0, (RECORDED / "topology.txt").read_text(), ""
            case ("squeue", *rest):
                answer = 0, self._queue(rest), ""
            case ("scontrol", "update", node, *settings):
                answer = self._update(node.removeprefix("NodeName="), settings, words)
            case ("scontrol", "notify", number, _):
                answer = self._notify(number, words)
            case ("scontrol", "requeue", job_id) | ("scancel", job_id):
                answer = self._end(job_id, words, is_requeue=words[0] == "scontrol")
            case _:
                raise AssertionError(f"the real scontrol was never asked {words}")
        return answer

    def _show(self, names: list[str]) -> tuple[int, str, str]:
        for name in names:
            if name not in self.nodes:
                return 1, f"Node {name} not found\n", ""
        return 0, "".join(self._line(name) for name in names or self.nodes), ""

    def _notify(self, number: str, words: tuple[str, ...]) -> tuple[int, str, str]:
        if any(job.number == number for job in self.jobs):
            self.effects.append(words)
            return 0, "", ""
        return 1, "", "job notify failure: Invalid job id specified"

    def _line(self, name: str) -> str:
        node = self.nodes[name]
        is_used = any(name in job.nodes for job in self.jobs)
        base = "MIXED" if is_used and node.base == "IDLE" else node.base
        line = _LINE.replace("gpu000", name).replace("State=MIXED", f"State={node.state}")
        line = line.replace("State=IDLE", f"State={base}")
        line = re.sub(r"SlurmdStartTime=\d+", f"SlurmdStartTime={node.started}", line)
        line = line.replace("CPUAlloc=1", f"CPUAlloc={int(is_used)}")
        reason = f" Reason={node.reason} [{node.actor}@1795994094]" if node.reason else ""
        return f"{line}{reason}\n"

    def _queue(self, options: list[str]) -> str:
        only = next((o[11:] for o in options if o.startswith("--nodelist=")), None)
        wanted = next(o for o in options if o.startswith("--Format="))
        fields = [one.split(":0") for one in wanted.removeprefix("--Format=").split(",")]
        assert tuple(name for name, _ in fields) == JOB_FIELDS
        lines = []
        for job in self.jobs:
            if only is not None and only not in job.nodes:
                continue
            values = {
                **_VALUES, "JobArrayID": job.job_id or job.number, "JobID": job.number,
                "State": job.state, "NodeList": ",".join(job.nodes), "UserName": "eve",
                "Partition": job.partition, "Requeue": job.requeue, "BatchFlag": "1",
                "tres-per-node": "gres:gpu:h100:4", **job.more,
            }  # fmt: skip
            lines.append("".join(values.get(name, "(null)") + mark for name, mark in fields))
        return "".join(f"{line}\n" for line in lines)

    def _update(
        self, name: str, settings: list[str], words: tuple[str, ...]
    ) -> tuple[int, str, str]:
        told = dict(setting.split("=", 1) for setting in settings)
        node = self.nodes.get(name)
        if node is None:
            return 1, "", "slurm_update error: Invalid node name specified"
        state = told.get("State")
        if state == "DRAIN":
            node.flags |= {"DRAIN"}
        elif state == "UNDRAIN":
            node.flags -= {"DRAIN"}
            if node.base != "DOWN":
                node.reason = None
        elif state is not None:
            raise AssertionError(f"the hook never asks for {state}")
        if "Reason" in told:
            node.reason = told["Reason"].removeprefix('"').removesuffix('"')
            node.actor = "hook"
        self.effects.append(words)
        return 0, "", ""

    def _end(
        self, job_id: str, words: tuple[str, ...], *, is_requeue: bool
    ) -> tuple[int, str, str]:
        job = next((job for job in self.jobs if (job.job_id or job.number) == job_id), None)
        if job is None:
            return 1, "", "Invalid job id specified"
        if is_requeue and job.requeue == "0":
            return 1, "", f"Requested operation is presently disabled for job {job_id}"
        self.effects.append(words)
        self.jobs.remove(job)
        return 0, "", ""


def drain_as(name: str, who: str, reason: str) -> Callable[[FakeSlurm], None]:
    """What a person does: drains a node for a reason of their own."""

    def do(slurm: FakeSlurm) -> None:
        node = slurm.nodes[name]
        node.flags |= {"DRAIN"}
        node.reason, node.actor = reason, who

    return do
