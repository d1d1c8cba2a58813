"""When Dagster's daemons were last alive, as its instance has it.

Nothing is defined or run here: `forewarn doctor` asks.
"""

from datetime import UTC, datetime
from pathlib import Path

from features.errors import SourceError
from pipelines.defs.dagster_instance import cause_of, instance_errors, opened


def last_heartbeats(home: Path) -> dict[str, datetime]:
    """The last sign of life of each daemon.

    Args:
        home: Dagster's home folder, with its `dagster.yaml`.

    Raises:
        SourceError: The instance cannot be read.
    """
    try:
        with opened(home) as instance:
            return {
                kind: datetime.fromtimestamp(one.timestamp, UTC)
                for kind, one in instance.get_daemon_heartbeats().items()
            }
    except instance_errors() as error:
        said = f"Dagster's instance in {home} cannot be read: {cause_of(error)}"
        raise SourceError(said) from error
