"""The whole flow over a stretch of the record, in one process: inputs to published scores.

What each step computes is in `pipelines.flow.steps` and the assets; when the newest hours are due
is for the schedules and `forewarn score`.
"""

import logging
import os
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal

import dagster as dg
from dagster_shared.utils.warnings import BetaWarning

from features.errors import DataError
from pipelines.defs.dagster_instance import home_of_environment, opened
from pipelines.defs.hourly import OUR_RUN, partition_tags
from pipelines.flow.split_cuts import split_of
from pipelines.orchestration.dagster_home import dagster_environment
from pipelines.settings import Settings, load_settings
from pipelines.storage.store import Span

_DAY: Final = timedelta(days=1)
_HOUR: Final = timedelta(hours=1)


@dataclass(frozen=True)
class _Step:
    """Tables that one run makes.

    Attributes:
        words: What they are, for a person.
        cut: How the run is cut by time; `tested` are the data partitions after all training rows.
        names: Assets; those made together with them are made, too.
    """

    words: str
    cut: Literal["whole", "data", "days", "tested"]
    names: Sequence[str]


# A run has one way of being cut by time, so the graph is made in layers.
_STEPS: Final = (
    _Step("jobs, nodes, places and stays", "whole", ("raw/node_states", "raw/incidents")),
    _Step(
        "telemetry and logs",
        "data",
        ("raw/gpu_telemetry", "core/gpu_telemetry", "core/health_events"),
    ),
    _Step(
        "jobs, node states, incidents",
        "whole",
        ("core/jobs", "core/node_states", "core/incidents", "core/training_metrics"),
    ),
    _Step("features", "data", ("features/gpu_matrix",)),
    _Step("labels", "days", ("features/labels",)),
    _Step("models", "whole", ("models/candidate",)),
    _Step("scores", "tested", ("scores/gpu_scores",)),
    _Step("coverage", "days", ("core/coverage",)),
    _Step("data health", "whole", ("monitoring/reads", "monitoring/quarantine")),
)
_TRAINING: Final = "models"


def run_backfill(
    settings_file: Path,
    *,
    now: datetime,
    since: datetime | None = None,
    until: datetime | None = None,
    instance: dg.DagsterInstance | None = None,
    say: Callable[[str], None],
) -> None:
    """Makes every table of a stretch, trains where the settings name a split, and scores.

    What is there is made again, to the same rows; a run that was killed is simply repeated.
    Scores begin where the test does: of an hour that was trained on they would look too good.

    Args:
        settings_file: The installation.
        now: The present; where the record goes on, it ends here.
        since: First moment; None: the start of the record.
        until: End; None: the end of the record.
        instance: Where Dagster notes the runs; None: the instance that DAGSTER_HOME names, so that
            its pages show them, or else one in memory.
        say: Where progress lines go.

    Raises:
        DataError: The stretch holds no full partition, or a step failed; what earlier steps made
            stays.
    """
    settings = load_settings(settings_file)
    span = _stretch(settings, now=now, since=since, until=until)
    split = split_of(settings, data_end=span.end)
    tested_from = split.valid_until if split else None
    from pipelines.definitions import build_definitions

    with warnings.catch_warnings(), instance or _instance(settings) as noted_by:
        warnings.simplefilter("ignore", BetaWarning)  # backfill policies are "beta" in Dagster
        logging.getLogger("dagster").setLevel(logging.CRITICAL)
        definitions = build_definitions(settings_file, now=now)
        for step in _STEPS:
            tags = _range_tags(step, span, settings, tested_from=tested_from)
            if tags is None:
                say(f"{step.words}: left out, as there is no full day or none after training")
            elif step.words == _TRAINING and split is None:
                say(f"{step.words}: none yet, as `split` is not set or leaves nothing to train on")
            else:
                began = time.perf_counter()
                _run(step, definitions, instance=noted_by, tags=tags)
                say(f"{step.words}: {time.perf_counter() - began:.1f} s")


def _stretch(
    settings: Settings, *, now: datetime, since: datetime | None, until: datetime | None
) -> Span:
    """The whole data partitions of what was asked for, within the record."""
    size = _DAY if settings.data_partition == "day" else _HOUR
    start = _floor(max(since or settings.start, settings.start), size)
    end = _floor(min(until or now, settings.data_end(now)), size)
    if start >= end:
        raise DataError(
            f"from {start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC there is no full "
            f"{settings.data_partition} of the record of {settings.site}, which begins at "
            f"{settings.start:%Y-%m-%d %H:%M}; give another --since or --until"
        )
    return Span(start, end)


def _floor(at: datetime, size: timedelta) -> datetime:
    since_epoch = at - datetime(1970, 1, 1, tzinfo=UTC)
    return at.astimezone(UTC) - since_epoch % size


def _range_tags(
    step: _Step, span: Span, settings: Settings, *, tested_from: datetime | None
) -> dict[str, str] | None:
    """The run's partitions as Dagster's backfill tags; None: there are none."""
    if step.cut == "whole":
        return {}
    start, end = span.start, span.end
    is_daily = step.cut == "days" or settings.data_partition == "day"
    size = _DAY if is_daily else _HOUR
    if step.cut == "tested" and tested_from is not None:
        start = max(start, tested_from)
    start, end = _floor(start, size), _floor(end, size)
    return partition_tags(Span(start, end), step=size) if start < end else None


def _run(
    step: _Step, definitions: dg.Definitions, *, instance: dg.DagsterInstance, tags: dict[str, str]
) -> None:
    selection = dg.AssetSelection.assets(*(name.split("/") for name in step.names))
    assets: list[Any] = [*(definitions.assets or []), *(definitions.asset_checks or [])]
    result = dg.materialize(
        assets=assets,
        selection=selection.required_multi_asset_neighbors(),
        instance=instance,
        resources=definitions.resources,
        run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
        tags=OUR_RUN | tags,
        raise_on_error=False,
    )
    if not result.success:
        raise DataError(
            f"{step.words}: {_why(result)}. What was made before stays; put it right and run "
            "forewarn backfill again"
        )


def _why(result: dg.ExecuteInProcessResult) -> str:
    """The innermost cause of the first step that failed, in its own words."""
    for event in result.all_events:
        if event.is_step_failure:
            error = event.step_failure_data.error
            while error is not None and error.cause is not None:
                error = error.cause
            if error is not None:
                return error.message.strip().rstrip(".")
    return "a run failed without a cause"


def _instance(settings: Settings) -> AbstractContextManager[dg.DagsterInstance]:
    if not os.environ.get("DAGSTER_HOME"):
        return dg.DagsterInstance.ephemeral()
    os.environ.update(dagster_environment(settings))  # its file names the password's variable
    return opened(home_of_environment())
