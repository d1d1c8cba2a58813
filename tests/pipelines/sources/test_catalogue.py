"""Reading the fault catalogue."""

import pytest

from features.catalogue import CATALOGUE_COLUMNS
from features.errors import SettingsError
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
