"""A week of telemetry of one GPU before its failure, and of one whose signs led to nothing.

Which fleet the page is about, and all other parts of it, are in the other modules of this package.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pipelines.report.figure import ALARM, BASELINES, INK, MODEL, SHADE, Plot, draw
from pipelines.report.input import Missing
from pipelines.report.words import fault_words, hours, short
from pipelines.studies.fleet_report.page import WHOLE_IN, Part, Table
from simulation.fleet.fields import BLANK_FLOAT, BLANK_INT, FLOAT_FIELDS
from simulation.fleet.generate import Fleet, simulate_fleet
from simulation.fleet.incidents import Episode, Incident
from simulation.fleet.observe import observe_node
from simulation.fleet.regime import Regime
from simulation.fleet.schedule import Attempt, attempts_by_node

FloatArray = npt.NDArray[np.float64]

NODES: Final = 128
DAYS: Final = 14.0
LEAST_MULTIPLIER: Final = 15.0
"""Failures of the sub-fleet are made so many times as frequent, so that two weeks hold some."""
_DAY_S: Final = 86400
_BIN_S: Final = 900
_VIEW_S: Final = 7 * _DAY_S
_BEFORE_S: Final = int(5.5 * _DAY_S)
_COUNTERS: Final = {
    "hbm_errors": ("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "Single-bit errors"),
    "nvlink_errors": ("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "NVLink CRC errors"),
    "remap_growth": ("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "Remapped rows"),
    "pcie_replays": ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "PCIe replays"),
}
"""Kind of signs -> the counter that shows them; the first kind with a failure to show is taken."""
_METERS: Final = (
    ("DCGM_FI_DEV_POWER_USAGE", "Power, W"),
    ("DCGM_FI_DEV_GPU_TEMP", "GPU temperature, °C"),
    ("DCGM_FI_DEV_GPU_UTIL", "Utilisation, %"),
)


@dataclass(frozen=True)
class Strip:
    """A week of one GPU, in days from its failure, or from a decoy's first sign.

    Attributes:
        name: Node and slot.
        day: Middle of each quarter of an hour.
        panels: Title -> mean of each quarter; NaN: nothing was sampled. The last one is the
            increase of a counter since the week's start.
        signs: First and last day of the signs.
        strength: Of the signs; the median true one has 1.
    """

    name: str
    day: FloatArray
    panels: dict[str, FloatArray]
    signs: tuple[float, float]
    strength: float


@dataclass(frozen=True)
class Look:
    """What signs look like.

    Attributes:
        fault_type: What failed.
        multiplier: How many times as frequent failures were made to have one to show.
        failure: The GPU that failed, at day 0.
        decoy: One with like signs that did not; null: none.
    """

    fault_type: str
    multiplier: float
    failure: Strip
    decoy: Strip | None


def look_at(regime: Regime, *, seed: int) -> Look | None:
    """Finds a failure with signs in a small fleet, and a decoy of the same kind, and samples both.

    Args:
        regime: The fleet's parameters.
        seed: Seed.

    Returns:
        The look; None where no failure announces itself by a counter.
    """
    multiplier = max(LEAST_MULTIPLIER, regime.hazard_multiplier)
    many = regime.model_copy(update={"hazard_multiplier": multiplier})
    fleet = simulate_fleet(many, seed=seed, nodes=NODES, days=DAYS)
    for kind in _COUNTERS:
        incident = _typical_incident(fleet, kind)
        if incident is None or incident.precursor is None:
            continue
        decoy = _like(fleet, incident.precursor)
        runs = attempts_by_node(fleet.attempts, len(fleet.nodes))
        failure = _strip(fleet, runs, incident.precursor, zero_s=incident.onset_s)
        other = None if decoy is None else _strip(fleet, runs, decoy, zero_s=decoy.start_s)
        ratio = multiplier / regime.hazard_multiplier if regime.hazard_multiplier else multiplier
        return Look(incident.fault.fault_type, ratio, failure, other)
    return None


def _typical_incident(fleet: Fleet, kind: str) -> Incident | None:
    """The failure in the calmest week, of those the one with the most usual signs."""
    found = [
        incident
        for incident in fleet.incidents
        if incident.precursor
        and incident.precursor.kind == kind
        and _BEFORE_S <= incident.onset_s <= fleet.end_s - (_VIEW_S - _BEFORE_S)
    ]

    def unrest(incident: Incident) -> tuple[int, float]:
        strength = incident.precursor.strength if incident.precursor else 0.0
        return _failures_near(fleet, incident.node, incident.onset_s), abs(strength - 1)

    return min(found, key=unrest, default=None)


def _failures_near(fleet: Fleet, node: int, at_s: int) -> int:
    return sum(abs(other.onset_s - at_s) < _VIEW_S for other in fleet.nodes[node].incidents)


def _like(fleet: Fleet, signs: Episode) -> Episode | None:
    """The decoy of the same kind in the calmest week, of those the one of the nearest strength."""
    found = [
        decoy
        for truth in fleet.nodes
        for decoy in truth.decoys
        if decoy.kind == signs.kind
        and _BEFORE_S <= decoy.start_s <= fleet.end_s - (_VIEW_S - _BEFORE_S)
    ]
    return min(
        found,
        key=lambda d: (_failures_near(fleet, d.node, d.start_s), abs(d.strength - signs.strength)),
        default=None,
    )


def _strip(
    fleet: Fleet, runs: Sequence[Sequence[Attempt]], signs: Episode, *, zero_s: int
) -> Strip:
    truth = fleet.nodes[signs.node]
    seen = observe_node(fleet.regime, truth, runs[signs.node], seed=fleet.seed)
    from_s = zero_s - _BEFORE_S
    of_slot = seen.telemetry.slot == signs.slot
    in_view = (seen.telemetry.at_s >= from_s) & (seen.telemetry.at_s < from_s + _VIEW_S)
    rows = seen.telemetry.rows(of_slot & in_view)
    counter, counted = _COUNTERS[signs.kind]
    at = (rows.at_s - from_s) // _BIN_S
    panels = {
        title: binned(_known(rows.fields[name], name), at, bins=_VIEW_S // _BIN_S)
        for name, title in _METERS
    }
    grown = increase(_known(rows.fields[counter], counter))
    panels[f"{counted}, increase"] = binned(grown, at, bins=_VIEW_S // _BIN_S)
    middle = (np.arange(_VIEW_S // _BIN_S) + 0.5) * _BIN_S + from_s - zero_s
    return Strip(
        name=f"{truth.node.name}, slot {signs.slot}",
        day=middle / _DAY_S,
        panels=panels,
        signs=((signs.start_s - zero_s) / _DAY_S, (signs.end_s - zero_s) / _DAY_S),
        strength=signs.strength,
    )


def _known(values: npt.NDArray[np.generic], name: str) -> FloatArray:
    """A field's values, NaN where DCGM had none."""
    blank = BLANK_FLOAT if name in FLOAT_FIELDS else BLANK_INT
    return np.where(values == blank, np.nan, values.astype(np.float64))


