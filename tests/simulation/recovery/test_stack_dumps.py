"""Generated stack dumps: the truth is in them, the noise differs, a seed decides all."""

import pytest

from models.localization.layout import Layout
from pipelines.sources.stacks.folder import rank_in_name
from simulation.recovery.stack_dumps import hang_dumps

LAYOUT = Layout(tp=2, pp=2, dp=4, per_machine=2)


def ranks_with(hang, word):
    return {rank_in_name(name) for name, data in hang.files.items() if word in data}


def test_every_rank_has_one_file_and_a_seed_decides_it():
    hang = hang_dumps(LAYOUT, n_faults=2, seed=5)
    assert sorted(map(rank_in_name, hang.files)) == list(range(16))
    assert hang == hang_dumps(LAYOUT, n_faults=2, seed=5)
    assert hang.files != hang_dumps(LAYOUT, n_faults=2, seed=6).files
    assert len(hang.faulty) == 2


def test_healthy_ranks_never_have_the_same_bytes():
    contents = list(hang_dumps(LAYOUT, n_faults=0, seed=5).files.values())
    assert len(set(contents)) == len(contents)


@pytest.mark.parametrize("shape", ["machine", "some_ranks", "pipeline", "hidden"])
def test_a_fault_shows_where_its_shape_says(shape):
    hang = hang_dumps(LAYOUT, n_faults=1, seed=5, shape=shape)
    own = set(LAYOUT.ranks_of(*hang.faulty))
    replica = LAYOUT.place(min(own))[2]
    neighbours = {r for r in range(16) if LAYOUT.place(r)[2] == replica} - own
    stuck, waiting = ranks_with(hang, b"launch_kernel"), ranks_with(hang, b"recv_backward")
    assert waiting == (neighbours if shape in ("pipeline", "hidden") else set())
    if shape == "some_ranks":
        assert stuck < own
        assert stuck
    else:
        assert stuck == (set() if shape == "hidden" else own)
