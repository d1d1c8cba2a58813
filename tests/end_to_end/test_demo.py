"""The demonstration, twice: it ends with ranked nodes, a plan and a report, and is repeatable."""

import re
from hashlib import sha256
from pathlib import Path

import polars as pl
import pytest

from features.tables import DECISIONS, LABELS, NODE_SCORES, READS
from pipelines.demo import run_demo
from pipelines.store import TableStore
from remediation.ledger_sqlite import SqliteLedger

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
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("demo")
    return out, run_demo(out, say=lambda _: None)


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
