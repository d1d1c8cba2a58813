"""Rules of sequences: the entity's own rows, never a later one."""

import importlib.util
import json
from dataclasses import replace
from datetime import timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from features.contracts import UTC_TIME
from features.errors import DataError
from models.ensembles import sequence_networks
from models.ensembles.sequence_networks import SequenceSpec, TorchMissingError
from models.ensembles.sequences import ABSENT, last_rows
from models.ensembles.stored import member_from_dict
from tests.models.ensembles.made_up import DAY, NAMES, START, TASK

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed (extra `sequence`)"
)
LSTM = SequenceSpec(architecture="LSTM", length=3, epochs=4, min_incidents=5, learning_rate=0.01)
SPECS = (LSTM, replace(LSTM, architecture="1D-CNN"))

keys = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 6)), min_size=1, max_size=9, unique=True
)


def frame(pairs) -> pl.DataFrame:
    return pl.DataFrame(
        {"entity_id": [e for e, _ in pairs], "as_of": [START + d * DAY for _, d in pairs]},
        schema_overrides={"as_of": UTC_TIME},
    )


@given(keys, st.integers(1, 4))
def test_sequences_are_those_of_a_plain_loop(pairs, length) -> None:
    expected = []
    for entity, day in pairs:
        own = sorted((d, i) for i, (e, d) in enumerate(pairs) if e == entity and d <= day)
        last = [i for _, i in own[-length:]]
        expected.append([ABSENT] * (length - len(last)) + last)
    assert last_rows(frame(pairs), length=length).tolist() == expected


def test_a_row_given_twice_is_refused() -> None:
    with pytest.raises(DataError, match="share entity and moment"):
        last_rows(frame([("a", 1), ("a", 1)]), length=2)


def test_without_torch_one_clear_error(early, monkeypatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(sequence_networks.importlib, "import_module", missing)
    with pytest.raises(TorchMissingError, match=r"forewarn\[sequence\]"):
        LSTM.fit(early, feature_names=NAMES, task=TASK)


@needs_torch
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_a_network_ranks_repeats_itself_and_reads_back_to_the_last_bit(spec, early, late) -> None:
    member = spec.fit(early, feature_names=NAMES, task=TASK)
    raw = member.raw_scores(late, earlier=early)
    assert roc_auc_score(late["label"], raw) > 0.75
    again = spec.fit(early.reverse(), feature_names=NAMES, task=TASK)
    assert (again.raw_scores(late, earlier=early) == raw).all()
    stored = member_from_dict(json.loads(json.dumps(member.to_dict(), allow_nan=False)))
    assert (stored.raw_scores(late, earlier=early) == raw).all()


@needs_torch
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_what_comes_later_changes_no_score(spec, early, late) -> None:
    member = spec.fit(early, feature_names=NAMES, task=TASK)
    until = START + 25 * DAY
    past = late.filter(pl.col("as_of") <= until)
    poisoned = late.with_columns(
        pl.when(pl.col("as_of") > until).then(1e6).otherwise("heat").cast(pl.Float32).alias("heat")
    )
    both = poisoned.with_columns(raw=member.raw_scores(poisoned, earlier=early))
    kept = both.filter(pl.col("as_of") <= until)["raw"].to_numpy()
    np.testing.assert_allclose(kept, member.raw_scores(past, earlier=early), rtol=0, atol=1e-5)


@needs_torch
def test_earlier_rows_are_looked_back_on(early, late) -> None:
    member = LSTM.fit(early, feature_names=NAMES, task=TASK)
    first = late.filter(pl.col("as_of") == pl.col("as_of").min())
    near = early.with_columns(as_of=pl.col("as_of") + timedelta(days=1))
    assert (member.raw_scores(first, earlier=near) != member.raw_scores(first)).any()
