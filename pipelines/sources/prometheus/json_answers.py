"""Answers of Prometheus' JSON API, of any server that speaks it: matrices, lists, metadata.

No request is sent here. An answer that says it is partial is refused: what it leaves out would
look like GPUs that are gone.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import orjson
import polars as pl

from pipelines.sources.http.errors import AnswerError
from pipelines.sources.prometheus.chunks import ReadLabels
from pipelines.sources.prometheus.readings import F64, Readings, Refused, Window, within

_PARTIAL_KEYS: Final = ("isPartial", "partial", "partialResponse", "is_partial")
_SHOWN: Final = 200


def read_document(body: bytes) -> Any:
    """The `data` of an answer.

    Args:
        body: The whole body.

    Raises:
        AnswerError: It is no such JSON, reports an error, or says that it is partial.
    """
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        shown = " ".join(body[:_SHOWN].decode("utf-8", errors="replace").split())
        raise AnswerError(f"the answer is no JSON but begins {shown!r}", is_foreign=True) from error
    if not isinstance(document, dict) or document.get("status") != "success":
        said = document.get("error") if isinstance(document, dict) else None
        raise AnswerError(
            f"the answer does not say success but {str(said or document)[:_SHOWN]!r}",
            is_foreign=not said,
        )
    data = document.get("data")
    holders = [document, data] if isinstance(data, dict) else [document]
    if any(holder.get(key) for holder in holders for key in _PARTIAL_KEYS):
        raise AnswerError(
            "the answer says that it is partial: a store behind it is missing", may_pass=True
        )
    warnings = document.get("warnings")
    if warnings:
        raise AnswerError(
            f"the answer carries warnings, so it may be partial: {str(warnings)[:_SHOWN]}",
            may_pass=True,
        )
    return data


def read_texts(body: bytes) -> list[str]:
    """A list of names or values. Raises what `read_document` raises."""
    data = read_document(body)
    if not isinstance(data, list) or not all(isinstance(text, str) for text in data):
        raise AnswerError("the answer is no list of texts", is_foreign=True)
    return data


def read_helps(body: bytes) -> Mapping[str, Sequence[str]]:
    """Help texts by metric name. Raises what `read_document` raises."""
    data = read_document(body)
    if not isinstance(data, dict):
        raise AnswerError("the answer is no table of metadata", is_foreign=True)
    return {
        name: [str(entry.get("help", "")) for entry in entries if isinstance(entry, dict)]
        for name, entries in data.items()
        if isinstance(entries, list)
    }


def read_matrix(body: bytes, window: Window, *, read: ReadLabels, max_samples: int) -> Readings:
    """Samples of a matrix, as `query_range` and range selectors answer.

    Args:
        body: The whole body.
        window: Half-open; other samples are left out.
        read: Reads labels.
        max_samples: Most samples to hold.

    Raises:
        AnswerError: It is no matrix, or holds too much; and see `read_document`.
    """
    data = read_document(body)
    if not isinstance(data, dict) or data.get("resultType") != "matrix":
        raise AnswerError("the answer is no matrix", is_foreign=True)
    series, moments, texts, ends, refused = [], [], [], [0], []
    for entry in _entries(data):
        labels, pairs = entry.get("metric"), entry.get("values", [])
        if not isinstance(labels, dict) or not isinstance(pairs, list):
            raise AnswerError("a series of the matrix has no metric or no values", is_foreign=True)
        known = read({str(key): str(value) for key, value in labels.items()})
        series.append(known)
        if histograms := entry.get("histograms"):
            rule = "native histogram samples: no DCGM field is one"
            refused.append(Refused(rule, len(histograms), known.text))
        try:
            moments += [moment for moment, _ in pairs]
            texts += [text for _, text in pairs]
        except (TypeError, ValueError) as error:
            raise AnswerError("a sample is no pair of time and value", is_foreign=True) from error
        ends.append(len(texts))
        if len(texts) > max_samples:
            raise AnswerError("the answer holds more samples than the limit", is_too_much=True)
    edges = np.array(ends, np.int64)
    readings = Readings(
        tuple(series),
        np.arange(len(series)),
        np.stack([edges[:-1], edges[1:]], axis=1),
        _milliseconds(moments),
        _numbers(texts),
        refused=tuple(refused),
    )
    return within(readings, window)


def _entries(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    result = data.get("result")
    if not isinstance(result, list) or not all(isinstance(entry, dict) for entry in result):
        raise AnswerError("the matrix has no list of series", is_foreign=True)
    return result


def _milliseconds(moments: Sequence[Any]) -> Any:
    try:
        seconds = np.array(moments, np.float64)
    except (TypeError, ValueError) as error:
        raise AnswerError("a time is no number", is_foreign=True) from error
    if seconds.ndim != 1 or not (np.abs(seconds) < 1e12).all():
        raise AnswerError("a time is beyond the years that exist", is_foreign=True)
    return np.rint(seconds * 1000).astype(np.int64)


def _numbers(texts: Sequence[Any]) -> F64:
    """Values as JSON carries them: texts, for NaN and the infinities."""
    try:
        column = pl.Series(texts, dtype=pl.String)
        values = column.cast(pl.Float64, strict=False)
        if values.null_count():  # the spellings polars does not know: +Inf
            return np.array([float(text) for text in texts], np.float64)
    except (TypeError, ValueError, pl.exceptions.PolarsError) as error:
        raise AnswerError("a value is no number", is_foreign=True) from error
    return values.to_numpy().astype(np.float64)
