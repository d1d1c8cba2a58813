"""Panels over one time axis as SVG: lines, steps, spans and marks, each with its own scale.

What is shown of an entity is chosen in `pipelines.board.entity_chart`; gaps stay gaps.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Literal

from markupsafe import Markup, escape

from pipelines.board.downsample import Stretch
from pipelines.board.zone import Zone

WIDTH: Final = 1000
LEFT: Final = 64
RIGHT: Final = 12
N_BINS: Final = 450
"""A part of the axis is two units wide: nothing narrower can be seen."""

_TITLE: Final = 24
_FOOT: Final = 40
_SPACE: Final = 10
_ROW: Final = 16
_STEPS: Final = tuple(timedelta(hours=h) for h in (1, 2, 3, 6, 12, 24, 48, 72, 120, 168, 336, 720))
_TOPS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
_MOST_TICKS: Final = 9

Sign = Literal["ok", "bad", "idle", "unknown", "own"]


@dataclass(frozen=True)
class Line:
    """A line in pieces.

    Attributes:
        stretches: The pieces.
        is_steps: Whether a value holds until the next one.
        sign: CSS class.
    """

    stretches: tuple[Stretch, ...]
    is_steps: bool = False
    sign: str = "l1"


@dataclass(frozen=True)
class Bar:
    """A stretch of time in a row.

    Attributes:
        start: Start; None: before the axis.
        end: End; None: it goes on.
        text: In words, shown where there is room and always on pointing.
        sign: CSS class.
    """

    start: datetime | None
    end: datetime | None
    text: str
    sign: Sign = "idle"


@dataclass(frozen=True)
class Row:
    """A named row of bars or moments.

    Attributes:
        name: Its name.
        bars: Stretches.
        moments: Single moments with their words.
    """

    name: str
    bars: tuple[Bar, ...] = ()
    moments: tuple[tuple[datetime, str], ...] = ()


@dataclass(frozen=True)
class Panel:
    """One panel.

    Attributes:
        title: What it shows, with the unit.
        lines: Lines over one scale.
        rows: Rows instead of a scale.
        height: Height of the scale, units.
        level: A level marked across, with its words.
        is_share: Whether the scale is a share from 0.
    """

    title: str
    lines: tuple[Line, ...] = ()
    rows: tuple[Row, ...] = ()
    height: int = 76
    level: tuple[float, str] | None = None
    is_share: bool = False


@dataclass(frozen=True, kw_only=True)
class Axis:
    """The time that all panels share.

    Attributes:
        start: Left end.
        end: Right end.
        zone: Whose clocks label it.
        marks: Moments marked through all panels, with their words.
    """

    start: datetime
    end: datetime
    zone: Zone
    marks: tuple[tuple[datetime, str], ...] = field(default=())

    def x(self, at: datetime) -> float:
        """Where a moment lies, within the axis."""
        share = (at - self.start) / (self.end - self.start)
        return round(LEFT + min(1.0, max(0.0, share)) * (WIDTH - LEFT - RIGHT), 1)

    def xs(self, stretch: Stretch) -> Iterable[float]:
        """Where the times of a line's piece lie."""
        start, end = self.start.timestamp() * 1e6, self.end.timestamp() * 1e6
        room = WIDTH - LEFT - RIGHT
        shares = (stretch.at_us - start) / (end - start)
        return [round(LEFT + min(1.0, max(0.0, float(one))) * room, 1) for one in shares]


def draw(axis: Axis, panels: Sequence[Panel], *, alt: str) -> Markup:
    """All panels as one SVG, which scales with its place.

    Args:
        axis: The time.
        panels: From the top down.
        alt: What it shows, for those who do not see it.
    """
    parts: list[str] = []
    top = 0
    ticks = _ticks(axis)
    for panel in panels:
        parts.append(f'<text class="pt" x="0" y="{top + 12}">{escape(panel.title)}</text>')
        body_top = top + _TITLE
        height = len(panel.rows) * _ROW if panel.rows else panel.height
        parts += [f'<path class="gr" d="M{axis.x(at)} {body_top}v{height}"/>' for at in ticks]
        painted = _rows(axis, panel, body_top) if panel.rows else _scale(axis, panel, body_top)
        parts += painted
        top = body_top + height + _SPACE
    parts += [f'<path class="mk" d="M{axis.x(at)} 0V{top - _SPACE}"/>' for at, _ in axis.marks]
    parts += _foot(axis, ticks, top)
    body = "".join(parts)
    return Markup(  # noqa: S704 - every text was escaped where it came in
        f'<svg class="axis" viewBox="0 0 {WIDTH} {top + _FOOT}" role="img" '
        f'aria-label="{escape(alt)}">{body}</svg>'
    )


def _ticks(axis: Axis) -> list[datetime]:
    """Moments at round times of the zone's own clocks."""
    span = axis.end - axis.start
    step = next((one for one in _STEPS if span / one <= _MOST_TICKS), _STEPS[-1])
    local = axis.zone.local(axis.start)
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
    n = math.ceil((axis.start - midnight) / step)
    found = []
    # By wall clock, so that a change of summer time does not move midnight off the tick.
    while (at := midnight + n * step) <= axis.end:
        found.append(at)
        n += 1
    return found


