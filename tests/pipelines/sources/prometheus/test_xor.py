"""The compiled XOR decoder against a slow one over strings of bits."""

import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.sources.prometheus import xor
from pipelines.sources.prometheus.wire import padded
from tests.pipelines.sources.prometheus.xor_oracle import bits_of, decode, encode

ALL = (-(2**63), 2**63 - 1)
STALE = 0x7FF0000000000002

patterns = st.one_of(
    st.floats().map(bits_of), st.integers(0, 2**64 - 1), st.sampled_from([0, STALE, bits_of(60.0)])
)
steps = st.one_of(
    st.integers(0, 2**14),
    st.integers(-(2**20), 2**20),
    st.sampled_from([8191, 8192, 8193, 65535, 65536, 524287, 524288, 524289, 2**40]),
)


def fast(chunks: list[bytes], window=ALL):
    """Samples, status and stale markers of chunks that lie behind each other."""
    ends = np.cumsum([len(chunk) for chunk in chunks])
    places = np.array(
        [[0, 1, e - len(c), e] for c, e in zip(chunks, ends, strict=True)], np.int64
    ).reshape(-1, 4)
    buf = padded(b"".join(chunks))
    claimed = np.empty(len(chunks), np.int64)
    total = xor.claimed_samples(buf, places, claimed)
    ts, bits = np.empty(total, np.int64), np.empty(total, np.uint64)
    stops, status = np.empty(len(chunks), np.int64), np.empty(len(chunks), np.int64)
    stale = np.zeros(1, np.int64)
    n = xor.decode_chunks(buf, places, np.array(window), ts, bits, stops, status, stale)
    return list(zip(ts[:n].tolist(), bits[:n].tolist(), strict=True)), status.tolist(), stale[0]


@given(st.integers(-(2**40), 2**42), st.lists(st.tuples(steps, patterns), max_size=60))
def test_what_was_encoded_is_decoded_to_the_bit(start, parts):
    samples, ts = [], start
    for step, value in parts:
        samples.append((ts, value))
        ts += step
    data = encode(samples)
    assert decode(data) == samples
    kept = [sample for sample in samples if sample[1] != STALE]
    assert fast([data]) == (kept, [xor.OK], len(samples) - len(kept))


@pytest.mark.parametrize("width", [14, 17, 20, 64])
@pytest.mark.parametrize("beyond", [-2, -1, 0, 1])
@pytest.mark.parametrize("sign", [1, -1])
def test_changes_of_the_step_are_exact_at_the_edges_of_their_widths(width, beyond, sign):
    change = sign * ((1 << min(width - 1, 40)) + beyond)
    times = [0, 1 << 42, 2 * (1 << 42) + change, 3 * (1 << 42) + change]
    samples = [(ts, bits_of(1.0)) for ts in times]
    assert fast([encode(samples)])[0] == samples


@given(st.lists(st.binary(max_size=80), min_size=1, max_size=4))
def test_any_bytes_decode_as_the_oracle_does_or_are_malformed_as_a_whole(chunks):
    expected, states, n_stale = [], [], 0
    for chunk in chunks:
        try:
            samples = decode(chunk)
        except ValueError:
            states.append(xor.MALFORMED)
            continue
        states.append(xor.OK)
        in_window = [s for s in samples if ALL[0] <= s[0] < ALL[1]]
        n_stale += sum(bits == STALE for _, bits in in_window)
        expected += [s for s in in_window if s[1] != STALE]
    assert fast(chunks) == (expected, states, n_stale)


@given(st.lists(patterns, min_size=1, max_size=30), st.data())
def test_a_chunk_cut_at_any_byte_gives_nothing(values, data):
    whole = encode([(1000 * i, value) for i, value in enumerate(values)])
    cut = data.draw(st.integers(0, len(whole) - 1))
    # Another chunk behind it must not be taken for its rest.
    other = encode([(5, bits_of(1.0))])
    assert fast([whole[:cut], other]) == ([(5, bits_of(1.0))], [xor.MALFORMED, xor.OK], 0)


def test_the_window_is_half_open():
    data = encode([(ts, bits_of(1.0)) for ts in (999, 1000, 1999, 2000)])
    assert [ts for ts, _ in fast([data], window=(1000, 2000))[0]] == [1000, 1999]


def test_an_ordinary_nan_is_a_sample_and_a_stale_marker_is_none():
    plain = struct.unpack(">Q", bytes.fromhex("7ff8000000000001"))[0]
    samples, _, n_stale = fast([encode([(1, plain), (2, STALE), (3, bits_of(-0.0))])])
    assert samples == [(1, plain), (3, bits_of(-0.0))]
    assert n_stale == 1
    assert math.isnan(np.uint64(plain).view(np.float64))


@pytest.mark.parametrize(
    ("encoding", "status"), [(2, xor.HISTOGRAM), (3, xor.HISTOGRAM), (0, xor.UNKNOWN), (9, 3)]
)
def test_other_encodings_are_told_apart_and_give_no_samples(encoding, status):
    buf = padded(bytes([0, 7, 1, 2, 3]))
    places, claimed = np.array([[0, encoding, 0, 5]], np.int64), np.empty(1, np.int64)
    assert xor.claimed_samples(buf, places, claimed) == 0
    assert claimed.tolist() == [7]
    none, found = np.empty(0, np.int64), np.empty(1, np.int64)
    ends = np.empty(1, np.int64)
    n = xor.decode_chunks(
        buf, places, np.array(ALL), none, none.view(np.uint64), ends, found, np.zeros(1, np.int64)
    )
    assert (n, found.tolist()) == (0, [status])


def test_a_chunk_that_claims_more_samples_than_it_has_bits_asks_for_no_memory():
    claimed = np.empty(1, np.int64)
    places = np.array([[0, 1, 0, 40]], np.int64)
    assert xor.claimed_samples(padded(b"\xff\xff" + bytes(38)), places, claimed) == 0
    assert claimed.tolist() == [-1]
