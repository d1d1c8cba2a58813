"""Remote read's answers built by hand, and a stand-in for servers that speak HTTP."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa

from pipelines.sources.prometheus.frames import crc32c
from pipelines.sources.prometheus.wire import encode_field, encode_varint, padded
from tests.pipelines.sources.prometheus.xor_oracle import bits_of, encode

Samples = Sequence[tuple[int, float]]


def frame(content: bytes) -> bytes:
    checksum = crc32c(padded(content), 0, len(content))
    return encode_varint(len(content)) + checksum.to_bytes(4, "big") + content


def label_fields(labels: Mapping[str, str]) -> bytes:
    return b"".join(
        encode_field(1, encode_field(1, k.encode()) + encode_field(2, labels[k].encode()))
        for k in sorted(labels)
    )


def chunk(samples: Samples, *, encoding: int = 1, data: bytes | None = None) -> bytes:
    content = encode([(ts, bits_of(v)) for ts, v in samples]) if data is None else data
    first, last = (samples[0][0], samples[-1][0]) if samples else (0, 0)
    return (
        encode_field(1, first)
        + encode_field(2, last)
        + encode_field(3, encoding)
        + encode_field(4, content)
    )


def chunked(labels: Mapping[str, str], *chunks: bytes) -> bytes:
    """A frame with one series."""
    series = label_fields(labels) + b"".join(encode_field(2, one) for one in chunks)
    return frame(encode_field(1, series))


def sampled(series: Sequence[tuple[Mapping[str, str], Samples]]) -> bytes:
    """A whole ReadResponse, snappy."""
    out = b""
    for labels, samples in series:
        parts = b"".join(
            encode_field(
                2,
                encode_varint(1 << 3 | 1)
                + bits_of(value).to_bytes(8, "little")
                + encode_field(2, ts),
            )
            for ts, value in samples
        )
        out += encode_field(1, label_fields(labels) + parts)
    return pa.compress(encode_field(1, out), codec="snappy", asbytes=True)


def matrix(series: Sequence[tuple[Mapping[str, str], Samples]], **more: object) -> bytes:
    result = [
        {"metric": dict(labels), "values": [[ts / 1000, repr(v)] for ts, v in samples]}
        for labels, samples in series
    ]
    data = {"resultType": "matrix", "result": result}
    return json.dumps({"status": "success", "data": data, **more}).encode()


@dataclass(frozen=True)
class Request:
    """What a client sent."""

    method: str
    path: str
    params: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    """What the stand-in says."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] | None = None
    declared_length: int | None = None


@dataclass
class StandIn:
    """Where the stand-in listens, and what it was asked."""

    url: str
    requests: list[Request]


@contextmanager
def stand_in(answer: Callable[[Request], Answer]) -> Iterator[StandIn]:
    """A server that answers as told."""
    asked: list[Request] = []

    class Handler(BaseHTTPRequestHandler):
        def reply(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            is_form = "form-urlencoded" in self.headers.get("Content-Type", "")
            query = body.decode() if is_form else parts.query
            request = Request(self.command, parts.path, parse_qs(query), dict(self.headers), body)
            asked.append(request)
            said = answer(request)
            self.send_response(said.status)
            for name, value in (said.headers or {}).items():
                self.send_header(name, value)
            length = len(said.body) if said.declared_length is None else said.declared_length
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(said.body)
            self.close_connection = said.declared_length is not None

        do_GET = do_POST = reply  # noqa: N815 - names of the base class

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield StandIn(f"http://127.0.0.1:{server.server_address[1]}", asked)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
