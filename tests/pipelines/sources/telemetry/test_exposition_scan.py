"""Pages of exposition text: every way of reading gives what prometheus_client gives."""

import math
import re
import struct
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as official_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as official_text

from pipelines.sources.telemetry import exposition_compiled, exposition_scan
from pipelines.sources.telemetry.exposition import Malformed, Sample, is_openmetrics, parse_line
from pipelines.sources.telemetry.exposition_compiled import compiled_scan
from pipelines.sources.telemetry.exposition_scan import Scanner, samples_of, scan_python

COMPILED = compiled_scan()
WAYS = [
    pytest.param(scan_python, id="python"),
    pytest.param(
        COMPILED,
        id="compiled",
        marks=pytest.mark.skipif(COMPILED is None, reason="numba cannot keep what it compiles"),
    ),
]

NAMES = st.from_regex(r"\A[a-z_:][a-zA-Z0-9_:]{0,6}\Z")
QUOTED = st.text(st.sampled_from('\\"\nné ,={}#'), min_size=1, max_size=6)
LABEL_NAMES = st.from_regex(r"\A[a-z][a-zA-Z0-9_]{0,5}\Z")
LABEL_VALUES = st.text(
    st.sampled_from('\\"\nn},{=# \t') | st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]),
    max_size=6,
)
NUMBERS = (
    st.floats().map(repr)
    | st.integers(-(2**70), 2**70).map(str)
    | st.decimals(allow_nan=False, allow_infinity=False, places=6).map(str)
    | st.tuples(st.integers(0, 10**18), st.integers(-330, 310)).map(lambda x: f"{x[0]}e{x[1]}")
    | st.sampled_from(
        ["NaN", "+Inf", "-Inf", "-0", "-0.0", "+5", ".5", "5.", "1E+05", "inf", "22.582000",
         "0000000000000001.5", "9007199254740993", "0.1", "1e22", "1e23", "123456789012345678"]
    )
)  # fmt: skip
TIMES = st.none() | st.integers(-(2**43), 2**43)


def escape(text):
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


@st.composite
def sample_lines(draw):
    labels = draw(st.dictionaries(LABEL_NAMES, LABEL_VALUES, max_size=3))
    gap = draw(st.sampled_from(["", "", "", " ", "\t"]))
    terms = [f'{k}{gap}={gap}"{escape(v)}"' for k, v in labels.items()]
    form = draw(st.integers(0, 9))
    name = draw(NAMES)
    if form == 0:
        terms.insert(0, f'"{escape(draw(QUOTED))}"')
        name = ""
    elif form == 1:
        terms.append(f'"{escape(draw(QUOTED))}"="x"')
    block = f",{gap}".join(terms) + ("," if terms and draw(st.booleans()) else "")
    block = f"{gap}{{{block}{gap}}}" if terms or draw(st.booleans()) else ""
    ts = draw(TIMES)
    line = f"{name}{block}{draw(st.sampled_from([' ', ' ', '  ', chr(9)]))}{draw(NUMBERS)}"
    line += "" if ts is None else f" {ts}"
    return line + draw(st.sampled_from(["", "", " ", "\r"]))


COMMENTS = st.sampled_from(
    ["# HELP m Some \\n text (in W).", "# TYPE m gauge", "# TYPE m counter", "# a comment", "#", "",
     "  ", "# EOF is near"]
)  # fmt: skip
PAGES = st.lists(st.one_of(sample_lines(), sample_lines(), COMMENTS), max_size=12)


def bits(value):
    return struct.pack("<d", float(value)) if not math.isnan(value) else "NaN"


def official(text, parser=official_text):
    """The samples of the official parser, under the names that stand in the text.

    It writes `_total` behind the names of counters that lack it.
    """
    found = []
    for family in parser(text):
        for sample in family.samples:
            ts = None if sample.timestamp is None else float(sample.timestamp)
            found.append((sample.name, dict(sample.labels), bits(sample.value), ts))
    return found


def ours(data, scan, openmetrics=None):
    scanner = Scanner(scan)
    page = scanner.read(data, openmetrics=openmetrics)
    assert page.n_lines == page.n_plain + page.name.size + len(page.malformed)
    return [
        (name, dict(labels), bits(value), None if ts_ns is None else ts_ns / 10**9)
        for name, labels, value, ts_ns in samples_of(page, scanner.symbols)
    ]


def with_counter_names(samples, counters):
    return [(f"{n}_total" if n in counters else n, *rest) for n, *rest in samples]


@pytest.mark.parametrize("scan", WAYS)
@settings(max_examples=120, deadline=None)
@given(lines=PAGES)
def test_samples_are_those_of_the_official_parser(scan, lines):
    text = "".join(f"{line}\n" for line in lines if line != "# TYPE m counter")
    assert ours(text.encode(), scan) == official(text)


@pytest.mark.parametrize("scan", WAYS)
@settings(max_examples=40, deadline=None)
@given(lines=PAGES, others=PAGES)
def test_what_was_read_before_changes_nothing(scan, lines, others):
    page, other = ("\n".join(some).encode() for some in (lines, others))
    scanner = Scanner(scan)
    for data in (page, other, page):
        again = scanner.read(data, openmetrics=False)
    first = Scanner(scan)
    alone = first.read(page, openmetrics=False)
    assert list(map(repr, samples_of(again, scanner.symbols))) == list(
        map(repr, samples_of(alone, first.symbols))
    )
    assert [bad for _, bad in again.malformed] == [bad for _, bad in alone.malformed]


