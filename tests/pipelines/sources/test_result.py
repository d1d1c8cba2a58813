"""The account of a read: nothing is lost, nothing counted twice."""

import polars as pl
import pytest

from features.errors import DataError
from features.monitoring_tables import QUARANTINE, READS
from features.raw_tables import RAW_KERNEL_LOG
from pipelines.sources.result import EXAMPLE_LENGTH, ReadTally, SourceResult, as_table, merge

KEY = RAW_KERNEL_LOG.asset_key


def tally(origin="a.log"):
    return ReadTally(table=KEY, source="kernel_log", origin=origin)


def test_each_rule_keeps_its_count_and_its_first_example():
    account = tally()
    account.read(5)
    account.parsed(2)
    account.skipped()
    account.quarantined("rule", "first")
    account.quarantined("rule", "second")
    result = account.result({})
    assert result.quarantine.rows() == [(KEY, "kernel_log", "a.log", "rule", 2, "first")]
    assert result.reads.rows() == [("kernel_log", "a.log", 5, 2, 1, 2)]


@pytest.mark.parametrize(("n_read", "n_parsed"), [(3, 2), (2, 3), (1, 0)])
def test_an_account_that_does_not_add_up_is_an_error(n_read, n_parsed):
    account = tally()
    account.read(n_read)
    account.parsed(n_parsed)
    with pytest.raises(DataError, match=r"a\.log: .* do not add up"):
        account.result({})


def test_a_long_example_is_cut():
    account = tally()
    account.read()
    account.quarantined("rule", "x" * 10_000)
    assert len(account.result({}).quarantine["example"][0]) == EXAMPLE_LENGTH


def test_a_column_left_out_of_a_row_is_null_and_types_are_the_contracts():
    frame = as_table(RAW_KERNEL_LOG, [{"kind": "xid", "code": 79}])
    assert frame.schema == RAW_KERNEL_LOG.schema
    assert frame["node"].to_list() == [None]


def test_merging_appends_rows_and_adds_counts_of_the_same_file():
    account = tally()
    account.read(2)
    account.parsed()
    account.quarantined("rule", "first")
    once = account.result({KEY: as_table(RAW_KERNEL_LOG, [{"kind": "xid"}])})
    both = merge([once, once])
    assert both.table(KEY).height == 2
    assert both.reads.rows() == [("kernel_log", "a.log", 4, 2, 0, 2)]
    assert both.quarantine["count"].to_list() == [2]
    assert (both.quarantine.schema, both.reads.schema) == (QUARANTINE.schema, READS.schema)


def test_merging_nothing_gives_empty_tables():
    nothing = merge([])
    assert nothing.table(KEY).equals(RAW_KERNEL_LOG.empty())
    assert isinstance(nothing.reads, pl.DataFrame)
    assert SourceResult().reads.is_empty()
