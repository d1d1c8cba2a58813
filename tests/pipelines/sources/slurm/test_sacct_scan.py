"""The compiled cutting of lines into fields agrees with splitting them one by one."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.sources.slurm.field_values import PADDING, as_words
from pipelines.sources.slurm.sacct_scan import count_lines, scan_lines

N_COLUMNS = 3
PIECES = st.sampled_from([b"|", b"||", b"|N", b"\r", b"\n", b"a", b"longer than a word", b"\xff"])


@given(
    pieces=st.lists(PIECES, max_size=30),
    beyond=st.binary(max_size=PADDING),
    delimiter=st.sampled_from([b"|", b"||", b"|N"]),
    is_closed=st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_fields_are_those_of_splitting_each_line(pieces, beyond, delimiter, is_closed):
    text = b"".join(pieces)
    buffer = np.zeros((len(text) + PADDING + 8) // 8 * 8, np.uint8)
    buffer[: len(text) + len(beyond)] = np.frombuffer(text + beyond, np.uint8)
    data = buffer[: len(text)]
    n = count_lines(data)
    bounds, is_whole = np.zeros(n + 1, np.int64), np.zeros(n, np.bool_)
    starts, lengths = (np.zeros((N_COLUMNS, n), np.int32) for _ in range(2))
    scan_lines(
        data, as_words(buffer), np.frombuffer(delimiter, np.uint8),
        np.arange(N_COLUMNS, dtype=np.int32), is_closed, 0, 0, bounds, starts, lengths, is_whole,
    )  # fmt: skip
    lines = text.removesuffix(b"\n").split(b"\n") if n else []
    assert np.diff(bounds).sum() == len(text)
    for number, line in enumerate(lines):
        *ended, rest = line.split(delimiter)
        rest = rest.removesuffix(b"\r")
        fields = ended if is_closed else [*ended, rest]
        assert is_whole[number] == (len(fields) == N_COLUMNS and not (is_closed and rest))
        for place, field in enumerate(fields[:N_COLUMNS]):
            begin = starts[place, number]
            assert text[begin : begin + lengths[place, number]] == field
