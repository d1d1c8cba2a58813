"""`forewarn ettr` and `forewarn checkpoint-advice`: stored jobs in, lost time in words out.

What counts as lost is in `models.recovery`; nothing is written.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import polars as pl

from features.errors import DataError, SettingsError, SourceError, StructureError
from features.tables import CORE_JOBS, NODE_SCORES
from models.recovery.checkpoint import AdviceBasis, advise_intervals
from models.recovery.ettr import cumulative_ettr, expected_ettr, sliding_ettr
from models.recovery.job_time import TimeBasis, ettr_by_family, job_stretches, job_time
from pipelines.settings import Settings
from pipelines.storage.store import Span, TableStore
from pipelines.studies.given_files import read_parquet
from remediation.plan import plain

_MOST_JOBS: Final = 20
_MANY_UNKNOWN: Final = 0.2


@dataclass(frozen=True)
class LostTime:
    """What became of the jobs' time.

    Attributes:
        basis: What is assumed.
        families: `ettr_by_family`: families, then all.
        attempts: `job_time`: every attempt that began.
    """

    basis: TimeBasis
    families: pl.DataFrame
    attempts: pl.DataFrame


def read_jobs(settings: Settings | None, file: Path | None) -> pl.DataFrame:
    """Jobs of a store, or of a Parquet file with the columns of core/jobs.

    Args:
        settings: The installation; None: the file.
        file: The file; goes before the settings.

    Raises:
        SourceError: The file cannot be read.
        StructureError: It lacks columns, or they have other types.
        DataError: The store has no jobs yet.
    """
    if file is not None:
        try:
            enforced = CORE_JOBS.enforce(read_parquet(file))
        except StructureError as error:
            raise StructureError(f"{file}: {error}") from error
        if enforced.rejects.height:
            first = enforced.rejects.row(0, named=True)
            raise SourceError(
                f"{file}: {enforced.rejects['count'].sum()} rows break the contract of core/jobs; "
                f"{first['rule']}, for example {first['example']}"
            )
        return enforced.frame
    if settings is None:
        raise SettingsError("name the jobs: --settings FILE of an installation, or --jobs FILE")
    return TableStore(settings.store_root).read(CORE_JOBS)


def record_end(jobs: pl.DataFrame, settings: Settings | None, now: datetime) -> datetime:
    """Where a record of jobs ends; a job without end ran on until then, and no longer.

    Args:
        jobs: core/jobs.
        settings: The installation; None: they are of a file, which ends with its last event.
        now: The present.
    """
    if settings is not None:
        return settings.data_end(now)
    last = jobs.select(pl.max_horizontal(pl.col("submit", "start", "end").max())).item()
    return min(last or now, now)


def moment_within(as_of: datetime | None, end: datetime) -> datetime:
    """The moment asked for, or the end of the record.

    Args:
        as_of: The moment; None: the end.
        end: The end of the record.

    Raises:
        SettingsError: It is after the end, where running jobs would seem to run on and on.
    """
    if as_of is not None and as_of > end:
        raise SettingsError(
            f"--as-of {_moment(as_of)} is after the record, which ends {_moment(end)}; give a "
            "moment before that, or none"
        )
    return as_of or end


def lost_time(jobs: pl.DataFrame, *, basis: TimeBasis) -> LostTime:
    """Tells the jobs' time apart.

    Args:
        jobs: core/jobs.
        basis: What is assumed.

    Raises:
        DataError: No attempt began.
    """
    attempts = job_time(jobs, basis=basis)
    if attempts.is_empty():
        raise DataError(
            f"ETTR: none of {jobs.height:,} attempts in core/jobs began before "
            f"{_moment(basis.as_of)}; ingest job records first, or give a later --as-of"
        )
    return LostTime(basis, ettr_by_family(attempts), attempts)


def render(found: LostTime) -> str:
    """The tables, and what they rest on.

    Args:
        found: What became of the time.
    """
    return "\n\n".join("\n".join(lines) for lines in (list(_head(found)), list(_table(found))))


def as_json(found: LostTime) -> str:
    """The same for programs.

    Args:
        found: What became of the time.
    """
    document = {
        "assumed": {
            "as_of": found.basis.as_of.isoformat(),
            "checkpoint_interval_min": found.basis.interval_s / 60,
            "restart_min": found.basis.restart_s / 60,
        },
        "families": found.families.to_dicts(),
    }
    return json.dumps(document, indent=2)


def checkpoint_advice(settings: Settings, *, basis: AdviceBasis) -> pl.DataFrame:
    """Advice for the jobs that run, from the stored scores of nodes.

    Args:
        settings: The installation.
        basis: What is taken as given.

    Raises:
        DataError: The store has no jobs yet.
    """
    store = TableStore(settings.store_root)
    span = Span(basis.as_of - basis.max_age, basis.as_of)
    known = bool(store.files(NODE_SCORES, span=span))
    scores = store.read(NODE_SCORES, span=span) if known else NODE_SCORES.empty()
    return advise_intervals(store.read(CORE_JOBS), scores, basis=basis)


def render_advice(advice: pl.DataFrame, *, basis: AdviceBasis) -> str:
    """The advice in words.

    Args:
        advice: Rows of `advise_intervals`.
        basis: What was taken as given.
    """
    return "\n".join(_advice_lines(advice, basis))


def expected_line(
    *, n_nodes: int, per_node_day: float, restart_min: float, interval_min: float, wait_min: float
) -> str:
    """Meta's closed form for a job to come, in a line.

    Args:
        n_nodes: Nodes of the job.
        per_node_day: Failures per node and day.
        restart_min: Time to start again.
        interval_min: Time between two checkpoints.
        wait_min: Wait in the queue before each restart.
    """
    value = expected_ettr(
        n_nodes=n_nodes,
        failures_per_node_day=per_node_day,
        restart_min=restart_min,
        interval_min=interval_min,
        wait_min=wait_min,
    )
    return (
        f"Expected ETTR of a long job of {n_nodes:,} nodes at {per_node_day:g} failures per node "
        f"and day, checkpoint every {interval_min:g} min, restart {restart_min:g} min, wait "
        f"{wait_min:g} min: {value:.3f}"
    )


def job_line(found: LostTime, job_id: str) -> str:
    """ETTR of one job, in all and in its worst hour.

    Args:
        found: What became of the time.
        job_id: The job.

    Raises:
        DataError: No attempt of such a job began.
    """
    stretches = job_stretches(found.attempts, job_id)
    name = plain(job_id)
    if stretches is None:
        return f"Job {name}: unknown, for what became of its last state the log does not say"
    whole = cumulative_ettr(stretches)
    _, hours = sliding_ettr(stretches)
    said = "no time has passed" if whole is None else f"ETTR {whole:.1%}"
    worst = f"{hours.min():.1%} in its worst hour" if hours.size else "it ran for less than an hour"
    return f"Job {name}: {said}, {worst}"


def _advice_lines(advice: pl.DataFrame, basis: AdviceBasis) -> Iterator[str]:
    yield (
        f"Checkpoint intervals as of {_moment(basis.as_of)}, for {basis.save_min:g} min lost per "
        "checkpoint (Young and Daly: sqrt(2 w / (N r)))."
    )
    yield f"A node without a score counts with {basis.usual_per_node_day:g} failures a day.\n"
    if advice.is_empty():
        yield "No job runs on known nodes at that moment."
        return
    yield "   every    usual  failures/day   nodes  unscored  job"
    for row in advice.head(_MOST_JOBS).iter_rows(named=True):
        yield (
            f"{_minutes(row['interval_min'])} {_minutes(row['usual_interval_min'])} "
            f"{row['failures_per_day']:13.4f} {row['n_nodes']:7} {row['n_unknown']:9}  "
            f"{plain(row['job_id'])}"
        )
    if advice.height > _MOST_JOBS:
        yield f"and {advice.height - _MOST_JOBS} more jobs (--json shows all)"
    unknown, nodes = (int(advice[name].sum()) for name in ("n_unknown", "n_nodes"))
    if unknown > _MANY_UNKNOWN * nodes:
        yield "Many nodes have no score: there the advice is the usual rate, no more."


def _head(found: LostTime) -> Iterator[str]:
    whole = found.families.row(-1, named=True)
    said = "unknown" if whole["ettr"] is None else f"{whole['ettr']:.1%}"
    if whole["ettr_low"] is not None and whole["unknown_gpu_h"] > 0:
        said += (
            f"; between {whole['ettr_low']:.1%} and {whole['ettr_high']:.1%}, whatever became of "
            "the unknown part"
        )
    yield f"ETTR of all jobs up to {_moment(found.basis.as_of)}: {said}"
    yield (
        f"Assumed: a checkpoint every {found.basis.interval_s / 60:g} min from the end of the "
        f"start-up, {found.basis.restart_s / 60:g} min to start again. Neither is in the log."
    )
    yield (
        "Lost: start-up after an interruption, work since the last checkpoint, the wait for the "
        "next attempt."
    )
    yield (
        "Unknown: attempts that failed, were cancelled or ran out of time and never came again: "
        "whether their last state was used, the log does not say."
    )
    if whole["n_unweighted"]:
        yield (
            f"{whole['n_unweighted']:,} of {whole['n_attempts']:,} attempts do not say how many "
            "GPUs they had: they are in no sum."
        )


def _table(found: LostTime) -> Iterator[str]:
    yield (
        "    ETTR       bounds        GPU-h kept  restart   rework     wait   unknown  "
        "   jobs attempts  partition, GPUs"
    )
    for row in found.families.iter_rows(named=True):
        ettr = "       ?" if row["ettr"] is None else f"{row['ettr']:8.1%}"
        low, high = row["ettr_low"], row["ettr_high"]
        bounds = "            ?" if low is None else f"{low:6.1%}-{high:6.1%}"
        yield (
            f"{ettr} {bounds} {row['kept_gpu_h']:15,.0f} {row['restart_gpu_h']:8,.0f} "
            f"{row['rework_gpu_h']:8,.0f} {row['wait_gpu_h']:8,.0f} {row['unknown_gpu_h']:9,.0f} "
            f"{row['n_jobs']:8,} {row['n_attempts']:8,}  {plain(row['partition'])}, {row['size']}"
        )


def _minutes(value: float | None) -> str:
    if value is None:
        return f"{'never':>8}"
    hours, minutes = divmod(round(value), 60)
    return f"{hours:4}h {minutes:02}" if hours else f"{minutes:6} m"


def _moment(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M UTC")
