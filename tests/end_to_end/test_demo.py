"""The demonstration, twice: it ends with ranked nodes, a plan and a report, and is repeatable."""

import re
import shutil
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

import polars as pl
import pytest

from features.errors import DataError
from features.monitoring_tables import READS
from features.tables import DECISIONS, GPU_SCORES, LABELS, NODE_SCORES
from models.policies.warnings import raise_alerts
from models.registry.model_registry import CHAMPION
from pipelines.end_to_end.demo import SAMPLES, VALID_UNTIL, run_demo
from pipelines.flow.steps import registered_name, registry_of
from pipelines.settings import load_settings
from pipelines.storage.store import TableStore
from remediation.ledger.sqlite import SqliteLedger
from simulation.fleet.ceiling import Reader, check_for_leak, recall_ceiling
from simulation.writers.truth_tables import read_truth

pytestmark = [
    pytest.mark.slow,
    # MLflow and Dagster warn of themselves on import and while registering.
    pytest.mark.filterwarnings("ignore"),
]


def digests(out: Path) -> dict[str, str]:
    """Hash of every file whose bytes must not depend on when it was made."""
    kept = [out / "report.html", *(out / "data" / "tables").rglob("*.parquet")]
    kept += list((out / "data" / "scores").rglob("*"))
    return {
        str(path.relative_to(out)): sha256(path.read_bytes()).hexdigest()
        for path in kept
        if path.is_file()
    }


@pytest.fixture(scope="module")
def demo(finished_demo: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A copy, which a second run may write to, and what the first one said."""
    out = tmp_path_factory.mktemp("demo")
    shutil.copytree(finished_demo, out, dirs_exist_ok=True)
    said = (finished_demo / "said.txt").read_text()
    return out, said.replace(str(finished_demo.resolve()), str(out.resolve()))


def test_it_ends_with_ranked_nodes_the_plan_and_the_report(demo: tuple[Path, str]) -> None:
    _, text = demo
    assert text.startswith("DRY RUN: nothing was done")
    assert re.search(r"^ +1 +gpu\d{3} +\d+\.\d%", text, re.MULTILINE)
    report = re.search(r"^Report: (.+)$", text, re.MULTILINE)
    assert report
    page = Path(report.group(1)).read_text()
    assert "hazards" in page or "60 times" in page
    assert not re.search(r"""(src|href|url)\s*[=(]\s*["']?\s*(https?:)?//""", page)


def test_a_second_run_changes_nothing(demo: tuple[Path, str]) -> None:
    out, text = demo
    before = digests(out)
    assert run_demo(out, say=lambda _: None) == text
    assert digests(out) == before


def test_nothing_is_lost_on_the_way_in(demo: tuple[Path, str]) -> None:
    reads = TableStore(demo[0] / "data" / "tables").read(READS)
    kept = pl.col("n_parsed") + pl.col("n_skipped") + pl.col("n_quarantined")
    assert reads.filter(pl.col("n_read") != kept).is_empty()


def test_scores_are_probabilities_or_say_why_not(demo: tuple[Path, str]) -> None:
    scores = TableStore(demo[0] / "data" / "tables").read(NODE_SCORES)
    assert scores.filter(pl.col("score").is_null() != (pl.col("status") == "unknown")).is_empty()
    assert scores.filter(
        pl.col("status") == "unknown", pl.col("status_reason").is_null()
    ).is_empty()
    assert set(scores["trained_on"]) == {"synthetic"}


def test_every_unknown_label_says_why(demo: tuple[Path, str]) -> None:
    labels = TableStore(demo[0] / "data" / "tables").read(LABELS)
    unknown = pl.col("label").is_null()
    assert labels.filter(unknown != pl.col("censored_by").is_not_null()).is_empty()


def test_the_plan_is_a_dry_run_and_the_ledger_holds(demo: tuple[Path, str]) -> None:
    out, _ = demo
    decisions = TableStore(out / "data" / "tables").read(DECISIONS)
    assert decisions["is_dry_run"].all()
    with SqliteLedger(out / "data" / "ledger.sqlite") as ledger:
        assert ledger.verify().broken_at is None


def test_the_model_does_not_beat_what_can_be_known(demo: tuple[Path, str]) -> None:
    out, _ = demo
    settings = load_settings(out / "forewarn.yaml")
    registry = registry_of(settings)
    champion = registry.version_of(registered_name(settings, 24), CHAMPION)
    bundle = registry.load(champion)
    scores = TableStore(settings.store_root).read(GPU_SCORES)
    tested = scores.filter(pl.col("as_of") >= VALID_UNTIL, pl.col("score").is_not_null())
    alerts = raise_alerts(
        tested.select("entity_id", "as_of", "node", "score"), bundle.policies["gpu"]
    )
    truth = read_truth(SAMPLES.with_name("demo_truth"))
    lead = pl.col("onset") - pl.col("as_of")
    failed = truth.incidents.filter(
        pl.col("entity_kind") == "gpu", pl.col("onset") >= VALID_UNTIL + timedelta(hours=1)
    )
    hits = failed.join(alerts.select("entity_id", "as_of"), on="entity_id").filter(
        lead >= timedelta(minutes=30), lead < timedelta(hours=24, minutes=30)
    )
    caught = failed.select(
        "fault_type",
        horizon_h=pl.lit(24.0),
        is_caught=pl.col("incident_id").is_in(hits["incident_id"].implode()),
    )
    # Taken together too: of single classes there are too few to tell a leak from luck.
    caught = pl.concat([caught, caught.with_columns(fault_type=pl.lit("all"))])
    ceiling = recall_ceiling(
        truth, horizons_h=[24.0], reader=Reader(budget=alerts.height / tested.height)
    )
    assert caught.height > 10
    check_for_leak(caught, ceiling)
    with pytest.raises(DataError, match="beats what can be known"):
        check_for_leak(caught.with_columns(is_caught=pl.lit(value=True)), ceiling)
