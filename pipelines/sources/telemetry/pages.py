"""Pages of exposition text to `raw/gpu_telemetry`, many at a time, with their account.

Bytes are read in `telemetry.exposition_scan`, names and labels understood in `telemetry.series`,
rows put together in `telemetry.matrix`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from features.raw_tables import RAW_COVERAGE, RAW_INVENTORY
from pipelines.sources.result import SourceResult
from pipelines.sources.telemetry.account import Accounts
from pipelines.sources.telemetry.dcgm_fields import is_blank_text, stated_scale
from pipelines.sources.telemetry.exposition import Comment
from pipelines.sources.telemetry.exposition_page import BEYOND, NO_TIME, Columns, Page
from pipelines.sources.telemetry.exposition_scan import Scanner
from pipelines.sources.telemetry.matrix import (
    DIFFERS,
    NOT_FINITE,
    PARSED,
    SKIPPED,
    TOO_LARGE,
    TOO_SMALL,
    Readings,
    build_matrix,
    first_known,
    rows_of,
)
from pipelines.sources.telemetry.rows import TELEMETRY, telemetry_frame
from pipelines.sources.telemetry.series import (
    AMBIGUOUS,
    IDENTITY,
    MOST_GPUS,
    NO_PARENT,
    UNKNOWN,
    Dialect,
    Names,
    Series,
)
from pipelines.sources.telemetry.sightings import (
    SIGHTS,
    Reading,
    build_coverage,
    build_inventory,
    microseconds,
)

NodeFrom = Literal["label", "file_name"]

Ints = npt.NDArray[np.int64]

_IS_AMBIGUOUS: Final = 10
_NO_UUID: Final = 11
_NO_GPU: Final = 12
_NO_YEAR: Final = 13
_TOO_OLD: Final = 14

_FIRST_US: Final = microseconds(datetime(2000, 1, 1, tzinfo=UTC))
_INDICES: Final = tuple(str(index) for index in range(MOST_GPUS))
_UNIT: Final = re.compile(r"\(in (?P<unit>[A-Za-z]+)\)")


@dataclass(frozen=True)
class _Entry:
    """A page that has been read, with what is known of it."""

    page: Page
    origin: str
    ts: datetime
    node: str | None


@dataclass(frozen=True)
class _Samples:
    """The samples of all pages in one column each, shape (samples,)."""

    entry: Ints
    name: Ints
    labels: Ints
    value: npt.NDArray[np.float64]
    ts_us: Ints
    line: Ints


class PageBatch:
    """Gathers pages and makes frames of them.

    Args:
        dialect: The exporter's names.
        ingested_at: When the pages are read, UTC.
        node_from: Whose word counts where both know a node: the label's, or that of whoever
            gives the page (for exporters whose Hostname label is the pod).
        site: Name of the site, for the coverage of pages that name nothing.
        every_s: Usual time between pages of one exporter, in seconds.
        scanner: Reads the pages; None: a new one.
    """

    def __init__(
        self,
        dialect: Dialect,
        *,
        ingested_at: datetime,
        node_from: NodeFrom = "label",
        site: str | None = None,
        every_s: float | None = None,
        scanner: Scanner | None = None,
    ) -> None:
        self._dialect = dialect
        self._ingested_at = ingested_at
        self._node_from = node_from
        self._site = site
        self._every_s = every_s
        self._scanner = scanner or Scanner()
        self._begin()
        self._entries: list[_Entry] = []
        self._refused: list[tuple[str, str, str]] = []
        self._origins: dict[str, None] = {}  # in the order they came
        self.n_samples = 0
        self.n_bytes = 0

    def _begin(self) -> None:
        self._names = Names(self._dialect)
        self._series = Series()

    def add(
        self,
        data: bytes,
        *,
        origin: str,
        ts: datetime,
        node: str | None = None,
        openmetrics: bool | None = None,
    ) -> None:
        """Reads a page.

        Args:
            data: Its bytes.
            origin: File or address.
            ts: When it was taken, UTC; a time in a line goes before it.
            node: Node it is of, where the file's name or the address says so.
            openmetrics: Whether times in it are seconds; None: as its end mark tells.
        """
        page = self._scanner.read(data, openmetrics=openmetrics)
        if page.malformed:
            page = self._with_blanks(page)
        self._origins[origin] = None
        self._entries.append(_Entry(page, origin, ts, node))
        self.n_samples += page.name.size
        self.n_bytes += len(data)

    def refuse(self, rule: str, example: str, *, origin: str) -> None:
        """Counts a page that could not be had, as one record of its origin.

        Args:
            rule: Why not.
            example: What was asked for.
            origin: File or address.
        """
        self._origins[origin] = None
        self._refused.append((rule, example, origin))

    @property
    def is_empty(self) -> bool:
        """Whether no page was added since the last result."""
        return not self._entries and not self._refused

    def result(self) -> SourceResult:
        """Makes frames of what was added, and begins anew.

        Returns:
            `raw/gpu_telemetry`, one row per GPU, page and moment, in the order they appear;
            `raw/inventory` and `raw/coverage`; the account of every page.
        """
        samples = self._samples()
        series = self._series.columns(self._scanner.symbols.labels)
        codes = self._names.codes(self._scanner.symbols.names)[samples.name]
        fate = self._first_fate(samples, codes, series)
        is_seen = np.flatnonzero(fate == PARSED)
        rows, first = self._rows(samples, series[0][samples.labels[is_seen]], is_seen)
        seen = self._seen(samples, series, is_seen, rows=rows, first=first)
        has_value = codes[is_seen] >= 0
        read = is_seen[has_value]
        readings = Readings(
            rows[has_value],
            codes[read],
            series[5][samples.labels[read]],
            samples.value[read],
            self._scales(codes)[read],
            series[6][samples.labels[read]] > 0,
        )
        columns, fate[read] = build_matrix(readings, self._names.fields, n_rows=first.size)
        accounts = self._accounts(samples, codes, fate)
        tables = self._tables(seen, columns)
        self._entries, self._refused, self._origins = [], [], {}
        self.n_samples = self.n_bytes = 0
        if self._scanner.trim():
            self._begin()
        return accounts.result(tables)

    def _with_blanks(self, page: Page) -> Page:
        """Takes lines that say N/A or ERROR for a known field as readings without a value."""
        columns = Columns(self._scanner.symbols, openmetrics=False)
        for number, line in page.malformed:
            is_blank = line.rule == "value is not a number" and is_blank_text(line.rest)
            if is_blank and line.name and self._names.field_of(line.name) >= 0:
                columns.add(number, line.name, line.labels or {}, value=np.nan, ts_ns=NO_TIME)
            else:
                columns.malformed.append((number, line))
        return page.with_others(columns, np.ones(page.name.size, np.bool_))

    def _samples(self) -> _Samples:
        """All pages below each other, with a time for every sample."""
        pages = [entry.page for entry in self._entries]
        sizes = np.array([page.name.size for page in pages], np.int64)
        entry = np.repeat(np.arange(sizes.size), sizes)
        page_us = np.array([microseconds(e.ts) for e in self._entries], np.int64)
        ts_ns = _joined([page.ts_ns for page in pages], np.int64)
        own = ts_ns // 1000
        ts_us = np.where(ts_ns == NO_TIME, page_us[entry], np.where(ts_ns == BEYOND, BEYOND, own))
        return _Samples(
            entry,
            _joined([page.name for page in pages], np.int64),
            _joined([page.labels for page in pages], np.int64),
            _joined([page.value for page in pages], np.float64),
            ts_us,
            _joined([page.line for page in pages], np.int64),
        )

    def _first_fate(self, samples: _Samples, codes: Ints, series: Ints) -> Ints:
        """What becomes of each sample by its name, labels and time; values are not looked at."""
        per_instance = np.append(self._names.per_instance(), np.zeros(3, np.bool_))
        gpu = series[0][samples.labels]
        is_instance = series[6][samples.labels] > 0
        rules = [
            (codes == AMBIGUOUS, _IS_AMBIGUOUS),
            ((codes < 0) & (codes != IDENTITY), SKIPPED),
            (gpu == UNKNOWN, _NO_UUID),
            (gpu == NO_PARENT, _NO_GPU),
            (is_instance & per_instance[codes], SKIPPED),
            (samples.ts_us == BEYOND, _NO_YEAR),
            (samples.ts_us < _FIRST_US, _TOO_OLD),
        ]
        chosen = np.select([is_so for is_so, _ in rules], [fate for _, fate in rules], PARSED)
        return chosen.astype(np.int64)

    def _rows(self, samples: _Samples, gpu: Ints, at: Ints) -> tuple[Ints, Ints]:
        """The row of each sample that has one, and the first sample of each row."""
        times, ts = np.unique(samples.ts_us[at], return_inverse=True)
        n_gpus = len(self._series.gpus.texts) + 1
        keys = (samples.entry[at] * n_gpus + gpu) * max(times.size, 1) + ts
        rows, first = rows_of(keys)
        return rows, at[first]

    def _seen(
        self, samples: _Samples, series: Ints, at: Ints, *, rows: Ints, first: Ints
    ) -> pl.DataFrame:
        """One sight per GPU and moment: who and where it was, in the columns of `SIGHTS`."""
        # Most samples of a row have the labels of its first, and then tell nothing more.
        tells = samples.labels[at] != samples.labels[first][rows]
        tells[np.searchsorted(at, first)] = True
        rows, at = rows[tells], at[tells]
        gpu, said, slot, pci, model = series[:5, samples.labels[at]]
        texts = self._series
        nodes = [texts.nodes.number(entry.node) for entry in self._entries]
        of_page = np.array(nodes, np.int64)[samples.entry[at]]
        one, other = (of_page, said) if self._node_from == "file_name" else (said, of_page)
        node = np.where(one >= 0, one, other)
        columns = (
            samples.entry[first],
            samples.ts_us[first],
            _looked_up(texts.gpus.texts, first_known(rows, gpu, first.size)),
            _looked_up(texts.nodes.texts, first_known(rows, node, first.size)),
            _looked_up(_INDICES, first_known(rows, slot, first.size)),
            _looked_up(texts.pci.texts, first_known(rows, pci, first.size)),
            _looked_up(texts.models.texts, first_known(rows, model, first.size)),
        )
        return pl.DataFrame(dict(zip(SIGHTS, columns, strict=True)), SIGHTS)

    def _scales(self, codes: Ints) -> npt.NDArray[np.float64]:
        """Factor per sample: the field's own, or what the page states above it."""
        stated = [self._stated(comment) for comment in self._scanner.symbols.comments]
        own = np.array([field.scale for field in self._names.fields] + [1.0] * 3, np.float64)
        scales = own[codes]
        differing = {field for field, scale in stated if field >= 0 and scale != own[field]}
        if not differing:
            return scales
        ends = np.cumsum([entry.page.name.size for entry in self._entries])
        places = {field: np.flatnonzero(codes == field) for field in differing}
        for entry, end in zip(self._entries, ends.tolist(), strict=True):
            page = entry.page
            numbers = zip(page.comment.tolist(), page.comment_line.tolist(), strict=True)
            for number, line in numbers:
                field, scale = stated[number]
                if field in differing:
                    begin = end - page.name.size + np.searchsorted(page.line, line)
                    of_field = places[field]
                    first, last = np.searchsorted(of_field, [begin, end])
                    scales[of_field[first:last]] = scale
        return scales

    def _stated(self, comment: Comment) -> tuple[int, float]:
        """The field whose unit a comment states, with the factor that implies."""
        if comment.metric is None or comment.kind not in ("HELP", "UNIT"):
            return UNKNOWN, 1.0
        field = self._names.field_of(comment.metric)
        found = _UNIT.search(comment.text) if comment.kind == "HELP" else None
        unit = comment.text.strip() if comment.kind == "UNIT" else found and found["unit"]
        if field < 0 or not unit:
            return UNKNOWN, 1.0
        scale = stated_scale(self._names.fields[field].metric, unit)
        return (UNKNOWN, 1.0) if scale is None else (field, scale)

    def _accounts(self, samples: _Samples, codes: Ints, fate: Ints) -> Accounts:
        accounts = Accounts(TELEMETRY, self._dialect.source)
        for origin in self._origins:
            accounts.of(origin)
        n_entries = len(self._entries)
        parsed = np.bincount(samples.entry[fate == PARSED], minlength=n_entries).tolist()
        skipped = np.bincount(samples.entry[fate == SKIPPED], minlength=n_entries).tolist()
        for number, entry in enumerate(self._entries):
            account = accounts.of(entry.origin)
            account.n_read += entry.page.n_lines
            account.n_parsed += parsed[number]
            account.n_skipped += skipped[number] + entry.page.n_plain
            for _, line in entry.page.malformed:
                account.quarantine(line.rule, line.text)
        for rule, example, origin in self._refused:
            accounts.of(origin).n_read += 1
            accounts.of(origin).quarantine(rule, example)
        for at in np.flatnonzero(fate > SKIPPED).tolist():
            entry = self._entries[samples.entry[at]]
            rule = self._rule(int(fate[at]), samples, codes, at)
            accounts.of(entry.origin).quarantine(rule, entry.page.text(int(samples.line[at])))
        return accounts

    def _rule(self, fate: int, samples: _Samples, codes: Ints, at: int) -> str:
        """A broken rule in words."""
        if fate == _IS_AMBIGUOUS:
            name = self._scanner.symbols.names[samples.name[at]]
            return f"{name} is {self._dialect.ambiguous[name.lower()]}"
        if fate in _RULES:
            return _RULES[fate]
        metric = self._names.fields[codes[at]].metric
        return {
            NOT_FINITE: f"{metric.column} is not finite",
            TOO_SMALL: f"{metric.column} < {metric.minimum:g}",
            TOO_LARGE: f"{metric.column} > {metric.maximum:g}",
            DIFFERS: f"{metric.column} differs from an earlier line of the same GPU and moment",
        }[fate]

    def _tables(
        self, seen: pl.DataFrame, columns: dict[str, npt.NDArray[np.float64]]
    ) -> dict[str, pl.DataFrame]:
        about: dict[str, Any] = {
            "source": self._dialect.source,
            "ingested_at": self._ingested_at,
        }
        readings = [
            Reading(e.origin, e.node, e.ts, e.ts, bool(e.page.name.size) or not e.page.malformed)
            for e in self._entries
        ]
        return {
            TELEMETRY: telemetry_frame(seen, columns, **about),
            RAW_INVENTORY.asset_key: build_inventory(seen, **about),
            RAW_COVERAGE.asset_key: build_coverage(
                readings, seen, site=self._site, every_s=self._every_s, **about
            ),
        }


_RULES: Final = {
    _NO_UUID: "no UUID label: the GPU is unknown",
    _NO_GPU: "the UUID is of a MIG instance whose GPU is not told",
    _NO_YEAR: "timestamp is beyond the years that exist",
    _TOO_OLD: "timestamp is before 2000: seconds where milliseconds are due?",
}


def _joined(columns: list[Any], kind: Any) -> Any:
    return np.concatenate([np.empty(0, kind), *columns]).astype(kind, copy=False)


def _looked_up(texts: Sequence[str], numbers: Ints) -> list[str | None]:
    """Texts by their numbers; None for a negative one."""
    return [texts[number] if number >= 0 else None for number in numbers.tolist()]
