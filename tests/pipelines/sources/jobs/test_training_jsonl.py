"""Training metrics as JSON lines: every record a row, a skip or a refusal; NaN is a finding."""

import gzip
import json
import math
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.errors import SourceError
from features.tables import RAW_TRAINING_METRICS
from pipelines.sources.jobs import training_jsonl
from pipelines.sources.jobs.training_jsonl import (
    parse_training_jsonl,
    stream_training_jsonl,
)
from pipelines.sources.jobs.training_values import MetricKeys
from pipelines.sources.result import merge
from tests.pipelines.sources.reading import read_all

NOW = datetime(2026, 2, 1, tzinfo=UTC)
METRICS = ("job_id", "step", "loss", "grad_norm", "step_time_s", "checkpoint_step")


def parse(text, **options):
    return parse_training_jsonl(
        text, origin="f", job_id="run", time_zone="UTC", ingested_at=NOW, **options
    )


def rows(text, *columns, **options):
    frame = parse(text, **options).table("raw/training_metrics")
    assert RAW_TRAINING_METRICS.enforce(frame).rejects.is_empty()
    return frame.select(columns or METRICS).rows()


def fate(text):
    """parsed, skipped, quarantined"""
    return parse(text).reads.select("n_parsed", "n_skipped", "n_quarantined").row(0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"step": 1, "loss": 2.5, "grad_norm": 3}', ("run", 1, 2.5, 3.0, None, None)),
        ('{"iteration": 1, "lm loss": "2.5", "elapsed_ms": 1500}',
         ("run", 1, 2.5, None, 1.5, None)),
        ('{"_step": 1, "train/loss": 2.5, "step_time": 1.5}', ("run", 1, 2.5, None, 1.5, None)),
        ('{"step": 1, "metrics": {"loss": 2.5, "x": {"y": 1}}}', ("run", 1, 2.5, None, None, None)),
        ('{"step": 7, "checkpoint": "/c/step_5/a.pt"}', ("run", 7, None, None, None, 5)),
        ('{"event": "checkpoint_saved", "step": 7}', ("run", 7, None, None, None, 7)),
        ('{"job_id": 815, "step": 1, "loss": 2}', ("815", 1, 2.0, None, None, None)),
        ('{"SLURM_JOB_ID": "815_4", "step": 1, "loss": 2}', ("815_4", 1, 2.0, None, None, None)),
        ('{"step": 1, "train_loss": 9, "loss": 2}', ("run", 1, 2.0, None, None, None)),
        ('{"step": 1, "train_loss": 9, "loss": null}', ("run", 1, 9.0, None, None, None)),
        ('\ufeff{"step": 1, "loss": 2}\r', ("run", 1, 2.0, None, None, None)),
        ('\0\0{"step": 1, "loss": 2}', ("run", 1, 2.0, None, None, None)),  # a hole after a crash
        ('{"step": 1, "loss": 123456789012345678901234567890}',
         ("run", 1, 123456789012345678901234567890.0, None, None, None)),
    ],
)  # fmt: skip
def test_a_record_is_read(text, expected):
    assert rows(text) == [expected]


@pytest.mark.parametrize("word", ["NaN", '"nan"', '"NaN"'])
def test_nan_is_kept(word):
    ((loss, norm),) = rows(
        f'{{"step": 1, "loss": {word}, "grad_norm": {word}}}', "loss", "grad_norm"
    )
    assert math.isnan(loss)
    assert math.isnan(norm)


@pytest.mark.parametrize("word", ["Infinity", '"inf"', "1e999"])
def test_infinity_is_kept_and_null_is_unknown(word):
    text = f'{{"step": 1, "loss": {word}, "grad_norm": null}}'
    assert rows(text, "loss", "grad_norm") == [(math.inf, None)]


def test_a_time_is_read_and_a_duration_is_none():
    text = '{"step":1,"loss":1,"ts":1767225600123}\n{"step":2,"loss":1,"time":0.4}'
    assert rows(text, "ts") == [(datetime(2026, 1, 1, 0, 0, 0, 123000, UTC),), (None,)]


@pytest.mark.parametrize(
    "text",
    ["", "\n", "# comment", '{"epoch": 1, "lr": 0.1}', '{"eval_loss": 1, "step": 1}',
     '{"step": 1}', '{"step": 1, "loss": null}', '{"step": 1, "checkpoint": false}', "{}"],
)  # fmt: skip
def test_a_record_about_something_else_is_skipped(text):
    assert fate(text + "\n")[0::2] == (0, 0)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("nonsense", "is no JSON"),
        ('{"step": 1, "loss": }', "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("[1]", "is no JSON object"),
        ("3", "is no JSON object"),
        ('{"loss": 1}', "no step"),
        ('{"step": -1, "loss": 1}', "step is no whole number from 0"),
        ('{"step": 99999999999999999999, "loss": 1}', "step is no whole number from 0"),
        ('{"step": 1, "loss": "high"}', "loss is no number"),
        ('{"step": 1, "loss": [1]}', "loss is no number"),
        ('{"step": 1, "step_time": -1}', "step_time_s is no time from 0"),
        ('{"step": 1, "step_time": NaN}', "step_time_s is no time from 0"),
        ('{"step": 1, "loss": 1, "ts": "soon"}', "ts is no time"),
        ('{"step": 1, "checkpoint": "latest"}', "checkpoint_step names no step"),
    ],
)
def test_a_record_that_breaks_a_rule_is_quarantined(text, rule):
    assert parse(text + "\n").quarantine["rule"].to_list() == [rule]


