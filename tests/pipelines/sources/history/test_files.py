"""Histories by mapping: every record is accounted for, and what is refused says why."""

from datetime import UTC, datetime

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.errors import SettingsError, SourceError
from features.tables import TABLE_BY_KEY
from pipelines.sources.history.files import read_history

NOW = datetime(2026, 1, 6, tzinfo=UTC)
STAYS = """
file: {format: csv, time_zone: UTC}
exclude:
  - {column: location, values: [spare]}
tables:
  core/inventory:
    columns: {gpu_uuid: serial, node: location, valid_from: insert, valid_to: remove}
    only_if: [insert]
  core/topology:
    node: location
    levels: {pattern: '^c(?P<column>\\d+)-(?P<row>\\d+)', places: {cabinet: "{column}-{row}"}}
  core/incidents:
    entity: {kind: gpu, column: serial}
    node: location
    start: remove
    end: remove
    event: event
    fault_types: {DBE: hbm_uncorrectable}
"""
HEADER = "serial,location,insert,remove,event\n"
GOOD = "1,c0-1,2026-01-01T00:00:00Z,2026-01-02T00:00:00Z,DBE\n"
ADDRESSES = """
file: {format: csv}
tables: {core/inventory: {columns: {gpu_uuid: uuid, node: host, pci_bus_id: bus}}}
"""
TELEMETRY = """
file: {format: %s, time_format: epoch_s, null_values: ["", "-1"]}
tables:
  raw/gpu_telemetry:
    columns: {gpu_uuid: UUID, ts: at, energy_j: energy_mj, ecc_sbe_volatile: sbe}
    scale: {energy_j: 0.001}
"""
STATES = """
file: {format: csv, delimiter: "|", quote: null, time_zone: Europe/Berlin}
tables:
  raw/node_states:
    columns: {node: Node, state: State, valid_from: Start, valid_to: End}
    values: {state: {DOWN*: DOWN}}
    open_if: {column: End, values: [Unknown]}
"""


@pytest.fixture
def read(tmp_path):
    """Writes a file and its mapping, and reads it."""

    def _read(text, mapping=STAYS):
        data, grammar = tmp_path / "data.csv", tmp_path / "mapping.yaml"
        if isinstance(text, pl.DataFrame):
            text.write_parquet(data)
        else:
            data.write_bytes(text if isinstance(text, bytes) else text.encode())
        grammar.write_text(mapping)
        return read_history(data, grammar, ingested_at=NOW)

    return _read


def account(result):
    return result.reads.select("n_read", "n_parsed", "n_skipped", "n_quarantined").row(0)


def refused(result):
    return {row["rule"]: row["count"] for row in result.quarantine.iter_rows(named=True)}


def test_one_record_gives_a_stay_a_place_and_an_incident(read):
    result = read(HEADER + GOOD)
    assert {key: frame.height for key, frame in result.tables.items()} == {
        "core/inventory": 1,
        "core/topology": 1,
        "core/incidents": 1,
    }
    incident = result.table("core/incidents").row(0, named=True)
    assert (incident["entity_id"], incident["node"]) == ("1", "c0-1")
    assert incident["start"] == incident["end"] == datetime(2026, 1, 2, tzinfo=UTC)
    assert incident["fault_type"] == "hbm_uncorrectable"
    assert result.table("core/topology").row(0)[:3] == ("c0-1", "cabinet", "0-1")
    assert account(result) == (1, 1, 0, 0)
    assert result.quarantine.is_empty()


def test_a_quote_that_never_closes_swallows_nothing(read):
    text = HEADER + GOOD + '2,"c0-2,2026-01-01T00:00:00Z,,\n' + GOOD.replace("1,", "3,", 1)
    with pytest.raises(SourceError):
        read(text)


def test_a_record_without_an_insert_time_gives_an_incident_and_no_stay(read):
    result = read(HEADER + "1,c0-1,,2026-01-02T00:00:00Z,DBE\n")
    assert result.table("core/inventory").is_empty()
    assert result.table("core/incidents").height == 1
    assert account(result) == (1, 1, 0, 0)


