"""Long spans by a cluster: a day of a shard is one task of Dask, the store is written hour by hour.

What a task computes is in `pipelines.flow.scale_work`. Nothing here is used, and Dask is not
imported, unless the settings ask for it.

Workers write parts to the spool; this process, which holds one hour of the fleet at a time, stores
them and removes them. After a crash, of a worker or of this process, finished parts are used again
if nothing that they rest on has changed.
"""

import json
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Final

import polars as pl

from features.contracts import TableContract
from features.core_tables import CoreTables
from features.errors import DataError, SettingsError
from features.matrix import MatrixSpec
from features.tables import GPU_MATRIX, GPU_SCORES
from models.scoring import ScoreLimits, ServedModel
from pipelines.flow.scale_slurm import slurm_workers
from pipelines.flow.scale_work import (
    HOUR,
    MatrixWork,
    ScoreWork,
    Unit,
    Work,
    code_version,
    compute_part,
    keep_model,
    keep_tables,
    units_of,
)
from pipelines.sections.scale_out import ONE_THREAD, ScaleOutSettings
from pipelines.settings import Settings
from pipelines.storage.atomic_files import replace_file
from pipelines.storage.object_paths import Place, remove_folders
from pipelines.storage.store import Span, TableStore, scan_files
from pipelines.storage.telemetry.layout import locked

if TYPE_CHECKING:
    from distributed import Client, Future, LocalCluster, SpecCluster

    from pipelines.flow.slurm_jobs import EarlyEnds

LOCAL_DASK: Final = {
    # Started anew, not forked: threads of numba and Polars do not survive a fork.
    "distributed.worker.multiprocessing-method": "spawn",
    # As many workers as cores, each with one thread.
    "distributed.nanny.pre-spawn-environ": ONE_THREAD,
    # Looks at every thread a hundred times a second.
    "distributed.worker.profile.enabled": False,
}
"""Dask's settings for processes on this machine."""

_AHEAD: Final = 2
"""Tasks handed out per worker thread: the next one is there when one ends."""
_CONNECT_S: Final = 30
_LOOK_S: Final = 2.0
_STORED: Final = "stored.json"


@dataclass
class _Day:
    """A day, or a part of it, on its way to the store."""

    span: Span
    folder: Place
    units: Sequence[Unit]
    n_missing: int


def is_worth(settings: Settings, span: Span) -> bool:
    """Whether a span is computed by other processes: they are there, and it is not one hour.

    A single hour is quicker where the hours before it are remembered.
    """
    return settings.scale_out.is_on and span.end - span.start > HOUR


def write_matrix(tables: CoreTables, settings: Settings, *, span: Span, spec: MatrixSpec) -> None:
    """Computes features/gpu_matrix of a span by other processes and stores it.

    Args:
        tables: Core tables but telemetry, as for `build_gpu_matrix`.
        settings: Where the processes are, and where the store is.
        span: Whole hours.
        spec: Which features.

    Raises:
        DataError: Inputs changed meanwhile, or workers died again and again.
        SettingsError: No worker can be reached, or Dask is not installed.
    """
    with _spool(settings, GPU_MATRIX) as spool, connected(settings) as client:
        work = MatrixWork(
            store_root=settings.store_root, tables=keep_tables(tables, spool), spec=spec
        )
        _run(client, work, span, spool=spool, patience_s=settings.scale_out.wait_minutes * 60)


def write_scores(
    settings: Settings, *, span: Span, served: Sequence[ServedModel], limits: ScoreLimits
) -> None:
    """Scores the stored features/gpu_matrix of a span by other processes and stores the scores.

    Args:
        settings: Where the processes are, and where the store is.
        span: Whole hours.
        served: Models, one per horizon.
        limits: When a score is unknown.

    Raises:
        DataError: As `write_matrix`, or no matrix is stored.
        SettingsError: As `write_matrix`.
    """
    with _spool(settings, GPU_SCORES) as spool, connected(settings) as client:
        work = ScoreWork(
            store_root=settings.store_root,
            models=tuple((one.version, keep_model(one.model, spool)) for one in served),
            limits=limits,
            newest=_newest(TableStore(settings.store_root), span),
        )
        _run(client, work, span, spool=spool, patience_s=settings.scale_out.wait_minutes * 60)