def increase(values: FloatArray) -> FloatArray:
    """How far a counter has grown since its first value; one that falls was reset.

    >>> increase(np.array([5.0, 7.0, np.nan, 1.0, 2.0])).tolist()
    [0.0, 2.0, nan, 3.0, 4.0]
    """
    known = ~np.isnan(values)
    steps = np.diff(values[known], prepend=values[known][:1])
    grown = np.full(values.size, np.nan)
    grown[known] = np.cumsum(np.where(steps < 0, values[known], steps))
    return grown


def binned(values: FloatArray, at: npt.NDArray[np.int64], *, bins: int) -> FloatArray:
    """Mean of the known values of each bin; NaN where there is none.

    >>> binned(np.array([1.0, 3.0, np.nan]), np.array([0, 0, 1]), bins=2).tolist()
    [2.0, nan]
    """
    known = ~np.isnan(values)
    count = np.bincount(at[known], minlength=bins)
    total = np.bincount(at[known], weights=values[known], minlength=bins)
    return np.asarray(np.divide(total, count, out=np.full(bins, np.nan), where=count > 0))


def look_part(look: Look | None) -> Part:
    """The part of the page that shows it."""
    title = "What a failure looks like in telemetry"
    if look is None:
        why = "no failure of this regime announces itself by a counter that could be shown"
        return Part("telemetry", title, "", Missing(why), None, is_wide=True)
    strips = [look.failure] + ([look.decoy] if look.decoy else [])
    alt = (
        f"Telemetry over seven days. Left: {look.failure.name}, {fault_words(look.fault_type)} at "
        f"day 0, signs from {hours(-24 * look.failure.signs[0])} before. "
        + (f"Right: {look.decoy.name}, the same signs and no failure." if look.decoy else "")
    )
    svg = draw(
        "look",
        size_in=(WHOLE_IN, 7.6),
        alt=alt,
        paint=lambda figure: _paint(figure, strips),
    )
    caption = (
        "Look for what tells the two apart in the shaded time, when signs are there: a model must. "
        "The red line is the failure; values are means of 15 minutes, a gap is a time without "
        "samples. Both come from calm weeks; the decoy is the nearest in strength among them."
    )
    head = ("GPU", "Signs last", "Strength", "Increase of the counter while they last")
    return Part(
        "telemetry",
        title,
        f"A sub-fleet of {NODES} nodes and {DAYS:g} days of the same regime, with failures made "
        f"{look.multiplier:g} times as frequent so that there is one to show.",
        Plot(svg, caption, 760),
        Table(head, tuple(_row(strip, is_decoy=strip is look.decoy) for strip in strips)),
        is_wide=True,
    )


