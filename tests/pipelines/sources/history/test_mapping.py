"""The grammar of history mappings: what it takes, and that each mistake is named."""

import pytest

from features.errors import SettingsError
from pipelines.benchmark import MAPPINGS
from pipelines.sources.history.mapping import load_mapping, parse_mapping

CSV = "file: {format: csv}\n"
INVENTORY = "tables: {core/inventory: {columns: {gpu_uuid: serial, node: host}%s}}\n"


def test_the_packaged_mappings_hold_the_grammar():
    mapping = load_mapping(MAPPINGS / "titan.yaml")
    assert set(mapping.tables.by_key) == {"core/inventory", "core/topology", "core/incidents"}


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
