"""Rules of scaled-out runs: the same rows as in one process, whoever computes what, and after what.

Fast tests use a thread of this process as the only worker; the slow ones start and kill processes.
"""

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import polars as pl
import pytest
from distributed import Client
from distributed.comm.core import CommClosedError

from features.catalogue import FaultCatalogue
from features.contracts import TableContract
from features.core_tables import CoreTables
from features.errors import DataError, SettingsError
from features.grid import as_of_times, watched_grid
from features.matrix import MatrixSpec, build_gpu_matrix, matrix_features
from features.tables import (
    CORE_GPU_TELEMETRY,
    CORE_HEALTH_EVENTS,
    CORE_INCIDENTS,
    CORE_INVENTORY,
    CORE_JOBS,
    CORE_TOPOLOGY,
    GPU_MATRIX,
    GPU_SCORES,
    NODE_SCORES,
)
from models.bundle import ModelBundle
from models.node_scores import NodeCombination
from models.prior import fit_prior
from models.reasons import usual_values
from models.scoring import ScoreLimits, ServedModel, score_gpus, score_nodes
from models.specs import Task, TrainSpec
from models.training.boosters import train
from pipelines.flow import scale_out, scale_work
from pipelines.flow.steps import gpu_matrix_of, score_matrix
from pipelines.settings import Settings
from pipelines.storage.store import Span, TableStore

T0 = datetime(2026, 1, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)
NODES = {"f": "n1", "b": "n1", "c": "n1", "d": "n2", "e": "n2", "a": "n3", "g": "n3", "h": "n3"}
"""Shards go by node, so that the order of their GPUs is not that of the names."""
SPAN = Span(T0 + 20 * HOUR, T0 + 28 * HOUR)
"""Hours of two days: each has two or more units."""
TASK = Task(horizon_h=24, lead=timedelta(minutes=30), trained_on="synthetic")
LIMITS = ScoreLimits(sample_age="hours_since_sample", n_explained=3)
SPEC = MatrixSpec(
    catalogue=FaultCatalogue.from_rows(
        [
            {
                "kind": "xid",
                "code": "79",
                "role": "primary",
                "fault_type": "off_bus",
                "group": "off_bus",
                "pattern": "",
                "note": "",
            }
        ],
        version="t",
    )
)


def fill(contract: TableContract, *rows: dict[str, Any]) -> pl.DataFrame:
    names = contract.schema.names()
    return pl.DataFrame([dict.fromkeys(names) | row for row in rows], schema=contract.schema)


def telemetry() -> pl.DataFrame:
    """Twenty minutes apart; h has never been seen."""
    rng = np.random.default_rng(3)
    rows = [
        {
            "gpu_uuid": gpu,
            "ts": T0 + step * HOUR / 3,
            "node": NODES[gpu],
            "gpu_temp_c": float(rng.integers(30, 80)),
            "power_w": None if rng.random() < 0.1 else float(rng.integers(90, 700)),
            "sm_clock_mhz": float(rng.integers(1000, 1900)),
            "ecc_sbe_volatile": int(rng.integers(0, 9)),
        }
        for gpu in "abcdefg"
        for step in range(3 * 28)
        if rng.random() < 0.9
    ]
    return fill(CORE_GPU_TELEMETRY, *rows)


def core_tables() -> CoreTables:
    """b moves from n1 to n2 in the middle of the span, so that its neighbours are elsewhere."""
    stays = [{"gpu_uuid": gpu, "node": node, "valid_from": T0} for gpu, node in NODES.items()]
    stays[1]["valid_to"] = T0 + 23 * HOUR
    stays.append({"gpu_uuid": "b", "node": "n2", "valid_from": T0 + 23 * HOUR})
    stays[2]["valid_from"] = None
    event = {"event_id": "1", "ts": T0 + 21 * HOUR, "node": "n2", "kind": "xid", "code": 79}
    return CoreTables(
        inventory=fill(CORE_INVENTORY, *stays),
        topology=fill(
            CORE_TOPOLOGY,
            *(
                {"node": node, "level": "rack", "group": "r1" if node == "n1" else "r2"}
                for node in ("n1", "n2", "n3")
            ),
        ),
        incidents=fill(
            CORE_INCIDENTS,
            {
                "incident_id": "i",
                "entity_kind": "gpu",
                "entity_id": "d",
                "node": "n2",
                "start": T0 + 3 * HOUR,
                "fault_type": "off_bus",
            },
        ),
        health_events=fill(CORE_HEALTH_EVENTS, event | {"gpu_uuid": "e", "count": 1}),
        jobs=fill(
            CORE_JOBS,
            {"job_id": "j", "attempt": 0, "nodes": ["n1"], "start": T0, "end_state": "RUNNING"},
        ),
    )


