"""For each shipped alert series that must raise it, and series close by that must not.

Series are in promtool's notation; times begin at 0, so a moment in the past is negative. Running
them is in `test_alerts`.
"""

from dataclasses import dataclass
from typing import Final

Series = dict[str, str]


def of(name: str, values: str, **labels: str) -> Series:
    """One series of the exporter."""
    said = "".join(f', {label}="{value}"' for label, value in labels.items())
    return {f'forewarn_{name}{{job="forewarn", instance="a"{said}}}': values}


def elsewhere(series: Series) -> Series:
    """The same series of another exporter."""
    return {name.replace('instance="a"', 'instance="b"'): said for name, said in series.items()}


def for_good(name: str, value: float, **labels: str) -> Series:
    """A series that never changes."""
    return of(name, f"{value:g}+0x20000", **labels)


@dataclass(frozen=True, kw_only=True)
class Case:
    """Attributes: the alert, what raises it, what does not, when, and time between samples."""

    alert: str
    raising: Series
    quiet: Series
    after: str = "30m"
    every: str = "1m"


WATERMARK: Final = "ingest_watermark_timestamp_seconds"
SEEN: Final = for_good("scores_readable", 1)
FULL: Final = for_good("disk_size_bytes", 1000)
FALLING: Final = of("disk_free_bytes", "250-0.5x400")
LEVEL: Final = of("disk_free_bytes", "250+0x400")
ROUND: Final = for_good("hook_round_timestamp_seconds", 0)


def quality(hits: tuple[int, int], false_alarms: tuple[int, int]) -> Series:
    """Outcomes before and after four weeks, a sample every six hours."""
    samples = 4 * 7 * 4
    return {
        key: value
        for outcome, (then, now) in {"hits": hits, "false_alarms": false_alarms}.items()
        for key, value in of(
            "live_outcomes_4w",
            f"{then}+0x{samples} {now}+0x{samples}",
            horizon="24h",
            outcome=outcome,
        ).items()
    }


SCORE_CASES: Final = (
    Case(alert="ForewarnMetricsAbsent", raising={}, quiet=SEEN),
    Case(
        alert="ForewarnScoresExpired",
        raising=SEEN | for_good("scores_expired", 1),
        quiet=SEEN | for_good("scores_expired", 0),
    ),
    Case(  # nothing was ever published; while metrics cannot be read it is not this alert
        alert="ForewarnScoresExpired",
        raising=SEEN,
        quiet=for_good("scores_readable", 0),
        after="4h",
    ),
    Case(  # an installation of two hours waits for its first scores
        alert="ForewarnScoresExpired",
        raising=SEEN | for_good("scores_expired", 1),
        quiet=SEEN,
        after="2h",
    ),
    Case(
        alert="ForewarnScoresUnreadable",
        raising=for_good("scores_readable", 0),
        quiet=SEEN,
    ),
    Case(
        alert="ForewarnScorerSilent",
        raising=for_good("scorer_seen_timestamp_seconds", -5400),
        quiet=for_good("scorer_seen_timestamp_seconds", -3000),
        after="10m",
    ),
    Case(
        alert="ForewarnTicksFailing",
        raising=of("tick_failures_total", "0+1x10 10+0x300"),
        quiet=of("tick_failures_total", "0+1x1 1+0x300"),
    ),
    Case(
        alert="ForewarnTickSlow",
        raising=for_good("tick_duration_seconds", 1000, phase="a")
        | for_good("tick_duration_seconds", 900, phase="b"),
        quiet=for_good("tick_duration_seconds", 1000, phase="a"),
    ),
    Case(
        alert="ForewarnGpusWithoutScore",
        raising=for_good("scores_coverage_ratio", 0.8) | for_good("scores_expired", 0),
        quiet=for_good("scores_coverage_ratio", 0.8) | for_good("scores_expired", 1),
        after="45m",
    ),
    Case(
        alert="ForewarnScoresFailedByUs",
        raising=for_good("gpu_scores_unknown", 8, cause="failed_model"),
        quiet=for_good("gpu_scores_unknown", 8, cause="stale"),
        after="45m",
    ),
    Case(
        alert="ForewarnIngestStalled",
        raising=SEEN
        | for_good("ingest_watermark_timestamp_seconds", -10800, table="core/gpu_telemetry"),
        quiet=SEEN
        | for_good("ingest_watermark_timestamp_seconds", -10800, table="core/health_events"),
    ),
    Case(  # the store was lost after ten minutes; and an installation that was taken away
        alert="ForewarnIngestStalled",
        raising=SEEN | of(WATERMARK, "0+0x10 _x300", table="core/gpu_telemetry"),
        quiet=of(WATERMARK, "0+0x10 _x300", table="core/gpu_telemetry"),
        after="4h",
    ),
    Case(  # the exporter began anew, in another pod, while tables could not be read
        alert="ForewarnIngestStalled",
        raising=elsewhere(of(WATERMARK, "0+0x10 _x300", table="core/gpu_telemetry"))
        | of("scores_readable", "_x20 1+0x300"),
        quiet=of("scores_readable", "_x20 1+0x300")
        | of(WATERMARK, "_x20 1200+60x300", table="core/gpu_telemetry"),
        after="4h",
    ),
    Case(
        alert="ForewarnScoreDatabaseFailing",
        raising=for_good("score_database_readable", 0),
        quiet=for_good("score_database_readable", 1)
        | for_good("delivery_failing", 1, part="webhook"),
        after="45m",
    ),
    Case(
        alert="ForewarnScoreDatabaseFailing",
        raising=for_good("delivery_failing", 1, part="database"),
        quiet=for_good("delivery_failing", 0, part="database"),
        after="45m",
    ),
    Case(
        alert="ForewarnDeliveryFailing",
        raising=for_good("delivery_failing", 1, part="alertmanager"),
        quiet=for_good("delivery_failing", 1, part="database"),
        after="45m",
    ),
    Case(
        alert="ForewarnWebhookBehind",
        raising=for_good("webhook_waiting_events", 101),
        quiet=for_good("webhook_waiting_events", 100),
        after="90m",
    ),
    Case(
        alert="ForewarnDiskFilling",
        raising=FULL | FALLING,
        quiet=FULL | LEVEL,
        after="20h",
        every="5m",
    ),
    Case(  # as fast, but on a disk that is nearly empty: a burst of a day, not a trend
        alert="ForewarnDiskFilling",
        raising=FULL | FALLING,
        quiet=FULL | of("disk_free_bytes", "900-1.5x240"),
        after="10h",
        every="5m",
    ),
    Case(
        alert="ForewarnDiskFull",
        raising=FULL | for_good("disk_free_bytes", 29),
        quiet=FULL | for_good("disk_free_bytes", 31),
    ),
    Case(
        alert="ForewarnPrecisionFell",
        raising=quality((20, 6), (20, 34)),
        quiet=quality((2, 0), (2, 4)),  # as steep, but four alerts
        after="1200h",
        every="6h",
    ),
    Case(
        alert="ForewarnPrecisionFell",
        raising=quality((20, 6), (20, 34)),
        quiet=quality((20, 30), (20, 10)),
        after="1200h",
        every="6h",
    ),
    Case(
        alert="ForewarnAlertsOverBudget",
        raising=for_good("alerts_raised_7d", 20, horizon="24h") | for_good("alerts_budgeted_7d", 9),
        quiet=for_good("alerts_raised_7d", 9, horizon="24h") | for_good("alerts_budgeted_7d", 1),
        after="90m",
    ),
    Case(
        alert="ForewarnInputsDrifted",
        raising=for_good("drift_alarms", 3, model_version="m/1", kind="feature"),
        quiet=for_good("drift_alarms", 1, model_version="m/1", kind="calibration"),
        after="90m",
    ),
    Case(
        alert="ForewarnCalibrationDrifted",
        raising=for_good("drift_alarms", 1, model_version="m/1", kind="calibration"),
        quiet=for_good("drift_alarms", 0, model_version="m/1", kind="calibration"),
        after="90m",
    ),
    Case(
        alert="ForewarnOutcomesNotJudged",
        raising=for_good("live_week_timestamp_seconds", -21 * 86400),
        quiet=for_good("live_week_timestamp_seconds", -20 * 86400),
        after="90m",
    ),
)

