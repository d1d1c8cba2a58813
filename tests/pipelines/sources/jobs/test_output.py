"""Ends of job output: one row per rule and writer, cause against collateral, nothing lost."""

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.errors import SourceError
from features.job_causes import job_cause_of
from features.tables import RAW_JOB_OUTPUT
from pipelines.sources.jobs.names import FileOwner
from pipelines.sources.jobs.output import parse_job_output, stream_job_output
from pipelines.sources.jobs.rules import load_job_rules
from tests.pipelines.sources.reading import read_all

NOW = datetime(2026, 1, 6, tzinfo=UTC)
RULES = load_job_rules()
SAMPLES = Path(__file__).parents[4] / "../shared/data/samples/nccl_training"
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
TIMEOUT = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9)"


def parse(text, owner=None):
    return parse_job_output(
        text, origin="f", rules=RULES, time_zone="UTC", ingested_at=NOW, owner=owner
    )


def rows(text, *columns, owner=None):
    frame = parse(text, owner).table("raw/job_output")
    assert RAW_JOB_OUTPUT.enforce(frame).rejects.is_empty()
    return frame.select(columns or ("rule", "count")).rows()


def cause(text):
    return job_cause_of(parse(text).table("raw/job_output").iter_rows(named=True))


def test_lines_of_one_rule_and_rank_are_one_row_with_the_first_line():
    text = f"[rank1]: x\n[rank1]: {ECC}\n[rank0]: {ECC}\n[rank1]: {ECC} again"
    assert rows(text, "rule", "rank", "count", "position", "line") == [
        ("gpu_memory_ecc", 1, 2, 11, f"[rank1]: {ECC}"),
        ("gpu_memory_ecc", 0, 1, 11 + 10 + len(ECC), f"[rank0]: {ECC}"),
    ]


def test_the_file_tells_whose_lines_they_are_where_they_do_not():
    owner = FileOwner("815_4", "n1", 3)
    assert rows(ECC, "job_id", "node", "rank", owner=owner) == [("815_4", "n1", 3)]
    assert rows(f"n2: [rank5]: {ECC}", "job_id", "node", "rank", owner=owner) == [
        ("815_4", "n2", 5)
    ]


def test_a_line_names_its_job_only_where_the_file_does_not():
    text = "slurmstepd: error: *** JOB 820 ON n1 CANCELLED AT 2026-01-05T10:00:00 DUE TO TIME LIMIT"
    assert rows(text, "job_id", "node") == [("820", "n1")]
    # an array task has a number of its own, which is not the name that sacct gives it
    assert rows(text, "job_id", owner=FileOwner("815_4")) == [("815_4",)]


def test_a_time_in_the_line_is_kept():
    assert rows(f"[2026-01-05 10:00:00,5] {ECC}", "ts") == [
        (datetime(2026, 1, 5, 10, 0, 0, 500000, UTC),)
    ]


TRACEBACK = """Traceback (most recent call last):
  File "train.py", line 3, in main
    raise RuntimeError("CUDA out of memory")  # never reached
{}
"""


def test_the_exception_decides_and_not_the_code_above_it():
    assert rows(TRACEBACK.format("ModuleNotFoundError: No module named 'x'")) == [
        ("import_error", 1)
    ]


def test_an_exception_of_any_name_is_one():
    assert rows(TRACEBACK.format("mylib.Oops: bad"), "rule", "cause") == [
        ("python_exception", "user_code")
    ]


def test_a_progress_bar_before_an_error_hides_it_not():
    assert rows(f" 10%|#  | 1/10\r 20%|## | 2/10\r{ECC}\n") == [("gpu_memory_ecc", 1)]


def test_colours_hide_no_error():
    assert rows("\x1b[31mCUDA err\x1b[0mor: device-side assert triggered") == [("device_assert", 1)]


def test_an_error_deep_inside_a_very_long_line_is_found():
    line = f"INFO {'x' * 30_000} {ECC} {'y' * 30_000}"
    (found,) = rows(line, "rule", "line")
    assert found[0] == "gpu_memory_ecc"
    assert ECC in found[1]
    assert len(found[1]) < 5000


def test_a_few_overflows_are_no_finding():
    line = "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 1.0\n"
    assert rows(line * 19) == []
    assert rows(line * 20) == [("gradient_overflow", 20)]