def installation(folder: Path, **scale: Any) -> Settings:
    """Settings over a store that has the telemetry."""
    where = Settings.model_validate(
        {
            "site": "lab",
            "inputs": folder / "inputs.yaml",
            "data_root": folder / "data",
            "start": T0,
            "scale_out": scale,
        }
    )
    TableStore(where.store_root).write(
        CORE_GPU_TELEMETRY, telemetry(), span=Span(T0, SPAN.end), generation=1
    )
    return where


def in_one_process(where: Settings, root: Path, tables: CoreTables) -> TableStore:
    """The oracle: the whole span at once, written by the store."""
    as_ofs = as_of_times(SPAN.start + HOUR, SPAN.end + HOUR, every=HOUR)
    grid = watched_grid(tables.inventory, as_ofs, unknown_start="watched")
    samples = TableStore(where.store_root).telemetry
    oracle = TableStore(root)
    oracle.write(GPU_MATRIX, build_gpu_matrix(tables, grid, spec=SPEC, samples=samples), span=SPAN)
    return oracle


def files_of(store: TableStore, contract: TableContract) -> dict[str, pl.DataFrame]:
    return {path.name: pl.read_parquet(path) for path in store.files(contract)}


def check_same(where: Settings, oracle: TableStore, contract: TableContract = GPU_MATRIX) -> None:
    ours, theirs = (files_of(one, contract) for one in (TableStore(where.store_root), oracle))
    assert list(ours) == list(theirs)
    assert len(ours) == 8
    for name, frame in theirs.items():
        assert not frame.is_empty()
        assert ours[name].equals(frame), name


def left_over(where: Settings) -> list[Path]:
    return [path for path in where.spool_dir.rglob("*") if path.is_file() and path.name[0] != "."]


@pytest.fixture(scope="module")
def thread() -> Iterator[Client]:
    with Client(
        processes=False, n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0"
    ) as one:
        yield one


def fail(thread: Client, tables: CoreTables, where: Settings, *, match: str) -> None:
    """A run that fails; what its worker had begun has ended then, too."""
    with pytest.raises(DataError, match=match):
        scale_out.write_matrix(tables, where, span=SPAN, spec=SPEC)
    thread.submit(int, pure=False).result()


