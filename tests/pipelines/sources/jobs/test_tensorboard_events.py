"""TensorBoard event files: what the package's own writer puts down is what is read."""

import math
import struct
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.errors import SourceError
from features.tables import RAW_TRAINING_METRICS
from pipelines.sources.jobs.tensorboard_events import stream_tensorboard
from pipelines.sources.jobs.tfrecord import crc32c, masked
from pipelines.sources.jobs.training_values import MetricKeys
from pipelines.sources.result import merge
from tests.pipelines.sources.reading import read_all

NOW = datetime(2026, 2, 1, tzinfo=UTC)
T0 = 1767225600.0


def proto():
    """The package's own messages; they are what makes a file real."""
    pytest.importorskip("tensorboard", reason="the extra tensorboard is not installed")
    from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2

    return event_pb2.Event, summary_pb2.Summary, tensor_pb2.TensorProto


def event(step, *values, wall_time=T0, **fields):
    Event, Summary, _ = proto()  # noqa: N806 - message classes
    summary = Summary(value=[value_of(*value) for value in values])
    return Event(wall_time=wall_time, step=step, summary=summary, **fields)


def value_of(tag, number):
    _, Summary, TensorProto = proto()  # noqa: N806 - message classes
    if isinstance(number, TensorProto):
        return Summary.Value(tag=tag, tensor=number)
    return Summary.Value(tag=tag, simple_value=number)


def write(folder, *events):
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    folder.mkdir(parents=True, exist_ok=True)
    writer = EventFileWriter(str(folder))
    for one in events:
        writer.add_event(one)
    writer.close()
    (path,) = folder.glob("events.out.tfevents.*")
    return path


def read(*paths, **options):
    result = read_all(stream_tensorboard, paths, ingested_at=NOW, **options)
    frame = result.table("raw/training_metrics")
    assert RAW_TRAINING_METRICS.enforce(frame).rejects.is_empty()
    return result


def rows(path, *columns, **options):
    return read(path, **options).table("raw/training_metrics").select(columns).rows()


def test_scalars_of_the_packages_writer_are_read(tmp_path):
    path = write(
        tmp_path / "llama",
        event(1, ("train/loss", 2.5)),
        event(1, ("grad-norm", 0.5), ("lr", 0.1), wall_time=T0 + 1.5),
        event(2, ("iteration-time", 1.25), wall_time=T0 + 2),
    )
    result = read(path)
    columns = ("job_id", "step", "ts", "loss", "grad_norm", "step_time_s")
    assert result.table("raw/training_metrics").select(columns).rows() == [
        ("llama", 1, datetime(2026, 1, 1, tzinfo=UTC), 2.5, None, None),
        ("llama", 1, datetime(2026, 1, 1, 0, 0, 1, 500000, UTC), None, 0.5, None),
        ("llama", 2, datetime(2026, 1, 1, 0, 0, 2, tzinfo=UTC), None, None, 1.25),
    ]
    # the writer's first record tells the version of the format
    assert result.reads.select("n_read", "n_parsed", "n_skipped").row(0) == (4, 3, 1)


def tensor(dtype, **fields):
    return proto()[2](dtype=dtype, **fields)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: tensor(1, float_val=[2.5]), 2.5),
        (lambda: tensor(2, double_val=[2.5]), 2.5),
        (lambda: tensor(3, int_val=[2]), 2.0),
        (lambda: tensor(9, int64_val=[2]), 2.0),
        (lambda: tensor(1, tensor_content=struct.pack("<f", 2.5)), 2.5),
        (lambda: tensor(2, tensor_content=struct.pack("<d", 2.5)), 2.5),
        (lambda: tensor(19, half_val=[struct.unpack("<H", struct.pack("<e", 2.5))[0]]), 2.5),
        (lambda: tensor(14, half_val=[struct.unpack("<HH", struct.pack("<f", 2.5))[1]]), 2.5),
    ],
)
def test_a_scalar_is_read_however_it_is_packed(tmp_path, make, expected):
    assert rows(write(tmp_path / "r", event(1, ("loss", make()))), "loss") == [(expected,)]


@pytest.mark.parametrize(
    ("tag", "number", "rule"),
    [
        ("loss", lambda: tensor(1, float_val=[1, 2]), "loss is no number it can be"),
        ("loss", lambda: tensor(7, string_val=[b"x"]), "loss is no number it can be"),
        ("step_time", lambda: -1.0, "step_time_s is no number it can be"),
        ("checkpoint_step", lambda: 0.5, "checkpoint_step is no number it can be"),
    ],
)
def test_a_value_that_a_column_cannot_hold_is_quarantined(tmp_path, tag, number, rule):
    result = read(write(tmp_path / "r", event(1, (tag, number()))))
    assert result.quarantine["rule"].to_list() == [rule]


