"""The loop goes on whatever becomes of a round, and ends when told to, the node in hand done."""

import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from features.errors import SourceError
from remediation.program.loop import Ending, RoundNote, ended_by_signals, run_loop, run_one
from remediation.program.round import Round
from tests.remediation.program_world import ProgramWorld, make_world

NOW = datetime(2026, 1, 5, 10, tzinfo=UTC)


class FakeEnding(Ending):
    """Ends after some rounds; keeps the pauses and waits for none."""

    def __init__(self, rounds: int) -> None:
        super().__init__()
        self.left = rounds
        self.pauses: list[float] = []

    def wait(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        self.left -= 1
        if self.left == 0:
            self("told to end")
        return self.left == 0


def loop_of(folder: Path, *outcomes: Exception | Round) -> tuple[FakeEnding, list[str]]:
    made, said, ending = iter(outcomes), [], FakeEnding(len(outcomes))

    def make_round() -> Round:
        outcome = next(made)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    run_loop(
        make_round,
        state=folder,
        ending=ending,
        interval_s=60,
        longest_pause_s=300,
        say=said.append,
        clock=lambda: NOW,
    )
    return ending, said


def test_a_round_that_fails_never_ends_the_loop_and_lengthens_the_pause(tmp_path: Path) -> None:
    error, ours = SourceError("slurmctld \x1b[2J is gone"), ZeroDivisionError("by us")
    ending, said = loop_of(tmp_path, error, ours, error, Round(), error)
    assert ending.pauses == [120, 240, 300, 60, 120]
    assert said[0] == "round failed (1 in a row, next in 120 s): slurmctld \\x1b[2J is gone"
    assert "please report it: ZeroDivisionError: by us" in said[1]
    assert said[-1] == "told to end; 5 rounds, 4 failed"


def test_the_last_round_is_noted_for_status(tmp_path: Path) -> None:
    loop_of(tmp_path / "state", SourceError("a"), SourceError("b"))
    assert RoundNote.read(tmp_path / "state") == RoundNote(
        ended_at=NOW, text="b", is_failed=True, failed_in_row=2, rounds=2, failed=2
    )


def test_the_same_line_is_logged_once(tmp_path: Path) -> None:
    _, said = loop_of(tmp_path, *[Round(refused_by="another hook has the lease")] * 3)
    assert said == ["another hook has the lease", "told to end; 3 rounds, 0 failed"]


def test_a_state_folder_that_cannot_be_written_stops_no_round(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ending, said = loop_of(tmp_path / "file" / "state", Round(), Round())
    assert len(ending.pauses) == 2
    assert "cannot be noted" in said[1]


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"ended_at": 7}'])
def test_a_note_that_cannot_be_read_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "round.json").write_text(content)
    assert RoundNote.read(tmp_path) is None


def test_a_signal_ends_the_wait_and_a_second_one_is_no_longer_caught() -> None:
    before = signal.getsignal(signal.SIGINT)  # a shell's background job ignores it
    with ended_by_signals() as ending:
        os.kill(os.getpid(), signal.SIGTERM)
        assert ending.wait(30)
        assert ending.why() == "the hook was told to end (SIGTERM)"
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) == before


def test_a_failed_single_round_is_noted_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world: ProgramWorld = make_world(tmp_path, monkeypatch)
    settings = world.write()
    for _ in range(2):
        with pytest.raises(SourceError):
            run_one(settings, core_tables=None)
    note = RoundNote.read(settings.state)
    assert note is not None
    assert (note.is_failed, note.failed_in_row) == (True, 2)
    world.publish({"n1": 0.9})
    run_one(settings, core_tables=None)
    note = RoundNote.read(settings.state)
    assert note is not None
    assert "acted on n1" in note.text
    assert note.failed_in_row == 0


_SLOW_SLURM = """\
import sys, time
from pathlib import Path
from tests.remediation.slurm_world import FakeNode, FakeSlurm
from remediation.actuators import slurm_run
from pipelines import cli

ROOT = sys.argv[1]

class Slow(FakeSlurm):
    def _update(self, *args):
        Path(ROOT, "begun").touch()
        time.sleep(1.5)
        return super()._update(*args)

slurm = Slow({name: FakeNode() for name in ("n1", "n2", "n3", "n4")})
slurm_run.LocalRunner = lambda **_: slurm
sys.argv = ["forewarn", "remediate", "loop", "--hook", ROOT + "/hook.yaml"]
try:
    cli.main()
finally:
    print([name for name, node in slurm.nodes.items() if "DRAIN" in node.flags])
"""


@pytest.mark.slow
def test_sigterm_finishes_the_node_in_hand_and_begins_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(tmp_path, monkeypatch)
    world.write(site={
        "levels": [{"level": "notify_then_drain"}],
        "caps": {
            "held_percent": 100, "partition_percent": 100, "per_rack": None, "actions_per_hour": 9,
        },
    })  # fmt: skip
    world.publish(dict.fromkeys(("n1", "n2", "n3", "n4"), 0.9))
    process = subprocess.Popen(
        [sys.executable, "-c", _SLOW_SLURM, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    deadline = time.monotonic() + 120
    while not (tmp_path / "begun").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert out.strip() == "['n1']"
    assert "told to end (SIGTERM); 1 rounds, 0 failed" in err
    note = json.loads((tmp_path / "state" / "round.json").read_text())
    assert note["is_failed"] is False
