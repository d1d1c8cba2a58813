"""Speaks to a Kubernetes API server: requests with credentials, reads tried again, whole lists.

Only here is the package `kubernetes` loaded, and only when a server is opened. What objects mean
is in `kubernetes_nodes` and `kubernetes_pods`.
"""

import gc
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import urlencode

import orjson

from features.errors import SettingsError, SourceError
from remediation.actuators.exchange import Answer, NoAnswerError, Patience, Waits, exchange

Json = Mapping[str, Any]
_Item = TypeVar("_Item")

MANAGER: Final = "forewarn"
"""Name under which the API records our changes (`metadata.managedFields`)."""

MERGE: Final = "application/merge-patch+json"
_PLAIN: Final = "application/json"
_TRY_AGAIN: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_GONE: Final = 410
_IN_CLUSTER: Final = "KUBERNETES_SERVICE_HOST"
_WORDS: Final = 300


class KubernetesApi(Protocol):
    """A server that can be asked."""

    @property
    def address(self) -> str:
        """Its address, for messages; holds no secret."""
        ...

    def ask(
        self, method: str, path: str, *, params: Mapping[str, str], body: Json | None
    ) -> Answer:
        """Sends one request, once.

        Args:
            method: GET, PATCH (a merge patch) or POST.
            path: Below the address.
            params: Query.
            body: Body.

        Raises:
            NoAnswerError: None came.
        """
        ...


class OfficialApi:
    """A server reached by the official client's settings: addresses, certificates, credentials.

    The client's own calls are passed by: its model objects take ten times the time and memory.

    Args:
        kubeconfig: File with clusters and credentials; None: the service account of the pod this
            runs in, else the usual file of the user.
        context: Context within the file; None: its current one.
        patience: Time limits of one request.

    Raises:
        SettingsError: The client is not installed, or its settings cannot be read.
    """

    def __init__(
        self,
        *,
        kubeconfig: Path | None = None,
        context: str | None = None,
        patience: Patience | None = None,
    ) -> None:
        self._client = open_client(
            kubeconfig=kubeconfig, context=context, whose_need="the actuator kubernetes needs"
        )
        from kubernetes.config import ConfigException  # type: ignore[import-untyped]  # as above

        self._no_credentials = (ValueError, OSError, ConfigException)
        self._patience = patience or Patience()
        self._host = str(self._client.configuration.host).rstrip("/")

    @property
    def address(self) -> str:
        """Address of the server."""
        return self._host.rpartition("@")[2]

    def close(self) -> None:
        """Closes the connections."""
        self._client.rest_client.pool_manager.clear()

    def ask(
        self, method: str, path: str, *, params: Mapping[str, str], body: Json | None
    ) -> Answer:
        """As in `KubernetesApi`.

        Raises:
            NoAnswerError: None came; also where the credentials cannot be had or sent.
        """
        headers = {"Accept": _PLAIN, "User-Agent": MANAGER}
        if body is not None:
            headers["Content-Type"] = MERGE if method == "PATCH" else _PLAIN
        query: list[tuple[str, str]] = []
        try:
            # Tokens of pods and of exec plugins are renewed by this call.
            self._client.update_params_for_auth(headers, query, ["BearerToken"])
            return exchange(
                self._client.rest_client.pool_manager,
                method,
                f"{self._host}{path}?{urlencode([*params.items(), *query])}",
                headers=headers,
                body=None if body is None else orjson.dumps(body),
                patience=self._patience,
            )
        except self._no_credentials:  # their words may quote the header, and the token with it
            raise NoAnswerError(
                "the credentials cannot be had or sent; check the user of the kubeconfig",
                may_have_acted=False,
            ) from None


def open_client(*, kubeconfig: Path | None, context: str | None, whose_need: str) -> Any:
    """The official client with its settings: server, certificates and credentials.

    Args:
        kubeconfig: As in `OfficialApi`.
        context: As in `OfficialApi`.
        whose_need: Begins the sentence where the client is not installed.

    Raises:
        SettingsError: As in `OfficialApi`.
    """
    try:
        from kubernetes import client, config  # type: ignore[import-untyped]  # publishes no types
    except ImportError as error:
        raise SettingsError(
            f"{whose_need} the package kubernetes, which is not installed. "
            "Install forewarn with its extra: pip install 'forewarn[kubernetes]'."
        ) from error
    import yaml

    settings = client.Configuration()
    where = "the service account of this pod"
    try:
        if kubeconfig is None and context is None and os.environ.get(_IN_CLUSTER):
            config.load_incluster_config(client_configuration=settings)
        else:
            where = str(kubeconfig) if kubeconfig else "the user's kubeconfig"
            config.load_kube_config(
                config_file=None if kubeconfig is None else str(kubeconfig),
                context=context,
                client_configuration=settings,
                persist_config=False,
            )
    except (config.ConfigException, yaml.YAMLError, OSError, ValueError, TypeError) as error:
        # A fault's own words may quote the file, secrets included; only its kind is shown.
        told = str(error) if isinstance(error, config.ConfigException | OSError) else ""
        raise SettingsError(
            f"{where} cannot be used to reach Kubernetes: {told[:200] or type(error).__name__}. "
            f"Give kubeconfig (and context) of a cluster, or run inside it with a service account."
        ) from None
    return client.ApiClient(settings)


