"""Compiling of numeric loops: one place that knows numba.

The loops themselves are with the formats they belong to.
"""

import importlib
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def jit(function: F) -> F:
    """Compiles a loop; keeps the result on disk where a folder can be written.

    Args:
        function: Plain Python over numpy arrays.
    """
    # Imported by name: numba publishes no types.
    njit = importlib.import_module("numba").njit
    try:
        compiled: F = njit(cache=True, nogil=True)(function)
    except RuntimeError:  # no folder for the cache can be written
        compiled = njit(nogil=True)(function)
    return compiled


def inlined(function: F) -> F:
    """Compiles a small function into the loops that call it, which saves the passing of arrays.

    Args:
        function: Plain Python over numpy arrays.
    """
    njit = importlib.import_module("numba").njit
    compiled: F = njit(inline="always")(function)
    return compiled
