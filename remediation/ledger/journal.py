"""Writes the hook's entries: which key each has and what its body says.

What entries mean is in `remediation.ledger.view`; when they are written is in `remediation.hook`
and `remediation.holds.recovery`.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from features.clock import Clock
from remediation.actuators.protocol import Outcome
from remediation.cluster.state import NodeView
from remediation.decision import Decision, Judged
from remediation.ledger.entries import Entry, Ledger, LedgerError, NewEntry
from remediation.ledger.view import Held, Hold, Observed, escalation_key, observed_body


@dataclass
class Journal:
    """Writes for one actuator, and keeps what a person must be told.

    Attributes:
        ledger: The ledger.
        actuator: Name of the actuator.
        clock: The present.
        messages: What was found in this run that is a person's, in words.
        waiting: Decisions not yet written. They go to disk together, before any other entry: on a
            bad day there are thousands, and each alone would wait for the disk.
    """

    ledger: Ledger
    actuator: str
    clock: Clock
    messages: list[str] = field(default_factory=list)
    waiting: list[NewEntry] = field(default_factory=list)

    def observed(self, above: Sequence[Observed], *, as_of: datetime, horizon_h: int) -> None:
        """Notes the nodes above the threshold in a tick, once."""
        self._append(
            f"observed:{self.actuator}:{horizon_h}h:{as_of.isoformat()}",
            "observed",
            body=observed_body(above, as_of=as_of),
        )

    def decision(self, one: Judged, *, expires_at: datetime) -> None:
        """Notes a decision with every verdict, once for the same verdicts; `flush` writes it.

        Args:
            one: The decision.
            expires_at: When its score expires, and with it what a person may approve.
        """
        body = {**_decision_body(one), "expires_at": expires_at.isoformat()}
        text = json.dumps([body["action"], body["verdicts"]])
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        self.waiting.append(
            self._entry(
                f"decision:{self.actuator}:{one.decision.decision_id}:{digest}",
                "decision",
                about=one.decision,
                body=body,
            )
        )

    def flush(self) -> None:
        """Writes the decisions that wait."""
        if self.waiting:
            self.ledger.append_all(self.waiting)
            self.waiting.clear()

    def intent(self, one: Judged, *, attempt: int, before: NodeView) -> str | None:
        """Notes what is about to be done.

        Returns:
            The intent's key; None: another run has noted it, and does it.
        """
        key = f"intent:{self.actuator}:{one.decision.decision_id}:{attempt}"
        body = {
            "action": one.action,
            "attempt": attempt,
            "boot_id": one.decision.boot_id,
            "score": one.decision.score,
            "model_version": one.decision.model_version,
            "before": _node_body(before),
        }
        is_new = self._append(key, "intent", about=one.decision, body=body)
        return key if is_new else None

    def step(self, held: Held, step: str, *, node: NodeView, attempt: int) -> str | None:
        """Notes what is about to be done with a node that we hold already.

        Args:
            held: The hold.
            step: carry_on, end_notice or return.
            node: The node now.
            attempt: Which try it is, from 1.

        Returns:
            The key of the step; None: another run has noted it, and does it.
        """
        key = f"{step}:{held.intent_key}:{attempt}"
        body = {"step": step, "of": held.intent_key, "before": _node_body(node)}
        return key if self._append(key, "intent", node=node.name, body=body) else None

    def result(
        self, intent_key: str, outcome: Outcome, *, about: Decision | Entry, after: NodeView | None
    ) -> None:
        """Notes what came of an intent; an unclear one is a person's."""
        body = {
            "status": outcome.status,
            "detail": outcome.detail,
            "commands": [list(command) for command in outcome.commands],
            "left": list(outcome.left),
            "after": None if after is None else _node_body(after),
        }
        self._append(f"result:{intent_key}", "result", about=about, refers_to=intent_key, body=body)
        if outcome.status == "ambiguous":
            text = f"{about.node}: the result is unclear: {outcome.detail}"
            self.escalate(intent_key, why="ambiguous", text=text, node=about.node)

    def step_result(self, key: str, outcome: Outcome, *, node: str) -> None:
        """Notes what came of a step; an unclear one is a person's."""
        body = {
            "status": outcome.status,
            "detail": outcome.detail,
            "commands": [list(command) for command in outcome.commands],
            "left": list(outcome.left),
        }
        self._append(f"result:{key}", "result", node=node, refers_to=key, body=body)
        if outcome.status == "ambiguous":
            text = f"{node}: the result is unclear: {outcome.detail}"
            self.escalate(key, why="ambiguous", text=text, node=node)

    def released(self, intent_key: str, *, node: str, why: str) -> None:
        """Notes that a node is no longer ours.

        Args:
            intent_key: The intent it was taken with.
            node: Node.
            why: undrained, replaced, taken_over, gone, or returned (by ourselves).
        """
        self._append(
            f"released:{intent_key}",
            "released",
            node=node,
            refers_to=intent_key,
            body={"why": why},
        )

    def burst(self, hold: Hold) -> None:
        """Notes a burst, which stops automation in its scope."""
        self.escalate(
            f"burst:{self.actuator}:{hold.scope}:{self.clock().isoformat()}",
            why="burst",
            text=hold.text,
            more={"scope": hold.scope, "nodes": list(hold.nodes), "until": hold.until.isoformat()},
        )

    def escalate(
        self,
        about: str,
        *,
        why: str,
        text: str,
        node: str | None = None,
        more: dict[str, Any] | None = None,
    ) -> None:
        """Brings something to a person: once in the ledger, in every run's messages.

        Args:
            about: What it is about; names the entry.
            why: ambiguous, burst, check, gone, guard, notice, repair, return, stuck or
                unknown_hold.
            text: In words.
            node: Node, where it is about one.
            more: More for the body.
        """
        self.messages.append(text)
        body = {"why": why, "text": text, **(more or {})}
        self._append(escalation_key(about), "escalation", node=node, body=body)

    def _append(
        self,
        key: str,
        kind: str,
        *,
        about: Decision | Entry | None = None,
        node: str | None = None,
        refers_to: str | None = None,
        body: dict[str, Any],
    ) -> bool:
        self.flush()
        entry = self._entry(key, kind, about=about, node=node, refers_to=refers_to, body=body)
        return self.ledger.append(entry)

    def _entry(
        self,
        key: str,
        kind: str,
        *,
        about: Decision | Entry | None = None,
        node: str | None = None,
        refers_to: str | None = None,
        body: dict[str, Any],
    ) -> NewEntry:
        return NewEntry(
            key=key,
            kind=kind,
            recorded_at=self.clock(),
            actuator=self.actuator,
            node=about.node if about else node,
            decision_id=about.decision_id if about else None,
            refers_to=refers_to,
            body=body,
        )


