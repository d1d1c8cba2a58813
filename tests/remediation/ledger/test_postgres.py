"""PostgreSQL is a choice: without it nothing of it is loaded, and its absence is told plainly."""

import subprocess
import sys

import pytest

from features.errors import SettingsError
from remediation.lease.postgres import PostgresLease
from remediation.ledger.postgres import PostgresLedger


@pytest.mark.parametrize("made", [PostgresLedger, PostgresLease])
def test_an_absent_driver_is_one_clear_error(monkeypatch, made):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(SettingsError, match=r"install forewarn\[postgres\]"):
        made("host=db1")


def test_the_driver_is_loaded_only_when_a_ledger_is_opened():
    code = "import sys, remediation.lease.postgres; sys.exit('psycopg' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
