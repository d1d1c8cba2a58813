r"""One line of exposition text: Prometheus text format 0.0.4 and OpenMetrics 1.0, whole grammar.

Whole pages at speed are the business of `telemetry.exposition_scan`; what a metric means is not
known here.

Samples are those that prometheus_client's parsers give, but for the following, which is kept:

- Names stand as in the text; it writes `_total` behind those of text-format counters without it.
- A bad line is refused alone, with its rule; it gives up the whole page. Rules of OpenMetrics about
  families (names that clash, groups that come apart, values that a type forbids) refuse nothing
  here: the readings themselves are sound.
- Digits and blanks are those of ASCII, and names those of the format; it takes any that Python
  does, and in front of braces any text at all for a name.
- Times of text format are whole milliseconds, and nothing follows them: it also takes `2e3` and
  `Inf`, and the last word of a longer line, so that it reads an exemplar's value as a time.
- Times beyond 64 bits of nanoseconds are `exposition_page.BEYOND`, those of more than 20 digits
  refused.
- Of OpenMetrics it drops whatever letter comes after the braces (`m{}12` is 2 there), overlooks
  quotes and a sign in a time (`1.+5`), and leaves out repeats of a series at one time; none of that
  is done here. Blanks around a line are no part of a name.
- In help texts `\"` is a quote in either format.
- Native histograms, which stand in braces, are refused: no GPU exporter has any.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Final, Literal


@dataclass(frozen=True)
class Exemplar:
    """What stands behind ` # ` on a sample line of OpenMetrics.

    Attributes:
        labels: Label -> value.
        value: The number.
        ts_ns: Nanoseconds since 1970, where it gives them.
    """

    labels: Mapping[str, str]
    value: float
    ts_ns: int | None


@dataclass(frozen=True)
class Sample:
    """One sample line.

    Attributes:
        name: Metric name.
        labels: Label -> value, escapes undone.
        value: The number; an integer is kept exact.
        ts_ns: Nanoseconds since 1970, where the line gives a time.
        text: The line.
        exemplar: The exemplar, where there is one.
    """

    name: str
    labels: Mapping[str, str]
    value: float
    ts_ns: int | None
    text: str
    exemplar: Exemplar | None = None


Kind = Literal["HELP", "TYPE", "UNIT", "EOF"]


@dataclass(frozen=True)
class Comment:
    """A comment or blank line.

    Attributes:
        kind: What it says: HELP, TYPE, UNIT, EOF, or nothing in particular.
        metric: The metric it is about.
        text: The help text, type or unit; else the line.
    """

    kind: Kind | None
    metric: str | None
    text: str


Rule = Literal[
    "not a line of the exposition format",
    "labels are not valid",
    "value is not a number",
    "timestamp is not a whole number of milliseconds",
    "timestamp is not a number of seconds",
    "exemplar is not valid",
]


@dataclass(frozen=True)
class Malformed:
    """A line that is not valid exposition text.

    Attributes:
        rule: What is wrong with it.
        text: The line.
        name: Metric name, where it could be read.
        labels: Labels, where they could be read.
        rest: What follows them.
    """

    rule: Rule
    text: str
    name: str | None = None
    labels: Mapping[str, str] | None = None
    rest: str = ""


Line = Sample | Comment | Malformed

_STRING: Final = r'"(?:[^"\\]|\\.)*+"'
_NAME: Final = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_HEAD: Final = re.compile(
    rf"(?P<name>{_NAME})?+(?:[ \t]*\{{(?P<labels>(?:[^\"}}]|{_STRING})*+)\}})?(?P<rest>.*)",
    re.ASCII | re.DOTALL,
)
_TERM: Final = re.compile(
    rf"[ \t]*(?P<key>{_NAME}|{_STRING})[ \t]*(?:=[ \t]*(?P<value>{_STRING})[ \t]*)?(?P<end>,|$)",
    re.ASCII | re.DOTALL,
)
_KEY: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)
_usual_keys: Final[set[str]] = set()  # label names known to be valid
_MOST_KEYS: Final = 10_000
_EXEMPLAR: Final = re.compile(
    rf"(?:[ \t]|^)#[ \t]+\{{(?P<labels>(?:[^\"}}]|{_STRING})*+)\}}[ \t]+(?P<rest>.*)",
    re.ASCII | re.DOTALL,
)
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)
_DECIMAL: Final = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|[+-]?inf(?:inity)?|[+-]?nan",
    re.ASCII | re.IGNORECASE,
)
_COMMENT: Final = re.compile(
    rf"#[ \t]+(?P<kind>HELP|TYPE|UNIT)[ \t]+(?P<metric>{_STRING}|\S+)(?:[ \t]+(?P<text>.*))?",
    re.DOTALL,
)
_KINDS: Final[tuple[Kind, ...]] = ("HELP", "TYPE", "UNIT", "EOF")
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_UNESCAPED: Final = {"\\": "\\", '"': '"', "n": "\n"}
_LARGEST_EXPONENT: Final = 20  # seconds beyond 1e20 are no time, and their digits fill memory
_NS_PER_MS: Final = 1_000_000
_NS_PER_S: Final = 1_000_000_000


def is_openmetrics(data: bytes) -> bool:
    """Whether a page is OpenMetrics, by the end mark that only it must have.

    Args:
        data: The page.

    Returns:
        True where the last line is `# EOF`. Timestamps are then in seconds.
    """
    return data[-64:].rstrip().split(b"\n")[-1] == b"# EOF"


def parse_line(line: str, *, openmetrics: bool = False) -> Line:
    r"""Reads one line.

    Args:
        line: The line without its line feed.
        openmetrics: Whether times are seconds, as in OpenMetrics, rather than milliseconds.

    Returns:
        What it says.

    Example:
        >>> parse_line('{"gpu temp", uuid="a"} 4.5').name
        'gpu temp'
    """
    bare = line.strip(" \t\r")
    if not bare or bare[0] == "#":
        return _parse_comment(bare)
    head = _HEAD.match(bare)
    block = head["labels"] if head else None
    if head is None or (block is None and not (head["name"] and head["rest"][:1] in (" ", "\t"))):
        return Malformed("not a line of the exposition format", line)
    labels = {} if block is None else parse_labels(block)
    if labels is None:
        return Malformed("labels are not valid", line, head["name"])
    inner = labels.pop("__name__", None)
    name = head["name"] or inner
    if not name or (head["name"] and inner is not None):
        return Malformed("not a line of the exposition format", line)
    return _Tail(line, name, labels, head["rest"], openmetrics).read()


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


def parse_labels(block: str) -> dict[str, str] | None:
    """Reads what stands between the braces.

    Args:
        block: The text; names may be quoted, and a comma may stand at either end.

    Returns:
        Label -> value, a name given without a value as `__name__`; None where it is not valid.
    """
    plain = _parse_plain(block)
    if plain is not None:
        return plain
    labels: dict[str, str] = {}
    lead = re.match(r"[ \t]*,", block)
    at = lead.end() if lead else 0
    while block[at:].strip(" \t"):
        found = _TERM.match(block, at)
        if found is None:
            return None
        key, value = found["key"], found["value"]
        if value is None:
            if key[0] != '"':
                return None
            key, value = "__name__", key
        else:
            key = _unquote(key) if key[0] == '"' else key
        if key in labels:
            return None
        labels[key] = _unquote(value)
        at = found.end()
    return labels


def _parse_plain(block: str) -> dict[str, str] | None:
    """Reads labels as exporters write them, without blanks and escapes; None for any others."""
    if not block:
        return {}
    terms = block[:-1].split('",')
    if "\\" in block or block[-1] != '"' or block.count('"') != 2 * len(terms):
        return None
    try:
        labels: dict[str, str] = dict([term.split('="', 1) for term in terms])
    except ValueError:
        return None
    if len(labels) != len(terms):
        return None
    if not _usual_keys.issuperset(labels):
        if not all(map(_KEY.fullmatch, labels)):
            return None
        if len(_usual_keys) < _MOST_KEYS:
            _usual_keys.update(labels)
    return labels


@dataclass(frozen=True)
class _Tail:
    """What follows the labels of a sample: a value, perhaps a time, perhaps an exemplar."""

    line: str
    name: str
    labels: Mapping[str, str]
    rest: str
    openmetrics: bool

    def read(self) -> Line:
        found = _EXEMPLAR.search(self.rest) if "#" in self.rest else None
        words = (self.rest[: found.start()] if found else self.rest).split()
        value = parse_number(words[0]) if words else None
        if value is None or (len(words) > 2 and "#" not in words):
            return self._refuse("value is not a number")
        if len(words) > 2:
            return self._refuse("exemplar is not valid")
        exemplar = self._exemplar(found) if found else None
        if found and exemplar is None:
            return self._refuse("exemplar is not valid")
        if len(words) == 1:
            return Sample(self.name, self.labels, value, None, self.line, exemplar)
        ts_ns = self._nanoseconds(words[1])
        if ts_ns is None:
            return self._refuse(
                "timestamp is not a number of seconds"
                if self.openmetrics
                else "timestamp is not a whole number of milliseconds"
            )
        return Sample(self.name, self.labels, value, ts_ns, self.line, exemplar)

    def _nanoseconds(self, word: str) -> int | None:
        if self.openmetrics:
            return _seconds(word)
        return int(word) * _NS_PER_MS if _INTEGER.fullmatch(word) else None

    def _exemplar(self, found: re.Match[str]) -> Exemplar | None:
        labels = parse_labels(found["labels"])
        words = found["rest"].split()
        value = parse_number(words[0]) if len(words) in (1, 2) else None
        ts_ns = _seconds(words[1]) if len(words) == 2 else None
        if labels is None or value is None or (len(words) == 2 and ts_ns is None):
            return None
        return Exemplar(labels, value, ts_ns)

    def _refuse(self, rule: Rule) -> Malformed:
        return Malformed(rule, self.line, self.name, self.labels, self.rest.strip())


def _seconds(word: str) -> int | None:
    """Seconds with a fraction, cut to nanoseconds."""
    if not _DECIMAL.fullmatch(word):
        return None
    try:
        seconds = Decimal(word)
    except InvalidOperation:
        return None
    if not seconds.is_finite() or seconds.adjusted() > _LARGEST_EXPONENT:
        return None
    return int(seconds * _NS_PER_S) if seconds.adjusted() > -_LARGEST_EXPONENT else 0


def _parse_comment(bare: str) -> Comment:
    if bare == "# EOF":
        return Comment("EOF", None, bare)
    found = _COMMENT.fullmatch(bare)
    if found is None:
        return Comment(None, None, bare)
    metric = found["metric"]
    text = found["text"] or ""
    if found["kind"] == "HELP":
        text = _unescape(text)
    kind = next(kind for kind in _KINDS if kind == found["kind"])
    return Comment(kind, _unquote(metric) if metric[0] == '"' else metric, text)


def _unquote(text: str) -> str:
    return _unescape(text[1:-1])


def _unescape(text: str) -> str:
    """Undoes the three escapes of the format; anything else after a backslash stays as it is."""
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda found: _UNESCAPED.get(found[1], found[0]), text)
