"""Remote read on the wire: requests, frames cut anywhere, labels, snappy."""

from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from features.errors import SourceError
from pipelines.sources.http.errors import AnswerError
from pipelines.sources.prometheus.frames import crc32c, walk_frames, walk_samples
from pipelines.sources.prometheus.readings import Window
from pipelines.sources.prometheus.series import Matcher
from pipelines.sources.prometheus.wire import (
    encode_field,
    encode_read_request,
    encode_varint,
    frame_blocks,
    padded,
    read_labels,
    unpack_snappy,
)
from tests.pipelines.sources.prometheus.answers import frame

texts = st.text(max_size=200)


def messages(blocks):
    return [
        block.buf[start:end].tobytes() for block in blocks for start, end in block.frames.tolist()
    ]


def test_the_checksum_is_crc_32c():
    assert crc32c(padded(b"123456789"), 0, 9) == 0xE3069283
    assert crc32c(padded(bytes(32)), 0, 32) == 0x8A9136AA


@given(st.lists(st.binary(max_size=300), max_size=6), st.data())
def test_frames_come_out_whole_wherever_the_stream_is_cut(contents, data):
    stream = b"".join(frame(content) for content in contents)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert messages(frame_blocks(pieces)) == contents


def test_a_frame_of_many_pieces_comes_out_whole():
    content = bytes(range(256)) * 20_000
    stream = frame(b"a") + frame(content) + frame(b"z")
    pieces = [stream[at : at + 300_000] for at in range(0, len(stream), 300_000)]
    assert messages(frame_blocks(pieces)) == [b"a", content, b"z"]


@given(st.data())
def test_a_stream_cut_within_a_frame_is_an_error(data):
    stream = frame(b"first") + frame(b"second" * 50)
    cut = data.draw(st.integers(1, len(stream) - 1).filter(lambda at: at != len(frame(b"first"))))
    with pytest.raises(AnswerError, match="within a frame") as caught:
        messages(frame_blocks([stream[:cut]]))
    assert caught.value.may_pass


@given(st.data())
def test_a_changed_byte_is_an_error(data):
    stream = bytearray(frame(b"some content of a frame"))
    at = data.draw(st.integers(0, len(stream) - 1))
    stream[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(AnswerError):
        messages(frame_blocks([bytes(stream)]))


@given(st.binary(max_size=200))
def test_any_bytes_as_a_stream_are_frames_or_an_error(data):
    with suppress(SourceError):
        messages(frame_blocks([data]))


@given(st.binary(max_size=120))
def test_any_bytes_as_messages_are_walked_within_their_bounds(data):
    buf, size = padded(data), len(data)
    frames = np.array([[0, size]], np.int64)
    series, chunks = np.full((200, 2), -1, np.int64), np.full((200, 4), -1, np.int64)
    n_series, n_chunks, _ = walk_frames(buf, frames, series, chunks)
    assert 0 <= n_series <= size
    found = np.concatenate([series[:n_series].ravel(), chunks[:n_chunks, 2:].ravel()])
    assert ((found >= 0) & (found <= size)).all()
    spans = np.full((200, 4), -1, np.int64)
    ts, bits = np.empty(200, np.int64), np.empty(200, np.uint64)
    n_series, n, _ = walk_samples(buf, size, spans, ts, bits)
    assert (spans[:n_series, :2] <= size).all()
    assert (spans[:n_series, 2:] <= n).all()


@given(st.dictionaries(texts, texts, max_size=6))
def test_labels_are_read_whatever_their_length_and_order_of_fields(labels):
    usual, turned = b"", b""
    for name, value in labels.items():
        parts = encode_field(1, name.encode()), encode_field(2, value.encode())
        usual += encode_field(1, b"".join(parts))
        turned += encode_field(7, 3) + encode_field(1, parts[1] + parts[0])
    assert read_labels(usual) == labels
    assert read_labels(turned) == labels


@given(st.binary(max_size=60))
def test_any_bytes_as_labels_are_no_crash(data):
    read_labels(data)


def test_a_request_is_read_by_protobuf_as_it_was_meant():
    request = read_request_class()()
    matchers = [Matcher("__name__", "=~", "A|B"), Matcher("job", "!=", "ü")]
    packed = encode_read_request(matchers, Window(-5, 2000))
    size, _ = packed[0], None
    request.ParseFromString(pa.decompress(packed, size, codec="snappy", asbytes=True))
    query = request.queries[0]
    assert (query.start_timestamp_ms, query.end_timestamp_ms) == (-5, 1999)
    assert [(m.type, m.name, m.value) for m in query.matchers] == [
        (2, "__name__", "A|B"),
        (1, "job", "ü"),
    ]
    assert list(request.accepted_response_types) == [1, 0]


def test_a_varint_of_a_negative_number_has_ten_bytes():
    assert len(encode_varint(-1)) == 10


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"", "no snappy block"),
        (b"<html>", "no snappy block"),
        (b"\xff" * 20, "no snappy block"),
        (b"\x80\x80\x80\x80\x20" + bytes(50), "unpacks to"),
        (b"\x80\x08\x00", "unpacks to"),
    ],
)
def test_what_is_no_snappy_or_a_bomb_is_refused(data, match):
    with pytest.raises(AnswerError, match=match):
        unpack_snappy(data, max_bytes=1 << 20)


@given(st.binary(max_size=100))
def test_any_bytes_as_snappy_are_content_or_an_error(data):
    with suppress(AnswerError):
        unpack_snappy(data, max_bytes=1 << 20)


def read_request_class():
    """The request as protobuf itself knows it."""
    kinds = {"int64": 3, "string": 9, "message": 11, "int32": 5}
    file = descriptor_pb2.FileDescriptorProto(name="r.proto", package="p", syntax="proto3")
    layout = {
        "Matcher": [("type", 1, "int32", 1), ("name", 2, "string", 1), ("value", 3, "string", 1)],
        "Query": [
            ("start_timestamp_ms", 1, "int64", 1),
            ("end_timestamp_ms", 2, "int64", 1),
            ("matchers", 3, ".p.Matcher", 3),
        ],
        "Request": [
            ("queries", 1, ".p.Query", 3),
            ("accepted_response_types", 2, "int32", 3),
        ],
    }
    for name, fields in layout.items():
        message = file.message_type.add(name=name)
        for field, number, kind, label in fields:
            is_message = kind.startswith(".")
            message.field.add(
                name=field,
                number=number,
                label=label,
                type=kinds["message" if is_message else kind],
                type_name=kind if is_message else None,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("p.Request"))
