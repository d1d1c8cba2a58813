"""A small site with the board in front of it; built on the API's."""

import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import polars as pl
from fastapi import FastAPI

from features.contracts import TableContract
from models.policies.warnings import WarningPolicy
from pipelines.api.access import open_access
from pipelines.api.fleet_view import FleetView
from pipelines.api.sources import open_sources
from pipelines.board.serve import build_board
from pipelines.flow.publish import publish_scores
from pipelines.storage.store import Span, TableStore
from remediation.ledger.entries import NewEntry
from tests.pipelines.api.api_world import (
    HOUR,
    OPERATOR,
    T0,
    ApiWorld,
    Client,
    score_rows,
    with_tokens,
)

CSRF = re.compile(r'name="csrf" value="([^"]+)"')
THRESHOLD = 0.5


@dataclass
class BoardWorld(ApiWorld):
    """The site; `reasons` are those of every score."""

    reasons: list[str] = field(default_factory=lambda: ["hot"])

    def publish(self, hour: int = 0, *, horizons: tuple[int, ...] = (24, 1)) -> None:
        """Publishes a tick with alert thresholds; the first GPU of a node is as bad as the node."""
        as_of = T0 + hour * HOUR
        gpus = {f"{name}-g0": score for name, score in self.nodes.items()}
        reasons = pl.lit(self.reasons, dtype=pl.List(pl.String))
        rows = [
            score_rows(kind, as_of, scores, horizons).with_columns(reasons=reasons)
            for kind, scores in (("gpu", gpus), ("node", self.nodes))
        ]
        policy = WarningPolicy(threshold=THRESHOLD, n=1, k=1, tick=HOUR, cooldown=24 * HOUR)
        publish_scores(
            self.settings.scores_dir,
            gpu_scores=rows[0],
            node_scores=rows[1],
            published_at=as_of + timedelta(minutes=5),
            ttl=2 * HOUR,
            policies=dict.fromkeys(horizons, policy),
        )

    def browser(self, *, peer: str = "127.0.0.1") -> "Browser":
        """A browser at the board."""
        fleet = FleetView(self.settings, clock=lambda: self.seconds, run=lambda work: work())
        sources = open_sources(self.settings, fleet=fleet, now=lambda: self.now)
        app = build_board(sources, open_access(self.settings), clock=lambda: self.seconds)
        return Browser(app, peer)

    def store(self, contract: TableContract, rows: list[dict[str, Any]]) -> None:
        """Stores rows of a core table; columns that are not given are null."""
        frame = pl.DataFrame(
            [dict.fromkeys(contract.schema) | row for row in rows], schema=contract.schema
        )
        span = None
        if contract.time_column is not None:
            span = Span(T0 - 24 * HOUR, T0 + 24 * HOUR)
        TableStore(self.settings.store_root).write(contract, contract.conform(frame), span=span)

    def decide_on(
        self,
        node: str,
        *,
        wanted: str = "drain_after_jobs",
        stops: list[tuple[str, str]] | None = None,
        as_of: datetime = T0,
        decision_id: str = "0123456789abcdef",
    ) -> None:
        """Has the hook decide about a node, and act on it where no guard says no."""
        verdicts = [["kill_switch", True, "not set", wanted]]
        verdicts += [[guard, False, reason, "watch"] for guard, reason in stops or ()]
        body = {
            "wanted": wanted, "action": "watch" if stops else wanted, "boot_id": f"boot-{node}",
            "score": 0.9, "status": "ok", "horizon_h": 24, "fault_type": "nvlink",
            "model_version": "m/24", "as_of": as_of.isoformat(),
            "expires_at": (as_of + 2 * HOUR).isoformat(), "cost_of_acting": 1.0,
            "cost_of_waiting": 9.0, "jobs": [], "sentence": f"Drain {node}: it pays.",
            "verdicts": verdicts,
        }  # fmt: skip
        about: dict[str, Any] = {"actuator": "slurm", "node": node, "recorded_at": self.now}
        about["decision_id"] = decision_id
        with self.ledger() as ledger:
            ledger.append(NewEntry(key=f"d:{decision_id}", kind="decision", body=body, **about))
            if stops:
                return
            ledger.append(NewEntry(key=f"i:{decision_id}", kind="intent", body=body, **about))
            done = {"status": "done", "detail": ""}
            refers_to = f"i:{decision_id}"
            ledger.append(
                NewEntry(
                    key=f"r:{decision_id}", kind="result", refers_to=refers_to, body=done, **about
                )
            )


class Browser:
    """Keeps cookies and sends forms, as a browser does."""

    def __init__(self, app: FastAPI, peer: str = "127.0.0.1") -> None:
        self.client = Client(app, peer)
        self.cookies: dict[str, str] = {}

    def get(self, path: str, headers: dict[str, str] | None = None) -> httpx.Response:
        return self._kept(self.client.get(path, headers=self._headers(headers)))

    def post(
        self, path: str, form: dict[str, str], headers: dict[str, str] | None = None
    ) -> httpx.Response:
        return self._kept(self.client.post(path, data=form, headers=self._headers(headers)))

    def log_in(self, token: str = OPERATOR, back: str = "/") -> httpx.Response:
        return self.post("/login", {"token": token, "next": back})

    def csrf(self, path: str = "/login") -> str:
        found = CSRF.search(self.get(path).text)
        assert found is not None
        return found[1]

    def _headers(self, more: dict[str, str] | None) -> dict[str, str]:
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        return ({"cookie": cookies} if cookies else {}) | (more or {})

    def _kept(self, answer: httpx.Response) -> httpx.Response:
        for name, value in answer.cookies.items():
            self.cookies[name] = value
        for line in answer.headers.get_list("set-cookie"):
            if "Max-Age=0" in line:
                self.cookies.pop(line.partition("=")[0], None)
        return answer


def site_with_inbox(folder: Path) -> BoardWorld:
    """A site with a token of each role and an inbox."""
    return BoardWorld(folder, api=with_tokens(folder / "secret", inbox=True))
