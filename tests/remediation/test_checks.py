"""A check ends as passed, failed or unknown, in time, and leaves nothing running."""

import itertools
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from features.errors import DataError
from remediation import checks
from remediation.checks import MOST_OUTPUT, Check, CheckResult, CheckRunner

NOW = datetime(2026, 1, 5, 10, tzinfo=UTC)
SECOND = 1 / 60


def python(code: str, **changes: object) -> Check:
    values = {"name": "test", "timeout_minutes": 20 * SECOND}
    return Check(command=(sys.executable, "-c", code, "{node}"), **(values | changes))


@pytest.fixture
def runner():
    with CheckRunner(clock=lambda: NOW, environment=os.environ, at_once=2) as made:
        yield made


def run(runner: CheckRunner, check: Check, node: str = "gpu-1") -> CheckResult:
    assert runner.start(check, node=node, boot_id="boot-1")
    (result,) = runner.finished(wait_s=30)
    return result


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def ends(pid: int) -> bool:
    end = time.monotonic() + 60
    while is_alive(pid) and time.monotonic() < end:
        time.sleep(0.02)
    return not is_alive(pid)


@pytest.mark.parametrize(
    ("code", "changes", "status"),
    [
        ("pass", {}, "passed"),
        ("exit(3)", {}, "failed"),
        ("exit(3)", {"expected_exit": 3}, "passed"),
        ("pass", {"expected_exit": 3}, "failed"),
        ("exit(255)", {}, "unknown"),
        ("exit(124)", {}, "unknown"),
        ("exit(255)", {"unknown_exits": ()}, "failed"),
        ("import os; os.kill(os.getpid(), 9)", {}, "unknown"),
    ],
)
def test_g24_the_exit_code_says_passed_or_failed_or_nothing(runner, code, changes, status):
    result = run(runner, python(code, **changes))
    assert (result.status, result.node, result.boot_id) == (status, "gpu-1", "boot-1")


def test_g24_what_cannot_be_started_is_unknown(runner):
    result = run(runner, Check(name="x", command=("/no/such/program",)))
    assert result.status == "unknown"
    assert "could not be started" in result.detail


FORKS = (
    "import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', "
    "'import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(300)']); "
    "print(p.pid, flush=True); "
)


def test_g24_after_its_time_it_is_killed_with_all_it_started_and_unknown(runner, monkeypatch):
    monkeypatch.setattr(checks, "_GRACE_S", 0.3)
    code = "import signal; signal.signal(15, signal.SIG_IGN); " + FORKS + "time.sleep(60)"
    result = run(runner, python(code, timeout_minutes=SECOND))
    assert (result.status, result.exit_code) == ("unknown", None)
    assert "did not end within" in result.detail
    assert ends(int(result.output))


def test_g24_it_may_tidy_up_before_it_is_killed(runner):
    code = (
        "import signal, sys, time; signal.signal(15, lambda *_: (print('tidy'), sys.exit(0))); "
        "print('ready', flush=True); time.sleep(60)"
    )
    result = run(runner, python(code, timeout_minutes=3 * SECOND))
    assert (result.status, result.output) == ("unknown", "ready\ntidy\n")


def test_g24_what_it_left_running_does_not_hold_up_the_result(runner):
    result = run(runner, python(FORKS))
    assert result.status == "passed"
    assert ends(int(result.output))


def test_g24_the_end_of_its_output_is_kept_whatever_it_is(runner):
    code = "import sys; sys.stdout.buffer.write(b'x' * 10**6 + b'\\xff\\x00 end')"
    result = run(runner, python(code))
    assert len(result.output) == MOST_OUTPUT
    assert result.output.endswith("\ufffd\x00 end")


def test_g24_endless_output_does_not_outlast_the_time(runner, monkeypatch):
    monkeypatch.setattr(checks, "_GRACE_S", 0.3)
    result = run(runner, Check(name="x", command=("yes",), timeout_minutes=SECOND / 2))
    assert (result.status, len(result.output)) == ("unknown", MOST_OUTPUT)


