"""Asks a Prometheus server, or one that speaks its API, for samples and for what it has.

Protocols, best first: remote read in XOR chunks or plain samples, range selectors (raw samples as
JSON), `query_range` (re-sampled on a grid). How answers are decoded is in `prometheus.chunks` and
`prometheus.json_answers`; what series mean in `prometheus.series`.
"""

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, TypeVar

from features.errors import SettingsError
from pipelines.sources.http.client import Call, HttpClient
from pipelines.sources.http.errors import AnswerError, HttpError
from pipelines.sources.http.reply import HttpReply
from pipelines.sources.http.settings import HttpSettings
from pipelines.sources.prometheus.chunks import LabelCache, ReadLabels, read_chunks, read_samples
from pipelines.sources.prometheus.json_answers import read_helps, read_matrix, read_texts
from pipelines.sources.prometheus.readings import Readings, Window, join
from pipelines.sources.prometheus.series import NODE_LABELS, Matcher, parse_matcher, selector
from pipelines.sources.prometheus.wire import SAMPLED, STREAMED, encode_read_request

T = TypeVar("T")

Protocol = Literal["auto", "remote_read", "raw_query", "query_range"]

_BY_WORTH: Final[tuple[Protocol, ...]] = ("remote_read", "raw_query", "query_range")
_MOST_POINTS: Final = 10_000  # servers refuse more than 11,000 per series
_ABSENT: Final = frozenset({400, 404, 405, 406, 410, 415, 422, 501})
_TOO_MUCH: Final = re.compile(
    r"\blimits?\b|maximum resolution|timed? ?out|too (?:large|long|many)|context deadline|"
    r"out of memory",
    re.IGNORECASE,
)
_SLOW: Final = re.compile(r"timed? ?out|context deadline", re.IGNORECASE)
_READ_HEADERS: Final = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Read-Version": "0.1.0",
}


@dataclass(frozen=True)
class PrometheusSettings:
    """A Prometheus server and how its series are read.

    Attributes:
        http: Address (with a path prefix such as /prometheus, where there is one), secret, limits.
        matchers: Further conditions on the series, `job="dcgm"`.
        node_labels: Where the node's name is looked for, in order.
        replica_label: Label that tells apart Prometheus replicas which scrape the same targets.
        interval: Time between scrapes; needed with `replica_label`.
        window: Longest stretch asked for at a time. Servers send labels and whole chunks (two
            hours at a scrape a minute) with every answer: short windows cost several times more.
        step: Grid of `query_range`, where nothing better is served.
        gpus_per_request: Most GPUs asked for at a time; VictoriaMetrics takes 16 kB of query.
        gpu_hours_per_request: Most hours of GPUs asked for at a time; what bounds the memory.
        max_samples: Most samples of one answer; beyond, the window is halved.
        protocol: How samples are asked for; auto: the best that the server serves.
    """

    http: HttpSettings
    matchers: tuple[str, ...] = ()
    node_labels: tuple[str, ...] = NODE_LABELS
    replica_label: str | None = None
    interval: timedelta | None = None
    window: timedelta = timedelta(hours=12)
    step: timedelta = timedelta(seconds=60)
    gpus_per_request: int = 200
    gpu_hours_per_request: int = 1200
    max_samples: int = 20_000_000
    protocol: Protocol = "auto"

    def __post_init__(self) -> None:
        if self.replica_label is not None and not self.interval:
            raise SettingsError(
                "replica_label needs interval, the time between scrapes: a replica's sample fills "
                "a gap only where the first replica has none within 3/4 of it."
            )
        spans = {"window": self.window, "step": self.step, "interval": self.interval}
        for name, span in spans.items():
            if span is not None and span < timedelta(milliseconds=1):
                raise SettingsError(f"{name} must be at least a millisecond, got {span}.")
        if min(self.gpus_per_request, self.gpu_hours_per_request, self.max_samples) < 1:
            raise SettingsError(
                "gpus_per_request, gpu_hours_per_request and max_samples must be at least 1."
            )


