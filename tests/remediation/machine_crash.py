"""The whole hook with every actuator on a fake cluster, dying at any step; no assertion but one.

The actuators' own faults are in `test_slurm_actuator` and `test_kubernetes_faults`.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from remediation.actuators.dry_run import DryRunActuator
from remediation.actuators.exchange import Answer, Waits
from remediation.actuators.slurm import SlurmActuator
from remediation.actuators.slurm_state import SlurmCluster
from remediation.actuators.webhook import WebhookActuator
from remediation.actuators.webhook_signature import SigningKey, verify
from remediation.cluster.reasons import is_ours
from remediation.cluster.state import ClusterState, FakeCluster, NodeView
from remediation.hook import HookRun, run_once
from remediation.ledger.entries import MemoryLedger
from remediation.score_source import FakeScoreSource
from remediation.site import Caps, Site
from tests.remediation.conftest import START, TICK, open_site, published
from tests.remediation.kubernetes_fake import Bench
from tests.remediation.slurm_world import FakeJob, FakeNode, FakeSlurm

SCORES = {"n1": 0.97, "n2": 0.95, "n3": 0.1}


class Crash(BaseException):
    """The process is gone; nothing in the hook may catch it."""


@dataclass
class Fuse:
    """Lets `left` steps pass and dies just before, or just after, the next."""

    left: int
    is_after: bool = False

    @classmethod
    def none(cls) -> "Fuse":
        return cls(left=10**9)

    def step(self, do: Callable[[], Any]) -> Any:
        if self.left > 0:
            self.left -= 1
            return do()
        if self.is_after:
            do()
        raise Crash


class Fused:
    """A part whose named calls are steps."""

    def __init__(self, inner: Any, *names: str) -> None:
        self._inner, self._names, self.fuse = inner, names, Fuse.none()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in self._names:
            return found
        return lambda *args, **more: self.fuse.step(lambda: found(*args, **more))


class Runs:
    """What both worlds share: a ledger that is a part, ticks, and what must not be lost."""

    cluster: Any
    actuator: Any
    parts: tuple[Fused, ...]

    def __init__(self) -> None:
        self.books = MemoryLedger()
        self.ledger = Fused(self.books, "append", "append_all", "entries", "verify")
        self.now = START

    @property
    def site(self) -> Site:
        caps = Caps(held_percent=100, partition_percent=100, actions_per_hour=100, per_rack=None)
        return open_site(caps=caps)

    def run(self, fuse: Fuse) -> HookRun | None:
        for part in (self.ledger, *self.parts):
            part.fuse = fuse
        try:
            return run_once(
                scores=FakeScoreSource(published(SCORES, as_of=self.now)),
                cluster=self.cluster,
                actuator=self.actuator,
                ledger=self.ledger,
                site=self.site,
                clock=lambda: self.now,
            )
        except Crash:
            return None

    def next_tick(self) -> None:
        self.now += TICK

    @property
    def holds(self) -> Counter[str]:
        raise NotImplementedError

    @property
    def held(self) -> set[str]:
        raise NotImplementedError

    def check_nothing_lost(self, messages: tuple[str, ...]) -> None:
        entries = self.books.entries()
        assert self.books.verify().is_whole
        answered = {one.refers_to for one in entries if one.kind == "result"}
        intents = [one for one in entries if one.kind == "intent"]
        told = "\n".join(messages)
        for one in intents:
            assert one.key in answered or f"{one.node}: " in told, one.key
        assert self.held <= {one.node for one in intents}
        done = {
            one.node for one in entries if one.kind == "result" and one.body["status"] == "done"
        }
        assert all(name in done or f"{name}: " in told for name in self.held)
        assert all(name in self.held or f"{name}: " in told for name in ("n1", "n2"))


class Slurm(Runs):
    """Three nodes, a job that may be requeued on one of them; each command is a step."""

    def __init__(self) -> None:
        super().__init__()
        jobs = [FakeJob(number="7", nodes=("n1",))]
        self.slurm = FakeSlurm({name: FakeNode() for name in (*SCORES, "idle")}, jobs)
        runner = Fused(self.slurm, "run")
        self.parts = (runner,)
        self.cluster = SlurmCluster(runner=runner)  # type: ignore[arg-type]
        self.actuator = SlurmActuator(self.cluster, runner=runner, sleep=lambda _: None)  # type: ignore[arg-type]

    @property
    def holds(self) -> Counter[str]:
        return Counter(words[2] for words in self.slurm.effects if "State=DRAIN" in words)

    @property
    def requeued(self) -> int:
        return sum(words[:2] == ("scontrol", "requeue") for words in self.slurm.effects)

    @property
    def held(self) -> set[str]:
        return {
            name for name, node in self.slurm.nodes.items()
            if "DRAIN" in node.flags and is_ours(node.reason)
        }  # fmt: skip


class Kubernetes(Runs):
    """Three nodes and a pod; each request is a step."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        for name in (*SCORES, "idle"):
            self.bench.add_node(name)
        self.bench.add_pod("train-0", "n1")
        api = Fused(self.bench.api, "ask")
        fused = Bench(api=api)  # type: ignore[arg-type]
        self.parts = (api,)
        self.cluster = fused.cluster
        self.actuator = fused.actuator

    @property
    def holds(self) -> Counter[str]:
        patched = [path for method, path in self.bench.api.carried_out if method == "PATCH"]
        return Counter(path for path in patched if "/nodes/" in path)

    @property
    def held(self) -> set[str]:
        return {
            one.name
            for one in Bench(api=self.bench.api).cluster.read().nodes
            if one.owner == "forewarn"
        }


