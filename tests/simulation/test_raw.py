import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from features.errors import DataError
from simulation.fleet.generate import Fleet, simulate_fleet
from simulation.fleet.observe import observe_fleet
from simulation.fleet.regime import Regime
from simulation.writers.raw import check_folders, simulate_to, text_nodes, write_fleet

SAMPLES = Path(__file__).parents[2] / "data_samples"


@pytest.fixture(scope="module")
def tiny(demo: Regime) -> Fleet:
    return simulate_fleet(demo, seed=7, nodes=2, days=2)


@pytest.fixture(scope="module")
def written(tiny: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet")
    write_fleet(tiny, folder / "raw", folder / "truth")
    return folder


def _contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_the_same_fleet_is_written_byte_by_byte_the_same(
    written: Path, demo: Regime, tmp_path: Path
) -> None:
    again = simulate_fleet(demo, seed=7, nodes=2, days=2)
    write_fleet(again, tmp_path / "raw", tmp_path / "truth")
    assert _contents(tmp_path) == _contents(written)


@pytest.mark.slow
def test_any_number_of_workers_writes_the_same_bytes(demo: Regime, tmp_path: Path) -> None:
    fleet = simulate_fleet(demo, seed=7, nodes=200, days=0.05)
    for workers in (1, 2):
        folder = tmp_path / str(workers)
        write_fleet(fleet, folder / "raw", folder / "truth", workers=workers)
    assert len(list((tmp_path / "1" / "raw" / "kernel").iterdir())) == 2
    assert _contents(tmp_path / "1") == _contents(tmp_path / "2")


def test_text_and_parquet_tell_the_same(tiny: Fleet, written: Path, tmp_path: Path) -> None:
    short = simulate_fleet(tiny.regime, seed=7, nodes=2, days=0.1)
    write_fleet(short, tmp_path / "raw", tmp_path / "truth", telemetry="exposition")
    assert not (tmp_path / "raw" / "telemetry").exists()
    scrapes = sorted((tmp_path / "raw" / "dcgm").iterdir())
    n_samples = sum(int(seen.telemetry.at_s.size) for seen in observe_fleet(short))
    shown = sum(path.read_text().count("DCGM_FI_DEV_SM_CLOCK{gpu") for path in scrapes)
    assert shown == n_samples


@pytest.mark.slow
def test_the_sample_data_are_what_the_generator_writes(tmp_path: Path) -> None:
    stated = json.loads((SAMPLES / "demo" / "provenance.json").read_text(encoding="utf-8"))
    simulate_to(tmp_path / "demo", truth_dir=tmp_path / "demo_truth", regime="demo")
    made = json.loads((tmp_path / "demo" / "provenance.json").read_text(encoding="utf-8"))
    if made["libraries"] != stated["libraries"]:
        pytest.skip(f"the samples were written with {stated['libraries']}, not these releases")
    for name in ("demo", "demo_truth"):
        assert _contents(tmp_path / name) == _contents(SAMPLES / name)


def test_provenance_has_the_checksum_of_every_file(written: Path) -> None:
    for name in ("raw", "truth"):
        folder = written / name
        stated = json.loads((folder / "provenance.json").read_text(encoding="utf-8"))
        assert set(stated["files"]) == set(_contents(folder)) - {"provenance.json"}
    assert stated["hazards"] == "x60"


def test_sample_data_are_small_enough_to_keep() -> None:
    size = sum(path.stat().st_size for path in SAMPLES.rglob("*") if path.is_file())
    assert size < 15_000_000


def test_every_sample_is_written_once_but_for_the_overlapping_hour(
    tiny: Fleet, written: Path
) -> None:
    csv_node, scrape_node = (tiny.nodes[i].node.name for i in text_nodes(tiny))
    rows = pl.concat(
        pl.read_parquet(path, columns=["UUID", "Hostname", "timestamp"])
        for path in sorted((written / "raw" / "telemetry").glob("*/*.parquet"))
    )
    last_day = datetime(2026, 1, 2, tzinfo=UTC)
    assert rows.filter(pl.col("Hostname") == csv_node)["timestamp"].max() < last_day
    csv_lines = sum(
        path.read_text(encoding="utf-8").count("GPU-") - 3
        for path in (written / "raw" / "nvidia_smi").iterdir()
    )
    scrapes = list((written / "raw" / "dcgm").iterdir())
    assert {path.name.split("__")[0] for path in scrapes} == {scrape_node}
    in_parquet = rows.filter(
        pl.col("Hostname") == scrape_node,
        pl.col("timestamp") >= datetime(2026, 1, 2, 22, tzinfo=UTC),
    )["timestamp"]
    assert in_parquet.max() < datetime(2026, 1, 2, 23, tzinfo=UTC)
    assert in_parquet.n_unique() > 0
    n_samples = sum(int(seen.telemetry.at_s.size) for seen in observe_fleet(tiny))
    scraped = sum(path.read_text().count("DCGM_FI_DEV_GPU_TEMP{gpu") for path in scrapes) - 3
    assert rows.height + csv_lines + scraped == n_samples + in_parquet.len()


def test_samples_of_a_gpu_stand_together_by_time(written: Path) -> None:
    path = sorted((written / "raw" / "telemetry").glob("*/*.parquet"))[0]
    keys = pl.read_parquet(path, columns=["UUID", "timestamp"])
    runs = keys["UUID"].rle_id().n_unique()
    assert runs == keys["UUID"].n_unique() == 16
    assert keys.group_by("UUID").agg(pl.col("timestamp").diff().min() > 0)["timestamp"].all()


def test_raw_files_say_nothing_of_the_truth(written: Path) -> None:
    for name, content in _contents(written / "raw").items():
        assert b"precursor" not in content, name
        assert b"decoy" not in content, name
        assert b"truth" not in content, name


def test_an_earlier_fleet_is_replaced_but_nothing_else(tiny: Fleet, tmp_path: Path) -> None:
    raw, truth = tmp_path / "raw", tmp_path / "truth"
    write_fleet(tiny, raw, truth)
    (raw / "stale.csv").write_text("x", encoding="utf-8")
    write_fleet(tiny, raw, truth)
    assert not (raw / "stale.csv").exists()
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("x", encoding="utf-8")
    before = _contents(tmp_path)
    with pytest.raises(DataError, match="mine"):
        write_fleet(tiny, mine, truth)
    assert _contents(tmp_path) == before
    (mine / "provenance.json").write_text("{}", encoding="utf-8")  # another program's
    with pytest.raises(DataError, match="mine"):
        write_fleet(tiny, mine, truth)
    assert (mine / "thesis.txt").exists()


def test_an_unfinished_fleet_is_replaced_but_no_folder_of_that_name(
    tiny: Fleet, tmp_path: Path
) -> None:
    mine = tmp_path / "truth.partial"
    mine.mkdir()
    (mine / "thesis.txt").write_text("x", encoding="utf-8")
    with pytest.raises(DataError, match="truth.partial exists"):
        write_fleet(tiny, tmp_path / "raw", tmp_path / "truth")
    assert _contents(tmp_path) == {"truth.partial/thesis.txt": b"x"}
    (mine / "provenance.json").touch()
    write_fleet(tiny, tmp_path / "raw", tmp_path / "truth")
    assert {path.name for path in tmp_path.iterdir()} == {"raw", "truth"}


def test_a_run_that_fails_leaves_nothing_behind(
    tiny: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill_up(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("simulation.writers.raw.write_truth", fill_up)
    with pytest.raises(DataError, match=r"raw.*No space left"):
        write_fleet(tiny, tmp_path / "raw", tmp_path / "truth")
    assert not list(tmp_path.iterdir())


def test_a_file_or_the_current_folder_is_no_place_for_a_fleet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "here" / "in").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here" / "in")
    for name, word in (("../../file", "is a file"), (".", "current"), ("..", "current")):
        with pytest.raises(DataError, match=word):
            check_folders(Path(name), tmp_path / "truth")


def test_a_mount_is_no_place_for_a_fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "disk").mkdir()
    monkeypatch.setattr(Path, "is_mount", lambda path: path.name == "disk")
    with pytest.raises(DataError, match=r"disk is a mount.*folder in it"):
        check_folders(tmp_path / "disk", tmp_path / "truth")
    check_folders(tmp_path / "disk" / "raw", tmp_path / "truth")


def test_a_link_to_a_folder_stays_a_link(tiny: Fleet, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "raw").symlink_to("disk")
    write_fleet(tiny, tmp_path / "raw", tmp_path / "truth")
    assert (tmp_path / "raw").is_symlink()
    assert (tmp_path / "disk" / "provenance.json").is_file()


_KILLED = """
import os, signal, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from simulation.writers.raw import _end_with_parent
pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_end_with_parent)
pool.submit(os.getpid).result()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_workers_end_when_their_parent_is_killed() -> None:
    # A worker holds the pipes open: only once it is gone is their end seen.
    done = subprocess.run(
        [sys.executable, "-c", _KILLED], capture_output=True, timeout=300, check=False
    )
    assert done.returncode == -9


@pytest.mark.parametrize(
    ("raw", "truth"),
    [("a", "a"), ("a", "a/truth"), ("b/raw", "b"), ("a", "a.partial"), ("a.partial/raw", "a")],
)
def test_truth_may_not_lie_with_the_raw_files(
    tiny: Fleet, tmp_path: Path, raw: str, truth: str
) -> None:
    with pytest.raises(DataError, match="side by side"):
        write_fleet(tiny, tmp_path / raw, tmp_path / truth)
    assert not list(tmp_path.iterdir())
