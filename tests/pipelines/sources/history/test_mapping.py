"""The grammar of history mappings: what it takes, and that each mistake is named."""

from datetime import UTC, datetime

import polars as pl
import pytest

from features.errors import SettingsError
from pipelines.sources.history.files import read_history
from pipelines.sources.history.mapping import load_mapping, parse_mapping
from pipelines.studies.benchmark.settings import MAPPINGS

CSV = "file: {format: csv}\n"
INVENTORY = "tables: {core/inventory: {columns: {gpu_uuid: serial, node: host}%s}}\n"


def test_the_packaged_mappings_hold_the_grammar():
    mapping = load_mapping(MAPPINGS / "titan.yaml")
    assert set(mapping.tables.by_key) == {"core/inventory", "core/topology", "core/incidents"}
    assert "core/counters" in load_mapping(MAPPINGS / "backblaze.yaml").tables.by_key
    assert "raw/node_states" in load_mapping(MAPPINGS / "grid5000.yaml").tables.by_key


def test_every_file_column_that_is_read_is_known_with_its_use():
    mapping = parse_mapping(
        CSV
        + INVENTORY
        % ", extract: {batch: {column: label, pattern: '^(..)'}}, only_if: [insert],"
        " open_if: {column: gone, values: [Unknown]}",
        origin="m",
    )
    section = mapping.tables.by_key["core/inventory"]
    assert dict(section.file_columns) == {
        "serial": "gpu_uuid",
        "host": "node",
        "label": "batch",
        "insert": "only_if",
        "gone": "open_if",
    }


INCIDENTS = (
    "tables: {core/incidents: {entity: {kind: %s, column: serial}, start: at, event: what,"
    " fault_types: {%s}}}\n"
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "is no YAML"),
        ("- a list", "got list"),
        ("", "got NoneType"),
        (CSV, "tables: Field required"),
        (CSV + "tables: {}\n", "no table is given"),
        (CSV + "tables: {core/gpus: {}}\n", "core/gpus: Extra inputs"),
        ("file: {format: xlsx}\n" + INVENTORY % "", "file.format"),
        ("file: {format: csv, time_zone: Mars}\n" + INVENTORY % "", "'Mars' is no time zone"),
        ("file: {format: csv, time_zone: Europe}\n" + INVENTORY % "", "'Europe' is no time zone"),
        ("file: {format: csv, delimiter: ';;'}\n" + INVENTORY % "", "file.delimiter"),
        (
            CSV + INVENTORY % ", constants: {colour: red}",
            "core/inventory has no column colour; it has gpu_uuid, node",
        ),
        (CSV + INVENTORY % ", constants: {ingested_at: now}", "has no column ingested_at"),
        (
            CSV + "tables: {core/inventory: {columns: {gpu_uuid: serial}}}\n",
            "core/inventory needs node: add to columns or constants",
        ),
        (CSV + INVENTORY % ", constants: {node: n1}", "given more than once: node"),
        (CSV + INVENTORY % ", scale: {slot: 2.0}", "scale names slot, which no column gives"),
        (CSV + INVENTORY % ", values: {slot: {a: b}}", "values names slot"),
        (
            CSV + INVENTORY % ", extract: {batch: {column: serial, pattern: '^..'}}",
            "has no group",
        ),
        (
            CSV + INVENTORY % ", extract: {batch: {column: serial, pattern: '('}}",
            "is no regular expression",
        ),
        (
            CSV + INVENTORY % ", extract: {batch: {column: serial, pattern: '(?=a)(b)'}}",
            "is no regular expression",  # the engine that runs it has no look-around
        ),
        (
            CSV + "exclude: [{column: host}]\n" + INVENTORY % "",
            "give values, values_from or pattern",
        ),
        (
            CSV + "exclude: [{column: host, values: [a], pattern: b}]\n" + INVENTORY % "",
            "give either values",
        ),
        (CSV + INCIDENTS % ("gpu", "DBE: melted"), "melted is no fault type; choose from"),
        (CSV + INCIDENTS % ("rack", "DBE: thermal"), "entity.kind"),
        (CSV + INCIDENTS % ("gpu", ""), "fault_types"),
    ],
)
def test_each_mistake_is_named_with_the_file(text, said):
    with pytest.raises(SettingsError) as caught:
        parse_mapping(text, origin="site.yaml")
    assert said in str(caught.value)
    assert "site.yaml" in str(caught.value)


def test_all_mistakes_are_named_at_once():
    text = "file: {format: xlsx, delimiter: ''}\n" + INVENTORY % ""
    with pytest.raises(SettingsError, match="2 mistake") as caught:
        parse_mapping(text, origin="m")
    assert "file.format" in str(caught.value)
    assert "file.delimiter" in str(caught.value)


def test_an_absent_mapping_is_one_clear_error(tmp_path):
    with pytest.raises(SettingsError, match=r"none\.yaml cannot be read"):
        load_mapping(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ("core/counters: {gpu_uuid: s, valid_from: a, counters: {valid_to: b}}", "cannot name"),
        ("core/counters: {gpu_uuid: s, valid_from: a, counters: {Odd name: b}}", "cannot name"),
        ("core/inventory: {columns: {gpu_uuid: s, node: n}, join_stays: true}", "join_stays is"),
    ],
)
def test_counters_and_joined_stays_must_make_sense(tables, said):
    with pytest.raises(SettingsError, match=said):
        parse_mapping(f"{CSV}tables: {{{tables}}}\n", origin="m.yaml")


def test_counters_are_read_and_touching_stays_are_one(tmp_path):
    (tmp_path / "m.yaml").write_text(
        "file: {format: csv, time_zone: UTC}\ntables:\n"
        "  core/inventory: {columns: {gpu_uuid: s, node: s, valid_from: a, valid_to: z}, "
        "join_stays: true}\n"
        "  core/counters: {gpu_uuid: s, valid_from: a, valid_to: z, counters: {remaps: n}}\n"
    )
    rows = "d,2026-01-01,2026-01-02,1\nd,2026-01-02,2026-01-03,\nd,2026-01-05,2026-01-06,4\n"
    (tmp_path / "r.csv").write_text("s,a,z,n\n" + rows)
    moment = datetime(2026, 2, 1, tzinfo=UTC)
    read = read_history(tmp_path / "r.csv", tmp_path / "m.yaml", ingested_at=moment)
    stays = read.table("core/inventory").select(pl.col("valid_from", "valid_to").dt.day()).rows()
    assert stays == [(1, 3), (5, 6)]
    assert read.tables["core/counters"]["remaps"].to_list() == [1, None, 4]
