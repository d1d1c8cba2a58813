"""Rules of the log of promotions."""

import os
from datetime import UTC, datetime
from multiprocessing import get_context

import pytest

from features.errors import DataError
from models.registry.alias_log import begin_move, interrupted_move, locked, read_moves


def begin(path, version: int = 2, name: str = "m"):
    return begin_move(path, "promote", name, version=version, earlier=1, by="ann", reason="better")


def test_moves_are_read_back_as_written_and_by_model(tmp_path) -> None:
    path = tmp_path / "log"
    assert read_moves(path) == ()
    ours, _ = begin(path), begin(path, name="other")
    assert read_moves(path, "m") == (ours,) == (interrupted_move(path, "m"),)
    assert ours.at <= datetime.now(UTC)
    assert "m/2 made champion instead of 1 (begun) by ann: better" in ours.in_words()


def test_a_line_that_a_crash_cut_off_is_left_out_and_not_continued(tmp_path) -> None:
    path = tmp_path / "log"
    first = begin(path)
    with path.open("a") as file:
        file.write('{"at": "2026-01')
    second = begin(path, version=3)
    assert read_moves(path) == (first, second)


def test_a_line_that_was_changed_is_an_error_that_names_it(tmp_path) -> None:
    path = tmp_path / "log"
    begin(path)
    path.write_text(path.read_text() + '{"at": "yesterday"}\n')
    with pytest.raises(DataError, match="line 2 cannot be read"):
        read_moves(path)


def _hold_and_die(path) -> None:
    with locked(path):
        os._exit(1)


def test_a_process_that_dies_gives_the_lock_back(tmp_path) -> None:
    dying = get_context("spawn").Process(target=_hold_and_die, args=(tmp_path / "lock",))
    dying.start()
    dying.join()
    with locked(tmp_path / "lock"):
        assert dying.exitcode == 1
