"""Backblaze and Grid'5000 by the product's own tables and features: no leak, and a sound record."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from features.core_tables import CoreTables
from features.grid import watched_grid
from features.history_outages import classify_outages, outage_incidents
from features.matrix import build_gpu_matrix
from models.benchmark.protocol import BenchmarkProtocol
from pipelines.studies.benchmark.run import read_benchmark
from pipelines.studies.benchmark.settings import protocol_path

DATA = Path(__file__).parents[2] / "../shared/data"
AS_OF = {
    "backblaze": datetime(2015, 3, 7, 12, tzinfo=UTC),
    "grid5000": datetime(2006, 2, 14, tzinfo=UTC),
}

pytestmark = [pytest.mark.real, pytest.mark.slow]


def record(name: str) -> tuple[CoreTables, BenchmarkProtocol]:
    folder = DATA / name
    if not folder.is_dir():
        pytest.skip(f"the record of {name} (../shared/data/{name}) is not here")
    return read_benchmark(protocol_path(name), data_dir=folder)


def cut(table: pl.DataFrame, as_of: datetime, *, start: str, end: str) -> pl.DataFrame:
    """What was known just before a moment."""
    known = table.filter(pl.col(start) < as_of)
    return known.with_columns(pl.when(pl.col(end) < as_of).then(end).alias(end))


@pytest.mark.parametrize("name", list(AS_OF))
def test_what_the_record_says_of_as_of_and_later_changes_no_feature(name):
    tables, protocol = record(name)
    as_of = AS_OF[name]
    known = replace(
        tables,
        inventory=cut(tables.inventory, as_of, start="valid_from", end="valid_to"),
        incidents=cut(tables.incidents, as_of, start="start", end="end"),
        node_states=cut(tables.node_states, as_of, start="valid_from", end="valid_to"),
        counters=cut(tables.counters, as_of, start="valid_from", end="valid_to"),
    )
    grid = watched_grid(known.inventory, [as_of], entity_kind=protocol.entity_kind)
    grid = grid.filter(
        pl.col("entity_id").is_in(
            watched_grid(tables.inventory, [as_of], entity_kind=protocol.entity_kind)[
                "entity_id"
            ].implode()
        )
    )
    assert grid.height > 500
    whole, before = (_matrix(given, grid, protocol) for given in (tables, known))
    assert before.equals(whole, null_equal=True)


def _matrix(tables: CoreTables, grid: pl.DataFrame, protocol: BenchmarkProtocol) -> pl.DataFrame:
    """Features with the incidents that the tables give by themselves."""
    rule = protocol.outages
    if rule is not None:
        outages = classify_outages(tables.node_states, tables.topology, rule=rule)
        tables = replace(tables, incidents=outage_incidents(outages, rule=rule))
    return build_gpu_matrix(tables, grid, spec=protocol.features)


def test_each_drive_is_one_stay_and_fails_at_its_end():
    tables, _ = record("backblaze")
    assert tables.inventory["gpu_uuid"].is_unique().all()
    ends = tables.inventory.select(entity_id="gpu_uuid", valid_to="valid_to")
    failed = tables.incidents.join(ends, on="entity_id")
    assert failed.height == 4_195
    assert (failed["start"] == failed["valid_to"]).all()


def test_solo_outages_are_a_small_part_of_all():
    tables, protocol = record("grid5000")
    kinds = classify_outages(tables.node_states, tables.topology, rule=protocol.outages)
    counts = dict(kinds["kind"].value_counts().iter_rows())
    assert counts == {"short": 111_348, "mass": 57_386, "solo": 10_741}
