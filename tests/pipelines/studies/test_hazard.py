"""Rules of `forewarn hazard`: survival from failures and stays alone."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from features.errors import SettingsError
from features.tables import CORE_INCIDENTS, CORE_INVENTORY
from pipelines.settings import Settings
from pipelines.storage.store import TableStore
from pipelines.studies.hazard import days_of, hazard_site

T0 = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
N_GPUS, N_LEMONS = 40, 8


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Settings:
    """Forty GPUs over 180 days, of which eight fail every twelve days, each for an hour."""
    folder = tmp_path_factory.mktemp("site")
    settings = Settings.model_validate(
        {
            "site": "lab",
            "inputs": folder / "inputs.yaml",
            "data_root": folder / "data",
            "start": T0,
            "end": T0 + 180 * DAY,
            "split": {"train_until": T0 + 110 * DAY, "valid_until": T0 + 150 * DAY},
            "training": {"min_data_in_leaf": 20, "rounds": 40},
        }
    )
    store = TableStore(settings.store_root)
    stays = [
        {"gpu_uuid": f"gpu-{g:02d}", "node": f"node-{g // 8}", "slot": f"{g % 8}", "valid_from": T0}
        for g in range(N_GPUS)
    ]
    store.write(CORE_INVENTORY, filled(CORE_INVENTORY, stays), span=None)
    failures = [
        {
            "incident_id": f"inc-{g}-{day}",
            "entity_kind": "gpu",
            "entity_id": f"gpu-{g:02d}",
            "node": f"node-{g // 8}",
            "start": T0 + day * DAY + g * timedelta(hours=2),
            "end": T0 + day * DAY + (g + 1) * timedelta(hours=2),
            "fault_type": "off_bus",
            "evidence": "made up",
            "detected_by": "test",
            "catalogue_version": "t1",
        }
        for g in range(N_LEMONS)
        for day in range(3 + g, 180, 12)
    ]
    store.write(CORE_INCIDENTS, filled(CORE_INCIDENTS, failures), span=None)
    return settings


def filled(contract: Any, rows: list[dict[str, Any]]) -> pl.DataFrame:
    names = contract.schema.names()
    return pl.DataFrame(
        [{name: row.get(name) for name in names} for row in rows], schema=contract.schema
    )


def run(site: Settings, out: Path, days: tuple[int, ...]) -> tuple[str, list[str]]:
    told: list[str] = []
    said = hazard_site(site, days=days, out=out, now=T0 + 300 * DAY, say=told.append)
    return said, told


@pytest.fixture(scope="module")
def made(site, tmp_path_factory) -> tuple[pl.DataFrame, str, list[str]]:
    out = tmp_path_factory.mktemp("out") / "survival.csv"
    said, told = run(site, out, (7, 14, 365))
    return pl.read_csv(out), said, told


def test_those_that_fail_again_and_again_are_the_least_likely_to_last(made) -> None:
    risks, said, _ = made
    assert risks.height == N_GPUS
    assert set(risks["entity_id"].head(N_LEMONS)) == {f"gpu-{g:02d}" for g in range(N_LEMONS)}
    assert said.splitlines()[1].strip().startswith(risks["entity_id"][0])


def test_survival_falls_with_time_and_is_a_probability(made) -> None:
    week, fortnight = made[0]["survival_7d"], made[0]["survival_14d"]
    assert ((fortnight <= week) & week.is_between(0, 1) & fortnight.is_between(0, 1)).all()


def test_a_horizon_longer_than_the_record_is_left_out_and_named(made, site, tmp_path) -> None:
    assert made[0].columns == ["entity_id", "node", "as_of", "survival_7d", "survival_14d"]
    assert any("shorter: 365 d" in line for line in made[2])
    with pytest.raises(SettingsError, match="lasts 110 d, less than 365 d"):
        run(site, tmp_path / "none.csv", (365,))


def test_expected_failures_are_held_against_those_that_came_after_validation(made) -> None:
    line = next(one for one in made[1].splitlines() if one.strip().startswith("within 7 d"))
    expected, observed = (float(line.split(", ")[1].split()[0]), int(line.split()[-2]))
    assert observed > 0
    assert expected == pytest.approx(observed, rel=0.35)


def test_nothing_learned_depends_on_what_came_after_validation(site, made, tmp_path) -> None:
    store = TableStore(site.store_root)
    incidents = store.read(CORE_INCIDENTS)
    other = site.model_copy(update={"data_root": tmp_path / "data"})
    copy = TableStore(other.store_root)
    copy.write(CORE_INVENTORY, store.read(CORE_INVENTORY), span=None)
    end = site.split.valid_until
    early = incidents.filter(pl.col("start") < end)
    copy.write(CORE_INCIDENTS, early, span=None)
    cut = {"end": end, "split": site.split}
    short = site.model_copy(update=cut), other.model_copy(update=cut)
    for number, one in enumerate(short):
        run(one, tmp_path / f"{number}.csv", (7, 14))
    assert (tmp_path / "0.csv").read_text() == (tmp_path / "1.csv").read_text()


@pytest.mark.parametrize("wrong", ["", "7,", "0", "1.5", "week", "-3"])
def test_days_must_be_whole_numbers(wrong) -> None:
    with pytest.raises(SettingsError, match="whole numbers"):
        days_of(wrong)


def test_without_a_split_the_settings_are_refused(site, tmp_path) -> None:
    with pytest.raises(SettingsError, match="split.train_until"):
        run(site.model_copy(update={"split": None}), tmp_path / "none.csv", (7,))