class Webhook(Runs):
    """Three nodes and a site's own automation; each look and each order is a step."""

    def __init__(self) -> None:
        super().__init__()
        nodes = tuple(
            NodeView(name=name, state="up", boot_id="b1", rack=f"rack-{name}", n_gpus=8)
            for name in (*SCORES, "idle")
        )
        self.fake = FakeCluster(ClusterState(as_of=START, nodes=nodes))
        self.known: dict[str, str] = {}
        cluster, site = Fused(self.fake, "read"), Fused(self, "post")
        self.parts = (cluster, site)
        self.cluster = cluster
        self.actuator = WebhookActuator(
            post=site.post,
            key=SigningKey(b"k" * 32),
            cluster=cluster,  # type: ignore[arg-type]
            waits=Waits(sleep=lambda _: None, now=lambda: self.now),
        )

    def post(self, headers: Mapping[str, str], body: bytes) -> Answer:
        """Acts once per idempotency key, as receivers are asked to."""
        key = verify([SigningKey(b"k" * 32)], headers, body, now=self.now)
        if key not in self.known:
            order = json.loads(body)
            self.known[key] = order["node"]
            self.fake.set_node(
                order["node"], state="drain", reason=order["reason"], actor="automation"
            )
        return Answer(200, json.dumps({"id": key, "status": "done"}).encode())

    @property
    def holds(self) -> Counter[str]:
        return Counter(self.known.values())

    @property
    def held(self) -> set[str]:
        return {one.name for one in self.fake.read().nodes if one.owner == "forewarn"}


class DryRun(Slurm):
    """The dry run on the same Slurm: what it would do counts, and nothing may be done."""

    def __init__(self) -> None:
        super().__init__()
        self.actuator = DryRunActuator(self.cluster)

    @property
    def holds(self) -> Counter[str]:
        assert not self.slurm.effects
        results = [one for one in self.books.entries() if one.kind == "result"]
        return Counter(str(one.node) for one in results if one.body["status"] == "would_do")

    def check_nothing_lost(self, messages: tuple[str, ...]) -> None:
        del messages
        assert self.books.verify().is_whole
        assert set(self.holds) == {"n1", "n2"}


def steps_of_a_run(make: Callable[[], Runs]) -> int:
    fuse = Fuse.none()
    before = fuse.left
    assert make().run(fuse) is not None
    return before - fuse.left
