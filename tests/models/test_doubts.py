"""Rules of doubt: what makes a score unknown, and that every word of it has a cause."""

from datetime import timedelta

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from models.doubts import CAUSES, FAILED_MODEL, cause_of, doubt, outside_share
from models.reasons import UsualValues

USUAL = UsualValues(
    low={"a": 0.0, "b": 10.0, "count": 0.0},
    median={"a": 0.5, "b": 11.0, "count": 0.0},
    high={"a": 1.0, "b": 12.0, "count": 0.0},
)
NAMES = ("a", "b", "count", "new")


def share(*row: float) -> float:
    return float(outside_share(np.array([row], dtype=np.float32), NAMES, USUAL)[0])


def test_only_values_far_outside_count_and_only_of_features_that_move() -> None:
    assert share(0.5, 11, 0, 0) == 0
    assert share(10.9, 31.9, 1e6, 1e6) == 0  # ten spreads away; a count that never moved
    assert share(11.1, 11, 0, 0) == 0.5
    assert share(-10.1, -10.1, 0, 0) == 1
    assert share(np.nan, np.nan, np.nan, np.nan) == 0


def doubts(**changes: object) -> list[str | None]:
    matrix = pl.DataFrame({"entity_id": ["g"], "age": [0.1]}, schema_overrides={"age": pl.Float32})
    given_: dict[str, object] = {
        "missing": np.zeros(1), "outside": np.zeros(1), "max_missing_share": 0.5,
        "max_outside_share": 0.3, "sample_age": "age", "max_sample_age": timedelta(minutes=30),
    }  # fmt: skip
    age = changes.pop("age", 0.1)
    matrix = matrix.with_columns(age=pl.lit(age, dtype=pl.Float32))
    return doubt(matrix, **(given_ | changes)).to_list()  # type: ignore[arg-type]


def test_each_doubt_has_words_and_a_cause() -> None:
    cases = {
        "stale": doubts(age=1.5),
        "no_samples": doubts(age=None),
        "missing_inputs": doubts(missing=np.array([0.6])),
        "out_of_distribution": doubts(outside=np.array([0.4])),
        "failed_input": doubts(failed={"g": "newest sample is 3 min old"}),
        "failed_model": [FAILED_MODEL + "no telemetry sample was seen"],
        "other": ["something else"],
    }
    for cause, (words,) in cases.items():
        for text in (words, f"3 of 8 GPUs unknown: {words}"):
            frame = pl.DataFrame({"status_reason": [text]})
            assert frame.select(cause_of()).item() == cause, text
    assert set(cases) == set(CAUSES)
    assert doubts() == [None]


@given(st.one_of(st.none(), st.text()))
def test_any_text_has_a_cause_and_none_has_none(text: str | None) -> None:
    frame = pl.DataFrame({"status_reason": [text]}, schema={"status_reason": pl.String})
    found = frame.select(cause_of()).item()
    assert (found is None) == (text is None)
    assert found is None or found in CAUSES
