"""Rules of one run: what a reading is, whose fault a failure is, and logs that rotate meanwhile."""

import gzip
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.errors import SettingsError
from features.raw_tables import RAW_KERNEL_LOG
from pipelines.landing import landed as landing_module
from pipelines.landing.ingest import ingest, landing_of
from pipelines.landing.quarantine import render_quarantine
from pipelines.landing.schema import LandingError
from pipelines.settings import Settings
from pipelines.sources.site.listing import SiteInputs

T0 = datetime(2026, 1, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)
NOW = T0 + 9 * HOUR


def line(minute: int) -> str:
    at = (T0 + timedelta(minutes=minute)).isoformat()
    return f"{at} n1 kernel: NVRM: Xid (PCI:0000:1b:00): 79, pid={minute}, name=a, {'x' * 9}\n"


def site_in(folder: Path) -> Settings:
    (folder / "logs").mkdir()
    (folder / "inputs.yaml").write_text(
        "site: lab\ntime_zone: UTC\ninputs:\n"
        "  - {kind: kernel_log, path: 'logs/*.log*', name: kernel, may_be_absent: true}\n"
        "  - {kind: sacct, path: 'jobs/*.txt', may_be_absent: true}\n"
    )
    return Settings(site="lab", inputs=folder / "inputs.yaml", data_root=folder / "data", start=T0)


@pytest.fixture
def site(tmp_path: Path) -> Settings:
    return site_in(tmp_path)


def log_file(site: Settings, name: str = "n1.log") -> Path:
    return site.inputs.parent / "logs" / name


@pytest.mark.parametrize("content", ["", line(1)])
def test_equal_files_that_are_new_in_the_same_run_are_read_once(
    site: Settings, content: str
) -> None:
    for name in ("n1.log", "n1__copy.log"):
        log_file(site, name).write_text(content)
    outcome = ingest(site, now=NOW)[0]
    assert (outcome.n_landed, outcome.n_known, outcome.failures) == (1, 1, [])
    assert landing_of(site).read(RAW_KERNEL_LOG).height == bool(content)


def test_equal_bytes_are_read_again_where_the_name_tells_who_they_are_about(
    site: Settings,
) -> None:
    bare = "<4>[ 12.5] NVRM: Xid (PCI:0000:1b:00): 79, pid=1, name=a, text\n"
    log_file(site).write_text(bare)
    log_file(site, "n2.log").write_text(bare)
    ingest(site, now=NOW)
    log_file(site, "n3.log").write_text(bare)
    ingest(site, now=NOW)
    rows = landing_of(site).read(RAW_KERNEL_LOG)
    assert rows["node"].to_list() == ["n1", "n2", "n3"]


