"""The `retention` section of the settings: how long each kind of data is kept.

What is removed, and how, is in `pipelines.retention.chores`; whether the numbers fit what features,
labels and training need is checked in `pipelines.retention.guard`.
"""

from typing import Annotated

from pydantic import Field

from pipelines.sections.section import Section

Days = Annotated[int, Field(ge=1, le=36_500)]


class RetentionSettings(Section):
    """How long data is kept, in days before the end of the record (or now, while it goes on).

    Published files have settings of their own (`serving.published_days`), and so has the history
    in the score database (`score_database.history_days`). The hook's ledger is kept for good.

    Attributes:
        landing_days: Telemetry, kernel lines and coverage as received.
        telemetry_days: core/gpu_telemetry; features can be built anew for that long.
        history_days: Health events, jobs and their output, node states, sights of devices,
            coverage: what labels and history features rest on.
        metrics_days: What training jobs reported of each step.
        matrix_days: The feature matrix and labels: what training can reach.
        matrix_full_days: Of these, days of which every hour is kept.
        matrix_every_h: Of older days one hour in so many is kept; 1: every hour.
        scores_days: Every score, as stored beside the published files.
        outcomes_days: Alerts and what became of them, in tables and score database.
        quarantine_days: Refused records, with their examples.
        models_days: Model versions that are neither champion, candidate, previous nor pinned.
        models_kept: Newest versions of a model that are kept at any age.
        dagster_days: Runs and events of Dagster.
        spool_days: Parts, and output of its jobs, that a scaled-out run left behind.
    """

    landing_days: Days = 30
    telemetry_days: Days = 200
    history_days: Days = 800
    metrics_days: Days = 180
    matrix_days: Days = 400
    matrix_full_days: Days = 120
    matrix_every_h: int = Field(default=1, ge=1, le=24)
    scores_days: Days = 180
    outcomes_days: Days = 800
    quarantine_days: Days = 90
    models_days: Days = 180
    models_kept: int = Field(default=10, ge=1, le=10_000)
    dagster_days: Days = 90
    spool_days: Days = 3
