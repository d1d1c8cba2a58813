"""A benchmark's result as text for a terminal, and as one HTML page.

Nothing is computed or written here.
"""

from html import escape
from typing import Final

from models.benchmark_result import MODEL, BenchmarkResult, BenchmarkRow, Gain, WindowResult
from models.evaluation import Estimate, RowMetrics


def render(result: BenchmarkResult) -> str:
    """The result as text for a terminal.

    Args:
        result: See `run_benchmark`.

    Returns:
        One table per window: population, scorer, rows, base rate, AUC, AP, precision in the
        top 1 %; the model's with 95 % intervals over entities.
    """
    head = (
        f"{result.name}: {result.n_features} features, {result.n_incidents} incidents in labels, "
        f"{result.seconds:.0f} s. Intervals: 95 %, bootstrap over entities."
    )
    return "\n\n".join([head, *(_render_window(window) for window in result.windows)])


def _render_window(window: WindowResult) -> str:
    lines = [
        (
            f"S = {window.origin:%Y-%m-%d}: {window.n_features} features vary, trained on "
            f"{window.n_train} rows, {window.n_train_positive} positive"
        ),
        _line("population", "scorer", "rows", "pos", "base %", _COLUMNS),
    ]
    population = ""
    for row in window.rows:
        shown = row.population if row.population != population else ""
        population = row.population
        metrics = row.metrics
        base = f"{100 * (metrics.prevalence or 0.0):.2f}"
        figures = _figures(metrics, row.gain)
        lines.append(
            _line(shown, row.scorer, str(metrics.n_rows), str(metrics.n_positive), base, figures)
        )
    lines.append(f"  top units: {', '.join(window.top_units) or 'none'}")
    lines.append(f"  fault types told apart before the onset: AUC {window.fault_types}")
    lines += [f"  not available: {reason}" for reason in window.unavailable]
    return "\n".join(lines)


_COLUMNS: Final = (
    f"{'AUC':21}  {'AP':21}  {'precision top 1 %':18}  model's gain: AUC, AP, precision (points)"
)


def _line(population: str, scorer: str, rows: str, positive: str, base: str, figures: str) -> str:
    return f"  {population:27}{scorer:30}{rows:>7}{positive:>6}{base:>8}  {figures}".rstrip()


def _figures(metrics: RowMetrics, gain: Gain | None) -> str:
    precision = _percent(metrics.precision_top_1pct)
    return (
        f"{metrics.auc!s:21}  {metrics.average_precision!s:21}  {precision:18}  "
        f"{'' if gain is None else _gains(gain)}"
    )


def _gains(gain: Gain) -> str:
    return f"{gain.auc}  {gain.average_precision}  {_percent(gain.precision_top_1pct)}"


def _percent(estimate: Estimate) -> str:
    if estimate.value is None:
        return "not defined"
    text = f"{100 * estimate.value:.1f}"
    if estimate.low is None or estimate.high is None:
        return text
    return f"{text} [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"


_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:78em;padding:0 1em}"
    "table{border-collapse:collapse;width:100%}th,td{padding:.25em .6em;text-align:right;"
    "border-bottom:1px solid #ccc}th:nth-child(-n+2),td:nth-child(-n+2){text-align:left}"
    "tr.model{font-weight:600}p.note{color:#555}"
)
_HEADS: Final = (
    "population",
    "scorer",
    "rows",
    "positive",
    "base %",
    "AUC",
    "AP",
    "precision top 1 %",
    "gain in AUC",
    "gain in AP",
    "gain in precision",
)


def render_page(result: BenchmarkResult) -> str:
    """The result as one HTML page that needs no other file.

    Args:
        result: See `pipelines.benchmark.run_benchmark`.
    """
    name = escape(result.name)
    windows = "".join(_window_table(window) for window in result.windows)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Benchmark {name}'
        f"</title><style>{_STYLE}</style></head><body><h1>Benchmark {name}</h1>"
        f"<p>{result.n_features} features, {result.n_incidents} incidents in labels. In brackets: "
        f"95 % intervals, bootstrap over entities. A gain is what the model has more, on the same "
        f"rows and resamples.</p>{windows}</body></html>\n"
    )


def _window_table(window: WindowResult) -> str:
    heads = "".join(f'<th scope="col">{head}</th>' for head in _HEADS)
    rows = "".join(
        f"<tr{' class=model' if row.scorer == MODEL else ''}>"
        + "".join(f"<td>{escape(cell)}</td>" for cell in _cells(row.population, row.scorer, row))
        + "</tr>"
        for row in window.rows
    )
    notes = "; ".join(window.unavailable) or "none"
    return (
        f"<h2>S = {window.origin:%Y-%m-%d}</h2><p>Trained on {window.n_train} rows, "
        f"{window.n_train_positive} positive; {window.n_features} features vary.</p>"
        f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
        f'<p class="note">Top units: {escape(", ".join(window.top_units) or "none")}. Fault types '
        f"told apart before the onset: AUC {escape(str(window.fault_types))}. Not available: "
        f"{escape(notes)}.</p>"
    )


def _cells(population: str, scorer: str, row: BenchmarkRow) -> tuple[str, ...]:
    metrics, gain = row.metrics, row.gain
    gains = ("", "", "")
    if gain is not None:
        gains = (str(gain.auc), str(gain.average_precision), _percent(gain.precision_top_1pct))
    return (
        population,
        scorer,
        str(metrics.n_rows),
        str(metrics.n_positive),
        f"{100 * (metrics.prevalence or 0.0):.2f}",
        str(metrics.auc),
        str(metrics.average_precision),
        _percent(metrics.precision_top_1pct),
        *gains,
    )