def test_a_file_that_goes_after_it_was_listed_holds_up_no_other(
    site: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_file(site).write_text(line(1))
    listed = SiteInputs.files
    gone = log_file(site, "gone.log")
    monkeypatch.setattr(SiteInputs, "files", lambda self, spec: (gone, *listed(self, spec)))
    outcome = ingest(site, now=NOW, only=["kernel"])[0]
    assert (outcome.n_landed, len(outcome.failures)) == (1, 1)
    assert "gone.log" in outcome.failures[0]


def test_a_failure_is_forgotten_when_its_file_can_be_read_or_is_gone(site: Settings) -> None:
    site.inputs.write_text(site.inputs.read_text().replace(", may_be_absent: true", ""))
    assert all(outcome.failures for outcome in ingest(site, now=NOW))  # no file matches
    assert landing_of(site).journal.refusals().height == 2
    log_file(site).write_text(line(1))
    jobs = site.inputs.parent / "jobs"
    jobs.mkdir()
    (jobs / "a.txt").write_text("JobID|State|Submit\n1|FAILED|2026-01-05T00:05:00\n")
    (jobs / "b.txt").write_text("no header at all\n")
    ingest(site, now=NOW)
    assert [Path(name).name for name in landing_of(site).journal.refusals()["origin"]] == ["b.txt"]
    (jobs / "b.txt").unlink()
    ingest(site, now=NOW)
    assert landing_of(site).journal.refusals().is_empty()


def test_a_name_that_is_no_text_is_a_failure_of_its_file_alone(site: Settings) -> None:
    log_file(site).write_text(line(1))
    Path(os.fsdecode(os.fsencode(log_file(site).parent) + b"/\xff.log")).write_text(line(2))
    outcome = ingest(site, now=NOW)[0]
    assert (outcome.n_landed, len(outcome.failures)) == (1, 1)
    assert "the name is not UTF-8" in outcome.failures[0]
    assert "the name is not UTF-8" in render_quarantine(site)


@pytest.mark.parametrize("moved", ["", "file", "input"])
def test_rows_of_a_corrected_time_zone_replace_the_old_ones(site: Settings, moved: str) -> None:
    text = "Jan  5 10:00:00 n1 kernel: NVRM: Xid (PCI:0000:1b:00): 79, pid=1, name=a, text\n"
    log_file(site).write_text(text)
    ingest(site, now=NOW)
    listing = site.inputs.read_text().replace("time_zone: UTC", "time_zone: Asia/Tokyo")
    if moved == "file":
        log_file(site).rename(log_file(site, "n1__old.log"))
    if moved == "input":
        listing = listing.replace("name: kernel", "name: logs")
    site.inputs.write_text(listing)
    ingest(site, now=NOW)
    assert landing_of(site).read(RAW_KERNEL_LOG)["ts"].to_list() == [T0 + HOUR]


def test_a_mistake_in_the_list_is_found_before_anything_lands(site: Settings) -> None:
    log_file(site).write_text(line(1))
    (site.inputs.parent / "key").write_text("short")
    with site.inputs.open("a") as listing:
        listing.write("hide_names: {key_file: key}\n")
    with pytest.raises(SettingsError, match="key: the key that hides names has 5 bytes"):
        ingest(site, now=NOW)
    assert not site.landing_root.exists()


def test_a_full_disk_stops_the_run_and_is_blamed_on_no_input(
    site: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_file(site).write_text(line(1))

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(landing_module, "write_table", full)
        with pytest.raises(LandingError, match="No space left"):
            ingest(site, now=NOW)
    assert landing_of(site).journal.refusals().is_empty()
    assert ingest(site, now=NOW)[0].n_landed == 1


STEPS = st.lists(
    st.one_of(st.integers(1, 300), st.sampled_from(["rotate", "pack", "copy", "ingest"])),
    max_size=25,
)


@settings(max_examples=15, deadline=None)
@given(steps=STEPS)
def test_a_log_that_is_read_while_it_grows_rotates_and_is_packed_gives_each_line_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int | str]
) -> None:
    text = "".join(line(minute) for minute in range(20)).encode()
    whole = site_in(tmp_path_factory.mktemp("whole"))
    log_file(whole).write_bytes(text)
    ingest(whole, now=NOW)
    cut, at = site_in(tmp_path_factory.mktemp("cut")), 0
    live = log_file(cut)
    for step in [*steps, len(text), "ingest"]:
        if isinstance(step, int):
            with live.open("ab") as file:
                file.write(text[at : at + step])
            at = min(at + step, len(text))
        elif step == "ingest":
            ingest(cut, now=NOW)
        else:
            _move(step, live, is_whole=text[:at].endswith(b"\n"))
    lines = [landing_of(one).read(RAW_KERNEL_LOG).drop("ingested_at") for one in (whole, cut)]
    assert lines[1].equals(lines[0])


def _move(step: int | str, live: Path, *, is_whole: bool) -> None:
    """What logrotate does: it moves or packs logs that are at the end of a line."""
    rotated = live.with_name("n1.log.1")
    if step == "rotate" and live.exists() and is_whole and not rotated.exists():
        live.rename(rotated)
    elif step == "pack" and rotated.exists():
        number = len(list(live.parent.glob("*.gz"))) + 2
        packed = gzip.compress(rotated.read_bytes(), mtime=0)
        live.with_name(f"n1.log.{number}.gz").write_bytes(packed)
        rotated.unlink()
    elif step == "copy" and rotated.exists():
        live.with_name("n1__copy.log").write_bytes(rotated.read_bytes())


@pytest.mark.parametrize("packed", [False, True])
def test_a_line_that_was_half_written_when_read_is_one_line_after_the_log_rotated(
    site: Settings, packed: bool
) -> None:
    log_file(site).write_text(line(1) + line(2)[:-5])
    ingest(site, now=NOW)
    text = (line(1) + line(2)).encode()
    name = "n1.log.1.gz" if packed else "n1.log.1"
    log_file(site, name).write_bytes(gzip.compress(text) if packed else text)
    log_file(site).write_text(line(3))
    ingest(site, now=NOW)
    lines = landing_of(site).read(RAW_KERNEL_LOG)["line"].to_list()
    assert lines == [line(minute).rstrip() for minute in (1, 2, 3)]


def test_a_log_that_was_packed_is_known_and_one_that_breaks_off_is_replaced_when_whole(
    site: Settings,
) -> None:
    packed = gzip.compress("".join(line(minute) for minute in range(20)).encode(), 0)
    log_file(site, "n1.log.2.gz").write_bytes(packed[:1000])
    ingest(site, now=NOW)
    assert landing_of(site).journal.refusals().height == 1
    log_file(site, "n1.log.2.gz").write_bytes(packed)
    ingest(site, now=NOW)
    assert landing_of(site).journal.refusals().is_empty()
    assert landing_of(site).read(RAW_KERNEL_LOG).height == 20
    log_file(site, "n1.log.2").write_bytes(gzip.decompress(packed))
    assert ingest(site, now=NOW)[0].n_landed == 0
