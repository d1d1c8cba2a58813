"""How sure a reader can be who sees every sign undisturbed: precision against recall.

`python -m benchmarks.signs [EPISODES]`, 4,000 announced failures of each kind by default. What a
model catches is measured by `forewarn simulate study`; nothing here is a bound that was proven.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import lightgbm as lgb
import numpy as np
import numpy.typing as npt

from simulation.fleet.regime import Regime
from simulation.fleet.regime_faults import Decoy
from simulation.fleet.regime_sections import HOURS_PER_YEAR
from simulation.regimes.load import load_regime

FloatArray = npt.NDArray[np.float64]

LEAD_H: Final = 0.5
HORIZON_H: Final = 24.0
WINDOWS_H: Final = (1, 3, 6, 12, 24, 48, 72, 168)
THRESHOLDS: Final = (0.3, 0.5, 0.7, 0.8, 0.85, 0.9, 0.95)
PER_HOUR: Final = {"hbm_errors": 3.0, "remap_growth": 0.6, "nvlink_errors": 7.2}
"""Errors an hour at full strength, as the simulator counts them by scrapes every five minutes."""
LINES: Final = {"repeated_xids": (2, 4.0), "link_flaps": (1, 3.0)}
"""Log lines at least, and more on average at full strength."""
UNSEEN_SHARE: Final = 0.15
SETTINGS: Final = {
    "objective": "binary",
    "num_leaves": 31,
    "learning_rate": 0.06,
    "min_data_in_leaf": 200,
    "feature_fraction": 0.7,
    "num_threads": 1,
    "verbose": -1,
}


@dataclass(frozen=True)
class Kind:
    """Signs of one kind: the failures they announce, and those that announce none.

    Attributes:
        name: Kind.
        lead_h: Shortest and longest time ahead of a failure, of each class.
        per_gpu_year: Announced failures of each class.
        decoy: The others.
    """

    name: str
    lead_h: tuple[tuple[float, float], ...]
    per_gpu_year: tuple[float, ...]
    decoy: Decoy


class Looks(NamedTuple):
    """Hourly looks at signs: what is seen, whether a failure follows in time, and whose they are.

    Shapes (looks, features), (looks,), (looks,).
    """

    seen: FloatArray
    label: npt.NDArray[np.bool_]
    episode: npt.NDArray[np.int64]


def kinds_of(regime: Regime) -> Iterator[Kind]:
    """Kinds of signs that come early enough for an hourly look to count, of GPUs and nodes."""
    for decoy in regime.decoys:
        faults = [f for f in regime.faults if f.precursor and f.precursor.kind == decoy.kind]
        told = [(f.per_gpu_year, f.precursor) for f in faults if f.precursor]
        if told and max(one.lead_h[1] for _, one in told) > LEAD_H:
            yield Kind(
                decoy.kind,
                tuple(one.lead_h for _, one in told),
                tuple(rate * (1.0 - one.share_without) for rate, one in told),
                decoy,
            )


def draw(kind: Kind, *, n: int, rng: np.random.Generator) -> Looks:
    """Looks at `n` announced failures and as many decoys as come with them."""
    rates = np.array(kind.per_gpu_year)
    classes = rng.choice(rates.size, size=n, p=rates / rates.sum())
    told = [
        (log_uniform(rng, kind.lead_h[c]), float(rng.lognormal(0.0, 0.6)), False) for c in classes
    ]
    told += [
        (
            log_uniform(rng, kind.decoy.duration_h),
            kind.decoy.strength * float(rng.lognormal(0.0, 0.6)),
            True,
        )
        for _ in range(round(n * kind.decoy.per_precursor))
    ]
    parts = [
        look_at(kind.name, length, strength, is_decoy=is_decoy, rng=rng)
        for length, strength, is_decoy in told
    ]
    return Looks(
        np.concatenate([seen for seen, _ in parts]),
        np.concatenate([label for _, label in parts]),
        np.repeat(np.arange(len(parts)), [label.size for _, label in parts]),
    )


def log_uniform(rng: np.random.Generator, bounds: tuple[float, float]) -> float:
    """A length in hours."""
    return float(np.exp(rng.uniform(*np.log(bounds))))


def look_at(
    kind: str, length: float, strength: float, *, is_decoy: bool, rng: np.random.Generator
) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
    """Looks at one episode, hourly from its first hour on; at a decoy for a day more."""
    phase = rng.random()
    hours = max(1, int(np.ceil(length - phase)) + 1) + (24 if is_decoy else 0)
    edges = phase + np.arange(-1.0, hours)
    counts = observed(kind, edges, length, strength, is_decoy=is_decoy, rng=rng)
    seen = np.column_stack([told for one in counts for told in windows(one)])
    lead = np.full(hours, np.inf) if is_decoy else length - edges[1:]
    keep = lead >= LEAD_H
    return seen[keep], (lead < LEAD_H + HORIZON_H)[keep]


def windows(counts: FloatArray) -> Iterator[FloatArray]:
    """Sums over the windows, and hours since the first and the last that was seen."""
    total, hour = np.concatenate([[0.0], np.cumsum(counts)]), np.arange(counts.size)
    for window in WINDOWS_H:
        yield total[1:] - total[np.maximum(0, hour + 1 - window)]
    is_any = counts != 0
    first = int(np.argmax(is_any)) if is_any.any() else counts.size
    yield np.where(hour >= first, hour - first, -1.0).astype(np.float64)
    yield (hour - np.maximum.accumulate(np.where(is_any, hour, -1))).astype(np.float64)


def observed(
    kind: str,
    edges: FloatArray,
    length: float,
    strength: float,
    *,
    is_decoy: bool,
    rng: np.random.Generator,
) -> list[FloatArray]:
    """What each hour shows: counts of errors and log lines, degrees, or the spread of power."""
    at = edges[:-1, None] + (np.arange(12) + 0.5) / 12.0
    done = np.clip(at / length, 0.0, 1.0)
    grown = level(done, is_decoy=is_decoy, rng=rng) * strength
    grown = np.where((at >= 0.0) & (at < length), grown, 0.0).mean(axis=1)

    def lines(n: int) -> FloatArray:
        place = rng.random(n) if is_decoy else rng.random(n) ** 0.6
        return np.histogram(place * length, edges)[0].astype(np.float64)

    if kind == "hot":
        return [6.0 * grown + 0.3 * rng.standard_normal(grown.size)]
    if kind == "power_swings":
        return [np.hypot(5.0, 45.0 * grown) * (1.0 + 0.2 * rng.standard_normal(grown.size))]
    if kind in LINES:
        least, more = LINES[kind]
        return [lines(least + rng.poisson(more * strength))]
    errors = rng.poisson(PER_HOUR[kind] * grown).astype(np.float64)
    if kind == "remap_growth":
        return [errors, lines(1 + rng.poisson(2.0 * strength))]
    if kind != "hbm_errors":
        return [errors]
    errors *= rng.random() >= UNSEEN_SHARE
    contained = rng.poisson(1.5 * strength) if rng.random() < 0.35 else 0
    remapped = 1 + rng.poisson(0.4 * strength) if rng.random() < 0.4 * strength else 0
    return [errors, lines(contained), lines(remapped)]


def level(done: FloatArray, *, is_decoy: bool, rng: np.random.Generator) -> FloatArray:
    """The course of signs: failures grow by a power of time; decoys stay, fade, or just stop."""
    course = int(rng.integers(3)) if is_decoy else 2
    if course == 0:
        return np.full_like(done, 0.5)
    if course == 1:
        return np.asarray(1.0 - np.abs(2.0 * done - 1.0))
    return np.asarray(0.15 + 0.85 * done ** (1.0 if is_decoy else rng.uniform(0.5, 2.0)))


def alerts_at(threshold: float, score: FloatArray, looks: Looks) -> tuple[int, int]:
    """Failures caught and false alerts, with at most one alert a day on an episode."""
    caught, false, last = set(), 0, (-1, -HORIZON_H)
    for i in np.flatnonzero(score >= threshold).tolist():
        episode = int(looks.episode[i])
        if episode == last[0] and i - last[1] < HORIZON_H:
            continue
        last = (episode, i)
        if looks.label[i]:
            caught.add(episode)
        else:
            false += 1
    return len(caught), false


def main(n: int) -> None:
    """Prints precision, recall and alerts of the best reader by threshold."""
    regime, rng = load_regime("h100"), np.random.default_rng(1)
    told = []
    for kind in kinds_of(regime):
        learned = draw(kind, n=n, rng=rng)
        booster = lgb.train(SETTINGS, lgb.Dataset(learned.seen, learned.label), 200)
        looks = draw(kind, n=n, rng=rng)
        told.append((sum(kind.per_gpu_year) / n, np.asarray(booster.predict(looks.seen)), looks))
    everything = sum(fault.per_gpu_year for fault in regime.faults)
    per_1000_node_days = 1000.0 * regime.gpus_per_node * 24.0 / HOURS_PER_YEAR
    print("| threshold | precision | of all failures caught | alerts per 1,000 nodes and day |")
    print("|---|---|---|---|")
    for threshold in THRESHOLDS:
        caught, false = 0.0, 0.0
        for rate, score, looks in told:
            ended = alerts_at(threshold, score, looks)
            caught, false = caught + rate * ended[0], false + rate * ended[1]
        alerts = caught + false
        print(
            f"| {threshold:g} | {caught / alerts if alerts else float('nan'):.2f} | "
            f"{100 * caught / everything:.1f} % | {alerts * per_1000_node_days:.3f} |"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4000)
