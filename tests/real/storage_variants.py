"""The places an installation can keep what it makes, as settings; real servers behind them.

The flow that is run on each is in `test_storage_paths`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from postgres_server import PostgresServer
from seaweed_server import ACCESS_KEY, SECRET_KEY, SeaweedServer

from pipelines.end_to_end.demo import SAMPLES
from pipelines.settings import Settings, load_settings
from remediation.ledger.entries import Ledger
from remediation.ledger.postgres import PostgresLedger
from remediation.ledger.sqlite import SqliteLedger

START, TRAIN_UNTIL, VALID_UNTIL, END = (f"2026-01-{day}T00:00:00Z" for day in ("06", 21, 26, 31))


@dataclass
class Variant:
    """An installation of the sample fleet, and the servers that it stands on.

    Attributes:
        folder: Its settings and what stays on the machine.
        more: Settings beside those that all share.
        ledger: Opens the hook's ledger.
        postgres: The server, if it stands on one.
        seaweed: The object store, if it stands on one.
    """

    folder: Path
    more: dict[str, Any] = field(default_factory=dict)
    ledger: Callable[[Settings], Any] = lambda settings: SqliteLedger(settings.ledger_path)
    postgres: PostgresServer | None = None
    seaweed: SeaweedServer | None = None

    @property
    def settings_file(self) -> Path:
        return self.folder / "forewarn.yaml"

    def settings(self) -> Settings:
        self.folder.mkdir(parents=True, exist_ok=True)
        shared = {
            "site": "storage",
            "inputs": str(SAMPLES / "inputs.yaml"),
            "data_root": "data",
            "start": START,
            "end": END,
            "split": {"train_until": TRAIN_UNTIL, "valid_until": VALID_UNTIL},
            "horizons_h": [24],
            "trained_on": "synthetic",
            "alert_budget_per_1000_node_days": 150.0,
            "switch_level": "leaf_switch",
            "data_partition": "day",
            "node_states_hold_only_trouble": True,
            "training": {"rounds": 60},
        }
        self.settings_file.write_text(yaml.safe_dump(shared | self.more, sort_keys=False))
        return load_settings(self.settings_file)


@contextmanager
def embedded(folder: Path, monkeypatch: Any) -> Iterator[Variant]:
    yield Variant(folder)


@contextmanager
def on_postgres(folder: Path, monkeypatch: Any) -> Iterator[Variant]:
    with PostgresServer() as server:
        yield Variant(folder, _postgres(server), _ledger(server), postgres=server)


@contextmanager
def in_bucket(folder: Path, monkeypatch: Any) -> Iterator[Variant]:
    with SeaweedServer() as server:
        yield Variant(folder, {"storage": _bucket(server, monkeypatch)}, seaweed=server)


@contextmanager
def on_postgres_by_dask(folder: Path, monkeypatch: Any) -> Iterator[Variant]:
    with on_postgres(folder, monkeypatch) as variant:
        variant.more["scale_out"] = {"workers": 2}
        yield variant


@contextmanager
def all_together(folder: Path, monkeypatch: Any) -> Iterator[Variant]:
    with PostgresServer() as postgres, SeaweedServer() as seaweed:
        more = _postgres(postgres)
        more["storage"] |= _bucket(seaweed, monkeypatch)
        more["scale_out"] = {"workers": 2}
        yield Variant(folder, more, _ledger(postgres), postgres=postgres, seaweed=seaweed)


def _bucket(server: SeaweedServer, monkeypatch: Any) -> dict[str, Any]:
    server.make_bucket("fleet")
    monkeypatch.setenv("FLEET_ACCESS_KEY", ACCESS_KEY)
    monkeypatch.setenv("FLEET_SECRET_KEY", SECRET_KEY)
    return {
        "tables": "s3://fleet/lab/tables",
        "artifacts": "s3://fleet/lab/models",
        "object_store": {
            "endpoint": server.url,
            "access_key": {"variable": "FLEET_ACCESS_KEY"},
            "secret_key": {"variable": "FLEET_SECRET_KEY"},
            "timeout_s": 10,
            "attempts": 2,
        },
    }


def _postgres(server: PostgresServer) -> dict[str, Any]:
    for name in ("models", "dagster", "scores", "ledger"):
        server.database(name)
    at = f"host={server.folder}"
    return {
        "storage": {
            "mlflow": {"url": f"postgresql+psycopg://forewarn@/models?{at}"},
            "dagster": {"url": f"postgresql://forewarn@/dagster?{at}"},
        },
        "score_database": {"url": f"postgresql+psycopg://forewarn@/scores?{at}"},
    }


def _ledger(server: PostgresServer) -> Callable[[Settings], Ledger]:
    return lambda _: PostgresLedger(f"host={server.folder} user=forewarn dbname=ledger")
