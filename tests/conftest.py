"""Settings of all tests: property-based ones are judged by what they find, not by the clock.

And the order of the tests, and the one demo that several files read; what else a test needs is in
its own file or folder.
"""

import gc
import itertools
import os
from pathlib import Path

import pytest
from hypothesis import settings

from models.registry.alias_log import locked

# A busy machine is no fault of the code, and a test that fails must fail again.
settings.register_profile("forewarn", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("forewarn")


def pytest_sessionstart() -> None:
    """Looks for no garbage while tests are collected: there is none among a million objects."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Looks from now on among what tests make, and never again among what was there before."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts files with slow tests first, in turn to the first and the second half of all tests.

    Two processes begin with a half each, and whoever is done first takes over from the end of
    what the other has left. So both end with quick tests, and neither waits for a long one.
    """
    files = [list(tests) for _, tests in itertools.groupby(items, lambda item: item.path)]
    is_slow = [any(test.get_closest_marker("slow") for test in tests) for tests in files]
    slow = list(itertools.compress(files, is_slow))
    quick = [test for tests, long in zip(files, is_slow, strict=True) if not long for test in tests]
    first, second = (list(itertools.chain(*slow[turn::2])) for turn in (0, 1))
    n_more = max(0, len(items) // 2 - len(first))
    items[:] = [*first, *quick[:n_more], *second, *quick[n_more:]]


@pytest.fixture(scope="session")
def finished_demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the demo made, and what it said in `said.txt`; to be read, or copied.

    It is made once for all processes of a run: no other fixture costs as much.
    """
    from pipelines.end_to_end.demo import (
        run_demo,  # Dagster takes seconds, and most tests do not need it
    )

    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    out = shared / "finished-demo"
    with locked(shared / "finished-demo.lock"):
        if not (out / "said.txt").exists():
            said = run_demo(out, say=lambda _: None)
            (out / "said.txt").write_text(said)
    return out
