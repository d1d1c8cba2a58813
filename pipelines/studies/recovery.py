"""`forewarn simulate recovery`: runs the study and says in tables what it found.

The simulation is in `simulation.recovery`.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import isnan
from typing import Final

from models.recovery.ladder import PUBLISHED_SHARES
from remediation.policy.standby import standby_pool_size
from simulation.recovery.parameters import BYTEROBUST
from simulation.recovery.study import (
    Estimate,
    RegimeResult,
    Sensitivity,
    study_regimes,
    study_sensitivity,
)

PUBLISHED_ETTR: Final = 0.97

_REGIME_WORDS: Final = {
    "byterobust": "ByteRobust's parameters",
    "reschedule": "the same without standby machines",
    "requeue": "every restart through the queue",
    "plain": "plain: time-outs, tests by hand, requeue, half-hourly checkpoints",
}
_SHARE_WORDS: Final = {
    "eviction": "evicted by rules or tests",
    "reattempt": "started again",
    "rollback": "rolled back",
    "replay": "replayed in two phases",
    "stacks": "evicted by stacks (hang, slow)",
    "change": "stopped by people (change)",
    "person": "left to a person",
}


@dataclass(frozen=True)
class RecoveryStudy:
    """What the study found.

    Attributes:
        days: Length of a run.
        n_seeds: Runs of each.
        regimes: Results by regime.
        sensitivity: ByteRobust's parameters halved and doubled; empty: not asked for.
    """

    days: float
    n_seeds: int
    regimes: tuple[RegimeResult, ...]
    sensitivity: tuple[Sensitivity, ...]


def run_study(*, seed: int, n_seeds: int, days: float, with_sensitivity: bool) -> RecoveryStudy:
    """Runs it.

    Args:
        seed: The first seed.
        n_seeds: How many follow each other.
        days: Length of a run.
        with_sensitivity: Whether each parameter is halved and doubled too.

    Raises:
        SettingsError: There are no seeds, or no days.
    """
    seeds = range(seed, seed + n_seeds)
    regimes = study_regimes(seeds=seeds, days=days)
    rows = study_sensitivity(BYTEROBUST, seeds=seeds, days=days) if with_sensitivity else ()
    return RecoveryStudy(days, n_seeds, regimes, rows)


def render(study: RecoveryStudy) -> str:
    """The tables.

    Args:
        study: What was found.
    """
    sections = (_head(study), _regimes(study), _shares(study), _gains(study), _sensitive(study))
    return "\n\n".join("\n".join(lines) for lines in map(list, sections) if lines)


def as_json(study: RecoveryStudy) -> str:
    """The same for programs; NaN, of one seed's interval, as null.

    Args:
        study: What was found.
    """
    return json.dumps(_without_nan(asdict(study)), indent=2, allow_nan=False)


def _head(study: RecoveryStudy) -> Iterator[str]:
    pool = standby_pool_size(BYTEROBUST.n_nodes, BYTEROBUST.pool_p_fail)
    yield (
        f"A job of {BYTEROBUST.n_nodes:,} machines x 8 GPUs for {study.days:g} days, an incident "
        f"every {BYTEROBUST.mtbi_h:.2f} h of training, {pool} standby machines; "
        f"{study.n_seeds} seeds, 95 % intervals."
    )
    yield "Simulated, not measured: parameters marked `ours` are assumptions."


def _regimes(study: RecoveryStudy) -> Iterator[str]:
    yield "ETTR              worst hour  longest stop  an incident of a machine costs"
    for one in study.regimes:
        yield (
            f"{_percent(one.ettr):17} {one.worst_hour:9.1%} {one.longest_stop_min:9.0f} min "
            f"{one.machine_loss_s / 60:10.1f} min   {_REGIME_WORDS[one.name]}"
        )
    yield f"Published for ByteRobust: {PUBLISHED_ETTR:.0%}, longest stop 50 min."


def _shares(study: RecoveryStudy) -> Iterator[str]:
    yield "How incidents end (ByteRobust's parameters)      simulated  published"
    shares = study.regimes[0].shares
    for name, words in _SHARE_WORDS.items():
        if name not in shares:
            continue
        published = PUBLISHED_SHARES.get(name)
        told = "" if published is None else f"{published:10.1%}"
        yield f"  {words:46} {shares[name]:9.1%} {told}".rstrip()


def _gains(study: RecoveryStudy) -> Iterator[str]:
    yield "What foresight adds to ETTR, in points (machine incidents foretold, replaced in time)"
    foresights = [gain.foresight for gain in study.regimes[0].gains]
    for number, foresight in enumerate(foresights):
        cells = "  ".join(
            f"{one.name} {_points(one.gains[number].points)}" for one in study.regimes
        )
        yield f"  recall {foresight.recall:4.0%}, precision {foresight.precision:4.0%}:  {cells}"
    needed = ", ".join(f"{one.name} {one.break_even_precision:.0%}" for one in study.regimes)
    yield f"  Alerts pay when at least this share of them is right: {needed}."
    best, worst = study.regimes[0], study.regimes[-1]
    yield (
        f"  The cheaper recovery is, the less foresight is worth: at most "
        f"{best.gains[-1].points.mean:.1f} points with ByteRobust's, "
        f"{worst.gains[-1].points.mean:.1f} with plain recovery."
    )


def _sensitive(study: RecoveryStudy) -> Iterator[str]:
    if not study.sensitivity:
        return
    yield "ETTR with one parameter changed (ByteRobust's parameters)"
    yield f"  {'parameter':17} {'value':>8}  {'at half':>16}  {'at twice':>16}  source"
    for row in study.sensitivity:
        half = "-" if row.at_half is None else _percent(row.at_half)
        yield (
            f"  {row.name:17} {row.value:8.4g}  {half:>16}  {_percent(row.at_twice):>16}  "
            f"{row.source}"
        )


def _percent(value: Estimate) -> str:
    width = "" if isnan(value.half) else f" ± {100 * value.half:.2f}"
    return f"{100 * value.mean:.2f}{width} %"


def _points(value: Estimate) -> str:
    width = "" if isnan(value.half) else f" ± {value.half:.2f}"
    return f"{value.mean:+.2f}{width}"


def _without_nan(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_nan(one) for key, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_without_nan(one) for one in value]
    return None if isinstance(value, float) and isnan(value) else value
