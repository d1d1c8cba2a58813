"""One line of exposition text: its grammar, and a round trip through a formatter."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.sources.telemetry.exposition import (
    Comment,
    Exemplar,
    Malformed,
    Sample,
    is_openmetrics,
    parse_line,
)

NAMES = st.from_regex(r"\A[a-zA-Z_:][a-zA-Z0-9_:]{0,8}\Z")
LABEL_NAMES = st.from_regex(r"\A[a-zA-Z][a-zA-Z0-9_]{0,8}\Z")
LABEL_VALUES = st.text(
    st.sampled_from('\\"\nn},') | st.characters(exclude_categories=["Cs"]), max_size=8
)
VALUES = st.one_of(st.integers(-(10**19), 10**19), st.floats())


def escape(text):
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def format_sample(name, labels, value, ts_ms, *, sparse):
    """Writes a sample as an exporter does; `sparse` puts blanks and a comma wherever allowed."""
    gap = " " if sparse else ""
    block = f"{gap},{gap}".join(f'{key}{gap}={gap}"{escape(v)}"' for key, v in labels.items())
    block = f"{{{gap}{block}{',' if sparse and block else ''}{gap}}}" if labels or sparse else ""
    number = {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, repr(value))
    return f"{name}{gap}{block} {number}" + ("" if ts_ms is None else f" {ts_ms}")


@given(
    NAMES,
    st.dictionaries(LABEL_NAMES, LABEL_VALUES, max_size=3),
    VALUES,
    st.none() | st.integers(-(2**52), 2**52),
    st.booleans(),
)
def test_what_is_written_is_read_back(name, labels, value, ts_ms, sparse):
    read = parse_line(format_sample(name, labels, value, ts_ms, sparse=sparse))
    assert isinstance(read, Sample), read
    ts_ns = None if ts_ms is None else ts_ms * 10**6
    assert (read.name, dict(read.labels), read.ts_ns) == (name, labels, ts_ns)
    assert read.value == value or (math.isnan(read.value) and math.isnan(value))


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("m 1", 1),
        ("m{} 1.5e3", 1500),
        ('m{a="b"}1', 1),
        ("  m\t-0.5  ", -0.5),
        ("m .5", 0.5),
        ("m 5.", 5),
        ("m +Inf", math.inf),
        ("m -inf", -math.inf),
        ("m 9223372036854775794", 9223372036854775794),
        ('m{a="}"} 2\r', 2),
        ('m{,a="b"} 3', 3),
        ('m{a="b", } 4', 4),
    ],
)
def test_valid_lines(line, value):
    read = parse_line(line)
    assert isinstance(read, Sample)
    assert read.value == value


@pytest.mark.parametrize(
    ("line", "name", "labels"),
    [
        ('{"my.metric",label="x"} 1', "my.metric", {"label": "x"}),
        ('{label="x","my metric"} 1', "my metric", {"label": "x"}),
        ('{"my.metric"} 1', "my.metric", {}),
        ('m{"a label"="x"} 1', "m", {"a label": "x"}),
        (r'{"a \"b\""} 1', 'a "b"', {}),
        ('{__name__="m",a="b"} 1', "m", {"a": "b"}),
    ],
)
def test_names_of_any_letters_stand_quoted_between_the_braces(line, name, labels):
    read = parse_line(line)
    assert isinstance(read, Sample)
    assert (read.name, dict(read.labels)) == (name, labels)


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("m", "not a line of the exposition format"),
        ("m{} ", "value is not a number"),
        ("m{} 1_000", "value is not a number"),
        ("m{} 0x10", "value is not a number"),
        ('m{gpu="0"} ERROR - FAILED TO CONVERT TO STRING', "value is not a number"),
        ("m 1 2 3", "value is not a number"),
        ("m 1 2.5", "timestamp is not a whole number of milliseconds"),
        ('m{a="b" c="d"} 1', "labels are not valid"),
        ('m{a="b",,c="d"} 1', "labels are not valid"),
        ('m{a="b",a="c"} 1', "labels are not valid"),
        ("m{a=b} 1", "labels are not valid"),
        ("m{a} 1", "labels are not valid"),
        ('m{a="b 1', "not a line of the exposition format"),
        ('{a="b"} 1', "not a line of the exposition format"),
        ('m{"n"} 1', "not a line of the exposition format"),
        ("5m 1", "not a line of the exposition format"),
        ("m-5", "not a line of the exposition format"),
        ("m 1 # {a=} 2", "exemplar is not valid"),
        ('m 1 # {a="b"}', "exemplar is not valid"),
    ],
)
def test_lines_that_are_not_valid_say_why(line, rule):
    read = parse_line(line)
    assert isinstance(read, Malformed)
    assert (read.rule, read.text) == (rule, line)


def test_escapes_in_label_values_are_undone():
    line = r'm{a="say \"hi\"",b="C:\\new",c="two\nlines",d="50\% off"} 1'
    assert dict(parse_line(line).labels) == {
        "a": 'say "hi"',
        "b": r"C:\new",
        "c": "two\nlines",
        "d": r"50\% off",
    }


@pytest.mark.parametrize(
    ("line", "kind", "metric", "text"),
    [
        (r"# HELP m Power (in mW).\nMore", "HELP", "m", "Power (in mW).\nMore"),
        ('# HELP "my metric" x', "HELP", "my metric", "x"),
        ("# HELP m", "HELP", "m", ""),
        ("# TYPE m gauge", "TYPE", "m", "gauge"),
        ("# UNIT m watts", "UNIT", "m", "watts"),
        ("# EOF", "EOF", None, "# EOF"),
        ("#HELP", None, None, "#HELP"),
        ("\t ", None, None, ""),
    ],
)
def test_comments_say_what_they_are_about(line, kind, metric, text):
    assert parse_line(line) == Comment(kind, metric, text)


@pytest.mark.parametrize(
    ("word", "ts_ns"),
    [
        ("1767225600", 1767225600 * 10**9),
        ("1767225600.25", 1767225600250000000),
        ("1.7672256e9", 1767225600 * 10**9),
        ("0.0000000019", 1),
        ("1e999999999", None),
        ("NaN", None),
    ],
)
def test_times_of_openmetrics_are_seconds(word, ts_ns):
    read = parse_line(f"m 1 {word}", openmetrics=True)
    assert (read.ts_ns if isinstance(read, Sample) else None) == ts_ns


def test_an_exemplar_is_kept_apart_from_its_sample():
    read = parse_line('m_bucket{le="1"} 3 # {trace_id="x # {}"} 0.5 1.5')
    assert read.value == 3
    assert read.exemplar == Exemplar({"trace_id": "x # {}"}, 0.5, 1_500_000_000)


def test_only_the_end_mark_in_the_last_line_makes_openmetrics():
    assert is_openmetrics(b"m 1\n# EOF\n")
    assert not is_openmetrics(b"# EOF\nm 1\n")
    assert not is_openmetrics(b"m 1\n")
