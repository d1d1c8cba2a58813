"""Changes to Kubernetes objects whose effect is known: node patches, notices, evictions.

What is changed, and whether it may be, is in `kubernetes` and `kubernetes_drain`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Protocol

import orjson

from features.errors import SourceError
from remediation.actuators.exchange import NoAnswerError
from remediation.actuators.kubernetes_api import MANAGER, Json, KubernetesApi, parsed, said
from remediation.actuators.kubernetes_cluster import KubernetesCluster, node_path, pod_path
from remediation.actuators.kubernetes_nodes import version_of
from remediation.actuators.kubernetes_pods import NOTICE, Pod
from remediation.actuators.protocol import Outcome

Effect = Literal["done", "refused", "conflict", "gone", "busy", "unclear"]

_BY_STATUS: Final[Mapping[int, Effect]] = {404: "gone", 409: "conflict", 429: "busy"}
_PARAMS: Final = {"fieldManager": MANAGER}

Command = tuple[str, ...]


class Look(Protocol):
    """Says of a node as it is what came of an order; None: the patch is to be sent."""

    def __call__(self, node: Json, *, is_sent: bool) -> Outcome | None:
        """As above.

        Args:
            node: The node.
            is_sent: Whether a patch was sent already.
        """
        ...


@dataclass(frozen=True)
class Told:
    """What one change came to.

    Attributes:
        effect: done; refused (for good), conflict, gone (404) and busy (429): surely nothing
            changed; unclear: nobody knows.
        words: What the server said.
        found: The object after it; None: not told.
        wait_s: What the server asks to wait.
        status: HTTP status; None: no answer came.
    """

    effect: Effect
    words: str
    found: Json | None = None
    wait_s: float | None = None
    status: int | None = None


@dataclass
class Writes:
    """Changes objects of one server, and keeps what it sent.

    Attributes:
        api: The server.
        cluster: Reads it.
        sent: Every change that was sent, as method, path and body.
    """

    api: KubernetesApi
    cluster: KubernetesCluster
    sent: list[Command] = field(default_factory=list)

    def node(
        self,
        name: str,
        *,
        look: Look,
        change: Callable[[Json], dict[str, Any]],
    ) -> Outcome:
        """Patches a node as it was looked at, until it is known what came of it.

        The patch holds the version of the node it was made from. So a patch without an answer
        does not stay a riddle: as long as the node has that version, the same patch may be sent
        again, for only one of the two can succeed; once the version is another, the first can no
        longer arrive, and the node shows whether it did.

        Args:
            name: Node.
            look: See `Look`.
            change: Makes the patch.

        Returns:
            done, not_done or ambiguous; with what was sent.
        """
        limits, waits = self.cluster.reads.limits, self.cluster.reads.waits
        unclear_at: str | None = None
        told = Told("busy", "it was never sent")
        is_sent = False
        for attempt in range(1, limits.writes + 1):
            try:
                node = self.cluster.node(name)
                outcome = self._seen(node, look, unclear_at=unclear_at, is_sent=is_sent, told=told)
            except SourceError as error:
                return self._failed(unclear_at, f"the node cannot be read: {error}")
            if outcome is not None:
                return outcome
            told, is_sent = self._send("PATCH", node_path(name), change(node), _PARAMS), True
            if told.effect == "done":
                return self._claimed(name, look, told)
            if told.effect == "unclear":
                unclear_at = version_of(node)
            elif told.effect in ("refused", "gone"):
                return self._failed(unclear_at, told.words)
            pause = limits.wait_s(attempt, told.wait_s)
            if attempt == limits.writes or pause is None:
                break
            if told.effect != "conflict":
                waits.sleep(pause)
        return self._after_last(name, look, unclear_at=unclear_at, told=told)

    def notice(self, pod: Pod, text: str | None) -> Told:
        """Puts our notice on a pod, or takes it off; of this very pod, not of a later namesake.

        Args:
            pod: The pod.
            text: The notice; None: it is taken off.
        """
        body = {"metadata": {"uid": pod.uid, "annotations": {NOTICE: text}}}
        return self._send("PATCH", pod_path(pod), body, _PARAMS)

    def evict(self, pod: Pod) -> Told:
        """Asks for a pod to go, as far as disruption budgets allow; of this very pod only."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
        return self._send("POST", f"{pod_path(pod)}/eviction", body, {})

    def _seen(
        self,
        node: Json,
        look: Look,
        *,
        unclear_at: str | None,
        is_sent: bool,
        told: Told,
    ) -> Outcome | None:
        """What a node that was read anew says of the tries so far; None: the patch may be sent."""
        outcome = look(node, is_sent=is_sent)
        if outcome is not None:
            return self._with_sent(outcome)
        if unclear_at is not None and version_of(node) != unclear_at:
            # It did not arrive, or a person has undone it at once: never again in this run.
            return self._nothing(f"{told.words}; the node has changed since")
        return None

    def _claimed(self, name: str, look: Look, told: Told) -> Outcome:
        """What became of a patch that the server says it has carried out."""
        try:
            outcome = look(told.found or self.cluster.node(name), is_sent=True)
        except SourceError as error:
            return self._unclear(f"carried out by {told.words}, but not shown: {error}")
        if outcome is not None and outcome.status == "done":
            return self._with_sent(outcome)
        why = "the node does not show it" if outcome is None else outcome.detail
        return self._unclear(f"the server says it is done, but {why}")

    def _after_last(
        self,
        name: str,
        look: Look,
        *,
        unclear_at: str | None,
        told: Told,
    ) -> Outcome:
        if unclear_at is None:
            return self._nothing(told.words)
        try:
            node = self.cluster.node(name)
            seen = self._seen(node, look, unclear_at=unclear_at, is_sent=True, told=told)
        except SourceError as error:
            return self._unclear(f"{told.words}; the node cannot be read: {error}")
        return seen or self._unclear(told.words)

    def _failed(self, unclear_at: str | None, words: str) -> Outcome:
        return self._nothing(words) if unclear_at is None else self._unclear(words)

    def _nothing(self, words: str) -> Outcome:
        return self._with_sent(Outcome(status="not_done", detail=words))

    def _unclear(self, words: str) -> Outcome:
        return self._with_sent(Outcome(status="ambiguous", detail=words))

    def _with_sent(self, outcome: Outcome) -> Outcome:
        return replace(outcome, commands=tuple(self.sent))

    def _send(
        self, method: str, path: str, body: dict[str, Any], params: Mapping[str, str]
    ) -> Told:
        self.sent.append((method, path, orjson.dumps(body).decode()))
        try:
            answer = self.api.ask(method, path, params=params, body=body)
        except NoAnswerError as error:
            return Told("unclear" if error.may_have_acted else "busy", str(error))
        if answer.is_fine:
            return Told("done", f"HTTP {answer.status}", parsed(answer), status=answer.status)
        effect = _BY_STATUS.get(answer.status)
        if effect is None:
            is_refusal = 300 <= answer.status <= 499 and answer.status not in (408, 425)
            effect = "refused" if is_refusal else "unclear"
        asked = self.cluster.reads.waits.asked(answer)
        return Told(effect, said(answer), wait_s=asked, status=answer.status)
