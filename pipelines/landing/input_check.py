"""`forewarn check-inputs`: lands every file in a folder that is thrown away, and says what came.

It takes the way of `forewarn ingest`, so what it says is what ingest will do; servers are not
asked.
"""

import tempfile
from datetime import UTC, datetime
from pathlib import Path

from features.errors import ForewarnError
from pipelines.landing.ingest import landing_of, read_static
from pipelines.landing.ingest_report import outcome_lines
from pipelines.landing.ingest_run import InputOutcome, Run, SilentProgress
from pipelines.landing.landed import LANDED_TABLES, Landing
from pipelines.landing.quarantine import all_refusals, refusal_lines
from pipelines.settings import Settings
from pipelines.sources.site.input_base import FileInput
from pipelines.sources.site.listing import SiteInputs, load_inputs
from pipelines.storage.store import TableStore

_SHOWN = 20


def check_inputs(path: Path) -> tuple[str, int]:
    """Reads every file once and words the result.

    Args:
        path: YAML file that lists the inputs.

    Returns:
        One line per input, rows by table, and what was refused by rule with an example; and the
        exit code: 1 where an input could not be read, else 0.

    Raises:
        ForewarnError: The list cannot be read.
    """
    inputs, now = load_inputs(path), datetime.now(UTC)
    with tempfile.TemporaryDirectory(prefix="forewarn-check-") as folder:
        settings = Settings(
            site=inputs.spec.site,
            inputs=path,
            data_root=Path(folder),
            start=datetime(1, 1, 1, tzinfo=UTC),
        )
        landing = landing_of(settings)
        outcomes = _land(settings, inputs, landing, now)
        rows = {key: landing.count(table) for key, table in LANDED_TABLES.items()}
        try:
            static = read_static(settings, TableStore(settings.store_root), now=now)
        except ForewarnError:
            static = {}  # the failure is in an outcome already
        rows |= {key: frame.height for key, frame in static.items()}
        refused = all_refusals(settings)
    lines = outcome_lines(outcomes)
    lines += ["", "Rows by table:"]
    lines += [f"  {key:<24}{count:>12,}" for key, count in rows.items() if count]
    lines += [
        f"Not asked: {spec.label}" for spec in inputs.spec.inputs if not isinstance(spec, FileInput)
    ]
    if not refused.is_empty():
        lines += ["", *refusal_lines(refused, limit=_SHOWN)]
    failed = any(outcome.failures for outcome in outcomes)
    return "\n".join(lines), 1 if failed else 0


def _land(
    settings: Settings, inputs: SiteInputs, landing: Landing, now: datetime
) -> list[InputOutcome]:
    run, outcomes = Run(settings, inputs, landing, now, SilentProgress()), []
    with landing.writer() as writer:
        for spec in inputs.spec.inputs:
            if isinstance(spec, FileInput):
                outcomes.append(InputOutcome(spec.label, spec.kind))
                run.land_files(spec, writer, outcomes[-1])
    return outcomes
