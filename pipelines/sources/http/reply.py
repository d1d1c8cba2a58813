"""An HTTP answer while it comes in: in pieces, within limits of size and time.

No request is sent here, and nothing is tried again.
"""

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import requests
from urllib3.exceptions import HTTPError, ReadTimeoutError

from pipelines.sources.http.errors import AnswerError

_PIECE: Final = 1 << 20
_LATE: Final = "the answer took longer than the limit"


class HttpReply:
    """An answer that is being received; it can be read once.

    Args:
        response: The open response.
        max_bytes: Longest body, unpacked.
        is_late: Whether the answer has taken too long.
    """

    def __init__(
        self, response: requests.Response, *, max_bytes: int, is_late: Callable[[], bool]
    ) -> None:
        self._response = response
        self._max_bytes = max_bytes
        self._is_late = is_late

    @property
    def content_type(self) -> str:
        """The media type with its parameters, lower case."""
        return str(self._response.headers.get("Content-Type", "")).lower()

    def pieces(self) -> Iterator[bytes]:
        """The body, unpacked, as it comes in, in pieces of about a megabyte.

        Raises:
            AnswerError: It is longer than the limit; asking again would not help.
            requests.RequestException: The connection broke or took too long.
        """
        seen = 0
        while piece := self._read():
            seen += len(piece)
            if seen > self._max_bytes:
                raise AnswerError(
                    f"the answer is longer than {self._max_bytes:,} bytes", is_too_much=True
                )
            yield piece
        if self._is_late():
            raise requests.ReadTimeout(_LATE)

    def body(self) -> bytes:
        """The whole body. Raises what `pieces` raises."""
        return b"".join(self.pieces())

    def _read(self) -> bytes:
        """The next piece. `iter_content` would give a server's smallest chunks one by one."""
        try:
            piece: bytes = self._response.raw.read(_PIECE, decode_content=True)
        except ReadTimeoutError as error:
            raise requests.ReadTimeout("the answer stopped coming") from error
        except (HTTPError, OSError, http.client.HTTPException) as error:
            if self._is_late():
                raise requests.ReadTimeout(_LATE) from error
            raise requests.ConnectionError(f"the answer broke off: {error}") from error
        return piece


@contextmanager
def deadline(response: requests.Response, seconds: float, late: threading.Event) -> Iterator[None]:
    """Ends an answer that takes too long, also one that comes a byte at a time.

    Args:
        response: The open response.
        seconds: How long it may take.
        late: Set when it took longer.
    """

    def end() -> None:
        late.set()
        # The answer may be over, and its connection with another one, at the same moment.
        with suppress(OSError, ValueError, HTTPError):
            response.raw.shutdown()

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
