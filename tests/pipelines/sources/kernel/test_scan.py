"""The block scan hands over what going line by line does."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.sources.kernel import scan as kernel_scan
from pipelines.sources.kernel.scan import FoundLine, LineScan

MARKERS = ("NVRM", "fallen off", "-- [x]")


def scan(blocks, wants, every=b"", changes=None):
    """What the scan hands over, with the bytes before it."""
    taken = []

    def take(found):
        taken.append((found, scanner.behind()))
        if changes is not None:
            scanner.every_line_holds = changes(found)
        return wants(found)

    scanner = LineScan(MARKERS, take=take)
    scanner.every_line_holds = every
    for block in blocks:
        scanner.feed(block)
    scanner.finish()
    return taken, scanner.n_lines, scanner.tail()


def line_by_line(data, wants, every=b"", changes=None):
    """The same, slowly: every line is looked at."""
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    taken, at, is_wanted, next_probe = [], 0, False, 0
    for number, line in enumerate(lines):
        raw = line.lstrip(b"\0")[: kernel_scan.LINE_BYTES]
        is_marked = any(marker.encode() in raw for marker in MARKERS)
        is_lacking = bool(every) and every not in raw
        if is_marked or is_lacking or is_wanted or at >= next_probe:
            found = FoundLine(number, raw, is_marked)
            taken.append((found, data[max(at - kernel_scan.BEHIND_BYTES, 0) : at]))
            is_wanted = wants(found)
            every = every if changes is None else changes(found)
        if at >= next_probe:
            next_probe = (at // kernel_scan.PROBE_EVERY + 1) * kernel_scan.PROBE_EVERY
        at += len(line) + 1
    return taken, len(lines), data[-kernel_scan.BEHIND_BYTES :]


@pytest.fixture
def small(monkeypatch):
    """Bounds so small that short texts reach them."""
    monkeypatch.setattr(kernel_scan, "PROBE_EVERY", 64)
    monkeypatch.setattr(kernel_scan, "LINE_BYTES", 24)
    monkeypatch.setattr(kernel_scan, "BEHIND_BYTES", 16)
    monkeypatch.setattr(kernel_scan, "_PART_BYTES", 40)
    monkeypatch.setattr(kernel_scan, "_FEW_BYTES", 10)


PIECES = st.sampled_from(
    [b"NVRM", b"fallen off", b"-- [x]", b"NV", b"RM", b"\n", b"\n", b"\n", b"\r\n", b"\x00",
     b"\xff", b"a usual line of a log", b"\xe2\x82\xac", b"id=1"]
)  # fmt: skip
TEXTS = st.lists(PIECES, max_size=60).map(b"".join) | st.binary(max_size=200)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("every", [b"", b"id=1"])
@settings(max_examples=300, deadline=None)
@given(data=TEXTS, cuts=st.lists(st.integers(1, 70), max_size=20), ask=st.integers(1, 5))
def test_where_blocks_are_cut_makes_no_difference(every, data, cuts, ask):
    def wants(found):
        return (found.number + len(found.raw)) % ask == 0

    blocks, at = [], 0
    for size in cuts:
        blocks.append(data[at : at + size])
        at += size
    blocks.append(data[at:])
    taken, n_lines, tail = scan(blocks, wants, every)
    expected = line_by_line(data, wants, every)
    assert (taken, n_lines, tail) == expected


@pytest.mark.usefixtures("small")
@settings(max_examples=300, deadline=None)
@given(data=TEXTS, size=st.integers(1, 300), ask=st.integers(2, 4))
def test_a_line_may_change_what_the_lines_after_it_must_hold(data, size, ask):
    def changes(found):
        return (b"", b"id=1", b"NV", b"a")[(found.number + len(found.raw)) % ask]

    def wants(found):
        return found.number % ask == 0

    blocks = [data[at : at + size] for at in range(0, len(data), size)]
    assert scan(blocks, wants, b"id=1", changes) == (*line_by_line(data, wants, b"id=1", changes),)


@settings(max_examples=40, deadline=None)
@given(
    pieces=st.lists(
        st.tuples(
            st.sampled_from(
                [b"NVRM: one", b"caf\xe9 fallen off", b"\xe2\x82\xac-- [x]", b"N\xffVRM", b""]
            ),
            st.integers(0, 400),
        ),
        max_size=12,
    ),
    size=st.integers(2_000, 70_000),
)
def test_what_stands_in_blocks_of_usual_size_is_what_stands_line_by_line(pieces, size):
    usual = b"a usual line of a log, one of very many\n"
    data = b"".join(usual * n + piece + b"\n" for piece, n in pieces) + usual * 100
    blocks = [data[at : at + size] for at in range(0, len(data), size)]
    assert scan(blocks, lambda _: False) == line_by_line(data, lambda _: False)


@pytest.mark.parametrize("size", [1, 7, 4096, 1 << 17, 1 << 30])
def test_a_marker_is_found_wherever_it_stands_in_a_long_log(size):
    usual = b"a usual line of a log\n" * 20_000
    data = usual + b"\xff NVRM: one\n" + usual + b"NVRM: two\n" + usual + b"NVRM: three"
    blocks = [data] if size > len(data) else [data[-size:]]
    blocks = [data[at : at + size] for at in range(0, len(data), size)] if size > 1000 else blocks
    if size <= 1000:  # the middle in small blocks, the rest whole
        middle = len(usual) + 40
        cut = [data[at : at + size] for at in range(len(usual) - 40, middle, size)]
        blocks = [data[: len(usual) - 40], *cut, data[len(usual) - 40 + sum(map(len, cut)) :]]
    taken, n_lines, _ = scan(blocks, lambda _: False)
    assert [found.number for found, _ in taken if found.is_marked] == [20_000, 40_001, 60_002]
    assert n_lines == 60_003


def test_a_line_without_end_is_kept_up_to_a_bound():
    taken, n_lines, _ = scan([b"NVRM"] + [b"x" * (1 << 20)] * 9 + [b"\nNVRM"], lambda _: False)
    assert [len(found.raw) for found, _ in taken] == [kernel_scan.LINE_BYTES, 4]
    assert n_lines == 2
