"""From the telemetry of a failing node to its drain on a real Slurm, before it would have failed.

The telemetry, the failure and the model are those of the sample fleet; the cluster is real.
"""

import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from features.tables import GPU_SCORES, NODE_SCORES
from pipelines.end_to_end.demo import SAMPLES, VALID_UNTIL
from pipelines.flow.steps import node_policy
from pipelines.settings import Settings, load_settings
from pipelines.storage.store import TableStore
from remediation.cluster.reasons import parse_reason
from remediation.hook import run_once
from remediation.ledger.sqlite import SqliteLedger
from remediation.score_source import FakeScoreSource, PublishedScores
from remediation.site import LevelRule, Site
from remediation.site import Warning as Alerting
from simulation.writers.truth_tables import read_truth

sys.path.insert(0, str(Path(__file__).parent))

from slurm_cluster import why_not
from test_slurm_hook import Box

pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # MLflow and Dagster warn of themselves
]


@pytest.fixture
def settings(request):
    """The whole flow on the sample fleet."""
    if reason := why_not():
        pytest.skip(reason)
    return load_settings(request.getfixturevalue("finished_demo") / "forewarn.yaml")


@pytest.fixture
def box(settings, tmp_path):
    """Booted after the flow, which takes every core for minutes."""
    with Box(tmp_path / "slurm") as cluster:
        yield cluster


def failing_node(settings: Settings) -> tuple[str, datetime]:
    """A node that the model gave an alert for, and that did fail within the horizon; and when."""
    store = TableStore(settings.store_root)
    policy = node_policy(settings, horizon_h=24)
    scores = store.read(NODE_SCORES).filter(
        pl.col("as_of") >= VALID_UNTIL, pl.col("score") >= policy.threshold
    )
    failed = read_truth(SAMPLES.with_name("demo_truth")).incidents.select("node", "onset")
    lead = pl.col("onset") - pl.col("as_of")
    hits = scores.join(failed, left_on="entity_id", right_on="node").filter(
        lead >= timedelta(minutes=30), lead < timedelta(hours=24)
    )
    assert not hits.is_empty()
    row = hits.sort("score", "as_of", descending=[True, False]).row(0, named=True)
    return row["entity_id"], row["as_of"]


def published(settings: Settings, node: str, as_of: datetime, *, now: datetime) -> PublishedScores:
    """That tick's scores as if it were now, for the failing node and three others."""
    store = TableStore(settings.store_root)
    ours = store.read(NODE_SCORES).filter(pl.col("as_of") == as_of, pl.col("horizon_h") == 24)
    others = ours.filter(pl.col("entity_id") != node).sort("score")["entity_id"].head(3).to_list()
    names = dict(zip([node, *others], ["gpu001", "gpu000", "gpu002", "gpu003"], strict=True))
    rows = ours.filter(pl.col("entity_id").is_in(list(names))).with_columns(
        pl.col("entity_id").replace_strict(names),
        as_of=pl.lit(now - timedelta(minutes=5)).cast(pl.Datetime("us", "UTC")),
    )
    return PublishedScores(
        as_of=now - timedelta(minutes=5),
        expires_at=now + timedelta(hours=1),
        trained_on="synthetic",
        model_versions={24: rows["model_version"][0]},
        gpu_scores=GPU_SCORES.empty(),
        node_scores=rows,
    )


def test_telemetry_of_a_failing_node_leads_to_its_drain_before_it_fails(settings, box, tmp_path):
    node, as_of = failing_node(settings)
    scores = published(settings, node, as_of, now=datetime.now(UTC))
    threshold = scores.node_scores.filter(pl.col("entity_id") == "gpu001")["score"][0]
    site = Site(
        levels=(LevelRule(level="drain_after_jobs"),),
        warning=Alerting(threshold=threshold, n=1, k=1),
    )
    big = box.submit("sleep 300", "--nodelist=gpu[002-003]", "--nodes=2", "--gres=gpu:h100:8")
    box.wait_for(big, "RUNNING")
    with SqliteLedger(tmp_path / "ledger.db") as ledger:

        def run(given):
            return run_once(
                scores=FakeScoreSource(given),
                cluster=box.reader,
                actuator=box.actuator,
                ledger=ledger,
                site=site,
                clock=lambda: datetime.now(UTC),
                is_simulation=True,  # the scores are a synthetic model's
            )

        assert [outcome.status for outcome in run(scores).outcomes.values()] == ["done"]
        held = box.read().by_name["gpu001"]
        assert held.state == "drain"
        assert parse_reason(held.reason).model_version == scores.model_versions[24]
        box.wait_until(lambda: box.stage("gpu001") == "drained", "no job is on it")

        box.kill_slurmd("gpu001")  # now it fails, with nothing on it
        box.wait_until(lambda: box.stage("gpu001") == "down", "it is given up")
        assert box.job_state(big) == "RUNNING"

        box.start_slurmd("gpu001")  # repaired; the operator brings it back
        box.set_node("gpu001", "idle")
        box.wait_until(lambda: box.read().by_name["gpu001"].state == "up", "it is back")
        calm = scores.node_scores.with_columns(score=pl.lit(0.01))
        run(replace(scores, node_scores=calm))
        kinds = [entry.kind for entry in ledger.entries()]
        assert kinds[:4] == ["observed", "decision", "intent", "result"]
        assert "released" in kinds
        assert ledger.verify().is_whole
    assert box.job_state(big) == "RUNNING"
