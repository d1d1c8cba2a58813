"""Compiling works wherever the program lies."""

import importlib

import pytest

from features.compiled import jit


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


@pytest.mark.parametrize("module", ["prometheus.pull", "prometheus.client", "prometheus.tables"])
def test_importing_the_source_compiles_nothing(module):
    import subprocess
    import sys

    code = f"import sys, pipelines.sources.{module}; assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
