"""One flow, wherever its parts are kept: inputs to drain plan, with equal tables at the end.

The servers are real: PostgreSQL, an S3 object store, processes of Dask.
"""

import itertools
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import dagster as dg
import polars as pl
import pytest
import sqlalchemy as sa

from features.contracts import TableContract
from features.tables import (
    CORE_GPU_TELEMETRY,
    CORE_HEALTH_EVENTS,
    CORE_INCIDENTS,
    CORE_INVENTORY,
    CORE_JOBS,
    GPU_MATRIX,
    GPU_SCORES,
    LABELS,
    NODE_SCORES,
)
from models.registry.model_registry import CANDIDATE
from models.registry.registered import RegistryError
from pipelines.end_to_end.backfill import run_backfill
from pipelines.flow.publish import LATEST
from pipelines.flow.remediate import stored_cluster
from pipelines.flow.steps import registered_name, registry_of
from pipelines.orchestration.dagster_home import dagster_yaml
from pipelines.serving.place import score_engine
from pipelines.serving.score_loop import scorer_of
from pipelines.settings import Settings
from pipelines.storage import bucket_owner
from pipelines.storage.bucket_owner import BucketOwnerError, take_over_tables
from pipelines.storage.object_store import ObjectStoreError
from pipelines.storage.store import Span, TableStore
from remediation.actuators.dry_run import DryRunActuator
from remediation.hook import run_once
from remediation.score_source import FolderScoreSource
from remediation.site import Site

sys.path.insert(0, str(Path(__file__).parent))

import postgres_server
import seaweed_server
from storage_variants import (
    END,
    Variant,
    all_together,
    embedded,
    in_bucket,
    on_postgres,
    on_postgres_by_dask,
)

pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # MLflow and Dagster warn of themselves
]

HOUR: Final = timedelta(hours=1)
START: Final = datetime(2026, 1, 5, tzinfo=UTC)
NOW: Final = datetime.fromisoformat(END) + timedelta(minutes=2)
TABLES: Final = (
    *(CORE_GPU_TELEMETRY, CORE_HEALTH_EVENTS, CORE_JOBS, CORE_INVENTORY, CORE_INCIDENTS),
    *(GPU_MATRIX, LABELS, GPU_SCORES, NODE_SCORES),
)

Opens = Callable[[Path, Any], AbstractContextManager[Variant]]
VARIANTS: Final[dict[str, tuple[Opens, list[str]]]] = {
    "postgres by dask": (on_postgres_by_dask, ["postgres", "distributed"]),
    "bucket": (in_bucket, ["weed"]),
    "all together": (all_together, ["postgres", "weed", "distributed"]),
}


def absent(part: str) -> str | None:
    """Why a part cannot be tried here."""
    if part == "postgres":
        return postgres_server.ABSENT if postgres_server.PROGRAMS is None else None
    if part == "weed":
        return seaweed_server.ABSENT if seaweed_server.PROGRAM is None else None
    return None if find_spec(part) else f"{part} is not installed"


@dataclass(frozen=True)
class Made:
    """What a run of the flow has made."""

    tables: dict[str, pl.DataFrame] = field(compare=False)
    fingerprint: str
    n_dagster_runs: int
    scores_in_database: list[tuple[Any, ...]]
    plan: list[tuple[Any, ...]]


def run_flow(variant: Variant) -> Made:
    """Inputs, features, a model, a tick, its scores everywhere, and the hook's plan on them."""
    settings = variant.settings()
    home = settings.data_root / "dagster"
    home.mkdir(parents=True, exist_ok=True)
    (home / "dagster.yaml").write_text(dagster_yaml(settings))
    with dg.DagsterInstance.from_config(str(home)) as instance:
        run_backfill(variant.settings_file, now=NOW, instance=instance, say=print)
        n_runs = instance.get_runs_count()
    fingerprint = make_champion(settings)
    (settings.scores_dir / LATEST).unlink()  # the backfill's, so that the tick is due
    scorer = scorer_of(settings, say=lambda _: None)
    scorer.now = lambda: NOW
    report = scorer.once()
    scorer.delivery.close()
    assert report is not None
    assert report.is_published
    return Made(
        tables={one.asset_key: table(settings, one) for one in TABLES},
        fingerprint=fingerprint,
        n_dagster_runs=n_runs,
        scores_in_database=database_rows(settings),
        plan=plan(variant, settings),
    )


def table(settings: Settings, contract: TableContract) -> pl.DataFrame:
    return TableStore(settings.store_root).read(contract)


def make_champion(settings: Settings) -> str:
    """Has a person promote the candidate: of so short a record the gate may refuse it."""
    registry = registry_of(settings)
    candidate = registry.version_of(registered_name(settings, 24), CANDIDATE)
    assert candidate is not None
    registry.promote_by_hand(candidate, by="test", reason="to be scored with", overrules_gate=True)
    return registry.load(candidate).fingerprint


def database_rows(settings: Settings) -> list[tuple[Any, ...]]:
    asked = "SELECT entity_id, horizon_h, score, status FROM node_scores_latest ORDER BY 1, 2"
    engine = score_engine(settings)
    try:
        with engine.connect() as connection:
            return [tuple(row) for row in connection.execute(sa.text(asked))]
    finally:
        engine.dispose()  # a server's connection that is merely forgotten warns as the tests end


def plan(variant: Variant, settings: Settings) -> list[tuple[Any, ...]]:
    cluster = stored_cluster(settings, now=NOW)
    with variant.ledger(settings) as ledger:
        run = run_once(
            scores=FolderScoreSource(settings.scores_dir),
            cluster=cluster,
            actuator=DryRunActuator(cluster),
            ledger=ledger,
            site=Site(),
            clock=lambda: NOW,
        )
        assert ledger.verify().is_whole
    return run.decisions.select("node", "wanted", "action", "sentence").sort("node").rows()


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> Made:
    """What the embedded default makes."""
    with embedded(tmp_path_factory.mktemp("embedded"), None) as variant:
        return run_flow(variant)


