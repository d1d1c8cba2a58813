"""py-spy's dumps: JSON and text give the same stacks; what is no dump is refused."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import SourceError
from models.localization.stacks import RankStack, all_text
from pipelines.sources.stacks.py_spy import threads_of_json, threads_of_text

TEXT = """\
Process 4321: python -u train.py --lr 0.1
Python v3.11.4 (/usr/bin/python3.11)

Thread 4321 (active+gil): "MainThread"
    wait (torch/cuda/streams.py:225)
        Arguments:
            self: <Stream at 0x7f2c>
    step<int>(at::Tensor const&) (libtorch.so)
    clone3
Thread 0x7F11AA (idle): "Thread-3 (_run)"
    run (threading.py:982)
Thread 4399 (idle)
"""

JSON = [
    {
        "pid": 4321,
        "thread_id": 140,
        "thread_name": "MainThread",
        "os_thread_id": 4321,
        "active": True,
        "owns_gil": True,
        "frames": [
            {
                "name": "wait",
                "filename": "/env/lib/python3.11/site-packages/torch/cuda/streams.py",
                "module": None,
                "short_filename": "torch/cuda/streams.py",
                "line": 225,
                "locals": None,
            },
            {"name": "step<int>(at::Tensor const&)", "filename": "libtorch.so", "line": 0},
            {"name": "clone3", "filename": "", "short_filename": None, "line": 0},
        ],
    },
    {"thread_name": "Thread-9 (_run)", "frames": [{"name": "run", "filename": "threading.py"}]},
    {"thread_name": None, "frames": []},
]


def test_text_and_json_of_one_process_have_the_same_text():
    text, json = threads_of_text(TEXT), threads_of_json(JSON)
    assert all_text(RankStack(0, text)) == all_text(RankStack(0, json))
    assert [thread.name for thread in text] == ["MainThread", "Thread-3 (_run)", None]
    assert [f.function for f in text[0].frames] == [
        "wait", "step<int>(at::Tensor const&)", "clone3",
    ]  # fmt: skip


def test_colours_and_foreign_line_ends_make_no_difference():
    coloured = TEXT.replace("4321", "\x1b[1m\x1b[33m4321\x1b[0m").replace("\n", "\r\n")
    assert threads_of_text(coloured) == threads_of_text(TEXT)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no line `Thread"),
        ("Process 1: python\n", "no line `Thread"),
        ("    wait (x.py:1)\n", "a frame stands before any thread"),
        ("hello\n", "none of a py-spy dump: 'hello'"),
        ("Error: Failed to suspend process\n", "none of a py-spy dump"),
    ],
)
def test_text_that_is_no_dump_is_refused(text, said):
    with pytest.raises(SourceError, match=said):
        threads_of_text(text)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({}, "expected a list of threads"),
        ([], "the process may have ended"),
        ([3], "no list `frames`"),
        ([{"frames": None}], "no list `frames`"),
        ([{"frames": [{"filename": "x.py"}]}], "no text `name`"),
        ([{"frames": [None]}], "no text `name`"),
    ],
)
def test_json_that_is_no_dump_is_refused(content, said):
    with pytest.raises(SourceError, match=said):
        threads_of_json(content)


@given(st.text(alphabet=st.sampled_from('Thread 12(idle):"Main\n    w.py\x1b[0m<é'), max_size=80))
def test_any_text_is_read_or_refused(text):
    with suppress(SourceError):
        assert threads_of_text(text)


JSON_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["frames", "name", "thread_name", "filename"]), inner, max_size=3
        ),
    ),
)


@given(JSON_VALUES)
def test_any_json_is_read_or_refused(content):
    with suppress(SourceError):
        assert threads_of_json(content)
