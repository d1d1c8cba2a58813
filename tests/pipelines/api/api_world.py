"""A small site with an API in front of it: a clock, a published tick, a database, a ledger."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import polars as pl
from fastapi import FastAPI

from features.tables import CORE_TOPOLOGY, GPU_SCORES, NODE_SCORES
from features.vocabulary import FAULT_TYPES
from pipelines.api.access import Access, open_access
from pipelines.api.application import build_application
from pipelines.api.fleet_view import FleetView
from pipelines.api.sources import Sources, open_sources
from pipelines.flow.publish import publish_scores
from pipelines.settings import Settings
from pipelines.storage.store import TableStore
from remediation.inbox.site import prepare_inbox
from remediation.ledger.entries import NewEntry
from remediation.ledger.sqlite import SqliteLedger

T0 = datetime(2026, 1, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)
READ, OPERATOR = "r" * 40, "o" * 40
KEY = "k" * 64
SHARES = [0.6, 0.4] + [0.0] * (len(FAULT_TYPES) - 2)


def score_rows(
    kind: str, as_of: datetime, scores: Mapping[str, float | None], horizons: tuple[int, ...]
) -> pl.DataFrame:
    """Rows of named entities; a GPU `n1-g0` is on node `n1`. None: stale."""
    contract = GPU_SCORES if kind == "gpu" else NODE_SCORES
    rows = [
        dict.fromkeys(contract.schema)
        | {
            "entity_kind": kind, "entity_id": name, "node": name.split("-g")[0], "as_of": as_of,
            "horizon_h": horizon_h, "score": score, "fault_type": "nvlink" if score else None,
            "status": "unknown" if score is None else "ok",
            "status_reason": "newest sample is 45 min old" if score is None else None,
            "fault_probabilities": SHARES if score else None, "reasons": ["hot"],
            "missing_share": 0.0, "model_version": f"m/{horizon_h}", "trained_on": "real",
        }
        for name, score in scores.items()
        for horizon_h in horizons
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=contract.schema)


@dataclass
class ApiWorld:
    """The site; what is not given is as the defaults have it."""

    folder: Path
    api: dict[str, Any] = field(default_factory=dict)
    now: datetime = T0 + timedelta(minutes=10)
    nodes: dict[str, float | None] = field(
        default_factory=lambda: {"n1": 0.9, "n2": 0.2, "n3": None, "n4": 0.2}
    )
    seconds: float = 0.0
    open_ledger: Callable[["ApiWorld"], Any] = lambda world: SqliteLedger(
        world.settings.ledger_path
    )

    def __post_init__(self) -> None:
        self.settings = Settings.model_validate(
            {
                "site": "lab", "inputs": self.folder / "inputs.yaml",
                "data_root": self.folder / "data", "start": T0 - 24 * HOUR,
                "horizons_h": (24, 1), "api": self.api,
            }
        )  # fmt: skip
        self.place({"n1": "r1", "n2": "r1", "n3": "r2"})

    def place(self, racks: Mapping[str, str]) -> None:
        """Stores where nodes stand."""
        rows = [{"node": node, "level": "rack", "place": rack} for node, rack in racks.items()]
        frame = pl.DataFrame(rows, schema_overrides=CORE_TOPOLOGY.schema)
        TableStore(self.settings.store_root).write(
            CORE_TOPOLOGY,
            CORE_TOPOLOGY.conform(
                frame.with_columns(valid_from=None, valid_to=None).cast(CORE_TOPOLOGY.schema)
            ),
        )

    def publish(self, hour: int = 0, *, horizons: tuple[int, ...] = (24, 1)) -> None:
        """Publishes a tick: two GPUs on every node, the first as bad as the node."""
        as_of = T0 + hour * HOUR
        gpus = {}
        for name, score in self.nodes.items():
            gpus |= {f"{name}-g0": score, f"{name}-g1": None if score is None else score / 2}
        publish_scores(
            self.settings.scores_dir,
            gpu_scores=score_rows("gpu", as_of, gpus, horizons),
            node_scores=score_rows("node", as_of, self.nodes, horizons),
            published_at=as_of + timedelta(minutes=5),
            ttl=2 * HOUR,
        )

    def build(self, *, access: Access | None = None) -> tuple[Sources, FastAPI]:
        """Sources and application; new ticks are read where they are asked for."""
        fleet = FleetView(self.settings, clock=lambda: self.seconds, run=_at_once)
        sources = open_sources(self.settings, fleet=fleet, now=lambda: self.now)
        return sources, build_application(sources, access or open_access(self.settings))

    def client(self, *, peer: str = "127.0.0.1", host: str = "127.0.0.1:8080") -> "Client":
        """A client at an address."""
        _, app = self.build()
        return Client(app, peer, host)

    def ledger(self) -> Any:
        """The hook's ledger, to write."""
        return self.open_ledger(self)

    def decide(self, node: str = "n1", decision_id: str = "0123456789abcdef") -> None:
        """Has the hook decide about a node, and drain it."""
        body = {
            "wanted": "drain", "action": "drain", "boot_id": f"boot-{node}", "score": 0.9,
            "status": "ok", "horizon_h": 24, "fault_type": "nvlink", "model_version": "m/24",
            "as_of": T0.isoformat(), "expires_at": (T0 + 2 * HOUR).isoformat(),
            "cost_of_acting": 1.0, "cost_of_waiting": 9.0, "jobs": ["<b>42</b>"],
            "sentence": f"drain {node}", "verdicts": [["rate", False, "too many", "recommend"]],
        }  # fmt: skip
        about = {"actuator": "slurm", "node": node, "decision_id": decision_id}
        with self.ledger() as ledger:
            ledger.append(NewEntry(
                key=f"decision:{decision_id}", kind="decision", recorded_at=self.now, body=body,
                **about,
            ))  # fmt: skip
            ledger.append(NewEntry(
                key=f"intent:{decision_id}", kind="intent", recorded_at=self.now, body=body, **about
            ))  # fmt: skip
            ledger.append(NewEntry(
                key=f"result:{decision_id}", kind="result", recorded_at=self.now,
                refers_to=f"intent:{decision_id}", body={"status": "done", "detail": ""}, **about,
            ))  # fmt: skip


