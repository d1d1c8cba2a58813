"""Dagster resources: the installation's settings and clock, and the mark of a run at work.

No logic: the functions that use them take plain values.
"""

from datetime import UTC, datetime
from pathlib import Path

import dagster as dg

from features.catalogue import FaultCatalogue
from pipelines.orchestration.run_marks import mark
from pipelines.settings import Settings, load_settings
from pipelines.sources.catalogue import load_catalogue
from pipelines.storage.store import TableStore


class Installation(dg.ConfigurableResource[Settings]):
    """One installation: its settings file and, for tests and replays, a fixed clock.

    Attributes:
        settings_file: The settings file.
        frozen_now: ISO time to take for "now"; empty: the machine's clock.
    """

    settings_file: str
    frozen_now: str = ""

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """Marks the run as at work: should its process be killed, that is found at once."""
        if context.run is None:
            return
        try:
            mark(self.settings.run_marks_dir, context.run.run_id)
        except OSError as error:
            context.log.warning("the run cannot be marked as at work: %s", error)  # type: ignore[union-attr]

    @property
    def settings(self) -> Settings:
        """The settings, read anew in every run."""
        return load_settings(Path(self.settings_file))

    @property
    def now(self) -> datetime:
        """Now, UTC."""
        if self.frozen_now:
            return datetime.fromisoformat(self.frozen_now)
        return datetime.now(UTC)

    @property
    def store(self) -> TableStore:
        """The Parquet store."""
        return TableStore(self.settings.store_root)

    @property
    def catalogue(self) -> FaultCatalogue:
        """The fault catalogue of this site."""
        settings = self.settings
        return load_catalogue(settings.fault_catalogue, overrides=settings.fault_overrides)