@pytest.mark.parametrize(
    ("line", "rule", "counts"),
    [
        # refused by the inventory, yet it still names a node's place and an event
        (
            "1,c0-1,2026-01-03T00:00:00Z,2026-01-02T00:00:00Z,DBE",
            "valid_to is before valid_from",
            (1, 1, 0, 0),
        ),
        ("1,c0-1,soon,2026-01-02T00:00:00Z,DBE", "valid_from is no ISO 8601 time", (1, 1, 0, 0)),
        ("1,c0-1,2026-01-01T00:00:00Z,,MELT", "unknown event 'MELT'", (1, 1, 0, 0)),
        (
            "1,x7,2026-01-01T00:00:00Z,,",
            r"node does not match ^c(?P<column>\d+)-(?P<row>\d+)",
            (1, 1, 0, 0),
        ),
        ("1,c0-1,2026-01-01T00:00:00Z", "number of fields is not 5", (1, 0, 0, 1)),
        ("1,spare,2026-01-01T00:00:00Z,,", None, (1, 0, 1, 0)),
        ("", None, (1, 0, 1, 0)),
        (b"1,c0-\xff,2026-01-01T00:00:00Z,,", "text is not UTF-8", (1, 0, 0, 1)),
    ],
)
def test_each_record_that_is_not_taken_is_counted_with_its_reason(read, line, rule, counts):
    line = line.encode() if isinstance(line, str) else line
    result = read(HEADER.encode() + line + b"\n")
    assert account(result) == counts
    assert refused(result) == ({} if rule is None else {rule: 1})


def test_a_stay_that_ends_before_it_begins_is_not_in_the_table(read):
    result = read(HEADER + "1,c0-1,2026-01-03T00:00:00Z,2026-01-02T00:00:00Z,\n" + GOOD)
    assert result.table("core/inventory")["valid_from"].to_list() == [
        datetime(2026, 1, 1, tzinfo=UTC)
    ]


def test_a_record_with_two_faults_counts_once(read):
    result = read(HEADER + "1,c0-1,soon,later,\n")
    assert refused(result) == {"valid_from is no ISO 8601 time": 1}


def test_a_record_that_no_table_takes_is_quarantined(read):
    result = read("uuid,host,bus\nG1,n1,nowhere\nG2,n1,0000:8A:00\n", ADDRESSES)
    assert account(result) == (2, 1, 0, 1)
    assert refused(result) == {"pci_bus_id is no PCI address": 1}
    assert "nowhere" in result.quarantine["example"][0]


@pytest.mark.parametrize("written", ["00000000:8A:00.0", "0000:8a:00", "PCI:0000:8A:00", "8a:00.0"])
def test_addresses_get_the_one_spelling_by_which_events_find_their_gpu(read, written):
    result = read(f"uuid,host,bus\nG1,n1,{written}\n", ADDRESSES)
    assert result.table("core/inventory")["pci_bus_id"].to_list() == ["00000000:8a:00.0"]


def test_a_blank_address_is_unknown_and_no_mistake(read):
    result = read("uuid,host,bus\nG1,n1,\n", ADDRESSES)
    assert result.table("core/inventory")["pci_bus_id"].to_list() == [None]
    assert account(result) == (1, 1, 0, 0)


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_values_are_scaled_and_the_words_for_unknown_are_null_in_both_formats(read, form):
    frame = pl.DataFrame(
        {"UUID": ["G1", "G1"], "at": [60, 120], "energy_mj": [2600, -1], "sbe": [3, -1]}
    )
    result = read(frame if form == "parquet" else frame.write_csv(), TELEMETRY % form)
    table = result.table("raw/gpu_telemetry")
    assert table["energy_j"].to_list() == [3, None]  # whole joules
    assert table["ecc_sbe_volatile"].to_list() == [3, None]
    assert table["ts"].to_list() == [
        datetime(1970, 1, 1, 0, minute, tzinfo=UTC) for minute in (1, 2)
    ]


@pytest.mark.parametrize("value", ["much", "1.5"])
def test_a_number_that_is_none_is_refused_and_not_nulled(read, value):
    result = read(f"UUID,at,energy_mj,sbe\nG1,60,1,{value}\nG2,60,1,2\n", TELEMETRY % "csv")
    assert result.table("raw/gpu_telemetry")["gpu_uuid"].to_list() == ["G2"]
    assert account(result) == (2, 1, 0, 1)
    assert refused(result) == {"ecc_sbe_volatile is no whole number": 1}


