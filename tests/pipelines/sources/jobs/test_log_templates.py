"""Templates of log lines: what differs by values only is one template; memory is bounded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.sources.jobs.log_templates import OTHER, TemplateTree, mask


@pytest.mark.parametrize(
    ("line", "masked"),
    [
        ("took 12.5 s at step 3", "took <num> s at step <num>"),
        ("peer 10.1.2.3:29500 and 10.1.2.3<49>", "peer <ip> and <ip>"),
        ("no /data/a/b.tar or ./x/y s3://b/k", "no <path> or <path> <path>"),
        ("at 0x7f3a9c in deadbeef01 of facade", "at <hex> in <hex> of facade"),
        ("id 123e4567-e89b-12d3-a456-426614174000", "id <uuid>"),
        ("2026-01-05 10:00:00,123 -1e-3", "<num> <num> <num>"),
        ("gpu_0 and h100", "gpu_0 and h100"),  # names, not numbers
    ],
)
def test_values_are_masked(line, masked):
    assert mask(line) == masked


def test_lines_that_differ_by_words_and_numbers_are_one_template():
    tree = TemplateTree()
    places = [tree.add(f"worker {n} failed to reach host {h}") for n, h in ((1, "a"), (2, "b"))]
    assert places == [0, 0]
    assert tree.text(0) == "worker <num> failed to reach host <*>"


def test_lines_of_other_length_or_sense_are_other_templates():
    tree = TemplateTree()
    lines = ["a b c d", "a b c d e", "w x y z"]
    assert [tree.add(line) for line in lines] == [0, 1, 2]
    assert [tree.text(place) for place in range(3)] == lines


def test_what_finds_no_room_is_the_other_template():
    tree = TemplateTree(most_templates=1)
    assert tree.add("one two three") == 0
    assert tree.add("four five six seven") is None
    assert tree.text(None) == OTHER
    assert len(tree) == 1
    assert tree.add("one two three") == 0


def test_a_word_that_finds_no_branch_shares_one():
    tree = TemplateTree(most_children=1, depth=1)
    assert [tree.add(f"{word} is down now") for word in ("alpha", "beta", "gamma")] == [0, 1, 1]
    assert tree.text(1) == "<*> is down now"


def test_a_line_belongs_to_the_template_it_shares_most_words_with():
    tree = TemplateTree(similarity=0.75, depth=1)
    lines = ["x a b c", "x a b d", "x q r s", "x a q d", "x a b z", "x q r t"]
    assert [tree.add(line) for line in lines] == [0, 0, 1, 2, 0, 1]
    assert [tree.text(place) for place in range(3)] == ["x a b <*>", "x q r <*>", "x a q d"]


LINES = st.lists(st.lists(st.sampled_from("abc123"), max_size=5).map(" ".join), max_size=30)


@given(LINES)
def test_the_same_lines_give_the_same_templates_within_bounds(lines):
    first, second = (TemplateTree(most_templates=5, most_children=3) for _ in range(2))
    places = [first.add(line) for line in lines]
    assert places == [second.add(line) for line in lines]
    assert len(first) <= 5
    for line, place in zip(lines, places, strict=True):
        if place is not None:
            template = first.text(place).split()
            pairs = zip(template, mask(line).split(), strict=True)
            assert all(kept in ("<*>", token) for kept, token in pairs)
