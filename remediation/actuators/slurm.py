"""The Slurm actuator: holds and returns nodes with scontrol, and proves what came of it.

The commands themselves are in `remediation.actuators.slurm_commands`, reading is in
`remediation.actuators.slurm_state`, what is done to jobs in `remediation.actuators.slurm_jobs`.

Slurm has no compare-and-swap. A node is read right before it is changed, watched while the
change is under way, and read again after it. Whoever sets a reason after us keeps it; whose
reason ours has replaced while we watched gets it back, and both are told to a person. What cannot
be excluded: somebody drains the node after our last look and before slurmctld has our command, a
few milliseconds where scontrol runs beside it. Their reason is then lost, and the node counts as
ours. scontrol's interactive mode could narrow this further, but a right to it is a right to all
of scontrol.

A node that dies while we hold it stays down also when its slurmd is back: Slurm returns by itself
only what it gave up with its own reason. To revive it is a person's.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Final

from features.errors import DataError, SourceError
from remediation.actuators.protocol import Order, Outcome, Status
from remediation.actuators.slurm_commands import (
    GIVES_NOTICE,
    Command,
    drain_command,
    hold_commands,
    restore_command,
    undrain_commands,
)
from remediation.actuators.slurm_jobs import interrupt_jobs, notify_jobs
from remediation.actuators.slurm_records import SERVICE_WORDS, SlurmNode
from remediation.actuators.slurm_run import CommandRunner, LocalRunner, Ran
from remediation.actuators.slurm_state import SlurmCluster, view_of
from remediation.cluster.reasons import is_ours
from remediation.cluster.state import NodeView

_PAUSES_S: Final = (0.1, 0.5, 2.0)
"""Between the looks at a node after a change, should one fail."""
_GLANCE_S: Final = 2.0
"""Longest look while a change is under way."""


class SlurmActuator:
    """Changes nodes of one Slurm cluster.

    Args:
        cluster: Reads it.
        runner: Runs the commands that change it, such as behind `sudo -n`.
        interruptible: Partitions whose jobs may be cancelled where they may not be requeued.
        timeout_s: Seconds for each command.
        sleep: Waits.
    """

    name = "slurm"
    is_dry_run = False

    def __init__(
        self,
        cluster: SlurmCluster,
        *,
        runner: CommandRunner | None = None,
        interruptible: Collection[str] = (),
        timeout_s: float = 30.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cluster = cluster
        self._runner = LocalRunner() if runner is None else runner
        self._interruptible = tuple(interruptible)
        self._timeout_s = timeout_s
        self._sleep = sleep

    def state(self, node: str) -> NodeView | None:
        """As in `Actuator`."""
        return view_of(self._cluster.state(node))

    def cordon(self, order: Order) -> Outcome:
        """As in `Actuator`; for Slurm a cordon is a drain that is in no hurry."""
        return self._hold(order)

    def drain(self, order: Order) -> Outcome:
        """As in `Actuator`.

        `checkpoint_then_drain` warns the jobs; `end_notice` in a later run interrupts them.
        """
        return self._hold(order)

    def undrain(self, order: Order) -> Outcome:
        """As in `Actuator`: `UNDRAIN`, for what is ours at this moment and only drained."""
        (command,) = undrain_commands(order)
        found = self._look(order.expected.name)
        if isinstance(found, Outcome):
            return found
        why = _why_not_return(found, order.expected)
        if why:
            return Outcome(status="not_done", detail=why)
        return self._judge_return(self._change(command, order.expected.name))

    def end_notice(self, order: Order) -> Outcome:
        """Interrupts the jobs of a node that we hold, once their notice is over.

        Only jobs of the order that are still on the node, and only as far as each allows it.

        Args:
            order: The hold as it was ordered; `expected` is the node as it was just read.
        """
        found = self._look(order.expected.name)
        if isinstance(found, Outcome):
            return found
        why = _changed(found.view, order.expected)
        if not why and not (found.is_draining and is_ours(found.view.reason)):
            why = "the node is not held by forewarn"
        if why:
            return Outcome(status="not_done", detail=why)
        return self._interrupt(order)

    def _hold(self, order: Order) -> Outcome:
        hold_commands(order)  # refuses hostile names before anything is run
        found = self._look(order.expected.name)
        before = found if isinstance(found, Outcome) else _hold_without_change(found, order)
        if before is not None:
            return before
        change = self._change(drain_command(order), order.expected.name)
        outcome = self._judge_hold(change, reason=str(order.reason))
        return self._with_jobs(order, outcome) if outcome.status == "done" else outcome

    def _judge_hold(self, change: "_Change", *, reason: str) -> Outcome:
        """What came of a drain, by the node as it is after it."""
        after = change.after
        if after is None:
            return change.unreadable()
        if not after.is_draining:
            return change.unproven()
        if after.view.reason != reason:
            said = f"{_holder(after.view)} took it at the same moment; their reason stands"
            return change.outcome("not_done", said)
        if change.other is not None:
            return self._give_back(change, change.other, is_drain=False)
        return change.done()

    def _judge_return(self, change: "_Change") -> Outcome:
        """What came of an undrain, by the node as it is after it."""
        after = change.after
        if after is None:
            return change.unreadable()
        if not after.is_draining:
            other = change.other
            if other is None:
                return change.done()
            if after.view.state == "down" and after.view.reason == other.view.reason:
                return change.outcome("not_done", f"{_holder(other.view)} took it down; left so")
            return self._give_back(change, other, is_drain=True)
        if not is_ours(after.view.reason):
            return change.outcome("not_done", f"{_holder(after.view)} took it; left alone")
        return change.unproven()

    def _with_jobs(self, order: Order, held: Outcome) -> Outcome:
        """Warns and interrupts jobs; whatever comes of it, the node is held."""
        if order.action not in GIVES_NOTICE:
            return held
        told = notify_jobs(order, self._cluster, self._runner, timeout_s=self._timeout_s)
        parts = [held, told]
        if order.action == "drain_now":
            parts.append(self._interrupt(order))
        return Outcome(
            status="done",
            detail="; ".join(part.detail for part in parts if part.detail),
            commands=tuple(command for part in parts for command in part.commands),
        )

    def _interrupt(self, order: Order) -> Outcome:
        return interrupt_jobs(
            order,
            self._cluster,
            self._runner,
            interruptible=self._interruptible,
            timeout_s=self._timeout_s,
        )

    def _look(self, name: str) -> SlurmNode | Outcome:
        """The node right before a change; an outcome where it cannot be told."""
        try:
            found = self._cluster.state(name)
        except SourceError as error:
            return Outcome(status="not_done", detail=str(error))
        return found or Outcome(status="not_done", detail="Slurm does not know this node")

    def _change(self, command: Command, name: str) -> "_Change":
        others: list[SlurmNode] = []

        def glance() -> None:
            try:
                seen = self._cluster.state(name, timeout_s=_GLANCE_S)
            except SourceError:
                return
            if seen is not None and _is_anothers(seen):
                others.append(seen)

        ran = self._runner.run(command, timeout_s=self._timeout_s, meanwhile=glance)
        return _Change(ran=ran, after=self._look_again(name), other=others[-1] if others else None)

    def _look_again(self, name: str) -> SlurmNode | None:
        for pause in _PAUSES_S:
            try:
                return self._cluster.state(name)
            except SourceError:
                self._sleep(pause)
        return None

    def _give_back(self, change: "_Change", other: SlurmNode, *, is_drain: bool) -> Outcome:
        """Puts somebody else's reason back that ours has replaced."""
        name, reason = other.view.name, other.view.reason or ""
        said = f"{_holder(other.view)} took it while our command was under way"
        try:
            command = restore_command(name, reason, is_drain=is_drain)
        except DataError as error:
            return change.outcome("ambiguous", f"{said}; their reason was replaced: {error}")
        ran = self._runner.run(command, timeout_s=self._timeout_s)
        after = self._look_again(name)
        change = replace(change, more=(*change.more, command))
        if after is None or after.view.reason != reason or not after.is_draining:
            said += f"; their reason was replaced and could not be put back: {reason!r} ({ran})"
            return change.outcome("ambiguous", said)
        said += f"; their reason was put back, set by this account now: {reason!r}"
        return change.outcome("not_done", said)