@pytest.fixture
def by_thread(thread: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run is computed by a thread of this process, three GPUs per unit."""

    @contextmanager
    def connected(settings: object) -> Iterator[Client]:
        yield thread

    monkeypatch.setattr(scale_out, "connected", connected)
    monkeypatch.setattr(scale_work, "SHARD_SIZE", 3)


@pytest.mark.usefixtures("by_thread")
def test_parts_make_the_matrix_of_one_process_and_leave_nothing(tmp_path: Path) -> None:
    where, tables = installation(tmp_path, workers=1), core_tables()
    scale_out.write_matrix(tables, where, span=SPAN, spec=SPEC)
    check_same(where, in_one_process(where, tmp_path / "oracle", tables))
    assert left_over(where) == []


@pytest.mark.usefixtures("by_thread")
def test_the_order_of_days_and_shards_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, tables = installation(tmp_path, workers=1), core_tables()
    ordered = scale_out._units

    def shuffled(*args: Any, **more: Any) -> Iterator[Any]:
        units = list(ordered(*args, **more))
        yield from (units[place] for place in (4, 1, 3, 5, 0, 2))

    monkeypatch.setattr(scale_out, "_units", shuffled)
    scale_out.write_matrix(tables, where, span=SPAN, spec=SPEC)
    check_same(where, in_one_process(where, tmp_path / "oracle", tables))


def counted(monkeypatch: pytest.MonkeyPatch, *, stop_after: int | None = None) -> list[Path]:
    """Counts computed units; the one after `stop_after` fails."""
    done: list[Path] = []
    compute = scale_work.MatrixWork.compute

    def wrapped(self: Any, unit: Any) -> pl.DataFrame:
        if len(done) == stop_after:
            raise DataError("the worker stumbles")
        done.append(unit.path)
        return compute(self, unit)

    monkeypatch.setattr(scale_work.MatrixWork, "compute", wrapped)
    return done


@pytest.mark.slow
@pytest.mark.usefixtures("by_thread")
@pytest.mark.parametrize("stop_after", [0, 2, 3, 5])
def test_a_run_goes_on_where_another_has_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thread: Client, stop_after: int
) -> None:
    where, tables = installation(tmp_path, workers=1), core_tables()
    with monkeypatch.context() as patch:
        first = counted(patch, stop_after=stop_after)
        fail(thread, tables, where, match="stumbles")
    # Hours are stored whole or not at all: a day's first unit alone stores none.
    assert len(files_of(TableStore(where.store_root), GPU_MATRIX)) == (4 if stop_after > 2 else 0)
    second = counted(monkeypatch)
    scale_out.write_matrix(tables, where, span=SPAN, spec=SPEC)
    assert sorted(first + second) == sorted({*first, *second})
    assert len(first + second) == 6
    check_same(where, in_one_process(where, tmp_path / "oracle", tables))
    assert left_over(where) == []


def change_telemetry(where: Settings, tables: CoreTables) -> CoreTables:
    hour = Span(T0 + 19 * HOUR, T0 + 20 * HOUR)
    frame = fill(
        CORE_GPU_TELEMETRY,
        {"gpu_uuid": "f", "ts": hour.start, "node": "n1", "gpu_temp_c": 99.0},
    )
    TableStore(where.store_root).write(CORE_GPU_TELEMETRY, frame, span=hour, generation=2)
    return tables


def change_incidents(where: Settings, tables: CoreTables) -> CoreTables:
    return replace(tables, incidents=tables.incidents.clear())


def change_stored_hour(where: Settings, tables: CoreTables) -> CoreTables:
    store = TableStore(where.store_root)
    hour = Span(SPAN.start, SPAN.start + HOUR)
    store.write(GPU_MATRIX, store.read(GPU_MATRIX, span=hour).head(1), span=hour)
    return tables


@pytest.mark.slow
@pytest.mark.usefixtures("by_thread")
@pytest.mark.parametrize("change", [change_telemetry, change_incidents, change_stored_hour])
def test_what_rests_on_changed_inputs_is_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thread: Client, change: Any
) -> None:
    where, tables = installation(tmp_path, workers=1), core_tables()
    with monkeypatch.context() as patch:
        counted(patch, stop_after=4)
        fail(thread, tables, where, match="stumbles")
    tables = change(where, tables)
    done = counted(monkeypatch)
    scale_out.write_matrix(tables, where, span=SPAN, spec=SPEC)
    assert len(done) == (5 if change is change_stored_hour else 6)
    check_same(where, in_one_process(where, tmp_path / "oracle", tables))


@pytest.mark.usefixtures("by_thread")
def test_a_part_is_never_kept_whose_inputs_changed_while_it_was_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thread: Client
) -> None:
    where, tables = installation(tmp_path, workers=1), core_tables()
    compute = scale_work.MatrixWork.compute

    def disturbed(self: Any, unit: Any) -> pl.DataFrame:
        change_telemetry(where, tables)
        return compute(self, unit)

    monkeypatch.setattr(scale_work.MatrixWork, "compute", disturbed)
    fail(thread, tables, where, match="changed while it was computed")
    assert not [path for path in left_over(where) if path.parent.name.startswith("2026")]
    assert files_of(TableStore(where.store_root), GPU_MATRIX) == {}


def test_a_worker_with_other_code_computes_nothing(tmp_path: Path) -> None:
    where = installation(tmp_path)
    tables = scale_work.keep_tables(core_tables(), where.spool_dir)
    work = scale_work.MatrixWork(store_root=where.store_root, tables=tables, spec=SPEC)
    unit = scale_work.units_of(work, SPAN, folder=tmp_path)[0]
    with pytest.raises(DataError, match=r"start the\s+workers anew"):
        scale_work.compute_part(work, unit, code="other")
    assert not unit.path.exists()


@pytest.mark.usefixtures("by_thread")
def test_a_site_without_gpus_gets_empty_hours(tmp_path: Path) -> None:
    where, tables = installation(tmp_path, workers=1), core_tables()
    tables = replace(tables, inventory=tables.inventory.clear())
    scale_out.write_matrix(tables, where, span=SPAN, spec=SPEC)
    stored = files_of(TableStore(where.store_root), GPU_MATRIX)
    assert [frame.height for frame in stored.values()] == [0] * 8


def model_on(matrix: pl.DataFrame) -> ModelBundle:
    """A model of three features of the matrix, trained on made-up labels."""
    rng = np.random.default_rng(1)
    names = ("gpu_temp_c_max_1h", "power_w_mean_6h", "ecc_sbe_volatile_increase_24h")
    rows = pl.concat([matrix] * 20).with_columns(
        label=pl.Series(rng.random(20 * matrix.height) < 0.2).cast(pl.Int8),
        censored_by=pl.lit(None, pl.String),
    )
    number = pl.int_range(pl.len()).cast(pl.String)
    rows = rows.with_columns(
        incident_id=pl.when(pl.col("label") == 1).then("i" + number),
        as_of=pl.col("as_of") + pl.duration(hours=pl.int_range(pl.len())),
    )
    spec = TrainSpec(num_leaves=4, rounds=5, min_data_in_leaf=5, min_incidents=10)
    known = {one.name: one for one in matrix_features(SPEC, core_tables().topology)}
    return ModelBundle(
        model=train(rows, feature_names=names, task=TASK, spec=spec).calibrated_on(rows),
        features=tuple(known[name] for name in names),
        usual=usual_values(rows, names),
        nodes=NodeCombination(host_probability=0.001),
    )


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> ModelBundle:
    folder = tmp_path_factory.mktemp("bundle")
    oracle = in_one_process(installation(folder), folder / "oracle", core_tables())
    return model_on(oracle.read(GPU_MATRIX))


def served_by(bundle: ModelBundle) -> list[ServedModel]:
    task = replace(TASK, horizon_h=1)
    prior = fit_prior(pl.DataFrame(), n_incidents=0, tick=HOUR, task=task)
    return [
        ServedModel(version="gpu-failure-24h/1", model=bundle),
        ServedModel(version="gpu-failure-1h/prior", model=prior),
    ]


def check_scores(where: Settings, served: list[ServedModel]) -> None:
    """Against the whole matrix scored at once."""
    store = TableStore(where.store_root)
    gpus = score_gpus(store.read(GPU_MATRIX, span=SPAN), served, limits=LIMITS)
    nodes = score_nodes(gpus, served, limits=LIMITS)
    for contract, expected in ((GPU_SCORES, gpus), (NODE_SCORES, nodes)):
        found = store.read(contract, span=SPAN)
        assert found.equals(contract.conform(expected).sort(contract.key)), contract.asset_key
        assert found["reasons"].list.len().sum() > 0
    assert set(store.read(GPU_SCORES)["status"]) == {"ok", "prior", "unknown"}
    assert left_over(where) == []


@pytest.mark.usefixtures("by_thread")
def test_parts_make_the_scores_of_one_process(tmp_path: Path, bundle: ModelBundle) -> None:
    where, served = installation(tmp_path, workers=1), served_by(bundle)
    scale_out.write_matrix(core_tables(), where, span=SPAN, spec=SPEC)
    scale_out.write_scores(where, span=SPAN, served=served, limits=LIMITS)
    check_scores(where, served)


@pytest.mark.usefixtures("by_thread")
def test_scores_of_a_span_without_a_matrix_are_an_error(
    tmp_path: Path, bundle: ModelBundle
) -> None:
    where = installation(tmp_path, workers=1)
    with pytest.raises(DataError, match="Materialise it for that time first"):
        scale_out.write_scores(where, span=SPAN, served=served_by(bundle), limits=LIMITS)


@pytest.mark.slow
@pytest.mark.usefixtures("by_thread")
def test_the_flow_gives_the_same_rows_with_and_without_workers(tmp_path: Path) -> None:
    alone, scaled = installation(tmp_path / "alone"), installation(tmp_path / "scaled", workers=1)
    tables, catalogue = core_tables(), SPEC.catalogue
    assert catalogue is not None
    found = {}
    for where in (alone, scaled):
        matrix = gpu_matrix_of(tables, where, catalogue=catalogue, span=SPAN)
        TableStore(where.store_root).write(GPU_MATRIX, matrix, span=SPAN)
        found[where.data_root] = [matrix, *score_matrix(matrix, where, span=SPAN)]
    contracts = (GPU_MATRIX, GPU_SCORES, NODE_SCORES)
    for contract, *frames in zip(contracts, *found.values(), strict=True):
        one, other = (frame.sort(contract.key) for frame in frames)
        assert one.equals(other), contract.asset_key
        assert not one.is_empty()
    assert list(alone.data_root.rglob("spool")) == []
    assert list(scaled.data_root.rglob("spool")) != []


@pytest.mark.parametrize("scheduler", ["head:8786", "tcp://head", "http://head:8786", "tcp://:1"])
def test_an_address_that_is_none_is_refused(tmp_path: Path, scheduler: str) -> None:
    with pytest.raises(ValueError, match=r"scale_out\.scheduler"):
        installation(tmp_path, scheduler=scheduler)


@pytest.mark.parametrize(
    ("slurm", "beside", "match"),
    [
        ({}, {"workers": 1, "scheduler": "tcp://head:8786"}, "leave one of the two out"),
        ({}, {}, "how many jobs"),
        ({"partition": "cpu\n#SBATCH --uid=0"}, {"workers": 1}, "slurm.partition"),
        ({"options": ["--qos=low --uid=0"]}, {"workers": 1}, "slurm.options"),
        ({"time_limit": "an hour"}, {"workers": 1}, "slurm.time_limit"),
    ],
)
def test_jobs_of_slurm_that_make_no_sense_are_refused(
    tmp_path: Path, slurm: dict[str, Any], beside: dict[str, Any], match: str
) -> None:
    with pytest.raises(ValueError, match=match):
        installation(tmp_path, slurm=slurm, **beside)


def test_jobs_where_slurm_is_not_are_one_error_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    where = installation(tmp_path, workers=1, slurm={})
    with pytest.raises(SettingsError, match="no sbatch in PATH"):
        scale_out.write_matrix(core_tables(), where, span=SPAN, spec=SPEC)
    assert not where.slurm_jobs_dir.exists()


def test_a_folder_that_no_job_script_can_name_is_refused(tmp_path: Path) -> None:
    where = installation(tmp_path / "my data", workers=1, slurm={})
    with pytest.raises(SettingsError, match="a blank in its path"):
        scale_out.write_matrix(core_tables(), where, span=SPAN, spec=SPEC)
    assert not where.slurm_jobs_dir.exists()


# Dask leaves a cluster that has not started unclosed.
@pytest.mark.filterwarnings("ignore:unclosed cluster:ResourceWarning")
def test_a_host_where_no_scheduler_can_listen_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sbatch = tmp_path / "sbatch"
    sbatch.write_text("#!/bin/sh\nexit 0\n")
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    where = installation(tmp_path, workers=1, slurm={"host": "no-such-host.invalid"})
    with pytest.raises(SettingsError, match=r"listen at no-such-host.*Set scale_out\.slurm\.host"):
        scale_out.write_matrix(core_tables(), where, span=SPAN, spec=SPEC)
    gc.collect()  # with what this test may leave unclosed
    assert list(where.slurm_jobs_dir.iterdir()) == []


def test_one_hour_or_no_workers_is_not_worth_it(tmp_path: Path) -> None:
    hour = Span(T0, T0 + HOUR)
    off, on = installation(tmp_path), installation(tmp_path, workers=2)
    far = installation(tmp_path, scheduler="tcp://head:8786")
    assert [scale_out.is_worth(where, SPAN) for where in (off, on, far)] == [False, True, True]
    assert not scale_out.is_worth(on, hour)


@pytest.mark.slow
def test_dask_is_not_imported_with_the_definitions() -> None:
    code = (
        "import sys, pipelines.flow.steps, pipelines.definitions, pipelines.flow.scale_out\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('dask', 'distributed')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_scheduler_that_does_not_answer_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scale_out, "_CONNECT_S", 0.5)
    where = installation(tmp_path, scheduler="tcp://127.0.0.1:9")
    with pytest.raises(SettingsError, match="127.0.0.1:9: 1 workers were waited for in vain"):
        scale_out.write_matrix(core_tables(), where, span=SPAN, spec=SPEC)


class LostClient:
    """Its scheduler has gone."""

    def nthreads(self) -> dict[str, int]:
        raise CommClosedError("gone")

    def cancel(self, futures: object) -> None:
        raise CommClosedError("gone")


def test_a_lost_scheduler_is_one_error(tmp_path: Path) -> None:
    where = installation(tmp_path)
    tables = scale_work.keep_tables(core_tables(), where.spool_dir)
    work = scale_work.MatrixWork(store_root=where.store_root, tables=tables, spec=SPEC)
    lost: Any = LostClient()
    with pytest.raises(DataError, match="scheduler was lost: gone"):
        next(scale_out._computed(lost, work, iter(()), patience_s=1))


def test_a_run_stops_when_no_worker_is_left(tmp_path: Path) -> None:
    where = installation(tmp_path)
    tables = scale_work.keep_tables(core_tables(), where.spool_dir)
    work = scale_work.MatrixWork(store_root=where.store_root, tables=tables, spec=SPEC)
    units = scale_work.units_of(work, SPAN, folder=tmp_path)
    none = {"processes": False, "n_workers": 0, "dashboard_address": "127.0.0.1:0"}
    with Client(**none) as idle, pytest.raises(DataError, match="no worker is left"):
        next(scale_out._computed(idle, work, iter(units), patience_s=0.2))


def test_a_part_counts_though_its_worker_is_gone_before_dask_was_asked_what_it_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = installation(tmp_path)
    tables = scale_work.keep_tables(core_tables(), where.spool_dir)
    work = scale_work.MatrixWork(store_root=where.store_root, tables=tables, spec=SPEC)
    units = scale_work.units_of(work, SPAN, folder=tmp_path / "parts")[:1]

    wait = distributed.wait

    def wait_and_lose_all(*args: Any, **more: Any) -> Any:
        found = wait(*args, **more)
        one.cluster.scale(0)
        while one.nthreads():
            time.sleep(0.01)
        return found

    own = {"processes": False, "n_workers": 1, "dashboard_address": "127.0.0.1:0"}
    with Client(threads_per_worker=1, **own) as one:
        monkeypatch.setattr(distributed, "wait", wait_and_lose_all)
        assert list(scale_out._computed(one, work, iter(units), patience_s=60)) == units
    assert units[0].path.exists()


@pytest.mark.slow
def test_three_processes_give_the_bits_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bundle: ModelBundle
) -> None:
    monkeypatch.setattr(scale_work, "SHARD_SIZE", 2)
    where, tables, served = installation(tmp_path, workers=3), core_tables(), served_by(bundle)
    scale_out.write_matrix(tables, where, span=SPAN, spec=SPEC)
    check_same(where, in_one_process(where, tmp_path / "oracle", tables))
    scale_out.write_scores(where, span=SPAN, served=served, limits=LIMITS)
    check_scores(where, served)


@pytest.mark.slow
def test_workers_are_spawned_with_one_thread(tmp_path: Path) -> None:
    with scale_out.connected(installation(tmp_path, workers=1)) as client:
        (threads,) = client.run(lambda: __import__("polars").thread_pool_size()).values()
        (method,) = client.run(
            lambda: "spawn_main" in Path("/proc/self/cmdline").read_text()
        ).values()
    assert threads == 1
    assert method


@pytest.mark.slow
def test_a_worker_killed_in_the_middle_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scale_work, "SHARD_SIZE", 1)
    computed, killed = scale_out._computed, []

    def killing(client: Client, *args: Any, **more: Any) -> Iterator[Any]:
        for unit in computed(client, *args, **more):
            if not killed:
                busy = next(name for name, keys in client.processing().items() if keys)
                killed.append(client.run(os.getpid, workers=[busy])[busy])
                os.kill(killed[0], signal.SIGKILL)
            yield unit

    monkeypatch.setattr(scale_out, "_computed", killing)
    where, tables = installation(tmp_path, workers=2), core_tables()
    scale_out.write_matrix(tables, where, span=SPAN, spec=SPEC)
    assert killed
    check_same(where, in_one_process(where, tmp_path / "oracle", tables))
    assert left_over(where) == []
