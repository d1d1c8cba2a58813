"""Signatures of webhook orders: made by the hook, checked by whoever receives them.

Needs nothing but the standard library and our errors, so that a receiver can use it as it is.

A request carries `Forewarn-Timestamp`, seconds since 1970, `Idempotency-Key`, and
`Forewarn-Signature`: `v1=` and the HMAC-SHA256 in hex of timestamp, dot, idempotency key, dot,
and the body as it was sent, byte for byte. A receiver must

1. check the signature over the raw body before it parses it (`verify`);
2. refuse a timestamp more than `TOLERANCE_S` away from its own clock (`verify` does);
3. remember each `Idempotency-Key` for at least twice that long, and answer one that it knows
   with what it answered then, without acting again: within the tolerance a request that was
   overheard can be sent once more. Keys of orders are better kept for good.

Two keys may be valid at a time, so that one can be exchanged without a gap.
"""

import hashlib
import hmac
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from features.errors import DataError, SettingsError

TIMESTAMP: Final = "Forewarn-Timestamp"
SIGNATURE: Final = "Forewarn-Signature"
IDEMPOTENCY_KEY: Final = "Idempotency-Key"
TOLERANCE_S: Final = 300.0

_VERSION: Final = "v1="
_SHORTEST_KEY: Final = 32


class SignatureError(DataError):
    """A request is not from who it should be, or not of now. It must not be acted on."""


@dataclass(frozen=True)
class SigningKey:
    """A key; it is shown nowhere.

    Attributes:
        secret: The key.

    Raises:
        SettingsError: It is shorter than 32 bytes.
    """

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        """Refuses keys that can be guessed."""
        if len(self.secret) < _SHORTEST_KEY:
            raise SettingsError(
                f"webhook key: {len(self.secret)} bytes, expected at least {_SHORTEST_KEY}; make "
                f"one with: openssl rand -hex 32"
            )

    def sign(self, body: bytes, *, key: str, at: datetime) -> dict[str, str]:
        """The headers that sign a body.

        Args:
            body: The body as it is sent.
            key: Idempotency key.
            at: The present.
        """
        timestamp = str(int(at.timestamp()))
        signature = self.signature(timestamp, key, body)
        return {TIMESTAMP: timestamp, IDEMPOTENCY_KEY: key, SIGNATURE: signature}

    def signature(self, timestamp: str, key: str, body: bytes) -> str:
        """The signature of a request."""
        signed = f"{timestamp}.{key}.".encode() + body
        return _VERSION + hmac.new(self.secret, signed, hashlib.sha256).hexdigest()


def key_from(*, variable: str | None = None, file: Path | None = None) -> SigningKey:
    """The key from an environment variable or a file; a line break at its end is no part of it.

    Args:
        variable: Name of the variable.
        file: The file.

    Raises:
        SettingsError: Not exactly one is given, or it cannot be read, or the key is too short.
    """
    if (variable is None) == (file is None):
        raise SettingsError("webhook key: name either an environment variable or a file")
    if file is None:
        found = os.environ.get(str(variable), "")
        return SigningKey(found.strip().encode())
    try:
        return SigningKey(file.read_bytes().strip())
    except OSError as error:
        raise SettingsError(f"webhook key: {file}: {error.strerror}") from error


def verify(
    keys: Iterable[SigningKey],
    headers: Mapping[str, str],
    body: bytes,
    *,
    now: datetime,
    tolerance_s: float = TOLERANCE_S,
) -> str:
    """Checks that a request is signed by one of the keys, and now.

    Args:
        keys: The keys that are valid.
        headers: Headers; their case does not matter.
        body: The body as it came, before it is parsed.
        now: The present.
        tolerance_s: How far the timestamp may be from it.

    Returns:
        The idempotency key, under which the receiver must remember its answer.

    Raises:
        SignatureError: It is not; the order must not be carried out.
    """
    by_name = {name.lower(): value for name, value in headers.items()}
    timestamp, signature, key = (
        by_name.get(name.lower(), "") for name in (TIMESTAMP, SIGNATURE, IDEMPOTENCY_KEY)
    )
    is_number = timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12
    # All keys are tried, so that the time taken does not tell which one it was.
    fits = [
        hmac.compare_digest(one.signature(timestamp, key, body).encode(), signature.encode())
        for one in keys
    ]
    if not is_number or not key or not any(fits):
        raise SignatureError("the signature is not that of a key that is valid here")
    age = timedelta(seconds=now.timestamp() - int(timestamp))
    if abs(age) > timedelta(seconds=tolerance_s):
        raise SignatureError(f"signed {age.total_seconds():.0f} s ago, accepted: {tolerance_s:g} s")
    return key
