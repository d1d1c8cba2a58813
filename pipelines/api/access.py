"""Who may do what: tokens, roles, and when no token is needed.

Requests are held against it in `gate`; how often anyone may ask is in `rate_limit`.
"""

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from features.errors import SettingsError
from pipelines.sections.api import ApiSettings
from pipelines.sections.secret_source import read_secret
from pipelines.settings import Settings

Role = Literal["read", "operator"]
SHORTEST_TOKEN: Final = 32
ANONYMOUS: Final = "anonymous"
OPEN_PATHS: Final = ("/api/v1/health/live", "/api/v1/health/ready")
"""What an orchestrator asks before it has any token; it says nothing of the fleet."""
PROXY_HEADERS: Final = (b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"via")

_HASHED: Final = re.compile(r"sha256:([0-9a-f]{64})")
_LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "::1")
_MAKE_ONE: Final = "Make one with: openssl rand -hex 32"


class Caller(NamedTuple):
    """Who asks.

    Attributes:
        name: Name of the token, which is also the actor of a request; `anonymous` without one.
        role: What it may do; operators may also read.
    """

    name: str
    role: Role

    @property
    def is_operator(self) -> bool:
        """Whether it may ask the hook for something."""
        return self.role == "operator"


class Address(NamedTuple):
    """Where to listen."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)


@dataclass(frozen=True)
class Token:
    """A token that is valid here; what is kept is its hash."""

    caller: Caller
    digest: bytes = field(repr=False)


SessionReader = Callable[[Mapping[bytes, bytes]], Caller | None]
"""Tells who asks by headers (cookies); used only for pages, never below /api/."""


@dataclass(frozen=True, kw_only=True)
class Access:
    """All that requests are held against.

    Attributes:
        address: Where the server listens.
        tokens: Valid tokens.
        hosts: Host names it answers to; empty: any, which only a server with tokens may.
        is_open: Whether reading needs no token: on loopback, while no token of role read is set.
        rate_per_s: Requests a second for each token or address, on average.
        burst: Requests at once.
        session: Reads a page's session; None: there are no pages.
        open_paths: Paths that need neither token nor session; one that ends in a slash, and all
            below it.
        login_path: Where a browser is sent that has no session; None: it is refused.
    """

    address: Address
    tokens: Sequence[Token] = ()
    hosts: tuple[str, ...] = _LOOPBACK_NAMES
    is_open: bool = False
    rate_per_s: float = 50.0
    burst: int = 200
    session: SessionReader | None = None
    open_paths: tuple[str, ...] = OPEN_PATHS
    login_path: str | None = None

    def caller_of(self, token: str) -> Caller | None:
        """Whose token it is; takes the same time for each, whether it fits or not."""
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        found = None
        for one in self.tokens:
            if hmac.compare_digest(digest, one.digest):
                found = one.caller
        return found


def open_access(settings: Settings, *, listen: str | None = None) -> Access:
    """Access as the settings say.

    Args:
        settings: The installation.
        listen: Address and port; None: those of the settings.

    Raises:
        SettingsError: The address is none, a token cannot be read or is too short, or others could
            reach the server and there is no token.
    """
    chosen = settings.api
    address = parse_address(listen or chosen.listen)
    tokens = [_token(chosen, name) for name in chosen.tokens]
    if not address.is_loopback and not tokens:
        raise SettingsError(
            f"api.listen {address.host}:{address.port}: others can reach it, and api.tokens is "
            f"empty. Set a token, or listen on 127.0.0.1."
        )
    digests = [one.digest for one in tokens]
    if len(set(digests)) < len(digests):
        raise SettingsError(f"api.tokens: two names have the same token. {_MAKE_ONE}")
    has_read = any(one.caller.role == "read" for one in tokens)
    names = (*_LOOPBACK_NAMES, *chosen.hosts) if address.is_loopback else chosen.hosts
    return Access(
        address=address,
        tokens=tuple(tokens),
        hosts=tuple(name.lower() for name in names),
        is_open=address.is_loopback and not has_read,
        rate_per_s=chosen.rate_per_s,
        burst=chosen.burst,
    )


def _token(chosen: ApiSettings, name: str) -> Token:
    one = chosen.tokens[name]
    what = f"api.tokens.{name}"
    text = read_secret(one, what=what)
    if text is None:
        raise SettingsError(f"{what}: there is no token")
    caller = Caller(name, one.role)
    if found := _HASHED.fullmatch(text):
        return Token(caller, bytes.fromhex(found[1]))
    if len(text) < SHORTEST_TOKEN or not text.isascii() or not text.isprintable():
        raise SettingsError(
            f"{what}: expected {SHORTEST_TOKEN} or more printable ASCII characters, or sha256: and "
            f"its hash. {_MAKE_ONE}"
        )
    return Token(caller, hashlib.sha256(text.encode()).digest())


def parse_address(listen: str) -> Address:
    """Host and port of `HOST:PORT`.

    Raises:
        SettingsError: It is not of that form.

    >>> parse_address("[::1]:8080")
    Address(host='::1', port=8080)
    """
    host, _, port = listen.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise SettingsError(f"--listen: expected HOST:PORT, such as 127.0.0.1:8080, got {listen!r}")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


def is_loopback(host: str | None) -> bool:
    """Whether a name or address is this machine's own.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.2", "::1", "0.0.0.0", "gpu-1")]
    [True, True, True, False, False]
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False
