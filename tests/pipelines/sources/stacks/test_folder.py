"""A folder of dumps: every file is parsed or refused, whatever is in it."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.errors import SourceError
from pipelines.sources.stacks import folder as reading
from pipelines.sources.stacks.folder import read_dumps, rounds_in

TEXT = 'Thread 1 (idle): "MainThread"\n    wait (x.py:1)\n'
STACK = json.dumps(
    [{"thread_name": "MainThread", "frames": [{"name": "wait", "filename": "x.py"}]}]
)
RECORD = json.dumps({"pg_config": {}, "entries": []})


@pytest.fixture
def write(tmp_path):
    def put(**files):
        for name, content in files.items():
            data = content if isinstance(content, bytes) else content.encode()
            (tmp_path / name).write_bytes(data)
        return tmp_path

    return put


def why(dumps):
    return {one.file: one.why for one in dumps.refused}


def test_forms_may_be_mixed_and_a_rank_may_have_a_stack_and_a_recorder(write):
    dumps = read_dumps(write(rank0=TEXT, rank1=STACK, nccl_trace_rank_1=RECORD))
    assert (sorted(dumps.stacks), sorted(dumps.records), dumps.refused) == ([0, 1], [1], ())
    assert dumps.stacks[0].threads == dumps.stacks[1].threads


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty"),
        (b" \n\n", "the file is empty"),
        (STACK[:40].encode(), "cut off or damaged"),
        (b"[" * 100_000, "cut off or damaged"),
        (b"\x80\x04\x95", "a pickle, which is never read"),
        (b"hello\n", "none of a py-spy dump"),
        (TEXT[:-4].encode(), "cut off: a text dump ends with a whole line"),
        (b"{}", "expected a list of threads"),
        (b'{"pg_config": 3}', "not as PyTorch writes it"),
        (b"\xff\xfe\x00garbage\n", "none of a py-spy dump"),
    ],
)
def test_a_file_that_is_no_dump_is_refused_and_the_others_count(write, content, said):
    dumps = read_dumps(write(rank0=content, rank1=TEXT))
    assert said in why(dumps)["rank0"]
    assert (dumps.n_files, dumps.n_parsed, sorted(dumps.stacks)) == (2, 1, [1])
    assert [one.rank for one in dumps.refused] == [0]


def test_bytes_that_are_no_utf8_cost_a_character_not_the_file(write):
    dumps = read_dumps(
        write(
            rank0=TEXT.encode() + b"    caf\xe9 (x.py:1)\n", rank1=b"\xef\xbb\xbf" + STACK.encode()
        )
    )
    assert sorted(dumps.stacks) == [0, 1]


def test_a_file_without_a_rank_or_beyond_the_job_is_refused(write):
    dumps = read_dumps(write(notes=TEXT, rank9=TEXT, rank1=TEXT), n_ranks=4)
    assert why(dumps) == {
        "notes": "no rank in the file's name; name it rank<N>",
        "rank9": "rank 9 is beyond the layout of 4 ranks",
    }


def test_the_first_of_two_files_of_a_rank_counts(write):
    dumps = read_dumps(write(rank1=TEXT, stack_rank_1=STACK))
    assert why(dumps) == {
        "stack_rank_1": "a second file of the same rank and form; the first is taken"
    }


def test_a_file_that_is_too_large_is_not_read(write, monkeypatch):
    monkeypatch.setattr(reading, "MOST_BYTES", 10)
    assert "not a dump of one rank" in why(read_dumps(write(rank0=TEXT, rank1="x" * 5)))["rank0"]


def test_a_folder_of_nothing_and_no_folder_are_one_clear_error(tmp_path):
    with pytest.raises(SourceError, match="holds no file. Expected one dump per rank"):
        read_dumps(tmp_path)
    with pytest.raises(SourceError, match="cannot be read: No such file"):
        read_dumps(tmp_path / "absent")
    (tmp_path / "file").write_text("x")
    with pytest.raises(SourceError, match="cannot be read: Not a directory"):
        read_dumps(tmp_path / "file")


def test_hidden_files_are_left(write):
    folder = write(rank0=TEXT)
    (folder / ".rank1").write_text("x")
    assert read_dumps(folder).n_files == 1


def test_rounds_are_subfolders_in_the_order_of_their_numbers(tmp_path):
    for name in ("round10", "round2", ".git"):
        (tmp_path / name).mkdir()
    assert [path.name for path in rounds_in(tmp_path)] == ["round2", "round10"]
    (tmp_path / "rank0").write_text("x")
    assert rounds_in(tmp_path) == []


@settings(max_examples=50)
@given(
    st.lists(st.binary(max_size=40) | st.sampled_from([TEXT.encode(), STACK.encode()]), max_size=4)
)
def test_every_file_is_parsed_or_refused(tmp_path_factory, contents):
    folder = tmp_path_factory.mktemp("dumps")
    for rank, content in enumerate([*contents, TEXT.encode()]):
        (folder / f"rank{rank}").write_bytes(content)
    dumps = read_dumps(folder)
    assert dumps.n_files == dumps.n_parsed + len(dumps.refused) == len(contents) + 1
