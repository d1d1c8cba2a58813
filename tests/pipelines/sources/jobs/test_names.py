"""Names of job files: the job as sacct names it, its node and rank, or nothing."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import SettingsError
from pipelines.sources.jobs.names import FileOwner, check_patterns, owner_of, run_of


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("slurm-815.out", FileOwner("815")),
        ("slurm-815.err.gz", FileOwner("815")),
        ("slurm-815_4.out", FileOwner("815_4")),  # cases 18 and 19: as sacct names it
        ("slurm-815+1.out", FileOwner("815+1")),
        ("slurm-815-3.out", FileOwner("815", rank=3)),
        ("815-gpu017-5.log", FileOwner("815", "gpu017", 5)),
        ("815_4-gpu-a-17.dc1.example-05.log.gz", FileOwner("815_4", "gpu-a-17.dc1.example", 5)),
        ("815.out", FileOwner("815")),
        ("815_4.log", FileOwner("815_4")),
        ("logs/815_ab3d_f7k/attempt_0/3/stderr.log", FileOwner("815", rank=3)),
        ("logs/815_4/attempt_1/3/stdout.log", FileOwner("815_4", rank=3)),
        ("logs/none_ab3d_f7k/attempt_0/3/stderr.log", FileOwner(None, rank=3)),
        ("logs/815/train.log", FileOwner("815")),
        ("logs/train-20260105.log", FileOwner()),
        ("train.log", FileOwner()),
        ("slurm-815x.out", FileOwner()),
        ("slurm-\u0668\u0661.out", FileOwner()),  # digits, but none of Slurm's
    ],
)
def test_a_name_tells_job_node_and_rank(name, owner):
    assert owner_of(Path(name)) == owner


def test_a_sites_own_pattern_replaces_the_defaults():
    patterns = check_patterns([r"/(?P<job>job-\w+)\.n(?P<node>\w+)\.txt$"])
    assert owner_of(Path("/x/job-a1.ngpu3.txt"), patterns) == FileOwner("job-a1", "gpu3")
    assert owner_of(Path("slurm-815.out"), patterns) == FileOwner()


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(?P<job>", "no regular expression"),
        (r"slurm-(\d+)", "has the groups \\(none\\)"),
        (r"(?P<job>\d+)(?P<host>x)", "has the groups host, job"),
        (r"(?P<job>\d)" + "a" * 1000, "at most 1000"),
        (r"(?=x)(?P<job>\d)", "no regular expression"),  # look-around has no linear time
    ],
)
def test_a_pattern_that_cannot_be_used_is_one_clear_error(pattern, message):
    with pytest.raises(SettingsError, match=message):
        check_patterns([pattern])


@pytest.mark.parametrize(
    ("name", "run"),
    [
        ("runs/llama-7b/metrics.jsonl", "llama-7b"),
        ("runs/llama-7b/lightning_logs/version_0/events.out.tfevents.17.n1.4.0", "llama-7b"),
        ("runs/llama-7b/eval-a.jsonl", "eval-a"),
        ("815/train_log.jsonl", "815"),
        ("slurm-815_4.jsonl", "815_4"),
        ("/metrics.jsonl", "metrics"),
    ],
)
def test_a_run_is_named_after_its_job_its_folder_or_its_file(name, run):
    assert run_of(Path(name)) == run


@given(st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), min_size=1))
def test_any_name_is_read(name):
    owner_of(Path(name))
    assert run_of(Path(name)) is not None
