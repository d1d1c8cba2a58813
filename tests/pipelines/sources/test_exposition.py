"""The text format: its grammar, and a round trip through a formatter."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.sources.exposition import Comment, Malformed, Sample, parse_exposition

NAMES = st.from_regex(r"\A[a-zA-Z_:][a-zA-Z0-9_:]{0,8}\Z")
LABEL_NAMES = st.from_regex(r"\A[a-zA-Z_][a-zA-Z0-9_]{0,8}\Z")
LABEL_VALUES = st.text(
    st.sampled_from('\\"\nn},') | st.characters(exclude_categories=["Cs"]), max_size=8
)
VALUES = st.one_of(st.integers(-(10**19), 10**19), st.floats())


def one(line):
    return next(parse_exposition(line))


def format_sample(name, labels, value, ts_ms, *, sparse):
    """Writes a sample as an exporter does; `sparse` puts blanks and a comma wherever allowed."""
    escaped = {
        key: text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
        for key, text in labels.items()
    }
    gap = " " if sparse else ""
    block = f"{gap},{gap}".join(f'{key}{gap}={gap}"{text}"' for key, text in escaped.items())
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
    line = format_sample(name, labels, value, ts_ms, sparse=sparse)
    read = one(line)
    assert isinstance(read, Sample), read
    assert (read.name, dict(read.labels), read.ts_ms) == (name, labels, ts_ms)
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
    ],
)
def test_valid_lines(line, value):
    read = one(line)
    assert isinstance(read, Sample)
    assert read.value == value


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
        ('m{a="b",a="c"} 1', "labels are not valid"),
        ("m{a=b} 1", "labels are not valid"),
        ('m{a="b 1', "not a line of the exposition format"),
        ('{a="b"} 1', "not a line of the exposition format"),
        ("5m 1", "not a line of the exposition format"),
        ("m-5", "not a line of the exposition format"),
    ],
)
def test_lines_that_are_not_valid_say_why(line, rule):
    assert one(line) == Malformed(rule, line)


def test_escapes_in_label_values_are_undone():
    line = r'm{a="say \"hi\"",b="C:\\new",c="two\nlines",d="50\% off"} 1'
    assert dict(one(line).labels) == {
        "a": 'say "hi"',
        "b": r"C:\new",
        "c": "two\nlines",
        "d": r"50\% off",
    }


def test_help_names_its_metric_and_other_comments_do_not():
    text = "# HELP m Power (in mW).\n# TYPE m gauge\n#HELP\n\n# anything\n"
    lines = list(parse_exposition(text))
    assert all(isinstance(line, Comment) for line in lines)
    assert [line.help_of for line in lines] == ["m", None, None, None, None]
    assert lines[0].text == "Power (in mW)."


def test_only_a_line_feed_ends_a_line():
    lines = list(parse_exposition('m{a="x\u2028y\x0bz"} 1\nm 2'))
    assert [line.value for line in lines] == [1, 2]
    assert list(parse_exposition("")) == []
