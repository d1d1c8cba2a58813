"""Reading the fault catalogue."""

import polars as pl
import pytest

from features.catalogue import CATALOGUE_COLUMNS, EVENT_GROUPS, REASON_KIND, ROLES
from features.errors import SettingsError
from features.vocabulary import FAULT_TYPES
from pipelines.sources.catalogue import load_catalogue

HEADER = ",".join(CATALOGUE_COLUMNS)


def write(tmp_path, *lines):
    path = tmp_path / "rules.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_the_shipped_catalogue_is_read():
    catalogue = load_catalogue()
    assert catalogue.version.startswith("fault_catalogue@")
    assert any(rule.kind == "xid" and rule.code == 79 for rule in catalogue.rules)


def test_every_row_of_the_shipped_catalogue_is_well_formed():
    rules = load_catalogue().rules
    assert len({(rule.kind, rule.code, rule.pattern) for rule in rules}) == len(rules)
    for rule in rules:
        assert rule.role in ROLES
        assert rule.fault_type in (None, *FAULT_TYPES)
        assert (rule.group in EVENT_GROUPS) is (rule.kind != REASON_KIND)
        assert rule.kind == REASON_KIND or rule.note  # says in words why
        if rule.role in ("precursor", "noise", "ignore"):
            assert rule.fault_type is None


def test_the_shipped_catalogue_knows_every_xid_up_to_172():
    codes = {rule.code for rule in load_catalogue().rules if rule.kind == "xid"}
    assert set(range(1, 173)) <= codes


@pytest.mark.parametrize(
    ("kind", "code", "message", "role", "fault_type"),
    [
        ("xid", 149, "149, NETIR_LINK_EVT Fatal XC0 i0 Link 09 (0x1)", "primary", "nvlink"),
        ("xid", 149, "149, NETIR_LINK_EVT Nonfatal XC0 i0 Link -1 (0x1)", "precursor", None),
        ("xid", 149, "149, NETIR_LINK_EVT Nonfatal XC0 i1 Link -1 (0x1)", "ignore", None),
        ("xid", 145, "145, RLW_REMAP Fatal XC0 i1 Link 0 (0x1)", "ignore", None),
        ("xid", 145, "145, pid=1, name=a, RLW_REMAP Nonfatal XC1 i0 Link 0", "precursor", None),
        ("xid", 79, "79, GPU has fallen off the bus.", "primary", "off_bus"),
        ("xid", 99999, "99999, new", None, None),
        ("sxid", 20034, "20034, Fatal, Link 48 LTSSM Fault Up", "primary", "nvlink"),
        ("sxid", 20034, "20034, Severity 1 Engine instance 62", "primary", "nvlink"),
        ("sxid", 11004, "11004, Severity 0 Engine instance 42", "precursor", None),
        ("sxid", 12028, "12028, Non-fatal, Link 32 egress", "precursor", None),
        ("sxid", 12028, "detected NVSwitch non-fatal error 12028 on fid 0", "precursor", None),
        ("sxid", 20034, "detected NVSwitch fatal error 20034 on fid 0", "primary", "nvlink"),
        ("sxid", 23001, "23001, Data {0x1}", "primary", "nvlink"),
        ("sxid", 11111, "11111, Data {0x1}", "precursor", None),
        ("nvlink", None, "detected GPU NVL Non Fatal error on :", "precursor", None),
        ("nvlink", None, "detected GPU NVL Fatal error on :", "primary", "nvlink"),
        ("aer", None, "Uncorrected (Non-Fatal) error received", "precursor", None),
        ("unknown", None, "amdgpu: 1 uncorrectable", "ignore", None),
    ],
)
def test_what_the_line_calls_an_error_decides(kind, code, message, role, fault_type):
    events = pl.DataFrame({"kind": [kind], "code": [code], "message": [f"NVRM: {message}"]})
    found = load_catalogue().classify(events.with_columns(pl.col("code").cast(pl.Int32)))
    assert found.select("role", "fault_type").row(0) == (role, fault_type)


def test_a_sites_own_catalogue_has_a_version_that_changes_with_it(tmp_path):
    path = write(tmp_path, HEADER, "xid,79,,primary,off_bus,off_bus,lost")
    first = load_catalogue(path)
    assert [(rule.code, rule.fault_type) for rule in first.rules] == [(79, "off_bus")]
    write(tmp_path, HEADER, "xid,79,,primary,off_bus,off_bus,gone")
    assert load_catalogue(path).version != first.version


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([HEADER, "xid,79,,heroic,off_bus,off_bus,"], "row 1: role must be one of"),
        (["kind,code,role", "xid,79,primary"], "column 'pattern' is missing"),
        ([HEADER, "xid,79,,primary,off_bus,off_bus,a,b"], "row 1 has too many fields, expected 7"),
        ([HEADER, "xid,79"], "row 1 has 2 fields, expected 7"),
        ([HEADER], "has no rows below its header"),
        ([HEADER, '"xid,79'], r"line \d is no CSV.*Check its quotes"),
    ],
)
def test_a_bad_catalogue_is_one_clear_error_with_the_file(tmp_path, lines, message):
    path = write(tmp_path, *lines)
    with pytest.raises(SettingsError, match=rf"rules\.csv.*{message}"):
        load_catalogue(path)


def test_an_absent_catalogue_is_one_clear_error(tmp_path):
    with pytest.raises(SettingsError, match=r"absent\.csv cannot be read"):
        load_catalogue(tmp_path / "absent.csv")
