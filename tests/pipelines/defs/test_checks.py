"""Rules of which tables have which checks, and of checks at a site where nothing is made yet."""

from pathlib import Path

import dagster as dg

from features.tables import CORE_GPU_TELEMETRY, CORE_INVENTORY, TABLE_BY_KEY
from pipelines.defs.checks import Look, checks_of
from tests.pipelines.defs.site_world import HOUR, T0, world

TABLES = sorted(TABLE_BY_KEY)


def test_only_a_site_without_gpus_is_wrong_to_have_an_empty_table() -> None:
    asked = {key for key in TABLES for one in checks_of(TABLE_BY_KEY[key]) if one.name == "filled"}
    assert asked == {CORE_INVENTORY.asset_key}


def test_before_anything_is_made_every_check_has_a_word_and_nobody_is_woken_by_most(
    tmp_path: Path,
) -> None:
    with world(tmp_path) as site:
        look, failing = Look(site.settings, T0, dg.DagsterInstance.ephemeral()), set()
        for key in TABLES:
            for check in checks_of(TABLE_BY_KEY[key]):
                verdict = check.run(look)
                assert verdict.words, check.key
                failing |= set() if verdict.is_passed else {check.name}
    # `volume` warns; the others fail only where their own table has just been made and is empty.
    assert failing <= {"fresh", "filled", "volume"}


def test_telemetry_that_came_without_rows_is_not_fresh(tmp_path: Path) -> None:
    with world(tmp_path) as site:
        site.core(0, 3)
        (fresh,) = (one for one in checks_of(CORE_GPU_TELEMETRY) if one.name == "fresh")
        verdict = fresh.run(Look(site.settings, T0 + 3 * HOUR, site.instance))
        assert not verdict.is_passed
        assert "no row of the last 2.0 h" in verdict.words