def test_states_are_renamed_open_ends_are_null_and_local_times_are_utc(read):
    text = "Node|State|Start|End\nn1|DOWN*|2026-01-01T01:00:00|Unknown\n"
    row = read(text, STATES).table("raw/node_states").row(0, named=True)
    assert (row["state"], row["valid_to"]) == ("DOWN", None)
    assert row["valid_from"] == datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("clock", "rule"),
    [
        ("2026-03-29T02:30:00", "does not exist in Europe/Berlin: the clock was put forward"),
        ("2026-10-25T02:30:00", "happened twice in Europe/Berlin: the clock was put back"),
    ],
)
def test_a_local_time_that_says_no_one_moment_is_refused(read, clock, rule):
    result = read(f"Node|State|Start|End\nn1|DOWN|{clock}|Unknown\n", STATES)
    assert refused(result) == {f"valid_from {rule}": 1}


@pytest.mark.parametrize(
    ("text", "mapping", "said"),
    [
        ("", STAYS, "is empty"),
        ("Serial,location,insert,remove,event\n", STAYS, "Did you mean 'Serial'"),
        ("serial;location;insert;remove;event\n", STAYS, "file.delimiter"),
        ("serial,serial,location,insert,remove,event\n", STAYS, "appears 2 times"),
        (HEADER.encode("utf-16"), STAYS, "is UTF-16"),
        (
            HEADER + "1,c0-1,2026-01-01T00:00:00,,\n",
            STAYS.replace(", time_zone: UTC", ""),
            "Say file.time_zone",
        ),
        ("no parquet", TELEMETRY % "parquet", "cannot be read as Parquet"),
    ],
)
def test_a_file_that_is_not_as_the_mapping_says_is_one_clear_error(read, text, mapping, said):
    with pytest.raises(SourceError) as caught:
        read(text, mapping)
    assert said in str(caught.value)
    assert "data.csv" in str(caught.value)


def test_a_list_to_leave_out_that_is_absent_is_one_clear_error(read):
    mapping = STAYS.replace("values: [spare]", "values_from: services.txt")
    with pytest.raises(SourceError, match=r"services\.txt, the list of location to leave out"):
        read(HEADER + GOOD, mapping)


def test_listed_nodes_are_skipped(read, tmp_path):
    (tmp_path / "services.txt").write_text("['c0-1', 'c9-9']")
    mapping = STAYS.replace("values: [spare]", r"values_from: services.txt, pattern: 'c\d+-\d+'")
    assert account(read(HEADER + GOOD, mapping)) == (1, 0, 1, 0)


def test_a_mapping_that_is_wrong_reads_nothing(read):
    with pytest.raises(SettingsError):
        read(HEADER + GOOD, "file: {format: csv}")


def test_the_same_event_keeps_its_id_whatever_else_is_in_the_file(read):
    alone = read(HEADER + GOOD).table("core/incidents")["incident_id"].to_list()
    other = "2,c0-2,2026-01-01T00:00:00Z,2026-01-03T00:00:00Z,DBE\n"
    among = read(HEADER + other + GOOD).table("core/incidents")["incident_id"].to_list()
    assert alone[0] in among
    assert len(set(among)) == 2


CELL = st.sampled_from(["", "1", "c0-1", "x", "spare", "DBE", "MELT", "2026-01-01T00:00:00Z", '"'])


@given(st.lists(st.lists(CELL, max_size=6), max_size=5))
@settings(max_examples=50, deadline=None)
def test_no_record_is_lost_whatever_the_file_holds(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("any")
    (folder / "data.csv").write_text(HEADER + "".join(",".join(row) + "\n" for row in rows))
    (folder / "mapping.yaml").write_text(STAYS)
    try:
        result = read_history(folder / "data.csv", folder / "mapping.yaml", ingested_at=NOW)
    except SourceError:  # an open quote swallows the rest
        return
    n_read, n_parsed, n_skipped, n_quarantined = account(result)
    assert n_read == n_parsed + n_skipped + n_quarantined
    assert '"' in str(rows) or n_read == len(rows)
    for key, frame in result.tables.items():
        assert TABLE_BY_KEY[key].enforce(frame).rejects.is_empty()
