"""TFRecord framing: whole, torn, spoilt and lost records are told apart."""

import io
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.sources.jobs import tfrecord
from pipelines.sources.jobs.tfrecord import crc32c, masked, tf_records


def framed(payload):
    length = struct.pack("<Q", len(payload))
    crcs = [struct.pack("<I", masked(crc32c(part))) for part in (length, payload)]
    return length + crcs[0] + payload + crcs[1]


def fates(data):
    return [(record.fate, record.position) for record in tf_records(io.BytesIO(data))]


def test_the_checksum_is_castagnolis():
    assert crc32c(b"") == 0
    assert crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, appendix B.4
    assert crc32c(bytes(range(32))) == 0x46DD794E


@pytest.mark.slow  # compiles, where nothing is cached
def test_long_and_short_ways_to_the_checksum_agree(monkeypatch):
    data = bytes(range(256)) * 300 + b"abc"
    compiled = crc32c(data)
    monkeypatch.setattr(tfrecord, "_COMPILED_FROM", 1 << 40)
    assert crc32c(data) == compiled


def test_whole_records_are_given_in_order():
    records = list(tf_records(io.BytesIO(framed(b"a") + framed(b"") + framed(b"ccc"))))
    assert [record.payload for record in records] == [b"a", b"", b"ccc"]
    assert [record.position for record in records] == [0, 17, 33]


@pytest.mark.parametrize("missing", range(1, 19))
def test_a_file_that_ends_within_a_record_is_torn_there(missing):
    data = framed(b"a") + framed(b"bcd")
    assert fates(data[:-missing]) == [("whole", 0), ("torn", 17)]


def test_a_spoilt_payload_loses_one_record():
    data = bytearray(framed(b"a") + framed(b"bcd") + framed(b"e"))
    data[17 + 12] ^= 1
    assert fates(data) == [("whole", 0), ("spoilt", 17), ("whole", 36)]


@pytest.mark.parametrize("tail", [b"\0" * 40, b"\xff" * 40])
def test_a_spoilt_length_loses_the_rest(tail):
    assert fates(framed(b"a") + tail) == [("whole", 0), ("lost", 17)]


def test_a_record_too_large_to_be_held_is_passed_over(monkeypatch):
    monkeypatch.setattr(tfrecord, "LARGEST_RECORD", 4)
    large = framed(b"abcdef")
    assert fates(large + framed(b"x")) == [("too_large", 0), ("whole", len(large))]
    assert fates(large[:-1]) == [("torn", 0)]


@given(st.lists(st.binary(max_size=6), max_size=4), st.binary(max_size=20), st.integers(0, 60))
def test_any_bytes_are_read(payloads, tail, cut):
    data = b"".join(map(framed, payloads))
    found = list(tf_records(io.BytesIO(data[:cut] + tail)))
    n_whole = sum(
        len(b"".join(map(framed, payloads[: n + 1]))) <= cut for n in range(len(payloads))
    )
    assert [record.payload for record in found[:n_whole]] == payloads[:n_whole]
    assert {record.fate for record in found[:-1]} <= {"whole", "spoilt"}
