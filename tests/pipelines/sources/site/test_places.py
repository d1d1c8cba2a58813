"""Places by names of nodes: the first rule that matches, and no node placeless unseen."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from features.tables import CORE_TOPOLOGY
from pipelines.sources.site.places import PlaceRule, places_by_name

RACKS = PlaceRule(
    pattern=r"^r(?P<rack>\d+)n(?P<unit>\d+)(?P<side>[ab])?$",
    places={"rack": "R{rack}", "half": "R{rack}-{side}", "hall": "east"},
)
LOGIN = PlaceRule(pattern="^login", places={"pool": "service"})


def placed(nodes, *rules):
    result = places_by_name(nodes, rules)
    frame = result.table("core/topology")
    assert CORE_TOPOLOGY.enforce(frame).rejects.is_empty()
    return frame.select("node", "level", "place").rows()


def refused(nodes, *rules):
    return places_by_name(nodes, rules).quarantine.select("rule", "count", "example").rows()


def test_groups_of_the_name_fill_the_places():
    assert placed(["r07n12b"], RACKS) == [
        ("r07n12b", "half", "R07-b"), ("r07n12b", "hall", "east"), ("r07n12b", "rack", "R07"),
    ]  # fmt: skip


def test_a_level_whose_group_matched_nothing_gives_no_place():
    assert [row[1] for row in placed(["r07n12"], RACKS)] == ["hall", "rack"]


def test_the_first_rule_that_matches_counts():
    every = PlaceRule(pattern=".", places={"pool": "rest"})
    assert placed(["login1", "x1"], LOGIN, every) == [
        ("login1", "pool", "service"), ("x1", "pool", "rest"),
    ]  # fmt: skip


def test_nodes_that_no_rule_matches_are_counted_with_an_example():
    assert refused(["r1n1", "zz", "yy", "yy"], RACKS, LOGIN) == [
        ("no rule matches the node's name", 2, "yy")
    ]


def test_a_match_without_a_place_is_counted_too():
    only = PlaceRule(pattern="^n(?P<rack>r)?", places={"rack": "{rack}"})
    assert refused(["n1"], only) == [
        ("the rule that matches the node's name gives it no place", 1, "n1")
    ]


def test_a_name_that_is_none_is_refused():
    rule = "the node's name does not have 1 to 255 bytes of UTF-8"
    assert refused(["", "a" * 256, "\ud800"], RACKS) == [(rule, 3, "''")]


def test_a_pattern_that_would_take_for_ever_elsewhere_is_harmless():
    evil = PlaceRule(pattern="^(a+)+$", places={"rack": "x"})
    assert refused(["a" * 250 + "!"], evil)[0][1] == 1


@pytest.mark.parametrize(
    ("pattern", "places", "message"),
    [
        ("(", {"rack": "x"}, "no regular expression"),
        ("(?=x)", {"rack": "x"}, "no regular expression"),
        ("a" * 1001, {"rack": "x"}, "at most 1000"),
        ("", {"rack": "x"}, "at least 1"),
        ("x", {}, "at least 1"),
        ("(?P<a>x)", {"rack": "{b}"}, "rack names b; the pattern's groups are a"),
        ("(?P<a>x)", {"rack": "{a"}, "is no place"),
        ("x", {"rack": " "}, "is no place"),
        ("x", {"a rack": "x"}, "no name of a level"),
    ],
)
def test_a_rule_that_cannot_be_used_is_one_clear_error(pattern, places, message):
    with pytest.raises(ValidationError, match=message):
        PlaceRule(pattern=pattern, places=places)


@settings(max_examples=40)
@given(st.lists(st.sampled_from(["r1n1", "r2n3b", "login", "x"]) | st.text(max_size=5), max_size=9))
def test_every_node_is_placed_or_counted_once_in_any_order(nodes):
    result = places_by_name(nodes, [RACKS, LOGIN])
    again = places_by_name(nodes[::-1] * 2, [RACKS, LOGIN])
    assert again.table("core/topology").equals(result.table("core/topology"))
    n_read, n_parsed, _, n_quarantined = result.reads.drop("source", "origin").row(0)
    assert n_read == len(set(nodes)) == n_parsed + n_quarantined
    assert result.table("core/topology")["node"].n_unique() == n_parsed
