"""Answers of the JSON API: exact values, nothing partial, no crash."""

import json
import math
import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.sources.http.errors import AnswerError
from pipelines.sources.prometheus.json_answers import (
    read_document,
    read_helps,
    read_matrix,
    read_texts,
)
from pipelines.sources.prometheus.readings import Window
from pipelines.sources.prometheus.series import Series
from tests.pipelines.sources.prometheus.answers import matrix

EVER = Window(0, 10**14)


def read(body: bytes, window: Window = EVER, *, max_samples: int = 1000):
    return read_matrix(body, window, read=Series, max_samples=max_samples)


@given(st.lists(st.tuples(st.integers(0, 2**42), st.floats(allow_nan=False)), max_size=20))
def test_times_and_values_come_back_to_the_bit(samples):
    readings = read(matrix([({"a": "x"}, samples)]))
    got = list(zip(readings.ts.tolist(), readings.values.tolist(), strict=True))
    assert [(ts, struct.pack("d", v)) for ts, v in got] == [
        (ts, struct.pack("d", v)) for ts, v in samples
    ]


def test_nan_and_infinities_are_read_in_prometheus_spelling():
    values = [[1, "NaN"], [2, "+Inf"], [3, "-Inf"], [4, "1e+06"]]
    data = {"resultType": "matrix", "result": [{"metric": {}, "values": values}]}
    readings = read(json.dumps({"status": "success", "data": data}).encode())
    assert math.isnan(readings.values[0])
    assert readings.values[1:].tolist() == [math.inf, -math.inf, 1e6]


def test_the_window_is_half_open():
    body = matrix(
        [({"a": "x"}, [(999, 1.0), (1000, 2.0)]), ({"a": "y"}, [(1999, 3.0), (2000, 4.0)])]
    )
    readings = read(body, Window(1000, 2000))
    assert readings.values.tolist() == [2.0, 3.0]
    assert readings.segments.tolist() == [[0, 1], [1, 2]]


def test_histogram_samples_are_refused_with_their_number():
    entry = {"metric": {"a": "h"}, "histograms": [[1, {}], [2, {}]]}
    data = {"resultType": "matrix", "result": [entry]}
    readings = read(json.dumps({"status": "success", "data": data}).encode())
    assert [(one.n, one.example) for one in readings.refused] == [(2, '{a="h"}')]


@pytest.mark.parametrize(
    "more",
    [
        {"warnings": ["store api: connection refused"]},
        {"isPartial": True},
        {"partial": True},
        {"partialResponse": True},
    ],
)
def test_a_partial_answer_is_refused_and_may_be_asked_for_again(more):
    with pytest.raises(AnswerError, match="partial") as caught:
        read(matrix([], **more))
    assert caught.value.may_pass


def test_notes_that_are_no_warnings_pass():
    assert read(matrix([], infos=["metric might not be a counter"], isPartial=False)).series == ()


def of_values(values: str) -> bytes:
    entry = f'{{"metric": {{}}, "values": {values}}}'
    data = f'{{"resultType": "matrix", "result": [{entry}]}}'
    return f'{{"status": "success", "data": {data}}}'.encode()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>login</html>",
        b"[]",
        b"null",
        b'{"status": "success", "data": {"resultType": "vector", "result": []}}',
        b'{"status": "success", "data": {"resultType": "matrix", "result": [7]}}',
        b'{"status": "success", "data": {"resultType": "matrix", "result": [{}]}}',
        of_values("[[1]]"),
        of_values('[[1, "x"]]'),
        of_values('[["a", "1"]]'),
        of_values('[[1e30, "1"]]'),
    ],
)
def test_what_is_no_matrix_is_told_apart_from_an_empty_one(body):
    with pytest.raises(AnswerError) as caught:
        read(body)
    assert caught.value.is_foreign


def test_an_error_that_comes_with_status_200_is_an_error():
    body = b'{"status": "error", "errorType": "execution", "error": "query timed out"}'
    with pytest.raises(AnswerError, match="query timed out"):
        read_document(body)


def test_more_samples_than_the_limit_are_too_much():
    with pytest.raises(AnswerError) as caught:
        read(matrix([({}, [(i, 1.0) for i in range(11)])]), max_samples=10)
    assert caught.value.is_too_much


def test_lists_and_metadata_are_read_or_refused():
    assert read_texts(b'{"status": "success", "data": ["a"]}') == ["a"]
    with pytest.raises(AnswerError):
        read_texts(b'{"status": "success", "data": [1]}')
    helps = b'{"status": "success", "data": {"m": [{"help": "(in mW)"}, 3], "n": 1}}'
    assert read_helps(helps) == {"m": ["(in mW)"]}
    with pytest.raises(AnswerError):
        read_helps(b'{"status": "success", "data": []}')


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["metric", "values", "histograms", "result", "resultType", "data"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(json_values, st.binary(max_size=40))
def test_any_answer_is_read_or_refused(value, raw):
    result = {"status": "success", "data": {"resultType": "matrix", "result": value}}
    entry = {"status": "success", "data": {"resultType": "matrix", "result": [value]}}
    pairs = {"metric": {}, "values": [value, value]}
    nested = {"status": "success", "data": {"resultType": "matrix", "result": [pairs]}}
    for body in (raw, *(json.dumps(one).encode() for one in (value, result, entry, nested))):
        with suppress(AnswerError):
            read(body)
