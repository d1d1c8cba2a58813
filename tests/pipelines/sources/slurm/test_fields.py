"""Single fields of Slurm: times, durations, GPUs in all spellings."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from features.errors import SourceError
from pipelines.sources.slurm.fields import (
    RefusedError,
    duration,
    gpu_count,
    job_and_step,
    job_state,
    moment,
    node_names,
)

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("gres/gpu:h100=8", 8),
        ("gres:gpu:8(IDX:0-7)", 8),
        ("gpu:h100:4(S:0-1)", 4),
        ("gres/gpu=8,gres/gpu:a100=8", 8),
        ("gres/gpu:a100=8,gres/gpu=8", 8),
        ("gres/gpu:a100=4,gres/gpu:h100=4", 8),
        ("gpu:4090:2", 2),  # a type that looks like a number
        ("gpu:nvidia_h100_80gb_hbm3:8(S:0-1),shard:64(S:0-1)", 8),
        ("gres/shard=4,gres/mps=100", 0),
        ("gpu:h100:no_consume:4", 4),
        ("gres:gpu", 1),
        ("gpu:h100:2(IDX:0,3),gpu:a100:1(IDX:4)", 3),
        ("GPU:8", 8),  # as gres.conf spells it
        ("7696487:4", 4),  # sacct before 20.11: the plugin's number instead of its name
        ("cpu=96,mem=1000G,node=1,billing=96", 0),
        ("gres/gpumem=80G,gres/gpuutil=50", 0),
        ("", None),
        ("N/A", None),
        ("(null)", None),
    ],
)
def test_gpus_are_counted_once_in_every_spelling(text, count):
    assert gpu_count(text) == count


@pytest.mark.parametrize("text", ["gres/gpu=many", "gres/gpu=-1", "gres/gpu=99999999999999"])
def test_an_absurd_number_of_gpus_is_refused(text):
    with pytest.raises(RefusedError):
        gpu_count(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("4-00:00:00", 4 * 86400),
        ("01:30:00", 5400),
        ("05:30", 330),
        ("90", 5400),  # minutes
        ("1-12", 129600),
        ("00:00.232", 0),
        ("UNLIMITED", None),
        ("Partition_Limit", None),
        ("INVALID", None),
        ("invalid", None),
        ("", None),
    ],
)
def test_durations(text, seconds):
    found = duration(text)
    assert (None if found is None else found / timedelta(seconds=1)) == seconds


def test_what_is_no_duration_is_refused():
    with pytest.raises(RefusedError, match="is not a duration"):
        duration("soon")


@pytest.mark.parametrize(
    "text",
    [
        "Unknown", "None", "INVALID", "N/A", "", "(null)", "0", "1970-01-01T01:00:00", "NONE",
        "unknown", "UNKNOWN", "Infinite", "NO_VAL", "4294967294", "4294967295",
    ],
)  # fmt: skip
def test_times_that_never_were_are_null(text):
    assert moment("End", text, BERLIN) is None


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2026-07-01T02:00:00", datetime(2026, 7, 1, tzinfo=UTC)),
        ("2025-10-26T02:30:00", datetime(2025, 10, 26, 1, 30, tzinfo=UTC)),  # came twice
        ("2026-07-01T02:00:00+02:00", datetime(2026, 7, 1, tzinfo=UTC)),
        ("2026-07-01T02:00:00.250", datetime(2026, 7, 1, 0, 0, 0, 250_000, tzinfo=UTC)),
        ("1782864000", datetime(2026, 7, 1, tzinfo=UTC)),
    ],
)
def test_times_are_read_in_the_zone_of_their_clock(text, utc):
    assert moment("End", text, BERLIN) == utc


def test_a_local_time_without_a_zone_is_an_error_that_says_what_to_set():
    with pytest.raises(SourceError, match="time_zone: Europe/Berlin"):
        moment("End", "2026-07-01T02:00:00", None)
    assert moment("End", "1782864000", None) is not None


@pytest.mark.parametrize("text", ["(null)", "None assigned", "Unknown", ""])
def test_no_nodes_are_unknown_nodes(text):
    assert node_names(text) is None


def test_a_hostlist_that_would_fill_the_memory_is_refused():
    with pytest.raises(RefusedError):
        node_names("n[0-999999999]")


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("CANCELLED by 123", "CANCELLED"),
        ("CANCELLED+", "CANCELLED"),
        ("OUT_OF_ME+", "OUT_OF_MEMORY"),
        ("COMPLETIN+", "COMPLETING"),
        ("node_fail", "NODE_FAIL"),
    ],
)
def test_a_state_is_known_by_its_detail_left_out_or_its_end_cut_off(text, state):
    assert job_state(text) == state


@pytest.mark.parametrize("text", ["COMP+", "COMPLET+", "NODE_FAI", "CANCELLED by the admin"])
def test_a_state_that_could_be_another_is_refused(text):
    with pytest.raises(RefusedError):
        job_state(text)


@pytest.mark.parametrize(
    "job", ["123_[4-7%2]", "123_[1-3,...]", "123_[1,2,...%3]", "123_[0x1F%2]", "123+1", "123_7"]
)
def test_ids_of_arrays_are_kept_as_slurm_writes_them(job):
    assert job_and_step(f"{job}.batch") == (job, "batch")