@contextmanager
def connected(settings: Settings) -> Iterator["Client"]:
    """A client of the workers that the settings ask for: a scheduler's, Slurm's, this machine's.

    Args:
        settings: Which.

    Raises:
        SettingsError: Dask is not installed, or no scheduler or worker answers.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise SettingsError(
            "scale_out needs Dask, which is not installed. Install forewarn[dask], or leave "
            "scale_out out of the settings."
        ) from error
    wanted = settings.scale_out
    ends: EarlyEnds | None = None
    with ExitStack() as stack:
        scheduler: str | SpecCluster
        if wanted.slurm is not None:
            jobs = settings.slurm_jobs_dir
            where, do = "jobs of Slurm", f"See `squeue --me` and the jobs' output in {jobs}"
            scheduler, ends = stack.enter_context(
                slurm_workers(wanted.slurm, wanted.workers, folder=jobs)
            )
        elif wanted.scheduler is None:
            where, do = "processes on this machine", "See whether the machine is overloaded"
            scheduler = stack.enter_context(_local_cluster(wanted.workers))
        else:
            where, do = wanted.scheduler, "Check that the scheduler and its workers run"
            scheduler = wanted.scheduler
        try:
            client = stack.enter_context(Client(scheduler, timeout=_CONNECT_S))
            _await_workers(client, wanted, ends)
        except OSError as error:
            raise SettingsError(
                f"scale_out: {where}: {wanted.n_awaited} workers were waited for in vain: {error}. "
                f"{do}, set scale_out.wait_minutes if they need longer, then run again."
            ) from error
        try:
            yield client
        except DataError as error:
            if ends is None or not ends.trouble:
                raise
            raise DataError(f"{error} {ends.trouble}.") from error


def _await_workers(client: "Client", wanted: ScaleOutSettings, ends: "EarlyEnds | None") -> None:
    """Waits for the first workers, and no longer than one may still come.

    Raises:
        SettingsError: Every job of Slurm has ended before its worker had connected.
        TimeoutError: They have not come in time.
    """
    until, is_there = monotonic() + wanted.wait_minutes * 60, False
    while not is_there:
        left_s = until - monotonic()
        try:
            client.wait_for_workers(wanted.n_awaited, timeout=max(0.1, min(_LOOK_S, left_s)))
            is_there = True
        except TimeoutError:
            if ends is not None and ends.is_over:
                raise SettingsError(f"scale_out: {ends.trouble}, then run again.") from None
            if left_s <= _LOOK_S:
                raise


@contextmanager
def _local_cluster(n_workers: int) -> Iterator["LocalCluster"]:
    """Processes on this machine."""
    import dask
    from distributed import LocalCluster

    with (
        dask.config.set(LOCAL_DASK),
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            security=True,  # who may connect may run code: certificates of its own
        ) as cluster,
    ):
        yield cluster


@contextmanager
def _spool(settings: Settings, contract: TableContract) -> Iterator[Place]:
    """A table's folder in the spool, for one run at a time: runs may share parts."""
    folder = settings.spool_dir / contract.asset_key
    with locked(folder):
        yield folder


def _newest(store: TableStore, span: Span) -> Span | None:
    """The last hour of a span that the matrix has rows of."""
    for path in reversed(store.files(GPU_MATRIX, span=span)):
        as_of = scan_files([path]).select(pl.col("as_of").max()).collect().item()
        if as_of is not None:
            return Span(as_of - HOUR, as_of)
    return None


def _run(client: "Client", work: Work, span: Span, *, spool: Place, patience_s: float) -> None:
    """Computes and stores a span; once all is stored, nothing is left in the spool."""
    days: dict[Span, _Day] = {}
    units = _units(work, span, spool=spool, days=days)
    with closing(_computed(client, work, units, patience_s=patience_s)) as computed:
        for unit in computed:
            day = days[unit.span]
            day.n_missing -= 1
            if not day.n_missing:
                _store_day(work, day)
                del days[unit.span]
    remove_folders(spool)


def _units(work: Work, span: Span, *, spool: Place, days: dict[Span, _Day]) -> Iterator[Unit]:
    """The units of each day that is not stored yet; what has begun is added to `days`."""
    for part in _days(span):
        folder = spool / f"{part.start:%Y%m%dT%H}-{part.end:%Y%m%dT%H}"
        units = units_of(work, part, folder=folder)
        day = _Day(part, folder, units, len(units))
        if not _is_stored(work, day):
            days[part] = day
            yield from units


