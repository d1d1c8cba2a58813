"""Empties a Kubernetes node that we hold: notices, evictions, and what is left on it.

Holding and returning the node is in `kubernetes`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from features.errors import SourceError
from remediation.actuators.kubernetes_nodes import time_text
from remediation.actuators.kubernetes_pods import Pod
from remediation.actuators.kubernetes_writes import Told, Writes
from remediation.actuators.protocol import Order, Outcome

_BUDGET_WAIT_S: Final = 5.0
_SHOWN: Final = 5
_INTERNAL: Final = 500


_UNTOLD: Final = "what is on it cannot be told"


@dataclass(frozen=True, kw_only=True)
class DrainRules:
    """How far one call goes; what is left is left to the next.

    Attributes:
        evicts_bare: Whether pods that nobody makes anew may be evicted, and with that deleted.
        rounds: How often a pod is asked to go within one call.
        longest_wait_s: Longest wait between rounds; a budget that asks for more is asked in the
            next call.
        settle_s: How long a call waits for pods to be gone.
        poll_s: Time between two looks.
    """

    evicts_bare: bool = False
    rounds: int = 3
    longest_wait_s: float = 15.0
    settle_s: float = 30.0
    poll_s: float = 2.0


@dataclass(frozen=True, kw_only=True)
class DrainProgress:
    """How far a node is emptied.

    Attributes:
        is_drained: Whether all pods are gone but those that belong to the node.
        left: The pods still there, each with what is waited for.
        deadline: When jobs have to be gone; None: none was set.
    """

    is_drained: bool
    left: tuple[str, ...] = ()
    deadline: datetime | None = None

    @property
    def words(self) -> str:
        """In words."""
        if self.is_drained:
            return "drained"
        shown = ", ".join(self.left[:_SHOWN])
        more = len(self.left) - _SHOWN
        until = f" until {time_text(self.deadline)}" if self.deadline else ""
        return f"draining{until}: {shown}" + (f" and {more} more" if more > 0 else "")


def progress_of(
    pods: Iterable[Pod], *, deadline: datetime | None, why: dict[str, str] | None = None
) -> DrainProgress:
    """How far a node is emptied, by the pods on it.

    Args:
        pods: Pods bound to it.
        deadline: When jobs have to be gone.
        why: What kept pods from going, by uid.
    """
    there = [pod for pod in pods if pod.fate not in ("stays", "finished")]
    left = tuple(f"{pod.words} ({(why or {}).get(pod.uid) or _waits_for(pod)})" for pod in there)
    return DrainProgress(is_drained=not there, left=left, deadline=deadline)


@dataclass
class Drain:
    """One call's work on one node.

    Attributes:
        writes: Changes objects.
        order: The order; its node is held by us.
        deadline: When jobs have to be gone; None: none is set.
        rules: How far the call goes.
        why: What kept pods from going, by uid.
        open: Pods that were asked to go without anyone knowing whether it was heard, by uid.
        failed: Of them, those where the server itself said that it failed: a look settles these.
    """

    writes: Writes
    order: Order
    deadline: datetime | None
    rules: DrainRules
    why: dict[str, str] = field(default_factory=dict)
    open: dict[str, Pod] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)

    def run(self) -> Outcome:
        """Gives notice, evicts what is due, waits a little, and says what is left.

        Returns:
            done: the node is held, and the detail says how far it is emptied. ambiguous: nobody
            knows whether a pod was asked to go.
        """
        try:
            pods = self._pods()
        except SourceError as error:
            words = f"held; nothing was evicted: its pods cannot be listed: {error}"
            return self._outcome(words, left=(_UNTOLD,))
        due = self._due(pods)
        try:
            going = {pod.uid for pod in pods if pod.fate == "leaving"} | self._asked(due)
            pods = self._settled(going) if due or going else pods
        except SourceError as error:
            words = f"held; what is left on it cannot be told: {error}"
            return self._outcome(words, left=(_UNTOLD,))
        progress = progress_of(pods, deadline=self.deadline, why=self.why)
        return self._outcome(progress.words, left=progress.left)

    def withdraw(self) -> str:
        """Takes notices off the pods of a node that is no longer drained; what failed, in words."""
        mark = f" node={self.order.expected.name} "
        try:
            pods = self._pods()
            pods += self._peers(pods)
        except SourceError as error:
            return f"; notices stay: its pods cannot be listed: {error}"
        told = [self.writes.notice(pod, None) for pod in pods if mark in (pod.notice or "")]
        n_failed = sum(one.effect not in ("done", "gone", "conflict") for one in told)
        return f"; {n_failed} of {len(told)} notices stay" if n_failed else ""

    def _pods(self) -> list[Pod]:
        return self.writes.cluster.pods_on(self.order.expected.name)

    def _due(self, pods: Sequence[Pod]) -> list[Pod]:
        """The pods that are to be evicted in this call."""
        there = [pod for pod in pods if pod.fate not in ("stays", "finished")]
        may_go = {"evictable", "bare"} if self.rules.evicts_bare else {"evictable"}
        due = [pod for pod in there if pod.fate in may_go]
        if self.order.action == "drain_after_jobs":
            return [] if any(pod.is_of_job for pod in there) else due
        if self.order.action == "checkpoint_then_drain":
            self._give_notice(pods)
            now = self.writes.cluster.reads.waits.now()
            is_over = self.deadline is not None and now >= self.deadline
            # A pod that was never told, or only just now, gets until the next call.
            return [pod for pod in due if self._is_told(pod)] if is_over else []
        return due

    def _give_notice(self, pods: Sequence[Pod]) -> None:
        """Tells the node's pods, and those elsewhere that run the same jobs: one may checkpoint."""
        own = [pod for pod in pods if pod.fate in ("evictable", "bare", "protected")]
        text = (
            f"{time_text(self.deadline) if self.deadline else 'unknown'} "
            f"node={self.order.expected.name} id={self.order.reason.decision_id}"
        )
        for pod in own:
            told = None if self._is_told(pod) else self.writes.notice(pod, text)
            if told is not None and told.effect not in ("done", "gone", "conflict"):
                self.why[pod.uid] = f"no notice could be given: {told.words}"
        try:
            peers = self._peers(own)
        except SourceError:
            return  # best effort: the node's own pods decide what is evicted
        for pod in peers:
            if not self._is_told(pod):
                self.writes.notice(pod, text)

    def _peers(self, pods: Sequence[Pod]) -> list[Pod]:
        """Pods of the same jobs on other nodes."""
        shared = {pod.job_id for pod in pods if pod.is_of_job and pod.kind != "pod"}
        node = self.order.expected.name

        def is_peer(pod: Pod) -> bool:
            return pod.job_id in shared and pod.node not in (None, node) and pod.fate != "leaving"

        namespaces = sorted({pod.namespace for pod in pods if pod.job_id in shared})
        return [
            peer
            for namespace in namespaces
            for peer in self.writes.cluster.pods_in(namespace, is_peer)
        ]

    def _is_told(self, pod: Pod) -> bool:
        return (pod.notice or "").endswith(f" id={self.order.reason.decision_id}")

    def _asked(self, due: Sequence[Pod]) -> set[str]:
        """Asks pods to go, in rounds, so that one that a budget holds keeps no other from going.

        Returns:
            Uids of the pods that were asked and heard.

        Raises:
            SourceError: It cannot be told whether they heard.
        """
        heard: set[str] = set()
        pending = list(due)
        for turn in range(self.rules.rounds):
            pause, again = _BUDGET_WAIT_S, []
            for pod in pending:
                told = self.writes.evict(pod)
                self.why[pod.uid] = told.words
                if told.effect in ("busy", "unclear"):
                    again.append(pod)
                    pause = max(pause, told.wait_s or 0.0)
                elif told.effect != "refused":
                    heard.add(pod.uid)
                    self.why.pop(pod.uid)
                self._note(pod, told)
            pending = self._still_there(again, heard) if self.open else again
            is_last = turn == self.rules.rounds - 1
            if not pending or is_last or pause > self.rules.longest_wait_s:
                break
            self.writes.cluster.reads.waits.sleep(pause)
        return heard

    def _note(self, pod: Pod, told: Told) -> None:
        if told.effect == "unclear":
            if told.status == _INTERNAL and pod.uid not in self.open:
                self.failed.add(pod.uid)
            else:
                self.failed.discard(pod.uid)
            self.open[pod.uid] = pod
        elif told.effect not in ("busy", "refused"):
            self.open.pop(pod.uid, None)

    def _still_there(self, pending: Sequence[Pod], heard: set[str]) -> list[Pod]:
        """Looks which of the pods have begun to go although no clear answer came."""
        now = {pod.uid: pod for pod in self._pods()}
        left = []
        for pod in pending:
            found = now.get(pod.uid)
            if found is None or found.fate in ("leaving", "finished"):
                heard.add(pod.uid)
                self.open.pop(pod.uid, None)
                self.why.pop(pod.uid, None)
                continue
            if pod.uid in self.failed:
                self.open.pop(pod.uid, None)
            left.append(found)
        return left

    def _settled(self, heard: set[str]) -> list[Pod]:
        """The pods left once those that were asked are gone, or the time for that is over."""
        waits = self.writes.cluster.reads.waits
        until = waits.now() + timedelta(seconds=self.rules.settle_s)
        while True:
            pods = self._pods()
            is_gone = heard.isdisjoint(pod.uid for pod in pods if pod.fate != "finished")
            if is_gone or waits.now() >= until:
                return pods
            waits.sleep(self.rules.poll_s)

    def _outcome(self, words: str, *, left: tuple[str, ...]) -> Outcome:
        sent = tuple(self.writes.sent)
        done = Outcome(status="done", detail=words, commands=sent, left=left)
        if not self.open:
            return done
        names = ", ".join(pod.words for pod in self.open.values())
        unclear = f"nobody knows whether {names} was asked to go; {words}"
        return replace(done, status="ambiguous", detail=unclear)


def _waits_for(pod: Pod) -> str:
    return {
        "leaving": "is ending",
        "protected": "says that it must not be evicted",
        "bare": "nobody would make it anew",
    }.get(pod.fate, "runs")
