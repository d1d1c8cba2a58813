r"""The Prometheus text format, line by line: names, labels with escapes, values, timestamps.

What a metric means is not known here.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True)
class Sample:
    """One sample line.

    Attributes:
        name: Metric name.
        labels: Label -> value, escapes undone.
        value: The number; an integer is kept exact.
        ts_ms: Milliseconds since 1970, where the line gives them.
        text: The line.
    """

    name: str
    labels: Mapping[str, str]
    value: float
    ts_ms: int | None
    text: str


@dataclass(frozen=True)
class Comment:
    """A comment or blank line.

    Attributes:
        help_of: Metric that the line describes, for a HELP line.
        text: The help text, else the line.
    """

    help_of: str | None
    text: str


@dataclass(frozen=True)
class Malformed:
    """A line that is not valid exposition text.

    Attributes:
        rule: What is wrong with it.
        text: The line.
    """

    rule: Literal[
        "not a line of the exposition format",
        "labels are not valid",
        "value is not a number",
        "timestamp is not a whole number of milliseconds",
    ]
    text: str


Line = Sample | Comment | Malformed

_HEAD: Final = re.compile(
    r"""[ \t]*(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)
    (?:[ \t]*\{(?P<labels>(?:[^"}]|"(?:[^"\\]|\\.)*+")*+)\})?
    (?P<rest>.*)""",
    re.ASCII | re.VERBOSE | re.DOTALL,
)
_LABEL: Final = re.compile(
    r"""[ \t]*(?P<name>[a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*
    "(?P<value>(?:[^"\\]|\\.)*+)"[ \t]*(?P<end>,|$)""",
    re.ASCII | re.VERBOSE | re.DOTALL,
)
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)
_DECIMAL: Final = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|[+-]?inf(?:inity)?|nan",
    re.ASCII | re.IGNORECASE,
)
_HELP: Final = re.compile(r"#[ \t]*HELP[ \t]+(?P<name>\S+)[ \t]*(?P<text>.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)


def parse_exposition(text: str) -> Iterator[Line]:
    """Reads exposition text (version 0.0.4).

    Args:
        text: The body of a scrape.

    Yields:
        One item per line, the empty end after the last line break left out.
    """
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    labels_seen: dict[str, Mapping[str, str] | None] = {}
    for line in lines:
        yield _parse_line(line.removesuffix("\r"), labels_seen)


def _parse_line(line: str, labels_seen: dict[str, Mapping[str, str] | None]) -> Line:
    """Reads a line; the same labels come on every metric of a GPU, so they are parsed once."""
    bare = line.strip()
    if not bare or bare.startswith("#"):
        found = _HELP.match(bare)
        return Comment(found["name"], found["text"]) if found else Comment(None, bare)
    head = _HEAD.fullmatch(line)
    if head is None:
        return Malformed("not a line of the exposition format", line)
    block = head["labels"] or ""
    if block not in labels_seen:
        labels_seen[block] = _parse_labels(block)
    labels = labels_seen[block]
    if labels is None:
        return Malformed("labels are not valid", line)
    if head["labels"] is None and head["rest"][:1] not in (" ", "\t"):
        return Malformed("not a line of the exposition format", line)
    return _parse_value(head["name"], labels, head["rest"].split(), line=line)


def _parse_value(name: str, labels: Mapping[str, str], words: list[str], *, line: str) -> Line:
    """Reads what follows the labels: a value and perhaps a timestamp."""
    value = parse_number(words[0]) if words else None
    if value is None or len(words) > 2:
        return Malformed("value is not a number", line)
    if len(words) == 1:
        return Sample(name, labels, value, None, line)
    if not _INTEGER.fullmatch(words[1]):
        return Malformed("timestamp is not a whole number of milliseconds", line)
    return Sample(name, labels, value, int(words[1]), line)


def parse_number(text: str) -> float | None:
    """Reads a number as the format writes it.

    Args:
        text: One word.

    Returns:
        An int where it is written as one (a float would blur the blanks above 2**53), else a
        float, which may be infinite or NaN; None where it is no number.
    """
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _DECIMAL.fullmatch(text) else None


def _parse_labels(block: str) -> Mapping[str, str] | None:
    """Reads what stands between the braces; a comma after the last label is allowed."""
    labels: dict[str, str] = {}
    at = 0
    while block[at:].strip(" \t"):
        found = _LABEL.match(block, at)
        if found is None or found["name"] in labels:
            return None
        labels[found["name"]] = _unescape(found["value"])
        at = found.end()
    return labels


def _unescape(text: str) -> str:
    """Undoes the three escapes of the format; anything else after a backslash stays as it is."""
    if "\\" not in text:
        return text
    known = {"\\": "\\", '"': '"', "n": "\n"}
    return _ESCAPE.sub(lambda found: known.get(found[1], found[0]), text)
