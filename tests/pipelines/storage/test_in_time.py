"""Rules of reads that are waited for only so long: late is told, never shown as fresh."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from pathlib import Path

import pytest

from features.errors import DataError
from pipelines.storage import in_time
from pipelines.storage.in_time import TAKEN_S, InTime, LateError
from tests.pipelines.memory_bucket import MemoryBucket

WAIT_S = 1.0
"""A thread is begun within it on a machine with other work."""


class Gate:
    """A read that ends when it is let go."""

    def __init__(self) -> None:
        self.opened, self.begun = threading.Event(), list[int]()

    @property
    def n_read(self) -> int:
        return len(self.begun)

    def read(self) -> int:
        self.begun.append(threading.get_ident())
        assert self.opened.wait(20)
        return self.n_read


@pytest.fixture
def seconds() -> list[float]:
    return [0.0]


@pytest.fixture
def reads(tmp_path: Path, seconds: list[float]) -> InTime:
    root = MemoryBucket(tmp_path).path("tables")
    return InTime(root, wait_s=WAIT_S, clock=lambda: seconds[0])


def wait_until(is_so: Callable[[], bool]) -> None:
    for _ in range(1000):
        if is_so():
            return
        threading.Event().wait(0.02)
    raise AssertionError("it never was")


def ended(reads: InTime) -> None:
    """Waits until what was late has come."""
    wait_until(lambda: not reads._is_slow())


def test_what_comes_in_time_is_given_and_read_anew_each_time(reads: InTime) -> None:
    gate = Gate()
    gate.opened.set()
    assert [reads.read("a", gate.read), reads.read("a", gate.read)] == [1, 2]


def test_what_is_late_is_told_with_the_place_and_read_once_however_many_ask(reads: InTime) -> None:
    gate = Gate()
    for _ in range(3):
        with pytest.raises(LateError, match=r"s3://memory/tables: no answer within 1 s"):
            reads.read("a", gate.read)
    assert (gate.n_read, reads.is_late) == (1, True)
    gate.opened.set()
    ended(reads)
    assert reads.read("a", gate.read) == 1  # what came late, for whoever asks soon
    assert reads.read("a", gate.read) == 2


def test_what_came_too_late_is_not_taken_for_new(reads: InTime, seconds: list[float]) -> None:
    gate = Gate()
    with pytest.raises(LateError):
        reads.read("a", gate.read)
    gate.opened.set()
    ended(reads)
    seconds[0] = TAKEN_S + 1
    assert reads.read("a", gate.read) == 2


def test_while_one_is_late_no_other_is_waited_for_as_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, gate = InTime(MemoryBucket(tmp_path).path("t"), wait_s=0.2), Gate()
    waited: list[float] = []

    def noted(futures: "set[Future[int]]", *, timeout: float) -> None:
        waited.append(timeout)
        wait(futures, timeout)

    monkeypatch.setattr(in_time, "wait", noted)
    for key in "abc":
        with pytest.raises(LateError):
            reads.read(key, gate.read)
    gate.opened.set()
    assert waited == [0.2, 0.05, 0.05]


def test_a_bucket_that_hangs_holds_a_bounded_number_of_threads(reads: InTime) -> None:
    gate = Gate()
    for key in range(12):
        with pytest.raises(LateError):
            reads.read(key, gate.read)
    wait_until(lambda: gate.n_read >= 8)
    assert gate.n_read == 8
    gate.opened.set()


def test_what_comes_as_it_is_given_up_is_given_at_the_next_look(
    reads: InTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, late = Gate(), reads._late

    def comes_meanwhile(cause: str) -> LateError:
        gate.opened.set()
        ended(reads)
        return late(cause)

    monkeypatch.setattr(reads, "_late", comes_meanwhile)
    with pytest.raises(LateError):
        reads.read("a", gate.read)
    assert reads.read("a", gate.read) == 1


def test_what_came_late_is_looked_for_soon_until_it_is_taken_or_too_old(
    reads: InTime, seconds: list[float]
) -> None:
    gate = Gate()
    for key in "ab":
        with pytest.raises(LateError):
            reads.read(key, gate.read)
    gate.opened.set()
    ended(reads)
    assert reads.is_late
    reads.read("a", gate.read)
    assert reads.is_late
    seconds[0] = TAKEN_S + 1
    assert not reads.is_late


def test_a_read_that_cannot_be_begun_is_begun_at_the_next_look(
    reads: InTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fails)
        with pytest.raises(RuntimeError):
            reads.read("a", lambda: 7)
    assert reads.read("a", lambda: 7) == 7


@pytest.mark.parametrize("error", [DataError("damaged"), TimeoutError("of the read itself")])
def test_what_a_read_raises_is_raised(reads: InTime, error: Exception) -> None:
    def fails() -> int:
        raise error

    with pytest.raises(type(error), match=str(error)):
        reads.read("a", fails)
    assert not reads.is_late


def test_a_folder_is_read_where_one_stands(tmp_path: Path) -> None:
    here: Callable[[], int] = threading.get_ident
    assert InTime(tmp_path).read("a", here) == threading.get_ident()
