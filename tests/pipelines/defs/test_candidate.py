"""What Dagster shows of a training, apart from the training itself."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import polars as pl
import pytest

from features.tables import CORE_MAINTENANCE, CORE_NODE_STATES
from models.evaluation.row_metrics import ReliabilityBin
from pipelines.defs import models
from pipelines.defs.partitions import partitions_of
from pipelines.defs.table_look import look_of
from tests.pipelines.defs.site_world import T0, world


def judged(name: str, *bins: ReliabilityBin) -> Any:
    """A candidate, as far as it is shown."""
    rows = SimpleNamespace(all_rows=SimpleNamespace(reliability=bins))
    return SimpleNamespace(bundle=SimpleNamespace(name=name), gpu_evaluation=rows)


def test_each_candidate_with_test_rows_has_its_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(*_: object, show: Any, maintenance: Any, **__: object) -> dict[str, str]:
        show(judged("gpu-24h", ReliabilityBin(9, 0.1, 0.2), ReliabilityBin(9, 0.3, 0.4)))
        show(judged("gpu-1h"))
        assert maintenance.columns == CORE_MAINTENANCE.empty().columns
        return {}

    monkeypatch.setattr(models, "train_candidates", train)
    with world(tmp_path) as site:
        asset = models.model_assets(partitions_of(site.settings), look_of(site.settings))[0]
        unused = dict.fromkeys(("matrix", "labels", "incidents", "topology"), pl.DataFrame())
        made = asset(
            installation=(site.served(T0).resources or {})["installation"],
            maintenance=CORE_MAINTENANCE.empty(),
            node_states=CORE_NODE_STATES.empty(),
            **unused,
        )
    assert list(made.metadata) == ["gpu-24h reliability"]
    picture = made.metadata["gpu-24h reliability"]
    assert isinstance(picture, dg.MarkdownMetadataValue)
    assert picture.value.startswith("![")
