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


def vector_jit(function: F) -> F:
    """Compiles a loop over floats for vector units: a division by zero gives NaN or infinity.

    Args:
        function: Plain Python over numpy arrays.
    """
    njit = importlib.import_module("numba").njit
    try:
        compiled: F = njit(cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError:  # no folder for the cache can be written
        compiled = njit(nogil=True, error_model="numpy")(function)
    return compiled


def exact_float_jit(function: F) -> F:
    """Compiles sums of whole numbers in float64, in any order: for use below 2**53 alone.

    The order of such sums changes no bit, and leaving it open lets vector units do them.

    Args:
        function: Plain Python over numpy arrays, without NaN.
    """
    njit = importlib.import_module("numba").njit
    free = {"reassoc", "contract", "nnan", "nsz"}
    try:
        compiled: F = njit(cache=True, nogil=True, fastmath=free)(function)
    except RuntimeError:  # no folder for the cache can be written
        compiled = njit(nogil=True, fastmath=free)(function)
    return compiled
