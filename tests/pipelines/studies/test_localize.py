"""`forewarn localize`: on generated hangs, on recorders, on slow jobs, on folders of rubbish."""

import json
from collections import Counter
from functools import partial

import pytest
from typer.testing import CliRunner

from models.localization.layout import Layout
from models.localization.verdict import judge_hang
from pipelines.cli import app
from pipelines.sources.stacks.folder import parse_dumps, rank_in_name
from pipelines.studies.localize import Asked, as_json, evidence_of, localize, render
from simulation.recovery.stack_dumps import SHAPES, hang_dumps

THOUSAND = Layout(tp=8, pp=8, dp=16)
SMALL = Layout(tp=2, pp=2, dp=8, per_machine=2)


def judged(layout, n_faults, seed, shape=None, cut=0.0):
    """Whether every faulty machine is evicted, and how many groups for how many faults."""
    hang = hang_dumps(layout, n_faults=n_faults, seed=seed, shape=shape, cut=cut)
    files = ((name, partial(bytes, data)) for name, data in hang.files.items())
    found = judge_hang(evidence_of(parse_dumps(files)), layout).eviction
    return set(hang.faulty) <= set(found.machines), len(found.blamed) - n_faults


@pytest.mark.slow
def test_of_1024_ranks_the_faulty_machines_are_evicted_with_one_group_for_each_fault_at_most():
    cases = [judged(THOUSAND, n, seed, cut=0.01) for seed in range(100) for n in (1, 2, 3)]
    assert sum(caught for caught, _ in cases) >= 0.99 * len(cases)
    assert sum(more <= 0 for _, more in cases) >= 0.99 * len(cases)


@pytest.mark.parametrize("shape", ["machine", "some_ranks", "pipeline"])
@pytest.mark.parametrize(
    "layout",
    [
        SMALL,
        Layout(tp=4, pp=4, dp=8, order="tp-pp-dp"),
        Layout(tp=1, pp=4, dp=8, per_machine=4, order="tp-pp-dp"),
        Layout(tp=16, pp=2, dp=6),
    ],
)
def test_other_layouts_are_localised_too(layout, shape):
    cases = [judged(layout, n, seed, shape) for seed in range(2) for n in (1, 2)]
    assert all(caught and more <= 0 for caught, more in cases)


def test_a_fault_that_only_one_neighbour_shows_is_blamed_on_the_neighbour():
    # The limit of stacks alone: nothing says that the one machine that waits is not the one.
    caught, _ = judged(SMALL, 1, 0, "hidden")
    assert not caught


@pytest.mark.parametrize("shape", SHAPES)
def test_each_shape_of_a_fault_is_found(shape):
    assert judged(THOUSAND, 1, 0, shape) == (True, 0)


@pytest.fixture
def hang(tmp_path):
    made = hang_dumps(SMALL, n_faults=1, seed=3, shape="machine")
    for name, data in made.files.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path, made.faulty[0]


ASKED = Asked(tp=2, pp=2, per_machine=2)


def test_the_text_says_first_what_to_do_then_why_then_what_was_read(hang):
    folder, faulty = hang
    lines = render(localize(folder, ASKED)).splitlines()
    assert lines[0] == f"EVICT 1 machine: {faulty}"
    assert lines[2].startswith("Why: their stacks differ")
    assert "dp 8 (dp from the highest rank found)" in lines[3]
    assert "  30 ranks, most: " in "\n".join(lines)
    assert lines[-1] == "Files: 32 read = 32 stack dumps + 0 flight recorders + 0 refused"


def test_hosts_are_called_by_their_names(hang, tmp_path_factory):
    folder, faulty = hang
    hosts = tmp_path_factory.mktemp("hosts") / "hosts"
    hosts.write_text("\n".join(f"gpu{n:03}" for n in range(16)))
    asked = Asked(tp=2, pp=2, dp=8, per_machine=2, hosts=hosts)
    assert render(localize(folder, asked)).startswith(f"EVICT 1 machine: gpu{faulty:03}\n")
    assert json.loads(as_json(localize(folder, asked)))["hosts"] == [f"gpu{faulty:03}"]


def test_json_holds_every_rank_in_one_place(hang):
    folder, faulty = hang
    document = json.loads(as_json(localize(folder, ASKED)))
    assert (document["evict"], document["is_clear"], document["basis"]) == (
        [faulty],
        True,
        "stacks",
    )
    assert sorted(r for g in document["groups"] for r in g["ranks"]) == list(range(32))


