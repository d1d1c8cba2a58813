"""A server's address, where its secret is found, and the limits of speaking to it.

No request is made here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from features.errors import SettingsError
from pipelines.sources.http.auth import Auth, safe_url


@dataclass(frozen=True)
class HttpLimits:
    """How long, how much and how often.

    Attributes:
        connect_s: Longest wait for a connection.
        read_s: Longest silence within an answer.
        total_s: Longest time one answer may take in all.
        attempts: Tries of one request, the first included.
        first_wait_s: Wait before the second try; it doubles, with jitter.
        longest_wait_s: Longest wait between tries; a server that asks for more is an error.
        max_bytes: Longest answer, unpacked.
        concurrent: Requests in flight at a time.
    """

    connect_s: float = 5.0
    read_s: float = 60.0
    total_s: float = 300.0
    attempts: int = 5
    first_wait_s: float = 0.5
    longest_wait_s: float = 60.0
    max_bytes: int = 512 << 20
    concurrent: int = 2


@dataclass(frozen=True)
class HttpSettings:
    """A server and how to speak to it.

    Attributes:
        url: Base address, without credentials.
        auth: Where the secret is found; None: none is sent.
        ca_file: Certificates to trust instead of the system's.
        headers: Further headers, none of them secret.
        limits: See `HttpLimits`.
    """

    url: str
    auth: Auth | None = None
    ca_file: Path | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    limits: HttpLimits = HttpLimits()


def checked_address(settings: HttpSettings) -> str:
    """The base address, without a slash at its end.

    Args:
        settings: The server.

    Raises:
        SettingsError: The address is none, carries credentials, or the limits allow nothing.
    """
    url = settings.url
    try:
        parts = urlsplit(url)
        is_bad = parts.scheme not in {"http", "https"} or not parts.hostname or parts.port == 0
    except ValueError:
        parts, is_bad = urlsplit(""), True
    if is_bad:
        raise SettingsError(
            f"url {safe_url(url)!r} is no address of a server. Write one such as "
            f"http://prometheus.example:9090."
        )
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise SettingsError(
            f"url {safe_url(url)!r} must carry no user, password, query or fragment: it is shown "
            f"in errors and kept with the data. Name the secret's environment variable or file "
            f"under auth."
        )
    limits = settings.limits
    if limits.attempts < 1 or limits.concurrent < 1 or limits.max_bytes < 1:
        raise SettingsError(f"url {url}: attempts, concurrent and max_bytes must be at least 1.")
    return url.rstrip("/")