HOOK_CASES: Final = (
    Case(
        alert="ForewarnHookSilent",
        raising=ROUND,
        quiet=for_good("hook_round_timestamp_seconds", 1200),
        after="40m",
    ),
    Case(
        alert="ForewarnHookSilent",
        raising={},
        quiet=for_good("hook_round_timestamp_seconds", 600),
        after="20m",
    ),
    Case(
        alert="ForewarnHookFailing",
        raising=ROUND | for_good("hook_failed_rounds", 3),
        quiet=ROUND | for_good("hook_failed_rounds", 2),
    ),
    Case(
        alert="ForewarnHookLedgerUnreadable",
        raising=for_good("hook_ledger_readable", 0),
        quiet=for_good("hook_ledger_readable", 1),
    ),
    Case(
        alert="ForewarnHookBurst",
        raising=for_good("hook_stopped", 1, why="burst"),
        quiet=for_good("hook_stopped", 1, why="request"),
        after="1m",
    ),
    Case(
        alert="ForewarnHookStopped",
        raising=for_good("hook_stopped", 1, why="kill_switch"),
        quiet=for_good("hook_stopped", 1, why="burst"),
        after="90m",
    ),
    Case(
        alert="ForewarnHookUnclear",
        raising=for_good("hook_questions", 1, why="ambiguous"),
        quiet=for_good("hook_questions", 1, why="stuck"),
    ),
    Case(
        alert="ForewarnHookStuckDrain",
        raising=for_good("hook_questions", 1, why="notice"),
        quiet=for_good("hook_questions", 1, why="return"),
    ),
    Case(
        alert="ForewarnHookAsks",
        raising=for_good("hook_questions", 1, why="repair"),
        quiet=for_good("hook_questions", 1, why="stuck"),
        after="5h",
    ),
    Case(
        alert="ForewarnHookCapped",
        raising=for_good("hook_nodes_capped", 1),
        quiet=for_good("hook_nodes_capped", 0),
        after="3h",
    ),
)