def acknowledge(ledger: Ledger, key: str, *, actor: str, at: datetime) -> None:
    """Notes that a person has looked at an escalation; what it stopped may go on.

    Args:
        ledger: The ledger.
        key: Key of the escalation.
        actor: Who has looked.
        at: When.

    Raises:
        LedgerError: There is no such escalation.
    """
    found = [entry for entry in ledger.entries(kinds=("escalation",)) if entry.key == key]
    if not found:
        raise LedgerError(f"ledger: no escalation {key!r}; use the key of one that is listed")
    ledger.append(
        NewEntry(
            key=f"acknowledged:{key}",
            kind="acknowledged",
            recorded_at=at,
            actuator=found[0].actuator,
            actor=actor,
            node=found[0].node,
            refers_to=key,
        )
    )


def _decision_body(one: Judged) -> dict[str, Any]:
    decision = one.decision
    return {
        "wanted": decision.wanted,
        "action": one.action,
        "boot_id": decision.boot_id,
        "score": decision.score,
        "status": decision.status,
        "horizon_h": decision.horizon_h,
        "fault_type": decision.fault_type,
        "model_version": decision.model_version,
        "trained_on": decision.trained_on,
        "as_of": decision.as_of.isoformat(),
        "cost_of_acting": decision.cost_of_acting,
        "cost_of_waiting": decision.cost_of_waiting,
        "jobs": list(decision.jobs),
        "sentence": decision.sentence,
        "verdicts": [[v.guard, v.is_allowed, v.reason, v.ceiling] for v in one.verdicts],
    }


def _node_body(node: NodeView) -> dict[str, Any]:
    return {
        "state": node.state,
        "reason": node.reason,
        "actor": node.actor,
        "boot_id": node.boot_id,
    }