def _foot(axis: Axis, ticks: Sequence[datetime], top: int) -> list[str]:
    local = [axis.zone.local(at) for at in ticks]
    found = [
        f'<text class="ax" text-anchor="middle" x="{axis.x(at)}" y="{top + 6}">{at:%H:%M}</text>'
        f'<text class="ax" text-anchor="middle" x="{axis.x(at)}" y="{top + 20}">{at:%b %d}</text>'
        for at in local
    ]
    found.append(
        f'<text class="ax" text-anchor="end" x="{WIDTH - RIGHT}" y="{top + 35}">Times are '
        f"{escape(axis.zone.name)}</text>"
    )
    return found


def _scale(axis: Axis, panel: Panel, top: int) -> list[str]:
    values = [float(v) for one in panel.lines for s in one.stretches for v in s.values]
    if not values:
        return [f'<text class="no" x="{LEFT + 8}" y="{top + panel.height / 2 + 4}">no data</text>']
    levels = [panel.level[0]] if panel.level else []
    low, high = _ends([*values, *levels], is_share=panel.is_share)

    def y(value: float) -> float:
        return round(top + panel.height * (1 - (value - low) / (high - low)), 1)

    found = []
    for value in (low, (low + high) / 2, high):
        text = f"{100 * value:.3g} %" if panel.is_share else amount(value)
        found.append(
            f'<path class="gr" d="M{LEFT} {y(value)}H{WIDTH - RIGHT}"/>'
            f'<text class="ax" text-anchor="end" x="{LEFT - 6}" y="{y(value) + 4}">{text}</text>'
        )
    if panel.level:
        at, words = panel.level
        found.append(
            f'<path class="lv" d="M{LEFT} {y(at)}H{WIDTH - RIGHT}"/>'
            f'<text class="ax" x="{LEFT + 4}" y="{y(at) - 3}">{escape(words)}</text>'
        )
    for line in panel.lines:
        path = "".join(_path(axis, piece, y, is_steps=line.is_steps) for piece in line.stretches)
        found.append(f'<path class="{line.sign}" d="{path}"/>')
    return found


def _path(axis: Axis, piece: Stretch, y: Callable[[float], float], *, is_steps: bool) -> str:
    points = [(x, y(float(v))) for x, v in zip(axis.xs(piece), piece.values, strict=True)]
    (x0, y0), rest = points[0], points[1:]
    if not rest:
        return f"M{x0:g} {y0:g}h1"
    if is_steps:
        return f"M{x0:g} {y0:g}" + "".join(f"H{x:g}V{v:g}" for x, v in rest)
    return f"M{x0:g} {y0:g}L" + " ".join(f"{x:g} {v:g}" for x, v in rest)


def _ends(values: Sequence[float], *, is_share: bool) -> tuple[float, float]:
    low, high = (0.0 if is_share else min(values)), max(values)
    if is_share:
        return 0.0, next((top for top in _TOPS if top >= high), 1.0)
    if low == high:
        room = max(1.0, abs(low) * 0.05)
        return low - room, high + room
    return low, high


def amount(value: float) -> str:
    """A number of an axis, short.

    >>> amount(1234.5), amount(2_500_000), amount(0.25)
    ('1,234', '2.5M', '0.25')
    """
    for size, sign in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if abs(value) >= size:
            return f"{value / size:.3g}{sign}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _rows(axis: Axis, panel: Panel, top: int) -> list[str]:
    found = []
    for place, row in enumerate(panel.rows):
        y = top + place * _ROW
        name = row.name if len(row.name) <= 10 else f"{row.name[:9]}…"
        found.append(
            f'<text class="ax" text-anchor="end" x="{LEFT - 6}" y="{y + 11}">{escape(name)}</text>'
        )
        found += [_bar(axis, bar, y) for bar in row.bars]
        found += [
            f'<path class="ev" d="M{axis.x(at)} {y + 3}l4 5-4 5-4-5z"><title>'
            f"{escape(axis.zone.text(at))}: {escape(text)}</title></path>"
            for at, text in row.moments
            if axis.start <= at <= axis.end
        ]
    return found


def _bar(axis: Axis, bar: Bar, y: int) -> str:
    first = axis.x(axis.start if bar.start is None else bar.start)
    last = axis.x(axis.end if bar.end is None else bar.end)
    width = max(1.5, round(last - first, 1))
    fits = int((width - 6) / 6.2)
    text = ""
    if fits >= 4:
        shown = bar.text if len(bar.text) <= fits else f"{bar.text[: fits - 1]}…"
        text = f'<text class="bt" x="{first + 4}" y="{y + 11}">{escape(shown)}</text>'
    fill = ' fill="url(#hatch)"' if bar.sign == "unknown" else ""
    return (
        f'<g><title>{escape(bar.text)}</title><rect class="b-{bar.sign}"{fill} x="{first}" '
        f'y="{y + 1}" width="{width}" height="{_ROW - 3}"/>{text}</g>'
    )
