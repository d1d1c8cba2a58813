"""Asks a Kubernetes API server over the connections and with the credentials of the client.

What is asked for and what answers mean is in `kubernetes.lists` and `kubernetes.pull`. Answers
are left as bytes: the client's own model objects take ten times the time and memory.
"""

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlencode

from features.errors import SettingsError
from pipelines.sources.http.auth import safe_url
from pipelines.sources.http.errors import AnswerError
from remediation.actuators.kubernetes_api import open_client

_PIECE: Final = 1 << 20
_SHORT_SECRET: Final = 6  # shorter texts would blot out ordinary words


@dataclass(frozen=True)
class ApiAnswer:
    """What the server answered.

    Attributes:
        status: HTTP status.
        body: The body; of an error only its beginning.
        retry_after: What it says of trying again.
    """

    status: int
    body: bytes
    retry_after: str = ""


class KubernetesApi(Protocol):
    """A server that can be asked."""

    @property
    def address(self) -> str:
        """What is asked, for messages and accounts; holds no secret."""

    def get(self, path: str, params: Mapping[str, str]) -> ApiAnswer:
        """Makes one request, once.

        Raises:
            AnswerError: The server could not be reached, or its answer broke off.
        """


class OfficialApi:
    """A server spoken to through the official client's settings.

    Args:
        kubeconfig: File with clusters and credentials; None: the service account of the pod this
            runs in, else the usual file of the user.
        context: Context within the file; None: its current one.
        connect_s: Longest wait for a connection.
        read_s: Longest silence within an answer.
        total_s: Longest time one answer may take in all.
        max_bytes: Longest answer.

    Raises:
        SettingsError: The client is not installed, or its settings cannot be read.
    """

    def __init__(
        self,
        *,
        kubeconfig: Path | None = None,
        context: str | None = None,
        connect_s: float = 5.0,
        read_s: float = 60.0,
        total_s: float = 300.0,
        max_bytes: int = 256 << 20,
    ) -> None:
        self._api = open_client(
            kubeconfig=kubeconfig, context=context, whose_need="inputs of kind kubernetes need"
        )
        self._timeout = (connect_s, read_s)
        self._total_s = total_s
        self._max_bytes = max_bytes
        self._host = str(self._api.configuration.host).rstrip("/")

    @property
    def address(self) -> str:
        """Address of the server."""
        return safe_url(self._host)

    def close(self) -> None:
        """Closes the connections."""
        self._api.rest_client.pool_manager.clear()

    def get(self, path: str, params: Mapping[str, str]) -> ApiAnswer:
        """Makes one request; see `KubernetesApi`.

        The client's own call is passed by: on an error status without preloaded content it asks
        the response for a method that newer releases of urllib3 do not have.

        Args:
            path: Below the server's address.
            params: Query.

        Returns:
            The answer, whatever its status.

        Raises:
            AnswerError: The server could not be reached, or its answer broke off.
            SettingsError: The credentials cannot be had.
        """
        import urllib3

        headers = {"Accept": "application/json", "User-Agent": "forewarn"}
        query: list[tuple[str, str]] = []
        self._sign(headers, query)
        url = f"{self._host}{path}"
        full = [*params.items(), *query]
        try:
            response = self._api.rest_client.pool_manager.request(
                "GET",
                f"{url}?{urlencode(full)}" if full else url,
                headers=headers,
                preload_content=False,
                redirect=False,
                retries=False,
                timeout=urllib3.Timeout(connect=self._timeout[0], read=self._timeout[1]),
            )
            with closing(response):
                is_fine = 200 <= response.status <= 299
                body = self._body(response, self._max_bytes if is_fine else _PIECE)
                return ApiAnswer(
                    response.status, body, str(response.headers.get("Retry-After", ""))
                )
        except urllib3.exceptions.SSLError as error:
            raise AnswerError(self._told(error)) from None
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise AnswerError(self._told(error), may_pass=True) from None
        except ValueError:  # its words quote the header, and the token with it
            raise SettingsError(
                f"{self.address}: the token of the kubeconfig's user cannot be sent: it has line "
                f"breaks or other characters that no token has. Correct it."
            ) from None

    def _sign(self, headers: dict[str, str], query: list[tuple[str, str]]) -> None:
        try:
            self._api.update_params_for_auth(headers, query, ["BearerToken"])
        except (ValueError, OSError) as error:
            raise SettingsError(
                f"{self.address}: the credentials cannot be had: {self._told(error)}. Check the "
                f"user of the kubeconfig."
            ) from None

    def _body(self, response: Any, most: int) -> bytes:
        """The body; more than the limit of a good answer is an error."""
        pieces, size = [], 0
        until = time.monotonic() + self._total_s
        for piece in response.stream(_PIECE):
            pieces.append(piece)
            size += len(piece)
            if size > most:
                if 200 <= response.status <= 299:
                    raise AnswerError(f"the answer is longer than {most:,} bytes", is_too_much=True)
                break
            if time.monotonic() > until:
                raise AnswerError(f"the answer took longer than {self._total_s:g} s", may_pass=True)
        return b"".join(pieces)[:most]

    def _told(self, error: Exception) -> str:
        """An error in one line, without any secret of ours in it."""
        words = " ".join(str(error).split()) or type(error).__name__
        settings = self._api.configuration
        secrets = [*settings.api_key.values(), settings.password]
        for secret in secrets:
            bare = str(secret or "").removeprefix("Bearer ").strip()
            if len(bare) >= _SHORT_SECRET:
                words = words.replace(bare, "***")
        return words[:300]
