"""What file names tell."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from features.errors import SourceError
from pipelines.sources.files import decode, node_in_name, read_bytes, time_in_name


@pytest.mark.parametrize(
    ("name", "ts", "node"),
    [
        ("2026-01-05T00-05-00Z.prom", datetime(2026, 1, 5, 0, 5, tzinfo=UTC), None),
        ("gpu1__2026-01-05T00-05-00Z.prom", datetime(2026, 1, 5, 0, 5, tzinfo=UTC), "gpu1"),
        ("a__b__2026-01-05T00-05-00-250Z.prom", datetime(2026, 1, 5, 0, 5, 0, 250_000, UTC), "a"),
        ("gpu1.log", None, "gpu1"),
        ("gpu1__boot3.log", None, "gpu1"),
        ("gpu1.example.org.log", None, "gpu1.example.org"),
        ("gpu1__2026-13-05T00-05-00Z.prom", None, "gpu1"),
        ("gpu1__2026-01-05T00-05-00.prom", None, "gpu1"),  # no Z: whose clock?
    ],
)
def test_names_give_time_and_node(name, ts, node):
    assert time_in_name(Path(name)) == ts
    assert node_in_name(Path(name)) == node


def test_a_file_that_cannot_be_read_is_one_clear_error(tmp_path):
    with pytest.raises(SourceError, match=r"absent\.log cannot be read"):
        read_bytes(tmp_path / "absent.log")
    with pytest.raises(SourceError, match="is a file"):
        read_bytes(tmp_path)


def test_bad_bytes_become_replacement_characters_and_a_byte_order_mark_goes():
    assert decode(b"\xef\xbb\xbfJob\xffID") == "Job\ufffdID"