def _row(strip: Strip, *, is_decoy: bool) -> tuple[str, tuple[tuple[str, str], ...]]:
    name, counter = list(strip.panels.items())[-1]
    during = counter[(strip.day >= strip.signs[0]) & (strip.day <= strip.signs[1])]
    known = during[~np.isnan(during)]
    grown = f"{known[-1] - known[0]:,.0f}" if known.size else "unknown"
    lasts = hours(24 * (strip.signs[1] - strip.signs[0]))
    return (
        f"{short(strip.name, 40)}: {'decoy' if is_decoy else 'failed'}",
        ((lasts, ""), (f"{strip.strength:.2f}", ""), (grown, name)),
    )


def _paint(figure: Figure, strips: Sequence[Strip]) -> None:
    n_panels = len(strips[0].panels)
    grid = figure.subplots(n_panels, len(strips), sharex="col", sharey="row", squeeze=False)
    for column, strip in enumerate(strips):
        is_decoy = column == 1
        for row, (title, values) in enumerate(strip.panels.items()):
            axes = grid[row, column]
            axes.axvspan(*strip.signs, color=SHADE.light, linewidth=0)
            if not is_decoy:
                axes.axvline(0, color=ALARM.light, linewidth=1.6)
            is_counter = row == n_panels - 1
            color = MODEL.light if is_counter else BASELINES[4].light
            axes.plot(strip.day, values, color=color, linewidth=2.0 if is_counter else 1.2)
            axes.set_title(title, loc="left", fontsize=11, color=INK.light, pad=4)
            axes.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
            axes.tick_params(length=0)
            axes.set_ylim(bottom=0)
        _label(grid[0, column], strip, is_decoy=is_decoy)
        since = "decoy's first sign" if is_decoy else "failure"
        grid[-1, column].set_xlabel(f"Days from the {since}")
        grid[-1, column].set_xlim(strip.day[0], strip.day[-1])


def _label(axes: Axes, strip: Strip, *, is_decoy: bool) -> None:
    what = "decoy: signs, no failure" if is_decoy else "a failure at day 0"
    axes.annotate(
        f"{short(strip.name, 30)}: {what}",
        (0, 1.0),
        xycoords="axes fraction",
        xytext=(0, 24),
        textcoords="offset points",
        fontsize=12,
        fontweight="bold",
        color=INK.light,
    )
