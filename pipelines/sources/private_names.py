"""Names of users and jobs replaced by keyed tokens: the same name, the same token.

Which columns are private, and where the key is kept, is decided by the settings.
"""

import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

import polars as pl

from features.errors import SettingsError

TOKEN_CHARACTERS: Final = 16
"""64 bits: among a million names two share a token with probability 3e-8."""

LEAST_KEY_BYTES: Final = 16


def hash_names(frame: pl.DataFrame, *, columns: Sequence[str], key: bytes) -> pl.DataFrame:
    """Replaces names by tokens that cannot be traced back without the key.

    Args:
        frame: Any frame.
        columns: Text columns to replace; those that the frame does not have are left out.
        key: Secret of at least 16 bytes; another key gives other tokens.

    Returns:
        The frame with tokens of 16 hexadecimal digits (HMAC-SHA256, RFC 2104, cut short); null
        stays null.

    Raises:
        SettingsError: The key is too short to keep names from being guessed.

    Example:
        >>> names = pl.DataFrame({"user": ["ann", None, "ann"]})
        >>> tokens = hash_names(names, columns=["user"], key=b"0123456789abcdef")["user"]
        >>> tokens[0] == tokens[2], tokens[1] is None, len(tokens[0])
        (True, True, 16)
    """
    if len(key) < LEAST_KEY_BYTES:
        raise SettingsError(
            f"the key that hides names has {len(key)} bytes; at least {LEAST_KEY_BYTES} are "
            f"needed, or names can be found by trying. Make one with: openssl rand -hex 32"
        )
    replaced = []
    for column in columns:
        if column not in frame.columns:
            continue
        names = frame[column].unique().drop_nulls()
        tokens = pl.Series([_token(name, key) for name in names], dtype=pl.String)
        replaced.append(
            frame[column]
            .replace_strict(names, tokens, default=None, return_dtype=pl.String)
            .alias(column)
        )
    return frame.with_columns(replaced)


def _token(name: str, key: bytes) -> str:
    digest = hmac.new(key, name.encode("utf-8", "surrogatepass"), hashlib.sha256)
    return digest.hexdigest()[:TOKEN_CHARACTERS]