def _days(span: Span) -> Iterator[Span]:
    """A span cut at midnights, UTC."""
    at = span.start
    while at < span.end:
        midnight = at.replace(hour=0) + timedelta(days=1)
        yield Span(at, min(span.end, midnight))
        at = midnight


def _computed(
    client: "Client", work: Work, units: Iterator[Unit], *, patience_s: float
) -> Generator[Unit]:
    """Hands units out, a few ahead of what is being computed; gives them as they are finished."""
    from distributed import wait
    from distributed.comm.core import CommClosedError

    code = code_version()
    running: dict[Future[None], Unit] = {}
    try:
        while True:
            n_ahead = _AHEAD * max(1, sum(client.nthreads().values()))
            for unit in islice(units, max(0, n_ahead - len(running))):
                future = client.submit(compute_part, work, unit, code=code, pure=False)
                running[future] = unit
            if not running:
                return
            try:
                done = wait(list(running), timeout=patience_s, return_when="FIRST_COMPLETED").done
            except TimeoutError:
                _check_alive(client)
                continue
            for future in done:
                _raise_error(future, running[future])
                yield running.pop(future)
    except CommClosedError as error:
        raise DataError(_lost(error)) from error
    finally:
        with suppress(CommClosedError):
            client.cancel(list(running))


def _check_alive(client: "Client") -> None:
    if not client.nthreads():
        raise DataError(
            f"scale_out: no worker is left at {client.scheduler_info()['address']}. Start "
            "workers, or see in their output why they ended, and run again: finished parts are "
            "kept."
        )


def _raise_error(future: "Future[None]", unit: Unit) -> None:
    """Raises what a task has raised, and what became of it where it has not ended."""
    from distributed import KilledWorker
    from distributed.client import FutureCancelledError

    # Done otherwise: its part is in the spool. What it returned is not asked for, as that would be
    # waited for without end where its worker has gone meanwhile and none is left.
    if future.status not in ("error", "cancelled"):
        return
    try:
        future.result()
    except KilledWorker as error:
        raise DataError(
            f"scale_out: the part of {unit.span.start} to {unit.span.end} with "
            f"{len(unit.gpus)} GPUs, for example {next(iter(unit.gpus), None)}, ended every worker "
            "that had it; most often it is out of memory. Give workers more, see docs/scale.md, "
            "and run again: finished parts are kept."
        ) from error
    except FutureCancelledError as error:
        raise DataError(_lost(error)) from error


def _lost(error: Exception) -> str:
    return (
        f"scale_out: the scheduler was lost: {error}. Start it and its workers anew, and run "
        "again: finished parts are kept."
    )


def _store_day(work: Work, day: _Day) -> None:
    """Stores a day hour by hour from its parts, then notes that it is stored and removes them."""
    store = TableStore(work.store_root)
    parts = scan_files([unit.path for unit in day.units])
    for hour in day.span.steps(HOUR):
        rows = parts.filter(pl.col("as_of") == hour.end).collect()
        rows = rows.sort(work.contracts[0].key)
        for contract, frame in zip(work.contracts, work.finish(hour, rows), strict=True):
            store.write(contract, frame, span=hour)
    replace_file(day.folder / _STORED, json.dumps(_stored(work, day)).encode(), sync=True)
    for unit in day.units:
        unit.path.unlink()


def _stored(work: Work, day: _Day) -> dict[str, str]:
    """What a day's files in the store were made from, and what they are now."""
    store = TableStore(work.store_root)
    files = [path for contract in work.contracts for path in store.files(contract, span=day.span)]
    contents = {str(path): sha256(path.read_bytes()).hexdigest() for path in files}
    return {"units": " ".join(unit.path.stem for unit in day.units), **contents}


def _is_stored(work: Work, day: _Day) -> bool:
    """Whether an earlier run has stored the day, from the same inputs, and nobody has since."""
    try:
        content = (day.folder / _STORED).read_bytes()
    except FileNotFoundError:
        return False
    return bool(json.loads(content) == _stored(work, day))
