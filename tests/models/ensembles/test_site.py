"""Rules of what a site may choose for its failure score."""

from typing import Any

import polars as pl
import pytest

from models.ensembles.site import choice_on_card, chosen_length
from models.ensembles.sliding import EVERYTHING
from models.specs import SiteChoice, TrainSpec
from models.training.splits import Origin
from tests.models.ensembles.made_up import DAY, NAMES, START, TASK


@pytest.fixture
def asked() -> dict[str, Any]:
    return {
        "origin": Origin(START + 20 * DAY, START + 24 * DAY, START + 30 * DAY),
        "names": NAMES,
        "task": TASK,
        "spec": TrainSpec(rounds=5, min_data_in_leaf=20, min_incidents=2),
    }


def test_the_length_is_everything_unless_asked_otherwise(rows, asked) -> None:
    assert chosen_length(rows, "all", **asked).length == EVERYTHING
    assert chosen_length(rows, 30, **asked).length == 30 * DAY


def test_auto_tries_the_last_half_and_quarter_and_tells_what_each_was_worth(rows, asked) -> None:
    before = rows.filter(pl.col("as_of") < asked["origin"].train_until)
    found = chosen_length(before, "auto", **asked)
    assert set(found.precision) == {5 * DAY, 10 * DAY, EVERYTHING}
    assert found.length in found.precision
    told = choice_on_card(SiteChoice(span="auto"), found)["average_precision"]
    assert [one["days"] for one in told] == [5, 10, None]
    assert all(len(one["by_origin"]) == 3 for one in told)


def test_auto_looks_at_nothing_after_the_cut(rows, asked) -> None:
    is_later = pl.col("as_of") + asked["task"].embargo > asked["origin"].train_until
    other = rows.with_columns(label=pl.when(is_later).then(1).otherwise("label").cast(pl.Int8))
    assert chosen_length(other, "auto", **asked) == chosen_length(rows, "auto", **asked)
