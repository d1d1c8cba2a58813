"""The demonstration: the whole flow on the sample fleet, in process, ending with a dry-run plan.

Every step is the product's own; only the inputs are synthetic and the clock stands still.
"""

import logging
import time
import warnings
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import dagster as dg
import yaml
from dagster_shared.utils.warnings import BetaWarning

from features.errors import SourceError
from pipelines.remediate import plan_on_latest
from pipelines.report import render_report
from pipelines.report_assembly import assemble_report
from pipelines.settings import Settings, load_settings
from pipelines.store import Span, replace_file

SAMPLES: Final = Path(__file__).parents[1] / "data_samples" / "demo"
START: Final = datetime(2026, 1, 1, tzinfo=UTC)
END: Final = datetime(2026, 1, 31, tzinfo=UTC)
TRAIN_UNTIL: Final = datetime(2026, 1, 18, tzinfo=UTC)
VALID_UNTIL: Final = datetime(2026, 1, 24, tzinfo=UTC)
NOTE: Final = (
    "Synthetic fleet of 16 nodes with 8 GPUs over 30 days, failure rates 60 times those of "
    "published fleets. It shows how the system works, not how well it predicts your failures."
)

_RANGE_START: Final = "dagster/asset_partition_range_start"
_RANGE_END: Final = "dagster/asset_partition_range_end"
_HOUR: Final = "%Y-%m-%d-%H:%M"
_DAY: Final = "%Y-%m-%d"

# Tables that the demo's runs make, in order; a run has one way of being cut by time.
_STEPS: Final[tuple[tuple[str, str, Sequence[str]], ...]] = (
    ("nodes, places and stays", "none", ("raw/node_states",)),
    (
        "telemetry and kernel logs",
        "hour",
        ("raw/gpu_telemetry", "core/gpu_telemetry", "core/health_events"),
    ),
    ("job records", "day", ("raw/job_log",)),
    ("jobs, node states, incidents", "none", ("core/jobs", "core/node_states", "core/incidents")),
    ("features", "hour", ("features/gpu_matrix",)),
    ("labels", "day", ("features/labels",)),
    ("models", "none", ("models/candidate",)),
    ("scores", "scored", ("scores/gpu_scores",)),
    ("data health", "none", ("monitoring/reads", "monitoring/quarantine")),
)


def run_demo(out: Path, *, say: Callable[[str], None]) -> str:
    """Runs the flow and renders the report.

    Args:
        out: Folder for everything that is made; a second run into it changes nothing.
        say: Where progress lines go.

    Returns:
        The ranked nodes, the plan and the report's path, as text.

    Raises:
        SourceError: The sample fleet is not there.
    """
    if not SAMPLES.is_dir():
        raise SourceError(
            f"the sample fleet is not at {SAMPLES}; run the demo from a checkout of the repository"
        )
    from pipelines.definitions import build_definitions

    settings_file = out / "forewarn.yaml"
    replace_file(settings_file, yaml.safe_dump(_settings(), sort_keys=False).encode())
    settings = load_settings(settings_file)
    now = END + timedelta(minutes=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BetaWarning)  # backfill policies are "beta" in Dagster
        definitions = build_definitions(settings_file, now=now)
        _materialize(definitions, settings, say=say)
    say("plan")
    run = plan_on_latest(settings, now=now)
    report = out / "report.html"
    replace_file(report, render_report(assemble_report(settings, run)).encode())
    return f"{run.text}\n\nReport: {report.resolve()}"


def _settings() -> dict[str, Any]:
    return {
        "site": "demo",
        "note": NOTE,
        "inputs": str(SAMPLES / "inputs.yaml"),
        "data_root": "data",
        "start": START.isoformat(),
        "end": END.isoformat(),
        "split": {"train_until": TRAIN_UNTIL.isoformat(), "valid_until": VALID_UNTIL.isoformat()},
        "horizons_h": [24, 72],
        "trained_on": "synthetic",
        "alert_budget_per_1000_node_days": 150.0,
    }


def _materialize(
    definitions: dg.Definitions, settings: Settings, *, say: Callable[[str], None]
) -> None:
    """Materialises the assets step by step in one ephemeral instance."""
    logging.getLogger("dagster").setLevel(logging.ERROR)
    quiet = {"loggers": {"console": {"config": {"log_level": "ERROR"}}}}
    assets = [*(definitions.assets or []), *(definitions.asset_checks or [])]
    with dg.DagsterInstance.ephemeral() as instance:
        for words, cut, names in _STEPS:
            began = time.perf_counter()
            selection = dg.AssetSelection.assets(*(name.split("/") for name in names))
            dg.materialize(
                assets=assets,
                selection=selection.required_multi_asset_neighbors(),
                instance=instance,
                resources=definitions.resources,
                run_config=quiet,
                tags=_range_tags(cut, settings),
            )
            say(f"{words}: {time.perf_counter() - began:.1f} s")


def _range_tags(cut: str, settings: Settings) -> dict[str, str]:
    """The run's partitions, as Dagster's backfill tags."""
    if cut == "none":
        return {}
    start = settings.split.valid_until if cut == "scored" and settings.split else settings.start
    span = Span(start, settings.end or END)
    step, form = (timedelta(days=1), _DAY) if cut == "day" else (timedelta(hours=1), _HOUR)
    return {
        _RANGE_START: span.start.strftime(form),
        _RANGE_END: (span.end - step).strftime(form),
    }