PIECES = st.sampled_from(
    [b"m", b"DCGM_A", b"{", b"}", b'"', b'a="b"', b",", b" ", b"\t", b"\n", b"\r", b"\\", b"#",
     b"# HELP", b"1", b"-", b"e5", b".", b"NaN", b"1767225600000", b"_", b"\xff", b"\x00", b"=",
     b"99999999999999999999", b"# EOF"]
)  # fmt: skip


@pytest.mark.parametrize("scan", WAYS)
@settings(max_examples=120, deadline=None)
@given(data=st.lists(PIECES, max_size=30).map(b"".join) | st.binary(max_size=60))
def test_any_bytes_are_read_line_by_line_as_the_grammar_says(scan, data):
    scanner = Scanner(scan)
    page = scanner.read(data, openmetrics=False)
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    lines = lines[:-1] if not lines[-1] else lines
    slow = [parse_line(line.decode("utf-8", "replace")) for line in lines]
    samples = [read for read in slow if isinstance(read, Sample)]
    fast = list(samples_of(page, scanner.symbols))
    assert [(name, dict(labels), bits(value)) for name, labels, value, _ in fast] == [
        (s.name, dict(s.labels), bits(s.value)) for s in samples
    ]
    assert [bad for _, bad in page.malformed] == [x for x in slow if isinstance(x, Malformed)]
    assert page.n_lines == len(lines)


@pytest.mark.parametrize("scan", WAYS)
def test_openmetrics_with_all_it_has(scan):
    text = (
        "# HELP power_watts Power.\n# TYPE power_watts gauge\n# UNIT power_watts watts\n"
        'power_watts{gpu="0"} 1.5 1767225600.25\npower_watts{gpu="1"} -Inf 1767225600\n'
        "# TYPE errors counter\n"
        'errors_total{gpu="0"} 7 1767225600.125 # {trace="a b"} 1 1767225600\n'
        'errors_created{gpu="0"} 1767225600.5 1767225600.125\n'
        '# TYPE "a.b" gauge\n{"a.b",c="d\\"e"} 1e3\n# EOF\n'
    )
    assert is_openmetrics(text.encode())
    assert ours(text.encode(), scan) == official(text, official_openmetrics)


@pytest.mark.parametrize("scan", WAYS)
def test_counters_keep_the_names_they_have_in_the_text(scan):
    text = "# TYPE c counter\nc 1\n# TYPE d_total counter\nd_total 2\n"
    assert with_counter_names(ours(text.encode(), scan), {"c"}) == official(text)


@pytest.mark.parametrize("scan", WAYS)
def test_a_bad_line_is_refused_alone_where_the_official_parser_gives_up(scan):
    text = 'm{a="1"} 1\nm{a="2"} ERROR\nm{a="3} 3\nm{a="4"} 4\n'
    with pytest.raises(ValueError, match="could not convert"):
        official(text)
    assert [value for _, _, value, _ in ours(text.encode(), scan)] == [bits(1), bits(4)]


@pytest.mark.parametrize("scan", WAYS)
def test_long_pages_make_the_memory_grow(scan):
    lines = [f'm{i % 7}{{gpu="{i}",text="{"x" * (i % 50)}"}} {i}.5 {i}' for i in range(6000)]
    text = "\n".join(lines) + "\n"
    assert ours(text.encode(), scan) == official(text)


def test_too_many_symbols_are_forgotten(monkeypatch):
    monkeypatch.setattr(exposition_scan, "_MOST_SYMBOLS", 3)
    for scan in (scan_python, COMPILED or scan_python):
        scanner = Scanner(scan)
        scanner.read(b'm{a="1"} 1\nm{a="2"} 1\n')
        assert scanner.trim()
        page = scanner.read(b'm{a="3"} 1\n')
        assert [labels for _, labels, _, _ in samples_of(page, scanner.symbols)] == [{"a": "3"}]
        assert not scanner.trim()


def test_without_a_folder_for_compiled_code_pages_are_read_in_python(monkeypatch):
    def fail(name):
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(exposition_compiled.importlib, "import_module", fail)
    monkeypatch.setattr(exposition_scan, "COMPILED_FROM", 0)
    assert compiled_scan() is None
    scanner = Scanner()
    page = scanner.read(b'm{a="1"} 1\n')
    assert [value for _, _, value, _ in samples_of(page, scanner.symbols)] == [1.0]


def test_enough_bytes_switch_to_the_compiled_way(monkeypatch):
    monkeypatch.setattr(exposition_scan, "COMPILED_FROM", 30)
    scanner = Scanner()
    values = []
    for k in range(6):
        page = scanner.read(f'm{{a="{k}"}} {k}\nn 2\n'.encode())
        values += [(n, dict(labels), v) for n, labels, v, _ in samples_of(page, scanner.symbols)]
    assert values == [x for k in range(6) for x in (("m", {"a": str(k)}, k), ("n", {}, 2))]


def test_importing_the_sources_does_not_load_numba():
    code = (
        "import sys, pipelines.sources.telemetry.dcgm_text, pipelines.sources.telemetry.scrape; "
        "sys.exit('numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_lines_are_found_again():
    for scan in (scan_python, COMPILED or scan_python):
        scanner = Scanner(scan)
        page = scanner.read(b'# x\nm{a="1"} 1\r\n\nm{a="2"} 2')
        assert [page.text(int(n)) for n in page.line] == ['m{a="1"} 1', 'm{a="2"} 2']
        assert re.match(r"# x", page.text(int(page.comment_line[0])))