def test_g24_who_writes_faster_than_anyone_reads_does_not_keep_the_reader(monkeypatch):
    n_read = itertools.count()
    with subprocess.Popen(["echo"], stdout=subprocess.PIPE) as process:
        tail = checks._Tail(process)
        process.wait()
        monkeypatch.setattr(checks, "_has_ended", lambda _: False)
        monkeypatch.setattr(checks.os, "read", lambda *_: b"y" * (next(n_read) < 10**4))
        assert not tail.read(1.0)
        tail.close()
    assert next(n_read) == checks._PIECES


def test_g24_what_cannot_be_watched_is_killed_and_unknown(runner, monkeypatch):
    def fails():
        raise OSError("too many open files")

    monkeypatch.setattr(checks, "DefaultSelector", fails)
    begin = time.monotonic()
    result = run(runner, python("import time; time.sleep(60)"))
    assert (result.status, result.detail) == (
        "unknown",
        "could not be watched: too many open files",
    )
    assert time.monotonic() - begin < 30


def test_g24_a_closed_output_is_not_an_end(runner):
    code = "import os, time; os.close(1); os.close(2); time.sleep(0.3); os._exit(3)"
    assert run(runner, python(code)).status == "failed"


def test_g24_one_per_node_and_so_many_at_a_time(runner):
    check = python("import time; time.sleep(0.5)")
    begun = [runner.start(check, node=n, boot_id=None) for n in ("a", "a", "b", "c")]
    assert begun == [True, False, True, False]
    assert runner.finished() == ()
    assert runner.running == {"a", "b"}
    assert [one.node for one in runner.finished(wait_s=30)] == ["a", "b"]
    assert runner.running == frozenset()


def test_g24_stopping_kills_what_runs_and_begins_no_more():
    runner = CheckRunner(clock=lambda: NOW, environment=os.environ)
    check = python("import os, time; print(os.getpid(), flush=True); time.sleep(60)")
    runner.start(check, node="a", boot_id=None)
    (thread,) = runner._running.values()
    end = time.monotonic() + 60
    while not thread.running() and time.monotonic() < end:
        time.sleep(0.01)
    (result,) = runner.stop()
    assert (result.status, result.detail) == ("unknown", "stopped together with the hook")
    assert not runner.start(check, node="a", boot_id=None)


def test_g24_a_check_of_a_node_that_is_no_longer_held_is_killed(runner):
    for node in ("a", "b"):
        assert runner.start(python("import time; time.sleep(60)"), node=node, boot_id=None)
    runner.keep({"b"})
    end = time.monotonic() + 60
    while not (ended := runner.finished(wait_s=0.1)) and time.monotonic() < end:
        pass
    (result,) = ended
    assert (result.node, result.status, result.exit_code) == ("a", "unknown", None)
    assert runner.running == {"b"}


def test_g23_a_check_sees_no_secrets_of_the_hook():
    environment = {**os.environ, "FOREWARN_KEY": "secret", "LANG": "C.UTF-8"}
    with CheckRunner(clock=lambda: NOW, environment=environment) as runner:
        result = run(runner, python("import os; print(sorted(os.environ))"))
    assert "FOREWARN_KEY" not in result.output
    assert "LANG" in result.output


@given(st.text())
def test_g23_the_node_is_one_word_of_the_arguments_or_refused(node):
    check = Check(name="x", command=("ssh", "{node}", "w={node}"))
    try:
        assert check.arguments(node) == ("ssh", node, f"w={node}")
    except DataError:
        return
    assert node.isascii()
    assert node[0].isalnum()
    assert not set(node) & set(" \t\n;&|$`'\"\\<>(){}[]*?~#!=/")


@pytest.mark.parametrize(
    "command", [(), ("",), ("{node}", "x"), ("x", "{host}"), ("x", "{}"), ("x", "a\0b")]
)
def test_g23_a_command_that_cannot_be_filled_in_is_refused(command):
    with pytest.raises(ValidationError):
        Check(name="x", command=command)


def test_g24_the_examples_of_the_documentation_are_valid():
    from remediation.strict_yaml import parse_yaml

    assert checks.__doc__ is not None
    parts = checks.__doc__.split("    check:")[1:]
    assert len(parts) == 3
    for part in parts:
        check = Check.model_validate(parse_yaml("check:" + part)["check"])
        assert any("gpu-1" in word for word in check.arguments("gpu-1"))
        assert check.is_under_load
