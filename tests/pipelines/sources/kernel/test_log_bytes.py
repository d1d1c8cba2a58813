"""Logs are read block by block, however they are packed."""

import bz2
import gzip
import lzma
import random

import pyarrow as pa
import pytest

from features.errors import SourceError
from pipelines.sources.kernel.log_bytes import BrokenLogError, read_blocks

DATA = b"a usual line of a log\n" * 1000

PACKED = {
    "plain": lambda data: data,
    "gz": gzip.compress,
    "xz": lzma.compress,
    "bz2": bz2.compress,
    "zst": lambda data: pa.compress(data, "zstd", asbytes=True),
    "gz of two parts": lambda data: gzip.compress(data[:99]) + gzip.compress(data[99:]),
}


@pytest.mark.parametrize("how", PACKED)
def test_a_log_is_unpacked_whatever_its_name(tmp_path, how):
    path = tmp_path / "n1.log.1"
    path.write_bytes(PACKED[how](DATA))
    blocks = list(read_blocks(path, block_bytes=1000))
    assert b"".join(blocks) == DATA
    assert max(map(len, blocks)) <= 1000


@pytest.mark.parametrize("how", ["gz", "xz", "bz2", "zst"])
def test_a_packed_log_that_breaks_off_gives_what_came_before(tmp_path, how):
    path = tmp_path / "n1.log.1"
    noise = random.Random(5).randbytes(2_000_000)  # noqa: S311 - it must not pack well
    packed = PACKED[how](noise)
    path.write_bytes(packed[: len(packed) * 3 // 4])
    blocks = []
    with pytest.raises(BrokenLogError):
        blocks.extend(iter(read_blocks(path, block_bytes=100_000)))
    came = b"".join(blocks)
    assert noise.startswith(came)
    assert len(came) > len(noise) // 10


@pytest.mark.parametrize("order", ["utf-16-le", "utf-16-be"])
def test_a_log_in_utf_16_is_read_as_utf_8(tmp_path, order):
    text = "a line of a log, \N{GREEK SMALL LETTER PI}\r\n" * 1000
    path = tmp_path / "n1.log"
    path.write_bytes(f"\ufeff{text}".encode(order))
    assert b"".join(read_blocks(path, block_bytes=1000)).decode() == text


def test_an_empty_log_has_no_blocks(tmp_path):
    path = tmp_path / "n1.log"
    path.touch()
    assert list(read_blocks(path)) == []


def test_a_log_that_cannot_be_read_is_one_clear_error(tmp_path):
    with pytest.raises(SourceError, match=r"absent\.log cannot be read"):
        list(read_blocks(tmp_path / "absent.log"))
    with pytest.raises(SourceError, match="cannot be read"):
        list(read_blocks(tmp_path))
