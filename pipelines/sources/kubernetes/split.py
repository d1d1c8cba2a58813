"""Cuts a stream of JSON into Kubernetes objects without holding more than one of them.

No object is understood here, and what is malformed within one is left to the JSON parser: only
brackets and strings are followed, so that after a broken object the next is found again.
"""

import codecs
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

MOST_BYTES: Final = 16 << 20
"""Longest object; the API's store refuses any beyond 1.5 MiB."""

_EXAMPLE: Final = 1_000
_STRING: Final = rb'"(?:[^"\\\n]++|\\.)*+"'
_PLAIN: Final = rb'[^"{}\[\]]++|' + _STRING


def _within(depth: int) -> bytes:
    """Pattern of what may stand between brackets that are nested at most so deep."""
    if not depth:
        return _PLAIN
    return _PLAIN + rb"|[{\[](?:" + _within(depth - 1) + rb")*+[}\]]"


# Everything up to the next bracket that does not close within three levels: the fewer brackets are
# looked at one by one, the faster. Possessive, so that nothing is tried twice on one level.
_INSIDE: Final = re.compile(rb"(?:" + _within(3) + rb")*+")
# In a list's own object every bracket is looked at: one of them begins the items.
_AROUND: Final = re.compile(rb"(?:" + _within(0) + rb")*+")
_BETWEEN: Final = re.compile(rb"[\s,\]}\x1e]*+")
_WITHIN_LIST: Final = re.compile(rb"[\s,]*+")
_SCALAR: Final = re.compile(rb"(?:" + _STRING + rb'|[^,\]}{\["\n])++')
_ITEMS: Final = re.compile(rb'"items"\s*+:\s*+\Z')
_LIST_KIND: Final = re.compile(rb'"kind"\s*+:\s*+"(\w{1,60})List"')
_LOOK_BACK: Final = 60
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),  # what PowerShell's `>` writes
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@dataclass(frozen=True)
class Piece:
    """One value that stands where an object belongs.

    Attributes:
        kind: Kind that its list names; None: it tells itself.
        raw: Its JSON.
    """

    kind: str | None
    raw: bytes


@dataclass(frozen=True)
class MalformedPiece:
    """Something that is no object.

    Attributes:
        rule: What is wrong with it.
        raw: Its beginning.
    """

    rule: str
    raw: bytes


@dataclass(frozen=True)
class ListStart:
    """A list begins, which may be empty.

    Attributes:
        kind: Kind of its items, where it tells.
    """

    kind: str | None
    raw: bytes = b""


Split = Piece | MalformedPiece | ListStart


def split_objects(blocks: Iterable[bytes]) -> Iterator[Split]:
    """Cuts lists, arrays and single objects one after the other into objects.

    Args:
        blocks: The bytes; where they are cut makes no difference.

    Yields:
        Each object, each start of a list, and whatever is neither.
    """
    text = _Text(utf8_blocks(blocks))
    while text.skip(_BETWEEN):
        head = text.here()
        if head == b"{":
            yield from _object(text)
        elif head == b"[":
            text.pos += 1
            yield ListStart(None)
            yield from _elements(text, None)
        else:
            yield MalformedPiece("not JSON", text.line())


