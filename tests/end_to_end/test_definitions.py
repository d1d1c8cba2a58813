"""Rules of the Dagster definitions: what is served, and that an hour alone equals a day's hour."""

import warnings
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import polars as pl
import pytest
import yaml
from dagster_shared.utils.warnings import BetaWarning

from features.tables import CORE_GPU_TELEMETRY, CORE_HEALTH_EVENTS, GPU_MATRIX, TABLE_BY_KEY
from pipelines.definitions import build_definitions
from pipelines.defs.dagster_history import OUR_ASSETS
from pipelines.defs.hourly import OUR_RUN
from pipelines.defs.raw import WHOLE
from pipelines.end_to_end.demo import SAMPLES
from pipelines.storage.store import TableStore

NOW = datetime(2026, 1, 31, 0, 2, tzinfo=UTC)
ASSETS = [
    "core/coverage",
    "core/gpu_telemetry",
    "core/health_events",
    "core/incidents",
    "core/inventory",
    "core/jobs",
    "core/maintenance",
    "core/node_states",
    "core/topology",
    "core/training_metrics",
    "features/gpu_matrix",
    "features/labels",
    "models/candidate",
    "monitoring/drift",
    "monitoring/housekeeping",
    "monitoring/live_quality",
    "monitoring/quarantine",
    "monitoring/reads",
    "raw/coverage",
    "raw/gpu_telemetry",
    "raw/incidents",
    "raw/inventory",
    "raw/job_log",
    "raw/job_output",
    "raw/kernel_log",
    "raw/node_states",
    "raw/training_metrics",
    "scores/gpu_scores",
    "scores/node_scores",
]


def definitions(folder: Path, data_partition: str) -> dg.Definitions:
    folder.mkdir(exist_ok=True)
    path = folder / "forewarn.yaml"
    settings = {
        "site": "test",
        "inputs": str(SAMPLES / "inputs.yaml"),
        "data_root": "data",
        "start": "2026-01-01T00:00:00+00:00",
        "end": "2026-01-31T00:00:00+00:00",
        "data_partition": data_partition,
    }
    path.write_text(yaml.safe_dump(settings))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BetaWarning)  # as in pipelines.end_to_end.demo
        return build_definitions(path, now=NOW)


def test_the_assets_are_these(tmp_path: Path) -> None:
    graph = definitions(tmp_path, "hour").resolve_asset_graph()
    keys = ["/".join(key.path) for key in graph.get_all_asset_keys()]
    assert sorted(keys) == ASSETS
    assert set(keys) - {"models/candidate", "monitoring/housekeeping"} <= set(TABLE_BY_KEY)
    assert graph.get_all_asset_keys() <= OUR_ASSETS


def test_every_job_is_marked_as_ours(tmp_path: Path) -> None:
    found = definitions(tmp_path, "hour").resolve_all_job_defs()
    named = [job for job in found if not job.name.startswith("__")]
    assert len(named) == 4
    assert all(job.tags.items() >= OUR_RUN.items() for job in named)


def test_every_asset_says_what_it_is_and_every_table_shows_its_columns(tmp_path: Path) -> None:
    graph = definitions(tmp_path, "hour").resolve_asset_graph()
    for node in graph.asset_nodes:
        key = "/".join(node.key.path)
        assert node.group_name == key.split("/")[0], key
        assert node.description, key
        if key in TABLE_BY_KEY:
            assert node.kinds == {"parquet"}, key
            columns = [c.name for c in node.metadata["dagster/column_schema"].columns]
            assert columns == TABLE_BY_KEY[key].schema.names()
    fresh = {"/".join(n.key.path) for n in graph.asset_nodes if n.freshness_policy}
    assert fresh == {"core/gpu_telemetry", "scores/gpu_scores", "scores/node_scores"}


def test_every_table_that_is_stored_is_checked(tmp_path: Path) -> None:
    graph = definitions(tmp_path, "hour").resolve_asset_graph()
    checked = {"/".join(key.asset_key.path) for key in graph.asset_check_keys}
    assert set(ASSETS) - checked == {
        # Kept in the landing, and read whole: what is made of them is checked.
        *(key for key in WHOLE if key in ASSETS),
        "models/candidate",
        "monitoring/housekeeping",
    }


def test_writers_of_a_table_share_a_pool(tmp_path: Path) -> None:
    graph = definitions(tmp_path, "hour").resolve_asset_graph()
    pools = {"/".join(n.key.path): n.pools for n in graph.asset_nodes}
    assert all(pools.values()), [key for key, found in pools.items() if not found]
    assert pools["models/candidate"] == {"training"}
    assert pools["raw/gpu_telemetry"] == pools["raw/job_log"] == {"landing"}


@pytest.mark.parametrize(("cut", "n"), [("hour", 720), ("day", 30)])
def test_partitions_follow_the_settings(tmp_path: Path, cut: str, n: int) -> None:
    graph = definitions(tmp_path, cut).resolve_asset_graph()
    partitions = graph.get(dg.AssetKey(["raw", "gpu_telemetry"])).partitions_def
    assert partitions is not None
    assert len(partitions.get_partition_keys()) == n


def materialize(folder: Path, cut: str, *spans: tuple[str, str]) -> TableStore:
    served = definitions(folder, cut)
    everything = list(served.assets or [])
    store = TableStore(folder / "data" / "tables")
    runs = [
        (["raw/node_states", "raw/incidents"], None),
        *((["raw/gpu_telemetry", "core/gpu_telemetry", "core/health_events"], s) for s in spans),
    ]
    for names, span in runs:
        selection = dg.AssetSelection.assets(*(name.split("/") for name in names))
        with warnings.catch_warnings(), dg.DagsterInstance.ephemeral() as instance:
            warnings.simplefilter("ignore")  # Dagster's own deprecations, not ours to fix
            tags = {}
            if span:
                tags = {
                    "dagster/asset_partition_range_start": span[0],
                    "dagster/asset_partition_range_end": span[1],
                }
            result = dg.materialize(
                everything,
                selection=selection.required_multi_asset_neighbors(),
                instance=instance,
                resources=served.resources,
                run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
                tags=tags,
            )
        assert result.success
    return store


@pytest.mark.slow
def test_an_hour_alone_gives_the_rows_that_the_whole_day_gives(tmp_path: Path) -> None:
    day = materialize(tmp_path / "day", "day", ("2026-01-30", "2026-01-30"))
    hours = materialize(
        tmp_path / "hour",
        "hour",
        ("2026-01-30-22:00", "2026-01-30-22:00"),
        ("2026-01-30-23:00", "2026-01-30-23:00"),
    )
    for table in (CORE_GPU_TELEMETRY, CORE_HEALTH_EVENTS):
        alone = hours.read(table)
        whole = day.read(table).filter(pl.col("ts") >= datetime(2026, 1, 30, 22, tzinfo=UTC))
        assert alone.equals(whole), table.asset_key
    assert hours.read(CORE_GPU_TELEMETRY)["gpu_uuid"].n_unique() == 128
    assert not hours.has(GPU_MATRIX)
