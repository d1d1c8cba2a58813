"""Rules of diagnosing an incident that has begun, and of judging it."""

import polars as pl
import pytest

from features.diagnosis import diagnosis_features
from models.faults.diagnosis import (
    DiagnosisResult,
    compare_verdicts,
    diagnose,
    judge_verdicts,
    rule_verdicts,
    train_diagnosis,
)


def cases(found: list[tuple[str, str, float]]) -> pl.DataFrame:
    """Incidents as (what it turned out to be, the rule's type, link events before)."""
    zeros = dict.fromkeys(diagnosis_features(), 0.0)
    rows = [
        {
            "incident_id": f"i{n}", "entity_id": f"e{n}", "as_of": n, "found_type": true,
            "rule_type": rule, "second_rule_type": None, **zeros,
            "node_link_events_24h": links, f"is_rule_{rule}": 1.0,
        }
        for n, (true, rule, links) in enumerate(found)
    ]  # fmt: skip
    signs = {name: pl.Float32() for name in diagnosis_features()}
    return pl.DataFrame(rows, schema_overrides={"second_rule_type": pl.String(), **signs})


TRAIN = cases(
    [("nic_fabric", "host", 5.0)] * 20
    + [("power", "host", 0.0)] * 20
    + [("off_bus", "off_bus", 0.0)] * 20
    + [("sdc", "sdc", 0.0)] * 3
)


def test_what_the_rule_cannot_tell_is_told_by_the_signs() -> None:
    model = train_diagnosis(TRAIN)
    test = cases([("nic_fabric", "host", 4.0), ("power", "host", 0.0)] * 4)
    result = compare_verdicts(
        test["found_type"].to_list(), diagnose(model, test), rule_verdicts(test, usual=[])
    )
    assert (result.model.top1, result.rule.top1) == (1.0, 0.0)
    assert (result.n_mended, result.n_broken) == (8, 0)
    assert result.beats_rule
    assert result.model.by_class["power"].n_right == 4
    assert result.rule.confusion["power", "host"] == 4


@pytest.mark.parametrize("rule", ["sdc", "thermal"])
def test_a_type_too_rare_to_learn_is_left_to_the_rule(rule: str) -> None:
    (verdict,) = diagnose(train_diagnosis(TRAIN), cases([("", rule, 0.0)]))
    assert verdict[0] == rule
    assert verdict[1] != rule


def test_where_the_rule_has_no_second_type_the_most_usual_other_one_stands() -> None:
    found = rule_verdicts(cases([("", "off_bus", 0), ("", "gsp", 0)]), usual=["off_bus", "power"])
    assert found == [("off_bus", "power"), ("gsp", "off_bus")]


def test_each_verdict_is_counted_once_by_class() -> None:
    verdicts = [("a", "b"), ("b", "a"), ("a", "c"), ("a", None)]
    found = judge_verdicts(["a", "a", "b", "c"], verdicts)
    assert (found.n, found.top1, found.top2) == (4, 0.25, 0.5)
    one = found.by_class["a"]
    assert (one.n_true, one.n_named, one.n_right, one.n_right_in_two) == (2, 3, 1, 2)
    assert dict(found.confusion) == {("a", "a"): 1, ("a", "b"): 1, ("b", "a"): 1, ("c", "a"): 1}
    assert found.top1_interval[0] < 0.25 < found.top1_interval[1]
    assert found.to_dict()["by_class"]["c"]["n_right"] == 0


@pytest.mark.parametrize(
    ("mended", "broken", "beats"), [(6, 0, True), (5, 0, False), (0, 0, False), (23, 12, False)]
)
def test_the_rule_is_beaten_only_beyond_chance(mended: int, broken: int, beats: bool) -> None:
    same = judge_verdicts(["a"], [("a", None)])
    found = DiagnosisResult(model=same, rule=same, n_mended=mended, n_broken=broken)
    assert found.beats_rule == beats
