"""What is tried again within a run, and what is not: sources may come back, mistakes do not.

Hours whose run failed for good are planned again in `pipelines.orchestration.hour_plan`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import dagster as dg

from features.errors import DataError, SettingsError, StructureError
from pipelines.landing.schema import LandingError

SOURCE_RETRIES: Final = dg.RetryPolicy(
    max_retries=2, delay=10, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS
)
"""Half a minute in all: a server that is restarted; for longer the hour's own waits are there."""


@contextmanager
def own_mistakes_are_final() -> Iterator[None]:
    """Ends the run at once where trying again cannot help.

    Raises:
        dagster.Failure: In place of an error of settings, tables or data.
    """
    try:
        yield
    except LandingError:
        raise  # the disk: there may be room again
    except (SettingsError, StructureError, DataError) as error:
        raise dg.Failure(description=str(error), allow_retries=False) from error
