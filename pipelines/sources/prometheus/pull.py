"""GPU telemetry from a Prometheus server or a compatible one, window by window.

How a server is asked is in `prometheus.client`, how samples become rows in `prometheus.pivot`.
Until when data has settled, and what was read before, is the caller's business.

A *unit* is one window of at most `gpus_per_request` GPUs: it gives its rows whole or not at all.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from features.errors import DataError
from features.raw_tables import RAW_COVERAGE, RAW_GPU_TELEMETRY, RAW_INVENTORY
from pipelines.sources.http.errors import HttpError
from pipelines.sources.prometheus.chunks import LabelCache
from pipelines.sources.prometheus.client import PrometheusClient, is_too_much
from pipelines.sources.prometheus.pivot import pivot
from pipelines.sources.prometheus.readings import Readings, Window, join
from pipelines.sources.prometheus.series import Matcher, Reader, any_of, help_scales
from pipelines.sources.prometheus.tables import (
    SOURCE,
    asked_window,
    coverage_table,
    inventory_table,
    telemetry_table,
)
from pipelines.sources.result import ReadTally, SourceResult
from pipelines.sources.telemetry.dcgm_fields import exporter_name
from pipelines.sources.telemetry.dcgm_names import AMBIGUOUS_NAMES
from pipelines.sources.telemetry.label_names import UUID_LABELS

CHUNK_ROWS: Final = 200_000

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ANY_NAME: Final = "(?i)(dcgm|nvidia_smi)_.+"
_LEAST_WINDOW_MS: Final = 60_000
_MOST_TIMEOUTS: Final = 2  # halvings after timeouts; a server that hangs is not asked for long
_REPLICA_REACH: Final = 0.75  # of the scrape interval; two replicas' scrapes are within half of it


@dataclass(frozen=True)
class _Unit:
    window: Window
    matchers: tuple[Matcher, ...]


def pull_prometheus(
    client: PrometheusClient,
    start: datetime,
    end: datetime,
    *,
    ingested_at: datetime,
    site: str = "site",
) -> Iterator[SourceResult]:
    """Reads the telemetry of a stretch of time.

    Args:
        client: The server.
        start: Beginning, inclusive, UTC.
        end: End, exclusive, UTC. Prometheus counts milliseconds; finer parts are cut off.
        ingested_at: When it is read, UTC.
        site: Name of the site, for its row of coverage.

    Yields:
        Results of at most `CHUNK_ROWS` rows of `raw/gpu_telemetry`, with `raw/inventory` and
        `raw/coverage` of the GPUs; windows in order. The last one holds the site's row of
        coverage: without it the stretch was not read whole. A record of the account is a sample.

    Raises:
        DataError: The stretch ends before it begins.
        HttpError: A window could not be read, after all tries and with smaller windows.
        SettingsError: The secret is not where it should be.
    """
    asked = Window(_milliseconds(start), _milliseconds(end))
    if asked.end <= asked.start:
        raise DataError(
            f"prometheus {client.address}: the stretch to read must end after it begins, got "
            f"{start.isoformat()} to {end.isoformat()}. Correct the times."
        )
    reader = Reader(
        client.settings.node_labels,
        client.settings.replica_label,
        help_scales(client.helps()),
    )
    pull = _Pull(client, reader, ingested_at=ingested_at)
    units = pull.units(asked)
    with ThreadPoolExecutor(client.settings.http.limits.concurrent) as pool:
        waiting: deque[Future[list[SourceResult]]] = deque()
        try:
            for unit in units:
                waiting.append(pool.submit(pull.read, unit))
                if len(waiting) > client.settings.http.limits.concurrent:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
    coverage = asked_window(asked, site=site, origin=client.address, ingested_at=ingested_at)
    yield SourceResult({RAW_COVERAGE.asset_key: coverage})


class _Pull:
    """One reading of one stretch."""

    def __init__(self, client: PrometheusClient, reader: Reader, *, ingested_at: datetime) -> None:
        self._client = client
        self._reader = reader
        self._cache = LabelCache(reader.read)
        self._ingested_at = ingested_at
        self._widest_ms = _ms(client.settings.window)
        interval = client.settings.interval if client.settings.replica_label else None
        self._reach_ms = int(_ms(interval) * _REPLICA_REACH) if interval else 0

    def units(self, asked: Window) -> Iterator[_Unit]:
        """The windows to read, cut at whole multiples of their length, for each group of GPUs."""
        groups = self._groups(asked)
        span = self._widest_ms
        begin = asked.start
        while begin < asked.end:
            window = Window(begin, min((begin // span + 1) * span, asked.end))
            for matchers in groups:
                yield _Unit(window, matchers)
            begin = window.end

    def _groups(self, asked: Window) -> Sequence[tuple[Matcher, ...]]:
        """Conditions that share the series out: groups of GPUs, and what names no GPU."""
        found = self._client.label_values("__name__", asked, name_pattern=_ANY_NAME)
        if found is None:  # a server that lists nothing
            return [(Matcher("__name__", "=~", _ANY_NAME),)]
        names = [name for name in found if exporter_name(name) or name.lower() in AMBIGUOUS_NAMES]
        if not names:
            return []
        by_name = any_of("__name__", sorted(names))
        labels = self._client.label_names(asked, name_pattern=_ANY_NAME)
        spelled = sorted(label for label in labels or () if label.lower() in UUID_LABELS)
        size = self._group_size(asked)
        groups: list[tuple[Matcher, ...]] = []
        absent: tuple[Matcher, ...] = ()
        for label in spelled:
            values = self._client.label_values(label, asked, name_pattern=_ANY_NAME)
            if values is None:
                return [(by_name,)]
            known = sorted(filter(None, values))
            groups += [
                (by_name, any_of(label, known[at : at + size]), *absent)
                for at in range(0, len(known), size)
            ]
            absent = (*absent, Matcher(label, "=", ""))
        return [*groups, (by_name, *absent)]

    def _group_size(self, asked: Window) -> int:
        settings = self._client.settings
        hours = min(asked.end - asked.start, self._widest_ms) / 3_600_000
        return max(min(settings.gpus_per_request, int(settings.gpu_hours_per_request / hours)), 1)

    def read(self, unit: _Unit) -> list[SourceResult]:
        """Everything one unit gives."""
        reach = self._reach_ms
        around = Window(unit.window.start - reach, unit.window.end + reach)
        readings = self._read_split(unit.matchers, around)
        tally = ReadTally(
            table=RAW_GPU_TELEMETRY.asset_key, source=SOURCE, origin=self._client.address
        )
        rows = pivot(readings, unit.window, reach_ms=reach, tally=tally)
        frame = telemetry_table(rows, ingested_at=self._ingested_at)
        first = {
            RAW_GPU_TELEMETRY.asset_key: frame[:CHUNK_ROWS],
            RAW_INVENTORY.asset_key: inventory_table(rows, ingested_at=self._ingested_at),
            RAW_COVERAGE.asset_key: coverage_table(
                rows, origin=self._client.address, ingested_at=self._ingested_at
            ),
        }
        rest = range(CHUNK_ROWS, frame.height, CHUNK_ROWS)
        return [
            tally.result(first),
            *(
                SourceResult({RAW_GPU_TELEMETRY.asset_key: frame[at : at + CHUNK_ROWS]})
                for at in rest
            ),
        ]

    def _read_split(
        self, matchers: Sequence[Matcher], window: Window, *, timeouts: int = 0
    ) -> Readings:
        """Samples of a window, in halves where the server finds it too much."""
        length = window.end - window.start
        if length > 2 * self._reach_ms + self._widest_ms:
            return self._halves(matchers, window, timeouts=timeouts)
        try:
            return self._client.read(
                matchers, window, read_labels=self._reader.read, cache=self._cache
            )
        except HttpError as error:
            timeouts += error.is_timeout
            if not is_too_much(error):
                raise
            if timeouts > _MOST_TIMEOUTS or length < 2 * _LEAST_WINDOW_MS:
                raise error.with_advice(
                    f"Shorter windows than {length / 1000:g} s are not tried. Narrow the matchers, "
                    f"lower gpus_per_request, or raise the server's limits"
                ) from error
            # What was too much once will be too much again: later windows start halved.
            self._widest_ms = min(self._widest_ms, -(-length // 2))
            return self._halves(matchers, window, timeouts=timeouts)

    def _halves(self, matchers: Sequence[Matcher], window: Window, *, timeouts: int) -> Readings:
        middle = (window.start + window.end) // 2
        parts = (Window(window.start, middle), Window(middle, window.end))
        return join(self._read_split(matchers, part, timeouts=timeouts) for part in parts)


def _ms(span: timedelta) -> int:
    return max(int(span / timedelta(milliseconds=1)), 1)


def _milliseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(milliseconds=1)
