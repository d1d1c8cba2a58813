"""An HTTP server on loopback that gives each request the answer it is told to give.

What is answered and expected is each test's own.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_LONGEST_S = 30


@dataclass(frozen=True)
class Answer:
    """What is sent back.

    Attributes:
        status: The code.
        body: What follows the headers.
        headers: Beside the length.
        length: What the length is said to be; None: the body's; -1: it is not said.
        is_silent: Nothing is sent, and the connection stays open.
    """

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = None
    is_silent: bool = False


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "AnsweringServer"

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.n_requests += 1
        answer = self.server.answer(self.command, self.server.n_requests)
        self.close_connection = True
        if answer.is_silent:
            self.server.is_over.wait(_LONGEST_S)
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        length = len(answer.body) if answer.length is None else answer.length
        if length >= 0:
            self.send_header("Content-Length", str(length))
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _answer  # noqa: N815 - names of the library

    def log_message(self, *_: object) -> None:
        """Says nothing."""


class AnsweringServer(ThreadingHTTPServer):
    """The server; `answer` is given the method and the number of the request."""

    daemon_threads = True

    def __init__(self, answer: Callable[[str, int], Answer]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.n_requests = 0
        self.is_over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def answering(answer: Callable[[str, int], Answer]) -> Iterator[AnsweringServer]:
    """A server that runs as long as the block."""
    with AnsweringServer(answer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.is_over.set()
            server.shutdown()
            thread.join()
