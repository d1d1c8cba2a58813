"""Stacks by text: what is the same place, who stands out, who is unknown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.localization.grouping import group_ranks
from models.localization.layout import Layout
from models.localization.stacks import (
    Frame,
    RankStack,
    ThreadStack,
    all_text,
    frame_text,
    main_text,
)

LAYOUT = Layout(pp=2, dp=4, per_machine=2, order="pp-dp-tp")  # machine m is replica m


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Frame("f at 0x7f00aa", "/a/env1/torch/x.py"), Frame("f at 0x1", "/b/torch/x.py")),
        (Frame("clone3+0x2d", "libc.so.6"), Frame("clone3+0x99", "libc.so.6")),
        (Frame("_compiled_140233", "x.py"), Frame("_compiled_99887766", "x.py")),
        (Frame("<lambda 0xAB>", ""), Frame("<lambda 0xCD>", "")),
        (Frame("0x7f8bfd24524a", "libc.so.6"), Frame("0x7f11", "libc.so.6")),
        (Frame("f", "C:\\a\\torch\\x.py"), Frame("f", "/q/torch/x.py")),
    ],
)
def test_addresses_generated_numbers_and_folders_make_no_difference(one, other):
    assert frame_text(one) == frame_text(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Frame("conv2d", "x.py"), Frame("conv3d", "x.py")),
        (Frame("f", "a/x.py"), Frame("f", "b/x.py")),
        (Frame("all_reduce", "x.py"), Frame("all_gather", "x.py")),
    ],
)
def test_other_places_stay_apart(one, other):
    assert frame_text(one) != frame_text(other)


def thread(name, *functions):
    return ThreadStack(name, tuple(Frame(f, "x.py") for f in functions))


def test_only_the_thread_that_trains_is_compared():
    one = RankStack(0, (thread("MainThread", "wait"), thread("tensorboard", "write")))
    other = RankStack(1, (thread("pin_memory", "read"), thread("MainThread", "wait")))
    assert main_text(one) == main_text(other) == ("wait (x.py)",)
    assert all_text(one) != all_text(other)


def test_without_a_main_thread_all_threads_count_in_any_order():
    one = RankStack(0, (thread("Thread-1", "a"), thread("Thread-7", "b")))
    other = RankStack(1, (thread("Thread-12", "b"), thread("Thread-3", "a")))
    assert (
        main_text(one) == main_text(other) == ("[Thread-#]", "a (x.py)", "[Thread-#]", "b (x.py)")
    )


def grouped(texts, layout=LAYOUT, **more):
    return group_ranks({r: (t,) for r, t in enumerate(texts) if t != "."}, layout, **more)


def roles(texts, layout=LAYOUT):
    return {group.text[0]: group.role for group in grouped(texts, layout).groups}


def test_what_most_ranks_do_is_dominant_and_one_replica_alone_stands_out():
    assert roles("aaaaaabb") == {"a": "dominant", "b": "outlier"}
    assert grouped("aaaaaabb").outliers == (6, 7)


def test_what_one_stage_does_in_most_replicas_is_usual_for_it():
    assert roles("abababab") == {"a": "dominant", "b": "pattern"}
    assert roles("ababaaaa") == {"a": "dominant", "b": "outlier"}


def test_with_two_replicas_size_alone_decides():
    layout = Layout(pp=4, dp=2, per_machine=1)
    assert roles("aaaaabbb", layout)["b"] == "pattern"
    assert roles("aaaaaabb", layout)["b"] == "outlier"


def test_a_machine_without_any_dump_is_silent_and_a_single_gap_is_unknown():
    found = grouped("aaaa..a.")
    assert (found.silent_machines, found.unknown, found.outliers) == ((2,), (7,), ())


def test_a_file_that_cannot_be_used_is_unknown_never_silent():
    found = grouped("aaaa..aa", unreadable=[4])
    assert (found.silent_machines, found.unknown) == ((), (4, 5))


def test_a_stack_without_its_outer_calls_was_cut_short_and_is_unknown():
    texts = dict.fromkeys(range(8), ("wait", "step", "main")) | {3: ("wait", "step"), 4: ()}
    found = group_ranks(texts, LAYOUT)
    assert (found.outliers, found.unknown) == ((), (3, 4))
    inner_differs = texts | {3: ("step", "main"), 4: ("wait", "main")}
    assert group_ranks(inner_differs, LAYOUT).outliers == (3, 4)


def test_without_a_majority_nothing_is_clear():
    assert not grouped("abcdefgh").is_clear
    assert grouped("aaaaaabc").is_clear
    assert not grouped("........").is_clear


@given(st.lists(st.sampled_from("abc."), min_size=8, max_size=8))
def test_every_rank_is_in_exactly_one_place(texts):
    found = grouped(texts)
    silent = [r for m in found.silent_machines for r in LAYOUT.ranks_of(m)]
    placed = [r for g in found.groups for r in g.ranks] + [*found.unknown, *silent]
    assert sorted(placed) == list(range(8))
