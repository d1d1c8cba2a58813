"""Parameters of the recovery simulation, each with where it comes from.

What happens to a job under them is in `.job`; sweeps and tables are in `.study`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Final, Literal

from features.errors import SettingsError

Cause = Literal["change", "network", "machine", "transient", "code", "silent", "hang", "slow"]

SHARES: Final[Mapping[Cause, float]] = {
    "change": 0.173,
    "network": 0.029,
    "machine": 0.326,
    "transient": 0.250,
    "code": 0.101,
    "silent": 0.014,
    "hang": 0.099,
    "slow": 0.008,
}
"""What stops the job. From ByteRobust's incident table: changes of code and data by people 17.3 %,
InfiniBand 2.9 %, hangs 9.9 %, slow-downs 0.8 %. What is left (69.1 %: CUDA errors, out of memory,
storage, NaN) is told apart by what ended it, in the published proportions: eviction 32.52 % (of
which InfiniBand 2.9), reattempt 22.70, rollback 9.20, replay 1.23, scaled to add up."""

MACHINE_CAUSES: Final[tuple[Cause, ...]] = ("network", "machine", "silent", "hang", "slow")
"""Causes that lie in one machine, so that a score of the machine could have foretold them."""


@dataclass(frozen=True, kw_only=True)
class Regime:
    """One way to run and recover a job. Times in seconds unless the name says otherwise.

    Attributes:
        n_nodes: Machines of the job.
        days: How long it is watched.
        mtbi_h: Mean time between incidents of the whole job while it trains, in hours.
        detect_s: Until a crash is noticed.
        detect_hang_s: Until a hang or slow-down is noticed.
        localize_s: To sample and group stacks of a hang or slow-down.
        diagnose_s: Stop-time tests, each time they run.
        refail_s: From a restart that does not help until the job fails again.
        replay_s: Both phases of a dual-phase replay.
        person_s: Until a person has found and replaced what the ladder did not.
        swap_s: Restart with standby machines in place of those evicted.
        reschedule_s: Restart where a replacement must first be found and set up.
        in_place_s: Restart on the same machines.
        step_s: One training step.
        checkpoint_steps: Steps between two checkpoints.
        checkpoint_stall: Share of training time that checkpoints cost.
        over_evicted: Machines evicted around a hang or slow-down, the faulty one among them.
        pool_p_fail: Chance that a node fails within a day, which sizes the standby pool (P99 of a
            binomial); 0: no pool.
        refill_h: Until an evicted machine is replaced in the pool, in hours.
        budget: Most machines to evict for one incident.
    """

    n_nodes: int = 1200
    days: float = 90.0
    mtbi_h: float = 2.78 * 16384 / 9600
    detect_s: float = 20.0
    detect_hang_s: float = 600.0
    localize_s: float = 60.0
    diagnose_s: float = 300.0
    refail_s: float = 120.0
    replay_s: float = 1200.0
    person_s: float = 3600.0
    swap_s: float = 60.0
    reschedule_s: float = 60.0 * 10.87 / 2
    in_place_s: float = 60.0 * 10.87 / 11.04
    step_s: float = 20.0
    checkpoint_steps: float = 1.0
    checkpoint_stall: float = 0.0071
    over_evicted: int = 8
    pool_p_fail: float = 0.0012
    refill_h: float = 1.0
    budget: int = 32

    def __post_init__(self) -> None:
        """Refuses numbers that mean nothing."""
        wrong = [f.name for f in fields(self) if not 0 <= getattr(self, f.name) < float("inf")]
        wrong += [name for name in ("n_nodes", "days", "mtbi_h") if not getattr(self, name) > 0]
        if not self.checkpoint_stall < 1 or not self.pool_p_fail <= 1:
            wrong.append("a share above 1")
        if wrong:
            raise SettingsError(f"recovery regime: out of range: {', '.join(wrong)}")


SOURCES: Final[Mapping[str, str]] = {
    "mtbi_h": "one failure per 2.78 h on 16,384 GPUs (Llama 3, quoted by ByteRobust), by GPUs",
    "detect_s": "published: crashes are seen in 10 to 30 s",
    "detect_hang_s": "published: no RDMA traffic for 10 min",
    "localize_s": "published: 5 rounds, 10 s apart; 10 s to dump (ours)",
    "diagnose_s": "ours",
    "refail_s": "ours",
    "replay_s": "ours",
    "person_s": "ours; it does not come to that here",
    "swap_s": "published: about a minute",
    "reschedule_s": "ours: half of a requeue",
    "in_place_s": "published: hot update 11.04 times faster than a requeue, standby 10.87 times",
    "step_s": "ours",
    "checkpoint_steps": "published: a checkpoint at every step",
    "checkpoint_stall": "published: 0.71 % of MFU, here taken as lost time",
    "over_evicted": "published: 6 to 7 healthy machines around a faulty one",
    "pool_p_fail": "published: 0.0012 per machine and day, pool at P99",
    "refill_h": "ours",
}
"""Field -> where its value comes from; `ours` is an assumption. ByteRobust: arXiv 2509.16293."""

BYTEROBUST: Final = Regime()

RESCHEDULE: Final = replace(BYTEROBUST, pool_p_fail=0.0, swap_s=BYTEROBUST.reschedule_s)
"""Evicted machines are replaced, but nothing stands ready."""

_REQUEUE_S: Final = 60.0 * 10.87

REQUEUE: Final = replace(
    RESCHEDULE, swap_s=_REQUEUE_S, reschedule_s=_REQUEUE_S, in_place_s=_REQUEUE_S
)
"""Every restart puts the whole job through the queue; detection, tests, checkpoints as before."""

PLAIN: Final = replace(
    REQUEUE,
    detect_s=1200.0,
    detect_hang_s=1800.0,
    localize_s=1800.0,
    diagnose_s=1800.0,
    checkpoint_steps=90.0,
    checkpoint_stall=0.0,
)
"""Without any of it: time-outs of 10 to 30 min (published for such systems), tests by hand, a
checkpoint every half hour (both ours)."""

REGIMES: Final[Mapping[str, Regime]] = {
    "byterobust": BYTEROBUST,
    "reschedule": RESCHEDULE,
    "requeue": REQUEUE,
    "plain": PLAIN,
}


@dataclass(frozen=True, kw_only=True)
class Foresight:
    """Scores that foretell incidents of machines; the default foretells none.

    Attributes:
        recall: Share of machine incidents foretold.
        precision: Share of alerts that are right.
        lead_s: Time from an alert to its incident.
        drain_s: Time to make a replacement ready and swap it in; an alert that comes later
            than that before its incident is too late.
    """

    recall: float = 0.0
    precision: float = 1.0
    lead_s: float = 3600.0
    drain_s: float = 1800.0

    def __post_init__(self) -> None:
        """Refuses numbers that mean nothing."""
        if not 0 <= self.recall <= 1 or not 0 < self.precision <= 1:
            raise SettingsError(
                f"foresight: expected a recall of 0 to 1 and a precision above 0 to 1, got "
                f"{self.recall} and {self.precision}"
            )