def test_what_no_rule_knows_and_looks_like_an_error_is_a_template():
    text = "fatal: lost lane 3 of card 7\nstep 3\nfatal: lost lane 5 of card 1\nERROR x\n"
    assert rows(text, "rule", "cause", "template", "count", "line") == [
        ("template", "unknown", "fatal: lost lane <num> of card <num>", 2,
         "fatal: lost lane 3 of card 7"),
        ("template", "unknown", "ERROR x", 1, "ERROR x"),
    ]  # fmt: skip


CASES = {
    # one rank dies, the others wait for it and are ended
    "gpu_memory_ecc": f"""
[rank3]: {ECC}
[rank0]:[E105 10:10:00.1 ProcessGroupNCCL.cpp:607] [Rank 0] {TIMEOUT}
n2:5:9 [2] misc/socket.cc:749 NCCL WARN socketProgress: Connection closed by remote peer n1<4>
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
srun: error: n1: task 3: Exited with exit code 1
slurmstepd: error: *** STEP 815.0 ON n1 CANCELLED AT 2026-01-05T10:00:00 ***""",
    # the same, the waiting ranks written first
    "gpu_memory_ecc ": f"[rank0]: {TIMEOUT}\nsrun: error: n2: task 0: Terminated\n[rank3]: {ECC}",
    "collective_timeout": f"""
[rank0]: {TIMEOUT}
[rank1]: {TIMEOUT}
RuntimeError: NCCL error: remote process exited or there was a network error
W1 1 torch/distributed/elastic/agent/server/api.py:1] Received Signals.SIGTERM death signal""",
    "import_error": TRACEBACK.format("ImportError: no torch")
    + "elastic.multiprocessing.errors.ChildFailedError:",
    "host_oom": """
slurmstepd: error: Detected 1 oom_kill event in StepId=815.0. Some of the step tasks have been OOM
srun: error: n1: task 0: Out Of Memory
BrokenPipeError: [Errno 32] Broken pipe""",
    "shared_memory": TRACEBACK.format(
        "RuntimeError: DataLoader worker (pid 81) is killed by signal: Bus error."
    ),
    "storage_full": TRACEBACK.format("OSError: [Errno 28] No space left on device")
    + TRACEBACK.format("RuntimeError: PytorchStreamWriter failed writing file data/1"),
    "nan_loss": "step 9 loss: nan\n" + TRACEBACK.format("ValueError: stopping"),
    "time_limit": "slurmstepd: error: *** JOB 8 ON n1 CANCELLED AT 2026-01-05T10:00:00 DUE TO TIME "
    "LIMIT ***\nsrun: error: n1: task 3: Terminated",
    "node_failure": f"srun: error: Node failure on n1\n{TIMEOUT}",
    "sigterm": "srun: error: n1: task 3: Terminated",
    "unrecognised": "ERROR: strange\nsrun: error: n1: task 3: Exited with exit code 1",
}


@pytest.mark.parametrize("fault_class", CASES)
def test_the_cause_is_told_from_what_it_brought_about(fault_class):
    assert cause(CASES[fault_class])[0] == fault_class.strip()


def test_the_cause_does_not_depend_on_the_order_of_rows():
    found = parse(CASES["gpu_memory_ecc"]).table("raw/job_output").to_dicts()
    assert job_cause_of(found) == job_cause_of(reversed(found)) == ("gpu_memory_ecc", "hardware")


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def stream(path, **options):
    (result,) = stream_job_output(path, rules=RULES, time_zone="UTC", ingested_at=NOW, **options)
    return result


@pytest.mark.parametrize("name", ["slurm-815.out", "slurm-815.out.gz"])
def test_only_the_end_is_read_and_its_first_broken_line_left_out(tmp_path, name):
    old, new = b"RuntimeError: CUDA error: device-side assert triggered\n", ECC.encode() + b"\n"
    path = write(tmp_path / name, old + b"x\n" * 5 + new * 2)
    tail = stream(path, tail_mb=(len(new) + 10) / 1e6)
    found = tail.table("raw/job_output")
    assert found.select("job_id", "rule", "count", "position").rows() == [
        ("815", "gpu_memory_ecc", 1, len(old) + 10 + len(new))
    ]
    assert tail.reads["n_read"].item() == 1
    # a line that begins where the tail does is whole
    assert stream(path, tail_mb=2 * len(new) / 1e6).reads["n_read"].item() == 2
    whole = stream(path).table("raw/job_output")
    assert whole.select("rule", "position").rows() == [
        ("device_assert", 0), ("gpu_memory_ecc", len(old) + 10),
    ]  # fmt: skip