class PrometheusClient:
    """Asks one server. Safe to share between threads.

    Args:
        settings: The server.
        http: The client to use; None: one of its own.

    Raises:
        SettingsError: A setting cannot be carried out.
    """

    def __init__(self, settings: PrometheusSettings, *, http: HttpClient | None = None) -> None:
        self.settings = settings
        self.http = http or HttpClient(settings.http)
        self.matchers = tuple(parse_matcher(text) for text in settings.matchers)
        self.address = self.http.address
        # What the server has been found to serve, best first; never grows.
        self._protocols = _BY_WORTH if settings.protocol == "auto" else (settings.protocol,)
        self._is_settled = settings.protocol != "auto"
        self._lock = threading.Lock()

    def close(self) -> None:
        """Closes the connections."""
        self.http.close()

    def read(
        self,
        matchers: Sequence[Matcher],
        window: Window,
        *,
        read_labels: ReadLabels,
        cache: LabelCache,
    ) -> Readings:
        """Samples of a window.

        Args:
            matchers: Conditions on the series, next to those of the settings.
            window: Half-open.
            read_labels: Reads a series' labels.
            cache: The same, remembering.

        Returns:
            The samples; with `query_range`, of the grid's moments within the window.

        Raises:
            HttpError: The server does not answer, refuses, or serves no protocol we know.
        """
        asked = (*matchers, *self.matchers)
        while True:
            protocol = self._protocols[0]
            try:
                if protocol == "remote_read":
                    found = self._remote_read(asked, window, cache=cache)
                elif protocol == "raw_query":
                    found = self._raw_query(asked, window, read_labels=read_labels)
                else:
                    found = self._query_range(asked, window, read_labels=read_labels)
            except HttpError as error:
                if not _is_absent(error) or not self._fall_back(protocol):
                    raise
                continue
            self._is_settled = True
            return found

    def _fall_back(self, protocol: Protocol) -> bool:
        """Goes on to the next protocol; False: there is none, or this one has worked before."""
        with self._lock:
            if self._protocols[0] != protocol:  # another thread found the same meanwhile
                return True
            if self._is_settled or len(self._protocols) == 1:
                return False
            self._protocols = self._protocols[1:]
            return True

    def label_values(self, label: str, window: Window, *, name_pattern: str) -> list[str] | None:
        """Values of a label, or None where the server cannot list them.

        Args:
            label: The label, `__name__` for metric names.
            window: Time in which the series existed.
            name_pattern: Regular expression that metric names match wholly.
        """
        return self._catalogue(f"/api/v1/label/{label}/values", window, name_pattern)

    def label_names(self, window: Window, *, name_pattern: str) -> list[str] | None:
        """Names of labels, or None where the server cannot list them.

        Args:
            window: Time in which the series existed.
            name_pattern: Regular expression that metric names match wholly.
        """
        return self._catalogue("/api/v1/labels", window, name_pattern)

    def helps(self) -> Mapping[str, Sequence[str]]:
        """Help texts of metrics; none where the server keeps none."""
        call = Call("GET", "/api/v1/metadata", what="a question for metadata")
        found = self._unless_absent(call, lambda reply: read_helps(reply.body()))
        return found or {}

    def _catalogue(self, path: str, window: Window, name_pattern: str) -> list[str] | None:
        chosen = selector([Matcher("__name__", "=~", name_pattern), *self.matchers])
        params = (
            ("match[]", chosen),
            ("start", _seconds(window.start)),
            ("end", _seconds(window.end - 1)),
        )
        what = f"a question for labels of {_words(window)}"
        call = Call("GET", path, params, what=what)
        return self._unless_absent(call, lambda reply: read_texts(reply.body()))

    def _unless_absent(self, call: Call, consume: Callable[[HttpReply], T]) -> T | None:
        try:
            return self.http.fetch(call, consume)
        except HttpError as error:
            if _is_absent(error):
                return None
            raise

    def _remote_read(
        self, matchers: Sequence[Matcher], window: Window, *, cache: LabelCache
    ) -> Readings:
        limits, most = self.settings.http.limits, self.settings.max_samples

        def consume(reply: HttpReply) -> Readings:
            if reply.content_type.startswith(STREAMED):
                return read_chunks(reply.pieces(), window, labels=cache, max_samples=most)
            if reply.content_type.startswith(SAMPLED):
                return read_samples(
                    reply.body(),
                    window,
                    labels=cache,
                    max_bytes=limits.max_bytes,
                    max_samples=most,
                )
            raise AnswerError(
                f"the answer is {reply.content_type or 'of no stated type'!r}, not remote read's",
                is_foreign=True,
            )

        call = Call(
            "POST",
            "/api/v1/read",
            body=encode_read_request(matchers, window),
            headers=_READ_HEADERS,
            what=f"remote read of {_words(window)}",
        )
        return self.http.fetch(call, consume, is_final=is_too_much)

    def _raw_query(
        self, matchers: Sequence[Matcher], window: Window, *, read_labels: ReadLabels
    ) -> Readings:
        """Raw samples by a range selector. Its range is closed on the left before Prometheus 3.

        Reaching back to one millisecond before the window, both ways hold the whole window.
        """
        query = f"{selector(matchers)}[{window.end - window.start}ms]"
        form = (("query", query), ("time", _seconds(window.end - 1)))
        return self._json(
            "/api/v1/query", form, f"a range selector over {_words(window)}", window, read_labels
        )

    def _query_range(
        self, matchers: Sequence[Matcher], window: Window, *, read_labels: ReadLabels
    ) -> Readings:
        """Samples on a grid of whole steps since 1970.

        A plain selector would show a dead exporter's last value for another five minutes;
        `last_over_time` of less than a step shows every sample once, at the grid's next moment.
        """
        step = max(int(self.settings.step / timedelta(milliseconds=1)), 1)
        first = -(-window.start // step) * step
        last_over = f"last_over_time({selector(matchers)}[{max(step - 1, 1)}ms])"
        parts = []
        for start in range(first, window.end, step * _MOST_POINTS):
            end = min(start + step * _MOST_POINTS, window.end)
            form = (
                ("query", last_over),
                ("start", _seconds(start)),
                ("end", _seconds(end - 1)),
                ("step", _seconds(step)),
            )
            what = f"query_range of {_words(Window(start, end))}"
            part = Window(start, end)
            parts.append(self._json("/api/v1/query_range", form, what, part, read_labels))
        return join(parts)

    def _json(
        self,
        path: str,
        form: tuple[tuple[str, str], ...],
        what: str,
        window: Window,
        read_labels: ReadLabels,
    ) -> Readings:
        most = self.settings.max_samples
        # Thanos leaves out stores that are down unless told not to; others pass over the field.
        call = Call("POST", path, (*form, ("partial_response", "false")), what=what)
        return self.http.fetch(
            call,
            lambda reply: read_matrix(reply.body(), window, read=read_labels, max_samples=most),
            is_final=is_too_much,
        )


def is_too_much(error: HttpError) -> bool:
    """Whether a smaller question may be answered where this one was not.

    Args:
        error: How it failed.
    """
    if error.is_too_much or error.is_timeout or error.status in {413, 422}:
        return True
    if error.status == 400:
        return bool(_TOO_MUCH.search(error.words))
    # A server that is overloaded also speaks of limits; there, waiting is what helps.
    return error.status in {500, 503, 504} and bool(_SLOW.search(error.words))


def _is_absent(error: HttpError) -> bool:
    """Whether a server answers like one that does not serve what was asked for."""
    if error.is_foreign:
        return True
    return error.status in _ABSENT and not _TOO_MUCH.search(error.words)


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds // 1000}.{milliseconds % 1000:03d}"


def _words(window: Window) -> str:
    """A window in words: `2026-01-05T00:00:00Z to 2026-01-05T02:00:00Z`."""
    start, end = (
        (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=moment)).isoformat()
        for moment in window
    )
    return f"{start} to {end}".replace("+00:00", "Z")