def test_a_machine_without_any_dump_is_evicted(hang):
    folder, faulty = hang
    for path in folder.iterdir():
        if rank_in_name(path.name) // 2 == faulty:
            path.unlink()
    found = localize(folder, Asked(tp=2, pp=2, dp=8, per_machine=2))
    assert found.verdict.eviction.machines == (faulty,)
    assert f"no dump at all from machines {faulty}" in render(found)


def recorder(rank, came):
    entry = {
        "pg_id": 0, "process_group": ["0", "default"], "collective_seq_id": 7,
        "profiling_name": "nccl:all_reduce", "state": "started", "is_p2p": False,
    }  # fmt: skip
    config = {"0": {"name": "0", "desc": "default", "ranks": str(list(range(8)))}}
    status = {"0": {f"last_{k}_collective": "6" for k in ("enqueued", "started", "completed")}}
    document = {"pg_config": config, "pg_status": status, "entries": [entry] if came else []}
    return json.dumps(document)


def test_recorders_name_the_rank_that_did_not_come(tmp_path):
    for rank in range(8):
        (tmp_path / f"nccl_trace_rank_{rank}").write_text(recorder(rank, came=rank != 5))
    found = localize(tmp_path, Asked(per_machine=2))
    assert found.verdict.basis == "collectives"
    text = render(found)
    assert text.startswith("EVICT 1 machine: 2\n")
    assert "  7 ranks wait in nccl:all_reduce." in text


def test_a_rank_that_alone_of_its_machine_gave_no_recorder_is_unknown(tmp_path):
    for rank in range(8):
        if rank not in (0, 6, 7):
            (tmp_path / f"rank_{rank}").write_text(recorder(rank, came=rank != 5))
    found = localize(tmp_path, Asked(dp=8, per_machine=2))
    assert found.verdict.stall.ranks == (0, 5, 6, 7)
    assert found.verdict.eviction.machines == (2, 3)


def test_a_number_in_a_strange_file_makes_no_ranks(hang):
    folder, _ = hang
    (folder / "notes_2026").write_text("hello")
    assert localize(folder, ASKED).layout.dp == 8


def test_a_last_rank_whose_file_is_cut_off_still_counts(hang):
    folder, _ = hang
    for path in folder.iterdir():
        if rank_in_name(path.name) == 31:
            path.write_text("")
    assert localize(folder, ASKED).layout.dp == 8


def test_recorders_of_half_of_the_ranks_are_not_heard(tmp_path):
    for rank in range(4):
        (tmp_path / f"rank_{rank}").write_text(recorder(rank, came=True))
    found = localize(tmp_path, Asked(dp=8, per_machine=2))
    assert found.verdict.eviction is None


def test_stacks_that_point_elsewhere_are_said(hang):
    folder, faulty = hang
    other = next(m for m in range(4) if m != faulty)
    for rank in range(32):
        document = json.loads(recorder(rank, came=rank != 2 * other))
        document["pg_config"]["0"]["ranks"] = str(list(range(32)))
        (folder / f"nccl_rank{rank}").write_text(json.dumps(document))
    found = localize(folder, ASKED)
    assert (found.verdict.eviction.machines, found.verdict.agrees) == ((other,), False)
    assert "Stacks point elsewhere" in render(found)


@pytest.mark.parametrize(("slow_rounds", "sure"), [(4, True), (2, False)])
def test_a_slow_machine_is_found_by_vote_over_rounds(tmp_path, slow_rounds, sure):
    for number in range(5):
        folder = tmp_path / f"round{number}"
        folder.mkdir()
        for rank in range(8):
            where = "forward" if rank == 3 and number < slow_rounds else "wait"
            dump = f'Thread 1 (idle): "MainThread"\n    {where} (x.py:{number})\n'
            (folder / f"rank{rank}.txt").write_text(dump)
    found = localize(tmp_path, Asked(per_machine=1))
    assert (found.verdict.eviction.machines, found.verdict.is_clear) == ((3,), sure)
    text = render(found)
    assert f"Rounds: flagged most in {slow_rounds} of 5" in text
    assert ("take five more rounds" in text) == (not sure)


