"""JSON entries of the journal and of container runtimes."""

import json
from datetime import UTC, datetime

import pytest

from pipelines.sources.kernel.journald import JsonEntry, read_entry


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (
            {"MESSAGE": "NVRM", "__REALTIME_TIMESTAMP": "1", "_HOSTNAME": "n1", "_BOOT_ID": "b"},
            JsonEntry("NVRM", datetime(1970, 1, 1, 0, 0, 0, 1, UTC), "n1", "b"),
        ),
        (
            {"MESSAGE": "x", "_SOURCE_REALTIME_TIMESTAMP": "1"},
            JsonEntry("x", datetime(1970, 1, 1, 0, 0, 0, 1, UTC)),
        ),
        ({"MESSAGE": [78, 86, 255]}, JsonEntry("NV\ufffd")),
        ({"MESSAGE": ["a", "b"]}, JsonEntry("a b")),
        ({"MESSAGE": "x", "__REALTIME_TIMESTAMP": True}, JsonEntry("x")),
        ({"MESSAGE": "x", "__REALTIME_TIMESTAMP": "9" * 40}, JsonEntry("x")),
        ({"MESSAGE": "x", "__REALTIME_TIMESTAMP": ["1", "2"]}, JsonEntry("x")),
        ({"log": "x\n", "time": "2026-01-05T00:00:00Z"}, JsonEntry("2026-01-05T00:00:00Z x")),
        (
            {"message": "x", "timestamp": "2026-01-05T00:00:00Z", "hostname": "n1"},
            JsonEntry("2026-01-05T00:00:00Z x", host="n1"),
        ),
        ({"msg": "x", "time": 5.5, "host": {}}, JsonEntry("x")),
        ({"MESSAGE": None}, None),
        ({"MESSAGE": [1000]}, None),
        ({"MESSAGE": [-1]}, None),
        ({"MESSAGE": {}}, None),
        ({"log": 5}, None),
        ({}, None),
        ([], None),
    ],
)
def test_entries(entry, expected):
    assert read_entry(json.dumps(entry)) == expected


@pytest.mark.parametrize(
    ("before", "after"),
    [("data: ", ""), ("\x1e", ""), ("[", ","), (" ", "]"), ("", " ,\r")],
)
def test_what_streams_of_entries_put_around_one_is_passed_over(before, after):
    assert read_entry(f'{before}{{"MESSAGE": "x"}}{after}') == JsonEntry("x")


@pytest.mark.parametrize("text", ["{", '{"MESSAGE":' + "[" * 100_000, "{'MESSAGE': 'x'}"])
def test_what_is_no_json_is_no_entry(text):
    assert read_entry(text) is None
