"""Compiling works wherever the program lies."""

import importlib
from pathlib import Path

import pytest

from features.compiled import _njit, jit


def plus_one(number):
    return number + 1


def test_a_loop_is_compiled_where_no_cache_can_be_written(monkeypatch):
    numba = importlib.import_module("numba")
    njit = numba.njit

    def refuse_cache(*args, **options):
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return njit(*args, **options)

    monkeypatch.setattr(numba, "njit", refuse_cache)
    compiled = jit(plus_one)
    assert compiled(1) == 2
    assert compiled.signatures


def test_a_folder_that_is_named_for_loops_keeps_those_of_each_release_apart(monkeypatch, tmp_path):
    numba = importlib.import_module("numba")
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    _njit.cache_clear()
    try:
        _njit()
        first = Path(numba.config.CACHE_DIR)
    finally:
        _njit.cache_clear()
    assert first.parent == tmp_path
    assert first.name.startswith("loops-")


@pytest.mark.parametrize("module", ["prometheus.pull", "prometheus.client", "prometheus.tables"])
def test_importing_the_source_compiles_nothing(module):
    import subprocess
    import sys

    code = f"import sys, pipelines.sources.{module}; assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
