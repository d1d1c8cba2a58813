"""Rules of packed telemetry: integers and back, nothing lost."""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.engine.plan import N_KNOWN
from features.engine.samples import SampleSource
from features.errors import DataError, StructureError
from features.packing import (
    GPU,
    PACKED_NULL,
    PACKED_SCHEMA,
    TS_MS,
    FrameSamples,
    order_of_appearance,
    pack,
    to_resolution,
    unpack,
)
from features.tables import CORE_GPU_TELEMETRY
from features.telemetry_metrics import METRICS, Metric

T0 = datetime(2026, 1, 5, tzinfo=UTC)
INTEGERS = [m for m in METRICS if m.resolution is not None]
NAMES = CORE_GPU_TELEMETRY.schema.names()


def core(*rows: dict[str, Any]) -> pl.DataFrame:
    full = [{**dict.fromkeys(NAMES), "gpu_uuid": "g", "ts": T0, **row} for row in rows]
    return pl.DataFrame(full, schema=CORE_GPU_TELEMETRY.schema)


def values_of(metric: Metric) -> st.SearchStrategy[float | int | None]:
    if metric.resolution is None:
        return st.none() | st.integers(0, 2**24).map(float)
    per_unit = round(1 / metric.resolution)
    codes = st.integers(int(metric.minimum * per_unit), int(metric.maximum * per_unit))
    is_int = metric.dtype.is_integer()
    return st.none() | codes.map(
        lambda code: code if is_int else float(np.float32(code / per_unit))
    )


@st.composite
def core_frames(draw: st.DrawFn) -> pl.DataFrame:
    """Up to eight samples of three GPUs within two days, a few metrics known."""
    metrics = draw(st.lists(st.sampled_from(METRICS), max_size=4, unique=True))
    key = st.tuples(st.sampled_from("hgk"), st.integers(0, 2 * 86_400_000 - 1))
    rows = [
        {
            "gpu_uuid": gpu,
            "ts": T0 + timedelta(milliseconds=ms),
            "node": draw(st.sampled_from(["n1", "n2", None])),
            **{metric.column: draw(values_of(metric)) for metric in metrics},
        }
        for gpu, ms in draw(st.lists(key, max_size=8, unique=True))
    ]
    return core(*rows)


@settings(max_examples=40)
@given(core_frames())
def test_what_is_packed_and_unpacked_is_the_frame(frame: pl.DataFrame) -> None:
    uuids = order_of_appearance(frame)
    packed = pack(frame, uuids)
    assert unpack(packed, uuids).equals(frame.sort("gpu_uuid", "ts"))
    assert all(PACKED_SCHEMA[name] == dtype for name, dtype in packed.schema.items())
    assert packed.select(GPU, TS_MS).equals(packed.select(GPU, TS_MS).sort(GPU, TS_MS))
    n_known = frame.sort("gpu_uuid", "ts").select(
        pl.sum_horizontal(pl.col(m.column).is_not_null() for m in METRICS)
    )
    by_name = pl.DataFrame({"u": uuids.gather(packed[GPU]), "k": packed[N_KNOWN]})
    assert by_name.sort("u", maintain_order=True)["k"].to_list() == n_known.to_series().to_list()


@pytest.mark.parametrize("metric", INTEGERS, ids=lambda metric: metric.column)
def test_every_valid_value_fits_its_packed_type_and_none_is_the_null(metric: Metric) -> None:
    ends = core(
        {metric.column: metric.minimum, "ts": T0},
        {metric.column: metric.maximum, "ts": T0 + timedelta(hours=1)},
    )
    assert CORE_GPU_TELEMETRY.enforce(ends).rejects.is_empty()
    packed = pack(ends, order_of_appearance(ends))[metric.column]
    assert packed.to_list() == [round(v / (metric.resolution or 1)) for v in (
        metric.minimum, metric.maximum)]  # fmt: skip
    assert PACKED_NULL[metric.column] < packed.min()  # type: ignore[operator]


@pytest.mark.parametrize("metric", INTEGERS, ids=lambda metric: metric.column)
def test_rounding_to_the_resolution_twice_is_rounding_once(metric: Metric) -> None:
    values = np.linspace(metric.minimum, metric.maximum, 997)
    once = to_resolution(pl.Series(metric.column, values).cast(metric.dtype))
    assert to_resolution(once).equals(once)
    assert (once.cast(float) - values).abs().max() <= (metric.resolution or 1) * 1.01  # type: ignore[operator]


def test_a_gauge_without_a_resolution_has_no_integers() -> None:
    source = FrameSamples(core({"pcie_tx_bytes_s": 1e9}))
    with pytest.raises(StructureError, match="no integers in pcie_tx_bytes_s"):
        list(source.pieces(0, start_ms=0, end_ms=1, columns=["pcie_tx_bytes_s"]))


def test_codes_follow_the_node_a_gpu_was_first_seen_in() -> None:
    frame = core(
        {"gpu_uuid": "a", "node": "n2", "ts": T0},
        {"gpu_uuid": "a", "node": "n0", "ts": T0 + timedelta(hours=1)},
        {"gpu_uuid": "c", "node": "n1"},
        {"gpu_uuid": "b", "node": "n1"},
    )
    assert order_of_appearance(frame).to_list() == ["b", "c", "a"]


def test_two_samples_within_a_millisecond_are_refused() -> None:
    frame = core({"ts": T0}, {"ts": T0 + timedelta(microseconds=999)})
    with pytest.raises(DataError, match="1 samples share their GPU and millisecond.*example g"):
        pack(frame, order_of_appearance(frame))


def test_a_code_without_a_uuid_is_refused() -> None:
    packed = pack(core({"gpu_uuid": "a"}, {"gpu_uuid": "b"}), pl.Series(["a", "b"]))
    with pytest.raises(DataError, match="GPU code 1 has no UUID, 1 GPUs are known"):
        unpack(packed, pl.Series(["a"]))


def test_a_frame_gives_its_samples_of_a_stretch_of_time() -> None:
    ms = round(T0.timestamp() * 1000)
    frame = core(
        *({"ts": T0 + timedelta(milliseconds=i), "energy_j": e} for i, e in enumerate((7, None, 9)))
    )
    source: SampleSource = FrameSamples(frame)
    columns = ["energy_j", "power_w", N_KNOWN]
    (piece,) = source.pieces(0, start_ms=ms, end_ms=ms + 2, columns=columns)
    null = PACKED_NULL["energy_j"]
    assert (piece.gpu.tolist(), piece.ts_ms.tolist()) == ([0, 0], [ms, ms + 1])
    assert {name: array.tolist() for name, array in piece.values.items()} == {
        "energy_j": [7, null],
        N_KNOWN: [1, 0],
    }
    assert dict(piece.nulls) == {"energy_j": null}
    assert not list(source.pieces(0, start_ms=ms + 3, end_ms=ms + 9, columns=columns))
    assert not list(source.pieces(1, start_ms=ms, end_ms=ms + 9, columns=columns))
    assert source.uuids() == ["g"]