def test_a_last_line_still_being_written_is_left_for_the_next_reading():
    text = '{"step": 1, "loss": 1}\n{"step": 2, "lo'
    assert fate(text) == (1, 1, 0)
    assert fate(text + "\n") == (1, 0, 1)
    assert fate('{"step": 1, "loss": 1}') == (1, 0, 0)  # whole, but for the line break


def test_a_step_told_twice_stays_two_rows():
    text = '{"step": 5, "loss": 1, "ts": 1767225600}\n{"step": 5, "loss": 2, "ts": 1767229200}'
    assert rows(text, "step", "loss") == [(5, 1.0), (5, 2.0)]


def test_a_sites_own_keys_are_read():
    keys = MetricKeys({"loss": ("objective",), "step": ("n",)})
    assert rows('{"n": 4, "objective": 2}', "step", "loss", keys=keys) == [(4, 2.0)]


def stream(path, **options):
    return list(stream_training_jsonl(path, time_zone="UTC", ingested_at=NOW, **options))


LINES = [
    '{"step": 1, "loss": 1}', '{"step": 2, "loss": NaN}', "x", "", '{"lr": 1}',
    '{"step": -1, "loss": 1}',
]  # fmt: skip


@given(
    st.lists(st.sampled_from(LINES), max_size=12), st.sampled_from(["", "\n"]), st.integers(1, 5)
)
def test_rows_do_not_depend_on_where_chunks_are_cut(tmp_path_factory, lines, end, size):
    path = tmp_path_factory.mktemp("cut") / "815.jsonl"
    path.write_text("\n".join(lines) + end)
    chunks = stream(path, chunk_lines=size)
    whole = parse_training_jsonl(
        path.read_bytes(), origin=str(path), job_id="815", time_zone="UTC", ingested_at=NOW
    )
    joined = merge(chunks)
    assert joined.table("raw/training_metrics").equals(whole.table("raw/training_metrics"))
    assert joined.reads.equals(whole.reads)
    assert joined.quarantine.sort("rule").equals(whole.quarantine.sort("rule"))
    assert all(chunk.reads["n_read"].item() <= size for chunk in chunks)


def test_compressed_files_and_names_of_runs_are_read(tmp_path):
    folder = tmp_path / "llama"
    folder.mkdir()
    (folder / "metrics.jsonl.gz").write_bytes(gzip.compress(b'{"step": 1, "loss": 1}\n'))
    (tmp_path / "slurm-815_4.jsonl").write_bytes(b'{"step": 1, "loss": 1}\n')
    paths = [folder / "metrics.jsonl.gz", tmp_path / "slurm-815_4.jsonl"]
    result = read_all(stream_training_jsonl, paths, time_zone="UTC", ingested_at=NOW)
    assert result.table("raw/training_metrics")["job_id"].to_list() == ["llama", "815_4"]


def test_a_line_too_long_to_be_a_record_is_refused_and_the_next_one_read(tmp_path, monkeypatch):
    monkeypatch.setattr(training_jsonl, "LINE_BYTES", 50)
    path = tmp_path / "a.jsonl"
    for long in (b"9" * 49, b"9" * 50, b"9" * 500):
        path.write_bytes(long + b'\n{"step": 1, "loss": 1}\n')
        (result,) = stream(path)
        assert result.reads.select("n_parsed", "n_quarantined").row(0) == (1, 1)


def test_a_file_that_cannot_be_read_is_one_clear_error(tmp_path):
    with pytest.raises(SourceError, match="cannot be read: No such file"):
        stream(tmp_path / "none.jsonl")
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b"x" * 1000)[:-9])
    with pytest.raises(SourceError, match="is no complete gzip file"):
        stream(path)


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
RECORDS = st.dictionaries(
    st.sampled_from(
        ["step", "loss", "grad_norm", "ts", "time", "checkpoint", "job_id", "elapsed_ms"]
    )
    | st.text(max_size=3),
    VALUES | st.dictionaries(st.sampled_from(["loss", "step"]), VALUES, max_size=2),
    max_size=6,
).map(lambda record: json.dumps(record).encode())


@settings(max_examples=60)
@given(
    st.lists(RECORDS | st.binary(max_size=8), max_size=8).map(b"\n".join) | st.binary(max_size=60)
)
def test_any_bytes_are_read_refused_or_skipped(data):
    result = parse(data)
    n_read, n_parsed, n_skipped, n_quarantined = result.reads.drop("source", "origin").row(0)
    assert n_read == len(data.split(b"\n")) - (not data or data.endswith(b"\n"))
    assert n_read == n_parsed + n_skipped + n_quarantined
    frame = result.table("raw/training_metrics")
    assert frame.height == n_parsed
    assert frame.schema == RAW_TRAINING_METRICS.schema
    assert RAW_TRAINING_METRICS.enforce(frame).rejects.is_empty()
