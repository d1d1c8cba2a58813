"""Whole pages of both formats: our samples are prometheus_client's, but for the stated cases."""

import math
import re
import struct
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as official_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as official_text

from pipelines.sources.telemetry.dcgm_text import DIALECT
from pipelines.sources.telemetry.exposition import Sample, parse_line
from pipelines.sources.telemetry.exposition_compiled import compiled_scan
from pipelines.sources.telemetry.exposition_page import BEYOND
from pipelines.sources.telemetry.exposition_scan import Scanner, samples_of, scan_python
from pipelines.sources.telemetry.pages import PageBatch
from tests.pipelines.sources.telemetry.exposition_pages import (
    odd_pages,
    open_pages,
    spoiled_lines,
    text_pages,
)

NOW = datetime(2026, 1, 6, tzinfo=UTC)
WAYS = [scan for scan in (scan_python, compiled_scan()) if scan is not None]
END = "# EOF\n"

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_NUMBER = r"[+-]?(?:\d+\.?\d*(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?|inf(?:inity)?|nan)"
_STRING = r'"(?:[^"\\]|\\.)*"'
_B = r"[ \t]*"
_TERM = rf"{_B}(?:{_NAME}|{_STRING}){_B}={_B}{_STRING}{_B}|{_B}{_STRING}{_B}"
_BLOCK = rf"\{{{_B},?(?:(?:{_TERM}),)*(?:{_TERM})?{_B}\}}"
_TEXT_LINE = rf"{_B}(?:{_NAME})?{_B}(?:{_BLOCK})?{_B}{_NUMBER}(?:[ \t]+[+-]?\d+)?[ \t\r]*"
_TIME = r"\d+(?:\.\d*)?|\.\d+|\d+(?:\.\d*)?e[+-]?\d+"
_OPEN_LINE = (
    rf"(?:{_NAME})?(?:{_BLOCK})? {_NUMBER}(?: (?:{_TIME}))?"
    rf"(?: # {_BLOCK} {_NUMBER}(?: (?:{_TIME}))?)?"
)
_FLAGS = re.ASCII | re.IGNORECASE | re.DOTALL
VALID = {False: re.compile(_TEXT_LINE, _FLAGS), True: re.compile(_OPEN_LINE, _FLAGS)}


def bits(value):
    """All of a number but the payload of NaN; integers beyond a double are infinite."""
    try:
        number = float(value)
    except OverflowError:
        number = math.copysign(math.inf, value)
    return "NaN" if math.isnan(number) else struct.pack("<d", number)


def nanoseconds(ts, *, openmetrics):
    """The official parser's time in our form."""
    if ts is None:
        return None
    if hasattr(ts, "nsec"):
        ts_ns = ts.sec * 10**9 + ts.nsec
    elif not math.isfinite(ts):
        return BEYOND
    else:
        ts_ns = round(ts * 10**9) if openmetrics else round(ts * 1000) * 10**6
    return ts_ns if abs(ts_ns) < BEYOND else BEYOND


def official(text, *, openmetrics):
    """Name, labels, value, time and exemplar of each sample; None where the parser gives up."""
    parser = official_openmetrics if openmetrics else official_text
    try:
        samples = [sample for family in parser(text) for sample in family.samples]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return None  # what it raises over pages that are not valid
    return [
        (
            s.name,
            s.labels,
            bits(s.value),
            nanoseconds(s.timestamp, openmetrics=openmetrics),
            s.exemplar,
        )
        for s in samples
    ]


def read(text, scan, *, openmetrics):
    """Name, labels, value, time and text of each sample."""
    scanner = Scanner(scan)
    page = scanner.read(text.encode(), openmetrics=openmetrics)
    assert page.n_lines == page.n_plain + page.name.size + len(page.malformed)
    lines = [page.text(int(number)) for number in page.line]
    return [
        (name, dict(labels), bits(value), ts_ns, line)
        for (name, labels, value, ts_ns), line in zip(
            samples_of(page, scanner.symbols), lines, strict=True
        )
    ]


def counters_of(text):
    """Names that the text declares to be counters."""
    return set(re.findall(r'^#[ \t]+TYPE[ \t]+"?([^ \t"]+)"?[ \t]+counter', text, re.MULTILINE))


def assert_same(ours, theirs, counters):
    assert len(ours) == len(theirs)
    for (name, labels, value, ts_ns, line), (name_2, labels_2, value_2, ts_2, exemplar) in zip(
        ours, theirs, strict=True
    ):
        assert name == name_2 or (name in counters and f"{name}_total" == name_2)
        assert (labels, value) == (labels_2, value_2)
        # The official parser makes times with an exponent floats.
        assert ts_ns == ts_2 or abs(ts_ns - ts_2) <= 1e-15 * abs(ts_2) + 1
        assert_same_exemplar(parse_line(line, openmetrics=True), exemplar)


