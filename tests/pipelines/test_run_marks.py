"""Rules of the marks: a run at work is seen, one whose process was killed is seen, too."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from pipelines.run_marks import mark, state_of, sweep, unmark

_HOLD = "import sys,time; from pathlib import Path; from pipelines.run_marks import mark; "
_HOLD += "f = mark(Path(sys.argv[1]), 'r1'); print('held', flush=True); time.sleep(60)"


def test_a_run_is_at_work_until_it_gives_its_mark_back(tmp_path: Path) -> None:
    assert state_of(tmp_path, "r1") == "unknown"
    file = mark(tmp_path, "r1")
    assert state_of(tmp_path, "r1") == "at_work"
    unmark(tmp_path, "r1", file)
    assert state_of(tmp_path, "r1") == "unknown"


def test_a_run_whose_process_was_killed_is_dead(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert state_of(tmp_path, "r1") == "at_work"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert state_of(tmp_path, "r1") == "dead"
    sweep(tmp_path, "r1")
    assert state_of(tmp_path, "r1") == "unknown"
