"""The comparison of scheduling policies as text: one table for each load.

Its numbers are made in `simulation.scheduling.comparison`.
"""

from typing import Final

import polars as pl

from simulation.scheduling.comparison import Ratio, ratio_to
from simulation.scheduling.policies import FIFO, SJF

_HEADER: Final = (
    "policy",
    "queuing s (p95)",
    "completion s (p95)",
    "queuing",
    "completion",
    "queuing",
    "completion",
    "training",
    "all",
    "preempted",
)


def render(runs: pl.DataFrame) -> str:
    """The table of all loads.

    Args:
        runs: Rows of `simulation.scheduling.comparison.compare`.
    """
    blocks = []
    for (load,), rows in runs.group_by("load", maintain_order=True):
        n_seeds = rows["seed"].n_unique()
        at = float(str(load))
        head = (
            f"Load {at:g}: {rows['n_jobs'][0]:,} jobs, {n_seeds} seed{'s' * (n_seeds > 1)}. Means "
            f"over the seeds; times shorter than under {FIFO.name} (95 % interval) and {SJF.name}."
        )
        names = rows["policy"].unique(maintain_order=True)
        lines = [_line(rows, name, load=at) for name in names]
        blocks.append(f"{head}\n\n{_columns([_over(), list(_HEADER), *lines])}")
    return "\n\n".join(blocks)


def _over() -> list[str]:
    fifo, sjf = f"x {FIFO.name}", f"x {SJF.name}"
    return ["", "", "", fifo, fifo, sjf, sjf, "GPUs used", "GPUs used", ""]


def _line(rows: pl.DataFrame, policy: str, *, load: float) -> list[str]:
    mine = rows.filter(pl.col("policy") == policy).mean().row(0, named=True)

    def over(baseline: str, measure: str) -> str:
        return _ratio_text(
            ratio_to(rows, policy=policy, baseline=baseline, load=load, measure=measure),
            with_interval=baseline == FIFO.name,
        )

    return [
        policy,
        f"{mine['queuing_s']:,.0f} ({mine['queuing_p95_s']:,.0f})",
        f"{mine['completion_s']:,.0f} ({mine['completion_p95_s']:,.0f})",
        *(over(base.name, what) for base in (FIFO, SJF) for what in ("queuing_s", "completion_s")),
        f"{mine['training_use']:.1%}",
        f"{mine['all_use']:.1%}",
        f"{mine['preemptions']:,.0f}",
    ]


def _ratio_text(ratio: Ratio, *, with_interval: bool) -> str:
    if ratio.value is None:
        return "-"
    if not with_interval or ratio.low is None or ratio.high is None:
        return f"{ratio.value:.3g}"
    return f"{ratio.value:.3g} ({ratio.low:.3g} to {ratio.high:.3g})"


def _columns(lines: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            text.ljust(width) if index == 0 else text.rjust(width)
            for index, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