def test_the_end_of_a_compressed_file_is_that_of_the_plain_one(tmp_path):
    data = b"".join(b"[rank%d]: step %d\n" % (n % 8, n) for n in range(20_000)) + ECC.encode()
    plain = stream(write(tmp_path / "8.out", data), tail_mb=0.1)
    packed = stream(write(tmp_path / "8.out.gz", data), tail_mb=0.1)
    assert packed.table("raw/job_output").equals(plain.table("raw/job_output"))
    assert packed.reads.drop("origin").equals(plain.reads.drop("origin"))


def test_a_torn_compressed_file_gives_what_can_be_read(tmp_path):
    packed = gzip.compress((ECC + "\n").encode() * 3 + bytes(range(256)) * 4000)
    path = write(tmp_path / "x" / "8.out", b"")
    path = path.with_suffix(".gz")
    path.write_bytes(packed[:-200])
    result = stream(path)
    assert result.table("raw/job_output")["count"].to_list() == [3]
    assert result.quarantine["rule"].to_list() == ["the compressed file breaks off here"]


def test_a_file_that_cannot_be_read_is_one_clear_error(tmp_path):
    with pytest.raises(SourceError, match="cannot be read: No such file"):
        stream(tmp_path / "none.out")
    path = tmp_path / "8.gz"
    path.write_bytes(b"plain")
    with pytest.raises(SourceError, match="is no gzip file"):
        stream(path)


@settings(max_examples=40)
@given(data=st.data())
def test_rows_do_not_depend_on_where_chunks_are_cut(tmp_path_factory, data):
    pieces = st.lists(st.sampled_from([*PIECES, b"\n", b"\r", b"\r\n"]), max_size=25)
    text = b"".join(data.draw(pieces))
    path = write(tmp_path_factory.mktemp("cut") / "8.out", text)
    whole, tiny = stream(path), stream(path, chunk_bytes=data.draw(st.integers(1, 9)))
    assert tiny.table("raw/job_output").equals(whole.table("raw/job_output"))
    assert tiny.reads.equals(whole.reads)


PIECES = [
    b"[rank1]: ", b"3: ", b"n1: ", ECC.encode(), TIMEOUT.encode(), b"Traceback (most",
    b"Traceback (most recent call last):\n", b'  File "a.py", line 1, in f\n', b"KeyError: 'a'",
    b"    code", b"\x1b[31m", b"\x00", b"\xff\xfe", b"ERROR ", b"1234 ", b"0xff", b"/a/b ",
    b"loss nan",
    b"srun: error: n1: task 99999999999: Terminated", b"[E1399 99:99:99 ",
    b"0001-01-01T00:00:00+14",
    b"[rank99999999999]: ", b"n1:1:2 [0] NCCL WARN x", b"x" * 5000, b" out of memory ",
]  # fmt: skip


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from([*PIECES, b"\n", b"\r"]) | st.binary(max_size=5), max_size=40).map(
        b"".join
    )
    | st.binary(max_size=80)
)
def test_any_bytes_are_read_and_none_go_missing(data):
    result = parse(data)
    n_read, n_parsed, n_skipped, n_quarantined = result.reads.drop("source", "origin").row(0)
    lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    assert n_read == len(lines) - (not lines[-1])
    assert (n_read, n_quarantined) == (n_parsed + n_skipped, 0)
    frame = result.table("raw/job_output")
    assert frame.schema == RAW_JOB_OUTPUT.schema
    assert RAW_JOB_OUTPUT.enforce(frame).rejects.is_empty()
    assert frame["count"].sum() == n_parsed


@pytest.mark.real
@pytest.mark.skipif(
    not SAMPLES.is_dir(), reason="the real samples (../shared/data/samples) are not here"
)
class TestRealSamples:
    """Texts that people reported, each with the class it hints at."""

    # What its reporter traced to the fabric; the line itself says illegal access.
    UNTOLD = ("nvlink_fabric", "cuda_illegal_access")

    def samples(self):
        lines = (SAMPLES / "lines.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def test_nearly_all_have_their_class(self):
        found = [
            (sample["fault_class_hint"], cause(sample["text"])[0]) for sample in self.samples()
        ]
        wrong = [pair for pair in found if pair[0] != pair[1]]
        assert wrong in ([], [self.UNTOLD])

    def test_a_whole_log_is_explained(self):
        paths = [SAMPLES / "dlrover__training.log"]
        result = read_all(stream_job_output, paths, rules=RULES, time_zone="UTC", ingested_at=NOW)
        frame = result.table("raw/job_output")
        assert job_cause_of(frame.iter_rows(named=True)) == ("collective_timeout", "hang")
        assert frame.filter(pl.col("rule") == "template").is_empty()
