"""From a matplotlib figure to inline SVG: colours as CSS variables, own ids, no dates.

What is drawn is decided by `plots` and `evidence`.
"""

import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.figure import Figure


@dataclass(frozen=True)
class Tone:
    """One colour of the page in its two modes.

    Attributes:
        variable: Name of the CSS variable.
        light: Hex colour on the light page; the colour figures are drawn in.
        dark: Hex colour on the dark page.
    """

    variable: str
    light: str
    dark: str


PAGE: Final = Tone("page", "#f6f7f9", "#101418")
SURFACE: Final = Tone("surface", "#fefefe", "#181d23")
INK: Final = Tone("ink", "#1b1f24", "#e9ecef")
MUTED: Final = Tone("muted", "#555e69", "#a9b2bd")
LINE: Final = Tone("line", "#d5dae0", "#39424d")
ALARM: Final = Tone("alarm", "#b3261d", "#ff9187")
MODEL: Final = Tone("model", "#005fb7", "#6cb6ff")
SHADE: Final = Tone("shade", "#dbe8f5", "#1d3350")

BASELINES: Final = (
    Tone("baseline-1", "#a94500", "#ffa564"),
    Tone("baseline-2", "#00715a", "#4fcfa4"),
    Tone("baseline-3", "#983473", "#eba3cc"),
    Tone("baseline-4", "#6b5d02", "#d8c850"),
    Tone("baseline-5", "#4c4f9e", "#b3b6f7"),
)
"""Told apart by lightness-safe hues (after Okabe and Ito) and, in plots, by dashes as well."""

HEAT: Final = (
    Tone("heat-0", "#f9efe3", "#29221c"),
    Tone("heat-1", "#f8d9b2", "#4a3423"),
    Tone("heat-2", "#f1b573", "#744820"),
    Tone("heat-3", "#e18a3a", "#a5601d"),
    Tone("heat-4", "#bd5f13", "#d5812d"),
    Tone("heat-5", "#873c0a", "#f3ac5e"),
    Tone("heat-6", "#4d1d06", "#ffdfae"),
)
"""One hue, lightness steadily away from the page: readable without colour vision and in print."""

TONES: Final = (PAGE, SURFACE, INK, MUTED, LINE, ALARM, MODEL, SHADE, *BASELINES, *HEAT)

# A fixed salt makes ids, and with them the whole page, the same for the same input.
_SETTINGS: Final[dict[Any, Any]] = {
    "svg.hashsalt": "forewarn",
    "svg.fonttype": "none",
    "font.family": ["DejaVu Sans"],
    "font.size": 11,
    "text.parse_math": False,
    "text.color": INK.light,
    "axes.edgecolor": LINE.light,
    "axes.facecolor": "none",
    "axes.labelcolor": MUTED.light,
    "axes.labelsize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "figure.facecolor": "none",
    "figure.constrained_layout.use": True,
    "grid.color": LINE.light,
    "grid.linewidth": 0.6,
    "xtick.color": LINE.light,
    "ytick.color": LINE.light,
    "xtick.labelcolor": MUTED.light,
    "ytick.labelcolor": MUTED.light,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
    "hatch.linewidth": 0.7,
    "lines.linewidth": 1.6,
}
_NO_METADATA: Final = {"Date": None, "Creator": None, "Format": None, "Type": None}
_HEX: Final = re.compile(r"#[0-9a-f]{6}\b")
_FONT: Final = re.compile(r"(font(?:-family)?: [^;\"]*?)'DejaVu Sans'[^;\"]*")
_ID: Final = re.compile(r'(\bid="|url\(#|href="#)')


@dataclass(frozen=True)
class Plot:
    """One figure of the report, ready for the page.

    Attributes:
        svg: Inline SVG with its description.
        caption: What to see in it.
        min_width_px: Below this it is scrolled, not shrunk, so that labels stay readable.
    """

    svg: Markup
    caption: str
    min_width_px: int


def draw(
    name: str, *, size_in: tuple[float, float], alt: str, paint: Callable[[Figure], None]
) -> Markup:
    """Draws a figure as an SVG element for the page.

    Args:
        name: Prefix of its ids, one per figure of the page.
        size_in: Width and height, inches of 72 px.
        alt: Description read aloud in place of the picture.
        paint: Draws into the figure.

    Returns:
        Safe markup; every colour of `TONES` is a CSS variable.
    """
    with _settings():
        figure = Figure(figsize=size_in, dpi=72)
        paint(figure)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata=_NO_METADATA)
    return Markup(_inline(buffer.getvalue(), name, alt))  # noqa: S704  matplotlib escapes its text


@contextmanager
def _settings() -> Iterator[None]:
    with mpl.rc_context(_SETTINGS), warnings.catch_warnings():
        # The browser draws the text; a sign that matplotlib's font lacks is only measured wrong.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def _inline(document: str, name: str, alt: str) -> str:
    svg = document[document.index("<svg") :]
    svg = re.sub(r"<defs>\s*<style.*?</defs>", "", svg, count=1, flags=re.DOTALL)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    variables = {tone.light: f"var(--{tone.variable})" for tone in TONES}
    svg = _HEX.sub(lambda hit: variables.get(hit[0], hit[0]), svg)
    svg = _FONT.sub(r"\1inherit", svg)
    svg = _ID.sub(rf"\g<1>{name}-", svg)
    svg = re.sub(r' (width|height)="[\d.]+pt"', "", svg, count=2)
    described = f'<svg role="img" aria-label="{Markup.escape(alt)}"'
    return svg.replace("<svg", described, 1).strip()