@dataclass(frozen=True)
class Limits:
    """How much and how often.

    Attributes:
        page_size: Objects asked for at a time.
        reads: Tries of one read, the first included.
        restarts: How often a list may expire and be started anew.
        writes: Tries of one change, the first included.
        first_wait_s: Wait before a second try; it doubles.
        longest_wait_s: Longest wait; a server that asks for more is not waited for.
    """

    page_size: int = 500
    reads: int = 4
    restarts: int = 3
    writes: int = 4
    first_wait_s: float = 0.5
    longest_wait_s: float = 15.0

    def wait_s(self, attempt: int, asked: float | None) -> float | None:
        """Seconds to wait after a try; None: the server asks for more than is allowed."""
        if asked is not None and asked > self.longest_wait_s:
            return None
        own = min(self.first_wait_s * 2.0 ** (attempt - 1), self.longest_wait_s)
        return max(own, asked or 0.0)


class RefusedError(SourceError):
    """The server refused a read for good.

    Args:
        words: What it said.
        status: HTTP status.
    """

    def __init__(self, words: str, *, status: int) -> None:
        super().__init__(words)
        self.status = status


class Reads:
    """Reads of one server, tried again within limits.

    Args:
        api: The server.
        limits: See `Limits`.
        waits: Clock and sleep.
    """

    def __init__(
        self, api: KubernetesApi, limits: Limits | None = None, waits: Waits | None = None
    ) -> None:
        self.api = api
        self.limits = limits or Limits()
        self.waits = waits or Waits()

    def get(self, path: str, params: Mapping[str, str] | None = None) -> Json:
        """One object.

        Raises:
            RefusedError: The server refused, or kept being busy.
            SourceError: It could not be reached, or its answers stayed unusable.
        """
        for attempt in range(1, self.limits.reads + 1):
            asked = None
            try:
                answer = self.api.ask("GET", path, params=params or {}, body=None)
            except NoAnswerError as error:
                failed = SourceError(f"{self.api.address}{path} failed: {error}")
            else:
                found = parsed(answer)
                if answer.is_fine and found is not None:
                    return found
                words = f"{self.api.address}{path} failed: {said(answer)}"
                if not answer.is_fine and answer.status not in _TRY_AGAIN:
                    raise RefusedError(words, status=answer.status)
                failed, asked = SourceError(words), self.waits.asked(answer)
            pause = self.limits.wait_s(attempt, asked)
            if attempt == self.limits.reads or pause is None:
                break
            self.waits.sleep(pause)
        raise failed

    def whole_list(
        self, path: str, read: Callable[[Json], _Item | None], params: Mapping[str, str]
    ) -> list[_Item]:
        """A whole list, page by page; one that expires on the way is begun anew.

        Going on with the token that an expired list offers would join two moments into one
        state that never was: a pod that moved in between would be on two nodes or on none.

        Args:
            path: The list.
            read: Reads one object; None: it is left out.
            params: Selectors.

        Raises:
            SourceError: It cannot be read whole.
        """
        for _ in range(1 + self.limits.restarts):
            try:
                with _no_collection():
                    return self._listed(path, read, params)
            except RefusedError as error:
                if error.status != _GONE:
                    raise
        raise SourceError(
            f"{self.api.address}{path}: the list expired {1 + self.limits.restarts} times before "
            f"its end. Ask for larger pages, or look at the load of the API server."
        )

    def _listed(
        self, path: str, read: Callable[[Json], _Item | None], params: Mapping[str, str]
    ) -> list[_Item]:
        found: list[_Item] = []
        token = ""
        while True:
            query = {**params, "limit": str(self.limits.page_size)}
            if token:
                query["continue"] = token
            page = self.get(path, query)
            objects = page.get("items", ())
            if objects is None:  # how Go writes a list of none
                objects = ()
            if not isinstance(objects, list | tuple) or "items" not in page:
                raise SourceError(f"{self.api.address}{path}: the answer is no list of objects")
            try:
                found.extend(item for item in map(read, objects) if item is not None)
            except (AttributeError, TypeError, ValueError) as error:
                raise SourceError(
                    f"{self.api.address}{path}: an object is not as the API makes it: {error}"
                ) from error
            metadata = page.get("metadata")
            before, token = token, (metadata or {}).get("continue") or ""
            if not token:
                return found
            if token == before:
                raise SourceError(f"{self.api.address}{path}: the list goes on where it was")


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keeps Python from looking for reference cycles, of which JSON has none.

    Of 25,000 nodes and 100,000 pods it would take as long as everything else together.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def parsed(answer: Answer) -> Json | None:
    """The object in an answer; None: there is none."""
    try:
        found = orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


def said(answer: Answer) -> str:
    """An answer in words: its status and what the server says of it."""
    status = parsed(answer) or {}
    message = status.get("message") if not answer.is_fine else "no JSON object"
    words = message if isinstance(message, str) else ""
    return f"HTTP {answer.status} {' '.join(words.split())[:_WORDS]}".rstrip()
