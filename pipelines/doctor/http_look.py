"""One look at an HTTP server: its status, its words, its clock. Nothing is sent but the question.

Which servers are looked at is in the other modules of this package.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from features.errors import SettingsError
from pipelines.doctor.probe import Finding, beside_header
from pipelines.sources.http.auth import safe_url
from remediation.actuators.exchange import Answer, NoAnswerError, Patience, exchange

_PATIENCE: Final = Patience(connect_s=4.0, read_s=8.0, total_s=10.0, max_bytes=8 << 20)
_SHOWN: Final = 160


@dataclass(frozen=True)
class HttpLook:
    """A question to a server.

    Attributes:
        url: Whole address.
        token: Bearer token; None: none is sent.
        ca_file: Certificates of its authority; None: the system's.
        headers: Further headers.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def ask(self, method: str = "GET", body: bytes | None = None) -> "HttpSeen":
        """Asks once.

        Raises:
            SettingsError: The token is none that can be sent.
            NoAnswerError: No answer came.
        """
        import urllib3

        if self.token is not None and not (self.token.isascii() and self.token.isprintable()):
            raise SettingsError(f"{safe_url(self.url)}: the token holds what no header can carry")
        sent = {"User-Agent": "forewarn doctor", **self.headers}
        if self.token is not None:
            sent["Authorization"] = f"Bearer {self.token}"
        pool = urllib3.PoolManager(ca_certs=str(self.ca_file) if self.ca_file else None)
        try:
            answer = exchange(pool, method, self.url, headers=sent, body=body, patience=_PATIENCE)
        except NoAnswerError as error:
            raise NoAnswerError(
                f"{safe_url(self.url)}: {error}. {self._next_step(str(error))}",
                may_have_acted=error.may_have_acted,
            ) from error
        finally:
            pool.clear()
        return HttpSeen(self.url, answer, datetime.now(UTC))

    def _next_step(self, said: str) -> str:
        parts = urlsplit(self.url)
        if "SSL" in said or "CERTIFICATE" in said.upper():
            return "Name its authority's certificates as ca_file, or correct the host's name."
        if "NameResolution" in said or "Name or service" in said:
            return f"Correct the name {parts.hostname}, or this machine's DNS."
        return f"Start it, or let this machine through to {parts.netloc.rpartition('@')[2]}."


@dataclass(frozen=True)
class HttpSeen:
    """An answer.

    Attributes:
        url: What was asked.
        answer: The answer.
        at: When it came.
    """

    url: str
    answer: Answer
    at: datetime

    def clock(self) -> Finding | None:
        """What is wrong with its clock; None: nothing."""
        return beside_header(self.answer.date, self.at)

    def refusal(self) -> Finding | None:
        """What is wrong by its status; None: nothing."""
        status = self.answer.status
        if self.answer.is_fine:
            return None
        said = " ".join(self.answer.body.decode(errors="replace").split())[:_SHOWN]
        what = f"{safe_url(self.url)} answers HTTP {status}" + (f": {said}" if said else "")
        if status in (401, 403):
            return Finding("FAIL", what, "Correct the secret, or what its user may do.")
        if status == 404:
            return Finding("FAIL", what, "Correct the address: something else listens there.")
        return Finding("FAIL", what, "See that server's own log.")
