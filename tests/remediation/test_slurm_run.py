"""Running commands: each is a list of arguments, and how it ended is told exactly."""

import shlex
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import SourceError
from remediation.actuators.slurm_run import LocalRunner, Ran, ask

words = st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8")), max_size=3)
SAY = "import sys; print(ascii(sys.argv[1:]))"


def test_what_a_command_says_and_its_code_are_kept():
    ran = LocalRunner().run(["sh", "-c", "echo out; echo err >&2; exit 3"], timeout_s=5)
    assert (ran.code, ran.out, ran.err) == (3, "out\n", "err\n")
    assert str(ran).endswith("ended with code 3: err")


def test_g23_hostile_words_stay_single_arguments():
    hostile = ["$(touch /x)", "a; b", "'q\"", "a\nb", "*", ""]
    ran = LocalRunner().run([sys.executable, "-c", SAY, *hostile], timeout_s=5)
    assert ran.out.strip() == ascii(hostile)


@given(words)
def test_g23_behind_ssh_each_word_reaches_the_other_shell_as_one(arguments):
    # ssh joins its words with blanks and gives them to a shell on the other side.
    sent = " ".join(shlex.quote(word) for word in arguments)
    assert shlex.split(sent) == arguments


def test_g23_ssh_is_given_quoted_words(tmp_path):
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\nshift\nexec sh -c "$*"\n')
    ssh.chmod(0o755)
    hostile = ["Reason=$(echo no) 'x' ; exit 9", "NodeName=a b"]
    runner = LocalRunner(prefix=(str(ssh), "login1"))
    assert runner.run(["printf", "%s|", *hostile], timeout_s=5).out == "|".join([*hostile, ""])


def test_a_late_command_is_killed_with_all_it_started():
    begun = time.monotonic()
    ran = LocalRunner().run(["sh", "-c", "sleep 61 & sleep 61"], timeout_s=0.2)
    assert ran.code is None
    assert time.monotonic() - begun < 5
    alive = subprocess.run(["ps", "ax"], capture_output=True, text=True, check=True).stdout
    assert "sleep 61" not in alive
    assert str(ran) == "`sh -c sleep 61 & sleep 61` gave no answer in time and was stopped"


def test_looks_are_taken_while_a_command_is_under_way():
    looks = []
    ran = LocalRunner().run(["sleep", "0.3"], timeout_s=5, meanwhile=lambda: looks.append(1))
    assert ran.code == 0
    assert len(looks) > 2


@pytest.mark.parametrize("command", [["/no/such/program"], ["echo", "a\0b"]])
def test_a_command_that_cannot_start_surely_did_nothing(command):
    ran = LocalRunner().run(command, timeout_s=5)
    assert ran.code == 127
    assert ran.is_refusal


@pytest.mark.parametrize(
    ("code", "err", "is_refusal"),
    [
        (1, "slurm_update error: Invalid node name specified", True),
        (1, "Sorry, user forewarn is not allowed to execute 'scontrol'", True),
        (1, "slurm_update error: Unable to contact slurm controller (connect failure)", False),
        (1, "slurm_update error: Socket timed out on send/recv operation", False),
        (255, "", False),
        (None, "Invalid user id", False),
        (0, "Invalid user id", False),
    ],
)
def test_g13_only_what_surely_changed_nothing_counts_as_refused(code, err, is_refusal):
    assert Ran(command=("scontrol",), code=code, err=err).is_refusal is is_refusal


def test_a_question_without_answer_is_an_error_that_names_it():
    with pytest.raises(SourceError, match="`sh -c exit 4` ended with code 4: .no message"):
        ask(LocalRunner(), ["sh", "-c", "exit 4"], timeout_s=5)


def test_a_late_command_that_may_not_be_killed_is_an_answer_too(monkeypatch):
    """As behind sudo, whose process is root's."""

    def refused(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.killpg", refused)
    monkeypatch.setattr("subprocess.Popen.kill", refused)
    assert LocalRunner().run(["sleep", "0.4"], timeout_s=0.1).code is None
