"""Credentials by reference: an environment variable or a file, read when used, never shown.

No request is made here.
"""

import base64
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from features.errors import SettingsError
from remediation.given_text import given_text

_SHORTEST_SCRUBBED = 4  # a shorter secret would blank out ordinary words


@dataclass(frozen=True)
class Auth:
    """Where the secret of a server is found. The secret itself is never held.

    Attributes:
        kind: How it is sent.
        env: Environment variable that holds it.
        file: File that holds it (read anew each time: tokens are rotated).
        user: User name of `basic`.
    """

    kind: Literal["bearer", "basic"]
    env: str | None = None
    file: Path | None = None
    user: str | None = None

    def __post_init__(self) -> None:
        if (self.env is None) == (self.file is None):
            raise SettingsError(
                "auth: name exactly one of env (an environment variable) and file, to find the "
                "secret in."
            )
        if (self.kind == "basic") != (self.user is not None):
            raise SettingsError("auth: basic needs a user, bearer has none. Correct kind or user.")
        if self.user is not None and (":" in self.user or not self.user.isprintable()):
            raise SettingsError("auth: user must be printable and hold no colon.")

    def header(self) -> str:
        """The value of the Authorization header.

        Raises:
            SettingsError: The secret is not where it should be, or no header can carry it.
        """
        secret = self._secret()
        if self.kind == "bearer":
            if not secret.isascii() or any(not "!" <= letter <= "~" for letter in secret):
                raise SettingsError(
                    f"auth: {self._place()} holds spaces, line breaks or letters that a bearer "
                    f"token cannot have (its content is not shown). Store the token alone."
                )
            return f"Bearer {secret}"
        packed = base64.b64encode(f"{self.user}:{secret}".encode())
        return f"Basic {packed.decode('ascii')}"

    def scrub(self, text: str) -> str:
        """Takes the secret, plain or encoded, out of a text that will be shown.

        Args:
            text: Any text, such as a server's error page that echoes the request.
        """
        try:
            secret, header = self._secret(), self.header().split(" ", 1)[1]
        except SettingsError:
            return text
        for found in (header, secret):
            if len(found) >= _SHORTEST_SCRUBBED:
                text = text.replace(found, "***")
        return text

    def _place(self) -> str:
        return f"environment variable {self.env}" if self.env else f"file {self.file}"

    def _secret(self) -> str:
        if self.file is None:
            secret = os.environ.get(self.env or "", "").strip()
        else:
            try:
                secret = given_text(self.file).strip()
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or "not UTF-8"
                raise SettingsError(
                    f"auth: {self._place()} cannot be read: {reason}. Check its path and rights."
                ) from None
        if not secret:
            raise SettingsError(f"auth: {self._place()} is empty or not set. Put the secret there.")
        return secret


def safe_url(url: str) -> str:
    """An address without user, password, query and fragment, fit to be shown.

    Args:
        url: Any text meant as an address.

    Example:
        >>> safe_url("https://me:secret@prom.example:9090/x?token=1")
        'https://prom.example:9090/x'
    """
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return "(not an address)"
    if not parts.scheme or not host:
        return url.rpartition("@")[2].split("?")[0].split("#")[0]
    return f"{parts.scheme}://{host}{parts.path}"
