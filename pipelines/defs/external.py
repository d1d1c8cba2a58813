"""Tells Dagster's instance of ticks that were scored outside of it.

Optional: `serving.report_to_dagster`. Scoring is in `pipelines.serving`.
"""

import os
from collections.abc import Callable

import dagster as dg

from features.errors import SettingsError, SourceError
from pipelines.defs.dagster_instance import cause_of, home_of_environment, instance_errors, opened
from pipelines.flow.steps import TICK
from pipelines.orchestration.dagster_home import dagster_environment
from pipelines.serving.scorer import TickReport
from pipelines.settings import Settings


def reporter(settings: Settings) -> Callable[[TickReport], None]:
    """What adds materialisations of the score assets to the instance that DAGSTER_HOME names.

    Args:
        settings: The installation.

    Returns:
        The function; it raises SourceError where the instance cannot be told.

    Raises:
        SettingsError: Its data partitions are days: an hour is no whole one. Or the password of
            Dagster's database cannot be read.
    """
    if settings.data_partition != "hour":
        raise SettingsError("serving.report_to_dagster needs data_partition hour")
    os.environ.update(dagster_environment(settings))  # its file names the password's variable

    def report(made: TickReport) -> None:
        partition = (made.as_of - TICK).strftime("%Y-%m-%d-%H:%M")
        try:
            with opened(home_of_environment()) as instance:
                for name, rows in (("gpu_scores", made.n_gpus), ("node_scores", made.n_nodes)):
                    instance.report_runless_asset_event(
                        dg.AssetMaterialization(
                            asset_key=["scores", name],
                            partition=partition,
                            metadata={"entities": rows, "by": "forewarn score"},
                        )
                    )
        except instance_errors() as error:
            raise SourceError(f"Dagster was not told of the tick: {cause_of(error)}") from error

    return report
