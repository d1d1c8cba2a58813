"""A benchmark's result in words and figures: the cells of its tables, and text for a terminal.

Nothing is computed or written here; the HTML page is in `pipelines.studies.benchmark.page`.
"""

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Final

from models.benchmark.result import BenchmarkResult, BenchmarkRow, Population, WindowResult
from models.evaluation.row_metrics import Estimate

METRICS: Final = ("AUC", "AP", "precision, top 1 %")

LEGEND: Final = (
    "In brackets 95 % intervals, bootstrap over entities. Behind a + or -: what the model has more "
    "than this scorer, on the same rows and resamples."
)

POPULATIONS: Final[dict[Population, str]] = {
    "all": "every entity watched at a moment",
    "old batch": "entities first seen before the batch changed",
    "old, no earlier incident": "of these, those that had not failed before",
    "without the top units": "without the entities that fail most",
    "unseen entities": "scored by models that saw no row of the same entity",
    "leavers count as negatives": "who left unharmed did not fail, in training and test",
    "leavers negative, old batch": "the same, of the old batch",
    "leavers negative, old, no earlier incident": "the same, of those that had not failed before",
    "labels dealt anew": "control, ranked within each moment: an AUC off 0.5 means a leak",
}
"""What each population is, in words."""

_Unit = Callable[[float | None], str]

_SCORER_WIDTH: Final = 50
_CELL_WIDTH: Final = 32


def render(result: BenchmarkResult) -> str:
    """The result as text for a terminal.

    Args:
        result: See `run_benchmark`.

    Returns:
        One block per window: by population and scorer AUC, AP and precision in the top 1 %.
    """
    head = (
        f"{result.name}: {result.n_features} features, {result.n_incidents:,} incidents in labels, "
        f"{result.seconds:.0f} s.\n{LEGEND}"
    )
    return "\n\n".join([head, *(_render_window(window) for window in result.windows)])


def _render_window(window: WindowResult) -> str:
    lines = [f"S = {window.origin:%Y-%m-%d}: {training(window)}"]
    lines.append(f"{'':{_SCORER_WIDTH}}{''.join(f'{name:{_CELL_WIDTH}}' for name in METRICS)}")
    for population, rows in by_population(window):
        lines.append(f"  {population}: {counts(rows[0])}")
        for row in rows:
            figures = "".join(f"{' '.join(cell).strip():{_CELL_WIDTH}}" for cell in cells(row))
            lines.append(f"    {row.scorer:{_SCORER_WIDTH - 4}}{figures}")
    lines += [f"  {note}" for note in notes(window)]
    return "\n".join(line.rstrip() for line in lines)


def training(window: WindowResult) -> str:
    """What a window's model learned from."""
    return (
        f"trained on {window.n_train:,} rows, {window.n_train_positive:,} positive; "
        f"{window.n_features} features vary"
    )


def by_population(window: WindowResult) -> Iterator[tuple[Population, list[BenchmarkRow]]]:
    """A window's rows by population, in order."""
    for population, rows in groupby(window.rows, key=lambda row: row.population):
        yield population, list(rows)


def counts(row: BenchmarkRow) -> str:
    """How many rows there are, and how many of them positive."""
    metrics = row.metrics
    share = 100 * (metrics.prevalence or 0.0)
    return f"{metrics.n_rows:,} rows, {metrics.n_positive:,} positive ({share:.2f} %)"


def notes(window: WindowResult) -> list[str]:
    """What else is to be said of a window."""
    found = [
        f"top units: {', '.join(window.top_units) or 'none'}",
        f"the two most frequent fault types told apart before the onset: AUC {window.fault_types}",
    ]
    return found + [f"not available: {reason}" for reason in window.unavailable]


def cells(row: BenchmarkRow) -> list[tuple[str, str]]:
    """One value per metric, with its interval or with what the model has more."""
    metrics, gain = row.metrics, row.gain
    values = (metrics.auc, metrics.average_precision, metrics.precision_top_1pct)
    gains: tuple[Estimate | None, ...] = (None, None, None)
    if gain is not None:
        gains = (gain.auc, gain.average_precision, gain.precision_top_1pct)
    units = (_plain, _plain, _percent)
    return [
        (unit(value.value), _interval(value, unit) if more is None else _more(more, unit))
        for value, more, unit in zip(values, gains, units, strict=True)
    ]


def _more(gain: Estimate, unit: _Unit) -> str:
    if gain.value is None:
        return ""
    sign = "-" if gain.value < 0 else "+"
    return f"{sign}{unit(abs(gain.value))} {_interval(gain, unit)}"


def _interval(estimate: Estimate, unit: _Unit) -> str:
    if estimate.low is None or estimate.high is None:
        return ""
    return f"[{unit(estimate.low)}, {unit(estimate.high)}]"


def _plain(value: float | None) -> str:
    return "not defined" if value is None else f"{value:.3f}"


def _percent(value: float | None) -> str:
    return "not defined" if value is None else f"{100 * value:.1f}"