class _Text:
    """A window on the stream: what was read and not yet passed."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self.buf = b""
        self.pos = 0

    def more(self, keep: int) -> int | None:
        """Reads on; bytes before `keep` are let go.

        Returns:
            How far positions have moved, or None at the end of the stream.
        """
        block = next(self._blocks, None)
        if block is None:
            return None
        self.buf = self.buf[keep:] + block
        self.pos -= keep
        return keep

    def here(self) -> bytes:
        return self.buf[self.pos : self.pos + 1]

    def skip(self, pattern: re.Pattern[bytes]) -> bool:
        """Passes what fits; False: the stream ended."""
        while True:
            found = pattern.match(self.buf, self.pos)
            self.pos = found.end() if found else self.pos
            if self.pos < len(self.buf):
                return True
            if self.more(self.pos) is None:
                return False

    def line(self) -> bytes:
        """Passes the rest of a line; its beginning."""
        shown = b""
        while True:
            end = self.buf.find(b"\n", self.pos)
            shown += self.buf[self.pos : end if end >= 0 else None][:_EXAMPLE]
            if end >= 0:
                self.pos = end + 1
                return shown[:_EXAMPLE]
            self.pos = len(self.buf)
            if self.more(self.pos) is None:
                return shown[:_EXAMPLE]


def _object(text: _Text) -> Iterator[Split]:
    """A top-level object: itself, or the items of the list that it is."""
    begin, depth, is_told = text.pos, 1, False
    text.pos += 1
    while depth:
        pattern = _AROUND if depth == 1 else _INSIDE
        begin, head = _next_bracket(text, begin, pattern=pattern)
        if not head:
            if not is_told:
                yield _cut_off(text.buf[begin:])
            return
        before = text.buf[max(text.pos - _LOOK_BACK, begin) : text.pos]
        text.pos += 1
        if head == b"[" and depth == 1 and _ITEMS.search(before):
            kind = _LIST_KIND.search(text.buf, begin, text.pos)
            named = kind[1].decode("ascii") if kind and kind[1] else None
            is_told = True
            yield ListStart(named)
            yield from _elements(text, named)
            begin = text.pos
            continue
        depth += 1 if head in b"{[" else -1
        if text.pos - begin > MOST_BYTES:
            if not is_told:
                yield _too_long(text.buf[begin:])
            begin, is_told = text.pos, True
    if not is_told:
        yield Piece(None, text.buf[begin : text.pos])


def _elements(text: _Text, kind: str | None) -> Iterator[Split]:
    """The elements of an array up to its end, which is passed."""
    while text.skip(_WITHIN_LIST):
        head = text.here()
        if head == b"]":
            text.pos += 1
            return
        if head == b"}":
            yield MalformedPiece("list is not closed", head)
            return
        yield from _element(text, kind) if head in b"{[" else _scalar(text, kind)


def _element(text: _Text, kind: str | None) -> Iterator[Split]:
    """An object or array within an array."""
    begin, depth, is_told = text.pos, 1, False
    text.pos += 1
    while depth:
        begin, head = _next_bracket(text, begin, pattern=_INSIDE)
        if not head:
            if not is_told:
                yield _cut_off(text.buf[begin:])
            return
        text.pos += 1
        depth += 1 if head in b"{[" else -1
        if text.pos - begin > MOST_BYTES:
            if not is_told:
                yield _too_long(text.buf[begin:])
            begin, is_told = text.pos, True
    if not is_told:
        yield Piece(kind, text.buf[begin : text.pos])


def _next_bracket(text: _Text, begin: int, *, pattern: re.Pattern[bytes]) -> tuple[int, bytes]:
    """Goes to the next bracket outside of strings.

    Args:
        text: The window.
        begin: First byte that must be kept.
        pattern: What may be passed over.

    Returns:
        Where `begin` is now, and the bracket; empty: the stream ended first.
    """
    while True:
        found = pattern.match(text.buf, text.pos)
        text.pos = found.end() if found else text.pos
        head = text.here()
        if head and head != b'"':
            return begin, head
        if head and _is_unclosed(text):
            text.pos += 1
            continue
        moved = text.more(begin)
        if moved is None:
            text.pos = len(text.buf)
            return begin, b""
        begin -= moved


def _scalar(text: _Text, kind: str | None) -> Iterator[Split]:
    """A number, text or word where an object belongs."""
    while True:
        found = _SCALAR.match(text.buf, text.pos)
        end = found.end() if found else text.pos
        is_quote = text.buf[end : end + 1] == b'"'
        if end - text.pos > MOST_BYTES or (end < len(text.buf) and not is_quote):
            break
        if is_quote and _is_unclosed(text):
            end += 1
            break
        moved = text.more(text.pos)
        if moved is None:
            end = len(text.buf)
            break
    raw = text.buf[text.pos : end].strip()
    text.pos = end
    yield Piece(kind, raw) if len(raw) <= _EXAMPLE else MalformedPiece("not JSON", raw[:_EXAMPLE])


def _is_unclosed(text: _Text) -> bool:
    """Whether a quote cannot open a string: no other closes it on its line."""
    is_over = text.buf.find(b"\n", text.pos) >= 0
    return is_over or len(text.buf) - text.pos > MOST_BYTES


def _too_long(raw: bytes) -> MalformedPiece:
    return MalformedPiece("longer than an object can be", raw[:_EXAMPLE])


def _cut_off(raw: bytes) -> MalformedPiece:
    return MalformedPiece("cut off before its end", raw[:_EXAMPLE])


def utf8_blocks(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The stream without a byte order mark, and as UTF-8 where the mark says UTF-16.

    Args:
        blocks: The bytes.
    """
    stream = iter(blocks)
    head = b""
    for block in stream:
        head += block
        if len(head) >= 3:
            break
    encoding = next((name for mark, name in _MARKS if head.startswith(mark)), None)
    if encoding is None:
        yield head
        yield from stream
        return
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    for block in itertools.chain([head], stream):
        yield decoder.decode(block).encode("utf-8", errors="replace")
    yield decoder.decode(b"", final=True).encode("utf-8", errors="replace")