@dataclass(frozen=True, kw_only=True)
class _Change:
    """A command that changes a node, with what was seen around it.

    Attributes:
        ran: How it ended.
        after: The node after it; None: it cannot be told.
        other: The node as somebody else held it meanwhile; None: nobody was seen.
        more: Commands run after it.
    """

    ran: Ran
    after: SlurmNode | None
    other: SlurmNode | None
    more: tuple[Command, ...] = ()

    def outcome(self, status: Status, detail: str = "") -> Outcome:
        return Outcome(status=status, detail=detail, commands=(self.ran.command, *self.more))

    def done(self) -> Outcome:
        said = "" if self.ran.code == 0 else f"found done on the node, although {self.ran}"
        return self.outcome("done", said)

    def unreadable(self) -> Outcome:
        return self.outcome("ambiguous", f"the node cannot be read again; before that, {self.ran}")

    def unproven(self) -> Outcome:
        """The node does not show the change: refused, or nobody knows what is still under way."""
        if self.ran.is_refusal:
            return self.outcome("not_done", str(self.ran))
        return self.outcome("ambiguous", f"the node does not show it, and {self.ran}")


def _changed(found: NodeView, expected: NodeView) -> str | None:
    """How a node differs from what was expected, in what an order rests on."""
    for what in ("state", "reason", "boot_id"):
        was, now = getattr(expected, what), getattr(found, what)
        if was != now:
            return f"the node changed: {what} was {was!r}, is {now!r}; judged anew in the next run"
    return None


def _hold_without_change(found: SlurmNode, order: Order) -> Outcome | None:
    """The outcome where nothing is to be run; None: the node may be taken."""
    view = found.view
    if found.is_draining and view.reason == str(order.reason):
        return Outcome(status="done", detail="it carries this decision already; nothing was run")
    if view.state == "drain":
        return Outcome(status="not_done", detail=f"drained already by {_holder(view)}")
    if view.state != "up":
        return Outcome(status="not_done", detail=f"the node is {view.state}")
    why = _changed(view, order.expected)
    return Outcome(status="not_done", detail=why) if why else None


def _why_not_return(found: SlurmNode, expected: NodeView) -> str | None:
    view = found.view
    if view.state == "down":
        return "the node is down; it is never revived"
    if not found.is_draining:
        return f"the node is not drained, it is {view.state}"
    if not is_ours(view.reason):
        return f"held by {_holder(view)}; left alone"
    more = sorted(found.words - SERVICE_WORDS)
    if more:
        return f"the node is also {', '.join(more)}; left alone"
    return _changed(view, expected)


def _is_anothers(node: SlurmNode) -> bool:
    is_out = node.is_draining or node.view.state in ("drain", "down")
    return is_out and node.view.reason is not None and not is_ours(node.view.reason)


def _holder(view: NodeView) -> str:
    if is_ours(view.reason):
        return "forewarn, for another decision"
    return f"{view.actor or 'someone else'} ({view.reason or 'no reason given'})"