def _at_once(work: Callable[[], None]) -> None:
    work()


@dataclass(frozen=True)
class Client:
    """Sees what a real client would see, errors included."""

    app: FastAPI
    peer: str = "127.0.0.1"
    host: str = "127.0.0.1:8080"

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.send("GET", path, **more)

    def post(self, path: str, **more: Any) -> httpx.Response:
        return self.send("POST", path, **more)

    def send(self, method: str, path: str, **more: Any) -> httpx.Response:
        async def once() -> httpx.Response:
            near = httpx.ASGITransport(
                self.app, client=(self.peer, 5000), raise_app_exceptions=False
            )
            async with httpx.AsyncClient(transport=near, base_url=f"http://{self.host}") as client:
                return await client.request(method, path, **more)

        return asyncio.run(once())


def with_tokens(folder: Path, *, inbox: bool = False) -> dict[str, Any]:
    """Settings of an API with one token of each role, and an inbox."""
    folder.mkdir(parents=True, exist_ok=True)
    tokens = {}
    for name, role, text in (("grafana", "read", READ), ("ada", "operator", OPERATOR)):
        path = folder / f"{name}.token"
        path.write_text(text + "\n")
        tokens[name] = {"file": path, "role": role}
    made: dict[str, Any] = {"tokens": tokens}
    if inbox:
        key = folder / "inbox.key"
        key.write_text(KEY)
        key.chmod(0o600)
        prepare_inbox(folder / "inbox")
        made["inbox"] = {"folder": folder / "inbox", "key_id": "api", "key": {"file": key}}
    return made


def bearer(token: str) -> dict[str, str]:
    """The header of a token."""
    return {"authorization": f"Bearer {token}"}
