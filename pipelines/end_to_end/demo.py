"""The demonstration: the whole flow on the sample fleet, in process, ending with a dry-run plan.

Every step is the product's own; only the inputs are synthetic and the clock stands still.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import dagster as dg
import polars as pl
import yaml

from features.errors import SettingsError, SourceError
from features.tables import GPU_SCORES, NODE_SCORES
from pipelines.end_to_end.backfill import run_backfill
from pipelines.end_to_end.report_assembly import assemble_report
from pipelines.flow.publish import LATEST
from pipelines.flow.remediate import PlanRun, plan_on_latest
from pipelines.flow.steps import TICK, publish_latest
from pipelines.report.page import render_report
from pipelines.settings import Settings, load_settings
from pipelines.storage.atomic_files import replace_file
from pipelines.storage.store import TableStore

SAMPLES: Final = Path(__file__).parents[2] / "data_samples" / "demo"
START: Final = datetime(2026, 1, 1, tzinfo=UTC)
END: Final = datetime(2026, 1, 31, tzinfo=UTC)
TRAIN_UNTIL: Final = datetime(2026, 1, 18, tzinfo=UTC)
VALID_UNTIL: Final = datetime(2026, 1, 24, tzinfo=UTC)
# Two ticks above the threshold make an alert; the plan then shows what that alert leads to.
TICKS: Final = 2
DELAY: Final = timedelta(minutes=2)
SITE: Final = "forewarn-demo"
SITE_FILE: Final = "remediation.yaml"
NOTE: Final = (
    "Synthetic fleet of 16 nodes with 8 GPUs over 30 days, failure rates 60 times those of "
    "published fleets. It shows how the system works, not how well it predicts your failures."
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
    settings_file = out / "forewarn.yaml"
    _refuse_foreign(out, settings_file)
    replace_file(settings_file, yaml.safe_dump(_settings(), sort_keys=False).encode())
    settings = load_settings(settings_file)
    run_backfill(settings_file, now=END + DELAY, instance=dg.DagsterInstance.ephemeral(), say=say)
    run = _run_hook(settings, site_file=out / SITE_FILE, say=say)
    report = out / "report.html"
    replace_file(report, render_report(assemble_report(settings, run)).encode())
    return f"{run.text}\n\nReport: {report.resolve()}"


def _refuse_foreign(out: Path, settings_file: Path) -> None:
    """Leaves alone a folder that holds anything but an earlier demo."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not (settings_file.is_file() and load_settings(settings_file).site == SITE):
        raise SettingsError(
            f"{out} is not empty and holds no earlier demo, so nothing was written to it; "
            "give --out a new or empty folder"
        )


def _settings() -> dict[str, Any]:
    return {
        "site": SITE,
        "note": NOTE,
        "inputs": str(SAMPLES / "inputs.yaml"),
        "data_root": "data",
        "start": START.isoformat(),
        "end": END.isoformat(),
        "split": {"train_until": TRAIN_UNTIL.isoformat(), "valid_until": VALID_UNTIL.isoformat()},
        "horizons_h": [24],
        "trained_on": "synthetic",
        "regime": "demo",
        "alert_budget_per_1000_node_days": 150.0,
        "switch_level": "leaf_switch",
        "data_partition": "day",
        "node_states_hold_only_trouble": True,
        "remediation": SITE_FILE,
    }


def _run_hook(settings: Settings, *, site_file: Path, say: Callable[[str], None]) -> PlanRun:
    """Runs the hook after each of the last ticks, as its schedule would, into a new ledger."""
    site = {
        "levels": [{"level": "notify_then_drain"}],
        # At 60 times the usual failure rate, half of the nodes above the threshold is a usual day:
        # with the default caps and burst limits the plan would show nothing but guards.
        "caps": {"held_percent": 40.0, "partition_percent": 40.0},
        "burst": {"fleet_percent": 80.0, "component_nodes": 6},
    }
    replace_file(site_file, yaml.safe_dump(site, sort_keys=False).encode())
    for path in settings.data_root.glob(f"{settings.ledger_path.name}*"):
        path.unlink()
    (settings.scores_dir / LATEST).unlink(missing_ok=True)
    began = time.perf_counter()
    store = TableStore(settings.store_root)
    gpu_scores, node_scores = store.read(GPU_SCORES), store.read(NODE_SCORES)
    for tick in range(TICKS - 1, -1, -1):
        as_of = END - tick * TICK
        at = pl.col("as_of") == as_of
        publish_latest(
            gpu_scores.filter(at),
            node_scores.filter(at),
            settings=settings,
            as_of=as_of,
            now=as_of + DELAY,
        )
        run = plan_on_latest(settings, now=as_of + DELAY)
    say(f"plan: {time.perf_counter() - began:.1f} s")
    return run
