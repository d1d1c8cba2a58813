"""Rules of what is tried again within a run."""

from pathlib import Path

import dagster as dg
import pytest

from features.errors import SettingsError
from pipelines.defs.retries import own_mistakes_are_final
from pipelines.landing.landed import Landing
from pipelines.landing.schema import LandingError


def test_another_ingest_is_waited_for_and_a_mistake_is_not(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    with (
        landing.writer(),
        pytest.raises(LandingError, match="another process is ingesting"),
        own_mistakes_are_final(),
        landing.writer(),
    ):
        pass
    with pytest.raises(dg.Failure, match="no such input"), own_mistakes_are_final():
        raise SettingsError("no such input")