@pytest.mark.parametrize("name", VARIANTS)
def test_the_same_flow_makes_the_same_tables_wherever_they_are_kept(
    name, expected, tmp_path, monkeypatch
) -> None:
    opens, parts = VARIANTS[name]
    if reasons := [reason for part in parts if (reason := absent(part))]:
        pytest.skip("; ".join(reasons))
    with opens(tmp_path, monkeypatch) as variant:
        made = run_flow(variant)
    for key, frame in expected.tables.items():
        assert made.tables[key].equals(frame), key
    assert made == expected


def hour_of(number: int, *, energy: int) -> pl.DataFrame:
    """An hour of telemetry of ten GPUs."""
    at = START + number * HOUR + timedelta(minutes=30)
    blank = dict.fromkeys(CORE_GPU_TELEMETRY.schema.names())
    rows = [
        blank | {"gpu_uuid": f"g{gpu}", "ts": at, "node": "n", "energy_j": energy}
        for gpu in range(10)
    ]
    return pl.DataFrame(rows, schema=CORE_GPU_TELEMETRY.schema)


def rewrite(store: TableStore, n_hours: int, *, energy: int) -> None:
    for number in range(n_hours):
        span = Span(START + number * HOUR, START + (number + 1) * HOUR)
        store.write(CORE_GPU_TELEMETRY, hour_of(number, energy=energy), span=span)
        store.write(GPU_SCORES, GPU_SCORES.empty(), span=span, generation=energy)


def rewrite_on_and_on(store: TableStore) -> None:
    for energy in itertools.count(2):
        rewrite(store, 5, energy=energy)


def test_an_object_store_killed_amid_writes_leaves_whole_hours_and_the_next_run_heals(
    tmp_path, monkeypatch
) -> None:
    if reason := absent("weed"):
        pytest.skip(reason)
    with in_bucket(tmp_path, monkeypatch) as variant:
        store = TableStore(variant.settings().store_root)
        rewrite(store, 5, energy=1)
        killer = threading.Timer(0.3, variant.seaweed.kill)
        killer.start()
        with pytest.raises(ObjectStoreError, match=r"127\.0\.0\.1.*Check storage\.object_store"):
            rewrite_on_and_on(store)
        killer.join()
        with pytest.raises(ObjectStoreError):  # neither empty nor "nothing is stored"
            store.read(CORE_GPU_TELEMETRY)
        with pytest.raises(ObjectStoreError):
            store.covered_until(GPU_SCORES)
        variant.seaweed.start()
        hours = store.read(CORE_GPU_TELEMETRY).group_by(pl.col("ts").dt.truncate("1h"))
        seen = hours.agg(pl.len(), pl.col("energy_j").n_unique())
        assert seen.height == 5
        assert set(seen["len"]) == {10}
        assert set(seen["energy_j"]) == {1}
        assert len(store.generations(GPU_SCORES)) == 5
        rewrite(store, 5, energy=0)
        assert set(store.read(CORE_GPU_TELEMETRY)["energy_j"]) == {0}
        assert set(store.generations(GPU_SCORES).values()) == {0}


def test_a_second_installation_cannot_write_to_a_prefix_before_it_takes_over(
    tmp_path, monkeypatch
) -> None:
    if reason := absent("weed"):
        pytest.skip(reason)
    monkeypatch.setattr(bucket_owner, "_TRUSTED_S", 0.0)
    with in_bucket(tmp_path / "first", monkeypatch) as variant:
        places = [variant.settings().store_root]
        for name in ("second", "third"):
            installation = replace(variant, folder=tmp_path / name)
            places.append(installation.settings().store_root)
        with ThreadPoolExecutor(2) as pool:  # of two that find it free
            tries = [pool.submit(rewrite, TableStore(one), 1, energy=1) for one in places[:2]]
        refused = [isinstance(one.exception(), BucketOwnerError) for one in tries]
        assert sorted(refused) == [False, True]
        owner, other, third = places[refused.index(False)], places[refused.index(True)], places[2]
        host = owner.bucket.us().host
        for one in (other, third):
            with pytest.raises(BucketOwnerError, match=f"take-over --from {host}"):
                rewrite(TableStore(one), 1, energy=2)
            assert set(TableStore(one).read(CORE_GPU_TELEMETRY)["energy_j"]) == {1}
        take_over_tables(third, former=host)
        rewrite(TableStore(third), 1, energy=2)
        with pytest.raises(BucketOwnerError):
            rewrite(TableStore(owner), 1, energy=3)


def test_a_database_of_models_and_runs_that_dies_is_named_and_used_again_once_it_is_back(
    tmp_path, monkeypatch
) -> None:
    if reason := absent("postgres"):
        pytest.skip(reason)
    with on_postgres(tmp_path, monkeypatch) as variant:
        settings = variant.settings()
        (tmp_path / "dagster.yaml").write_text(dagster_yaml(settings))
        registry = registry_of(settings)
        assert registry.names() == ()
        with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
            assert instance.get_runs_count() == 0
            variant.postgres.kill()
            with pytest.raises(RegistryError, match=r"/models.*cannot be read.*storage\.mlflow"):
                registry.names()
            with pytest.raises(RegistryError, match="Check that it runs"):
                registry_of(settings).names()
            variant.postgres.start()
            assert registry.names() == ()
            assert instance.get_runs_count() == 0
