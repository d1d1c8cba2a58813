"""Reads the two public traces of the second replay: node states of Grid'5000 and jobs of Philly.

How they become one record is in `simulation.replay.grid5000`.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import polars as pl

from features.errors import DataError, SettingsError
from pipelines.studies.given_files import read_job_trace, read_parquet
from pipelines.studies.replay.input import ReplayInput, read_policy
from simulation.replay.grid5000 import downs_of, record_of
from simulation.replay.tables import history_of

CLUSTER: Final = "site6/c1"
START: Final = datetime(2006, 5, 1, tzinfo=UTC)
END: Final = datetime(2006, 7, 1, tzinfo=UTC)
NOTE: Final = (
    "Node states of one cluster of Grid'5000 (Failure Trace Archive) with jobs of Philly placed on "
    "its nodes, 8 GPUs each: two traces that never met. Times down of 15 min and more are taken as "
    "failures. Scores are rates of the nodes' own past, fitted anew each week on what lies before."
)


STATES: Final = {
    "node": pl.String,
    "is_up": pl.Boolean,
    "start": pl.Datetime,
    "stop": pl.Datetime,
}


def read_grid5000(
    states: Path,
    jobs: Path,
    policy: Path,
    *,
    level: str | None,
    since: datetime | None,
    until: datetime | None,
) -> ReplayInput:
    """Reads both traces and makes one record of them.

    Args:
        states: Parquet: `node`, `is_up`, `start`, `stop`.
        jobs: CSV: `timestamp`, `duration`, `num_gpus`.
        policy: The hook's settings file, or a site file alone, with its warning.
        level: As in `pipelines.studies.replay.input.read_history`.
        since: Start; None: 2006-05-01.
        until: End, exclusive; None: 2006-07-01.

    Raises:
        SourceError: A file cannot be read.
        DataError: A column is missing or wrong, or the cluster is not there.
        SettingsError: The policy file is wrong, or the time is not that of the node states.
    """
    site = read_policy(policy, level=level)
    start, end = since or START, until or END
    record = record_of(
        downs_of(_states(states, start=start, end=end), cluster=CLUSTER),
        read_job_trace(jobs),
        start=start,
        end=end,
        horizon_h=site.horizon_h,
        checkpoint_h=site.costs.lost_work_minutes / 60,
    )
    history = history_of(
        record,
        start=start,
        end=end,
        horizon_h=site.horizon_h,
        repair_hours=site.costs.repair_hours,
    )
    return ReplayInput(
        name=f"Grid'5000 {CLUSTER} with Philly jobs",
        note=NOTE,
        history=history,
        site=site,
        cautions=("No Xids are in this record, so the static rules are not replayed.",),
    )


def _states(path: Path, *, start: datetime, end: datetime) -> pl.DataFrame:
    frame = read_parquet(path)
    for name, kind in STATES.items():
        found = frame.schema.get(name)
        if found is None or found.base_type() is not kind:
            raise DataError(
                f"{path}: expected column {name} ({kind}), got {found or 'none'}; columns are "
                f"{', '.join(frame.columns)}"
            )
    first, last = frame.select(pl.col("start").min(), pl.col("stop").max()).row(0)
    if first is None or not first <= start < end <= last:
        raise SettingsError(
            f"{path} holds {first} to {last}, asked for is {start} to {end}; set --since, --until"
        )
    return frame.select(*STATES)