def assert_same_exemplar(sample, theirs):
    if theirs is None or not isinstance(sample, Sample):
        assert theirs is None
        return
    ours = sample.exemplar
    assert (dict(ours.labels), bits(ours.value)) == (theirs.labels, bits(theirs.value))
    ts_ns = nanoseconds(theirs.timestamp, openmetrics=True)
    assert ours.ts_ns == ts_ns or abs(ours.ts_ns - ts_ns) <= 1e-15 * abs(ts_ns) + 1


@pytest.mark.slow
@settings(max_examples=70)
@given(text=text_pages())
def test_samples_of_text_pages_are_those_of_the_official_parser(text):
    theirs = official(text, openmetrics=False)
    assert theirs is not None
    for scan in WAYS:
        assert_same(read(text, scan, openmetrics=False), theirs, counters_of(text))


@settings(max_examples=70)
@given(text=open_pages())
def test_samples_of_openmetrics_pages_are_those_of_the_official_parser(text):
    theirs = official(text, openmetrics=True)
    assert theirs is not None
    for scan in WAYS:
        assert_same(read(text, scan, openmetrics=None), theirs, set())


@pytest.mark.slow
@settings(max_examples=150)
@given(line=spoiled_lines(text_pages()))
def test_what_is_still_a_line_of_text_format_is_read_as_by_the_official_parser(line):
    theirs = official(line, openmetrics=False)
    for scan in WAYS:
        ours = read(line, scan, openmetrics=False)
        if theirs is not None and VALID[False].fullmatch(line):
            assert_same(ours, theirs, set())


@settings(max_examples=150)
@given(line=spoiled_lines(open_pages()))
def test_what_is_still_a_line_of_openmetrics_is_read_as_by_the_official_parser(line):
    theirs = official(f"{line}\n{END}", openmetrics=True)
    for scan in WAYS:
        ours = read(f"{line}\n{END}", scan, openmetrics=None)
        if theirs is not None and VALID[True].fullmatch(line):
            assert_same(ours, theirs, set())


@pytest.mark.parametrize("openmetrics", [False, True])
def test_no_line_of_an_odd_page_goes_missing(openmetrics):
    pages = open_pages() if openmetrics else text_pages()

    @settings(max_examples=50)
    @given(text=odd_pages(pages))
    def check(text):
        n_lines = text.encode().removeprefix(b"\xef\xbb\xbf").count(b"\n") + (
            not text.endswith("\n") and text not in ("", "\ufeff")
        )
        for scan in WAYS:
            batch = PageBatch(DIALECT, ingested_at=NOW, scanner=Scanner(scan))
            batch.add(text.encode(), origin="p", ts=NOW, openmetrics=openmetrics)
            reads = batch.result().reads.row(0, named=True)
            fates = ("n_parsed", "n_skipped", "n_quarantined")
            assert reads["n_read"] == n_lines == sum(reads[fate] for fate in fates)

    check()


@pytest.mark.parametrize("scan", WAYS)
@pytest.mark.parametrize("line", ["\r\r", "\r \t\r", "\r# TYPE m gauge", " \r # a comment"])
def test_carriage_returns_before_nothing_or_a_comment_are_blanks(scan, line):
    page = Scanner(scan).read(f"m 1\n{line}\nm 2\n".encode())
    assert (page.n_lines, page.n_plain, page.value.tolist()) == (3, 1, [1.0, 2.0])


DEVIATIONS = [
    # text format: what we read (None: refused), what the official parser reads
    ("m 1 2e3", False, None, (1, 2e9)),
    ("m 1 Inf", False, None, (1, BEYOND)),
    ("m 1 2 3", False, None, (1, 3e6)),
    ('m 1 # {a="b"} 2', False, (1, None), (1, 2e6)),
    ("m \u0661", False, None, (1, None)),
    ("\x0cm 1", False, None, (1, None)),
    ("a b{} 1", False, None, (1, None)),
    # OpenMetrics
    ("m{}12", True, (12, None), (2, None)),
    ("m 1 1.+5", True, None, (1, 1.05e9)),
    ("m 1 99999999999999999999999", True, None, (1, BEYOND)),
    ('m{a="b"} 1 1\nm{a="b"} 1 1', True, [(1, 1e9)] * 2, (1, 1e9)),
]


@pytest.mark.parametrize(("line", "openmetrics", "ours", "theirs"), DEVIATIONS)
def test_deviations_from_the_official_parser_are_the_stated_ones(line, openmetrics, ours, theirs):
    text = f"{line}\n{END if openmetrics else ''}"
    expected = ours if isinstance(ours, list) else [] if ours is None else [ours]
    for scan in WAYS:
        samples = read(text, scan, openmetrics=openmetrics)
        assert [(v, ts) for _, _, v, ts, _ in samples] == [(bits(v), ts) for v, ts in expected]
    told = official(text, openmetrics=openmetrics)
    assert [(v, ts) for _, _, v, ts, _ in told] == [(bits(theirs[0]), theirs[1])]
