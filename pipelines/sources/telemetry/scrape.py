"""Scrapes exporters directly over HTTP: dcgm-exporter and nvidia_gpu_exporter, one page each.

How a page becomes rows is in `telemetry.pages`. What a Prometheus has already collected is another
source.

A target that fails spoils no other: it gives no row, one quarantined record that says why, and
(its time not being covered) no coverage. A target that answers with a page without GPUs is
covered: it was asked, and knew of none.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import urlsplit

import requests
import urllib3

from features.clock import Clock
from features.errors import SettingsError
from pipelines.sources.result import SourceResult
from pipelines.sources.telemetry.dcgm_fields import ExporterName, exporter_name
from pipelines.sources.telemetry.dcgm_names import AMBIGUOUS_NAMES
from pipelines.sources.telemetry.nvidia_gpu_exporter import IDENTITIES, gpu_exporter_name
from pipelines.sources.telemetry.pages import NodeFrom, PageBatch
from pipelines.sources.telemetry.series import Dialect

SOURCE: Final = "scrape"

_ACCEPT: Final = (
    "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.7,*/*;q=0.1"
)
_READ_BYTES: Final = 1 << 16
_WORTH_ANOTHER_TRY: Final = frozenset({429, 500, 502, 503, 504})


def _any_name(name: str) -> ExporterName | None:
    return exporter_name(name) or gpu_exporter_name(name)


DIALECT: Final = Dialect(SOURCE, _any_name, AMBIGUOUS_NAMES, IDENTITIES)


@dataclass(frozen=True, kw_only=True)
class ScrapeSettings:
    """How targets are asked.

    Attributes:
        timeout_s: Longest wait for a connection, and between two pieces of an answer.
        deadline_s: Longest time for a whole answer.
        max_bytes: Longest page, after unpacking.
        tries: How often a target is asked before it is given up.
        pause_s: Wait before the second try; it doubles with each further one.
        concurrency: Targets asked at the same time.
        chunk_targets: Targets whose pages are given out together.
        node_from: Whose word counts where both know a node: the label's, or the address's.
        site: Name of the site.
        every_s: Time between scrapes in seconds, for the coverage.
    """

    timeout_s: float = 5.0
    deadline_s: float = 20.0
    max_bytes: int = 64_000_000
    tries: int = 2
    pause_s: float = 0.5
    concurrency: int = 16
    chunk_targets: int = 512
    node_from: NodeFrom = "label"
    site: str | None = None
    every_s: float | None = None


@dataclass(frozen=True)
class _Answer:
    """What a target answered: a page, or why there is none."""

    url: str
    ts: datetime
    page: bytes = b""
    openmetrics: bool | None = None
    failure: str | None = None


def pull_scrape(
    urls: Sequence[str],
    *,
    ingested_at: datetime,
    now: Clock,
    nodes: Mapping[str, str] | None = None,
    settings: ScrapeSettings | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[SourceResult]:
    """Asks every target once for its page.

    Args:
        urls: Addresses, `http://node001:9400/metrics`.
        ingested_at: When the pages are read, UTC.
        now: The clock: a page's samples have the time at which its answer began, unless they
            bring their own.
        nodes: Node by address, where the address does not say it.
        settings: How targets are asked.
        pause: How to wait between tries.

    Yields:
        `raw/gpu_telemetry`, `raw/inventory` and `raw/coverage`, a chunk of targets at a time, in
        the order of `urls`.

    Raises:
        SettingsError: An address is not one of HTTP.
    """
    how = settings or ScrapeSettings()
    for url in urls:
        _check(url)
    with ThreadPoolExecutor(max_workers=how.concurrency) as pool:
        for begin in range(0, len(urls), how.chunk_targets):
            batch = PageBatch(
                DIALECT,
                ingested_at=ingested_at,
                node_from=how.node_from,
                site=how.site,
                every_s=how.every_s,
            )
            some = urls[begin : begin + how.chunk_targets]
            for answer in pool.map(lambda url: _ask(url, how, now=now, pause=pause), some):
                if answer.failure is not None:
                    batch.refuse(answer.failure, answer.url, origin=answer.url)
                    continue
                batch.add(
                    answer.page,
                    origin=answer.url,
                    ts=answer.ts,
                    node=(nodes or {}).get(answer.url) or urlsplit(answer.url).hostname,
                    openmetrics=answer.openmetrics,
                )
            yield batch.result()


def _check(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingsError(
            f"scrape target {url!r}: expected an address such as http://node001:9400/metrics, got "
            f"scheme {parts.scheme or '(none)'!r} and host {parts.hostname or '(none)'!r}. "
            f"Correct it in the list of targets."
        )


def _ask(
    url: str,
    how: ScrapeSettings,
    *,
    now: Clock,
    pause: Callable[[float], None],
) -> _Answer:
    """Asks one target, again where another try may help."""
    answer = _Answer(url, now(), failure="target was not asked")
    for attempt in range(how.tries):
        if attempt:
            pause(how.pause_s * 2 ** (attempt - 1))
        answer, is_final = _ask_once(url, how, now=now)
        if is_final:
            break
    return answer


def _ask_once(url: str, how: ScrapeSettings, *, now: Clock) -> tuple[_Answer, bool]:
    """One try: the answer, and whether it settles the matter."""
    ts = now()
    try:
        with requests.get(
            url,
            headers={"Accept": _ACCEPT, "Accept-Encoding": "gzip"},
            timeout=how.timeout_s,
            allow_redirects=False,  # an exporter has no reason to send us elsewhere
            stream=True,
        ) as response:
            ts = now()
            if response.status_code != requests.codes.ok:
                is_final = response.status_code not in _WORTH_ANOTHER_TRY
                return _Answer(url, ts, failure=_status(response.status_code)), is_final
            page, failure = _body(response, how)
            kind = response.headers.get("Content-Type", "")
            openmetrics = True if "openmetrics" in kind else None
            return _Answer(url, ts, page, openmetrics, failure), True
    except (requests.Timeout, urllib3.exceptions.TimeoutError):
        return _Answer(url, ts, failure="target did not answer in time"), False
    except (requests.ConnectionError, urllib3.exceptions.ProtocolError):
        return _Answer(url, ts, failure="target cannot be reached, or broke off"), False
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        return _Answer(
            url, ts, failure=f"target's answer is not valid: {type(error).__name__}"
        ), True


def _body(response: requests.Response, how: ScrapeSettings) -> tuple[bytes, str | None]:
    """The page, unpacked, up to the limits."""
    pieces: list[bytes] = []
    size = 0
    end = time.monotonic() + how.deadline_s
    # What has arrived, rather than a full piece: a target that drips must meet its deadline.
    while piece := response.raw.read1(_READ_BYTES, decode_content=True):
        pieces.append(piece)
        size += len(piece)
        if size > how.max_bytes:
            return b"", f"page is longer than {how.max_bytes} bytes"
        if time.monotonic() > end:
            return b"", f"page took longer than {how.deadline_s:g} s"
    return b"".join(pieces), None


def _status(code: int) -> str:
    if code // 100 == 3:
        return f"target sends elsewhere (status {code}), which is not followed"
    return f"target answered with status {code}"