def run(*arguments):
    return CliRunner().invoke(app, ["localize", *map(str, arguments)])


def test_the_exit_code_says_whether_there_is_a_clear_answer(hang, tmp_path_factory):
    folder, _ = hang
    options = ["--tp", 2, "--pp", 2, "--ranks-per-machine", 2]
    assert run(folder, *options).exit_code == 0
    alike = tmp_path_factory.mktemp("alike")
    for rank in range(8):
        (alike / f"rank{rank}").write_text('Thread 1 (idle): "MainThread"\n    wait (x.py:1)\n')
    answer = run(alike, "--ranks-per-machine", 1)
    assert answer.exit_code == 1
    assert answer.output.startswith("NOBODY STANDS OUT")
    assert json.loads(run(alike, "--json").output)["evict"] == []


def test_helper_threads_count_where_training_threads_are_all_alike(tmp_path):
    for rank in range(8):
        helper = "stuck" if rank == 6 else "read"
        dump = 'Thread 1 (idle): "MainThread"\n    wait (x.py:1)\nThread 2 (idle): "loader"\n'
        dump += f"    {helper} (y.py:1)\n"
        (tmp_path / f"rank{rank}").write_text(dump)
    found = localize(tmp_path, Asked(per_machine=1))
    assert (found.verdict.basis, found.verdict.eviction.machines) == ("helper_threads", (6,))


def test_a_circle_of_waits_is_the_codes_fault_and_evicts_nobody(tmp_path):
    for rank, (first, second) in enumerate([(3, 2), (2, 3)]):
        groups = {name: {"name": name, "ranks": "[0, 1]"} for name in ("a", "b")}
        entries = [
            {
                "pg_id": n, "process_group": [name, ""], "collective_seq_id": seq,
                "profiling_name": "nccl:x", "state": "completed" if seq < 3 else "started",
            }
            for n, (name, last) in enumerate([("a", first), ("b", second)])
            for seq in (2, last)
        ]  # fmt: skip
        (tmp_path / f"rank{rank}").write_text(json.dumps({"pg_config": groups, "entries": entries}))
    found = localize(tmp_path, Asked(per_machine=1))
    assert found.verdict.eviction is None
    assert "Ranks 0-1 wait for each other in a circle" in render(found)


def test_dumps_that_were_cut_off_are_unknown_and_blame_nobody(tmp_path):
    made = hang_dumps(SMALL, n_faults=1, seed=3, shape="machine", cut=0.2)
    for name, data in made.files.items():
        (tmp_path / name).write_bytes(data)
    found = localize(tmp_path, Asked(tp=2, pp=2, dp=8, per_machine=2))
    assert found.verdict.eviction.machines == made.faulty
    assert found.rounds[0].refused
    assert set(found.verdict.grouping.unknown) >= {one.rank for one in found.rounds[0].refused}


def test_a_dump_that_lost_the_thread_that_trains_is_unknown(tmp_path):
    for rank in range(8):
        name = "loader" if rank == 6 else "MainThread"
        (tmp_path / f"rank{rank}").write_text(f'Thread 1 (idle): "{name}"\n    wait (x.py:1)\n')
    found = localize(tmp_path, Asked(per_machine=2))
    assert (found.verdict.eviction, found.verdict.grouping.unknown) == (None, (6,))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--tp", "3"], "32 ranks are no multiple of tp x pp = 3 x 1. Give --dp"),
        (["--order", "tp-ep"], "unknown order 'tp-ep'"),
        (["--hosts", "absent"], "absent cannot be read"),
        (["--dp", "100000000"], "100,000,000 ranks; expected at most 131,072. Give --dp"),
    ],
)
def test_what_does_not_fit_is_one_clear_error(hang, options, said):
    folder, _ = hang
    answer = run(folder, *options)
    assert said in str(answer.exception)


def test_hostile_names_and_texts_do_not_reach_the_terminal(tmp_path):
    for rank in range(8):
        frame = "evil\x1b[2J" if rank == 3 else "wait"
        stack = [{"thread_name": "MainThread", "frames": [{"name": frame, "filename": "x.py"}]}]
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(stack))
    (tmp_path / "bad\x1b[2Jname").write_text("x")
    text = render(localize(tmp_path, Asked(per_machine=1)))
    assert Counter(text)["\x1b"] == 0
    assert "evil\\x1b[2J" in text