def test_nan_and_infinity_are_kept(tmp_path):
    ((loss, norm),) = rows(
        write(tmp_path / "r", event(1, ("loss", math.nan), ("grad_norm", math.inf))),
        "loss", "grad_norm",
    )  # fmt: skip
    assert math.isnan(loss)
    assert norm == math.inf


def test_zero_is_a_value(tmp_path):
    assert rows(write(tmp_path / "r", event(0, ("loss", 0.0))), "step", "loss") == [(0, 0.0)]


@pytest.mark.parametrize(
    ("step", "wall_time", "rule"),
    [
        (-1, T0, "step is no whole number from 0"),
        (1, math.nan, "wall_time is no time"),
        (1, 1e300, "wall_time is no time"),
    ],
)
def test_an_event_without_a_step_or_time_is_quarantined(tmp_path, step, wall_time, rule):
    path = write(tmp_path / "r", event(step, ("loss", 1.0), wall_time=wall_time))
    assert read(path).quarantine["rule"].to_list() == [rule]


def test_a_sites_own_tags_are_read(tmp_path):
    tags = MetricKeys({"loss": ("my/objective",)})
    path = write(tmp_path / "r", event(1, ("my/objective", 2.0), ("loss", 9.0)))
    assert rows(path, "loss", tags=tags) == [(2.0,)]


def test_the_job_is_told_by_the_path_or_else_the_run(tmp_path):
    path = write(tmp_path / "815", event(1, ("loss", 2.0)))
    assert rows(path, "job_id") == [("815",)]
    assert rows(path, "job_id", job_from=[r"/(?P<job>\d)\d+/"]) == [("8",)]
    other = write(tmp_path / "gpt" / "lightning_logs" / "version_0", event(1, ("loss", 2.0)))
    assert rows(other, "job_id") == [("gpt",)]


def test_a_record_still_being_written_is_left_for_the_next_reading(tmp_path):
    path = write(tmp_path / "r", event(1, ("loss", 1.0)), event(2, ("loss", 2.0)))
    whole = path.read_bytes()
    for missing in (1, 5, 30):
        path.write_bytes(whole[:-missing])
        result = read(path)
        assert result.table("raw/training_metrics")["step"].to_list() == [1]
        assert result.reads.select("n_skipped", "n_quarantined").row(0) == (2, 0)


def test_a_spoilt_record_is_quarantined_and_the_next_one_read(tmp_path):
    path = write(tmp_path / "r", event(1, ("loss", 1.0)), event(2, ("loss", 2.0)))
    data = bytearray(path.read_bytes())
    data[data.index(b"loss")] ^= 1
    path.write_bytes(data)
    result = read(path)
    assert result.table("raw/training_metrics")["step"].to_list() == [2]
    assert result.quarantine["rule"].to_list() == ["the record's checksum is wrong"]


def framed(payload):
    length = struct.pack("<Q", len(payload))
    crcs = [struct.pack("<I", masked(crc32c(part))) for part in (length, payload)]
    return length + crcs[0] + payload + crcs[1]


def test_a_whole_record_that_is_no_event_is_quarantined(tmp_path):
    path = tmp_path / "events.out.tfevents.1.n"
    path.write_bytes(framed(b"\xff\xff\xff") + framed(event(1, ("loss", 1.0)).SerializeToString()))
    result = read(path)
    assert result.table("raw/training_metrics").height == 1
    assert result.quarantine["rule"].to_list() == ["is no event"]


def test_rows_do_not_depend_on_where_chunks_are_cut(tmp_path):
    path = write(tmp_path / "r", *(event(n, ("loss", float(n))) for n in range(7)))
    chunks = list(stream_tensorboard(path, ingested_at=NOW, chunk_records=3))
    assert [chunk.reads["n_read"].item() for chunk in chunks] == [3, 3, 2]
    joined, whole = merge(chunks), read(path)
    assert joined.table("raw/training_metrics").equals(whole.table("raw/training_metrics"))
    assert joined.reads.equals(whole.reads)


def test_a_file_that_is_absent_is_one_clear_error(tmp_path):
    with pytest.raises(SourceError, match="cannot be read: No such file"):
        read(tmp_path / "none")


@settings(max_examples=80)
@given(st.lists(st.binary(max_size=30).map(framed) | st.binary(max_size=20), max_size=4))
def test_any_bytes_are_read_refused_or_skipped(tmp_path_factory, parts):
    path = tmp_path_factory.mktemp("any") / "x"
    path.write_bytes(b"".join(parts))
    result = read(path)
    _, _, n_read, n_parsed, n_skipped, n_quarantined = result.reads.row(0)
    assert n_read == n_parsed + n_skipped + n_quarantined
    assert n_parsed == result.table("raw/training_metrics").height
