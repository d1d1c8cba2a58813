"""Compiling of numeric loops: one place that knows numba.

The loops themselves are with the formats they belong to.
"""

import importlib
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypeVar

_ROOMS: Final = ("features", "models", "pipelines", "simulation")

F = TypeVar("F", bound=Callable[..., Any])


def jit(function: F) -> F:
    """Compiles a loop; keeps the result on disk where a folder can be written.

    Args:
        function: Plain Python over numpy arrays.
    """
    njit = _njit()
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
    njit = _njit()
    compiled: F = njit(inline="always")(function)
    return compiled


def vector_jit(function: F) -> F:
    """Compiles a loop over floats for vector units: a division by zero gives NaN or infinity.

    Args:
        function: Plain Python over numpy arrays.
    """
    njit = _njit()
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
    njit = _njit()
    free = {"reassoc", "contract", "nnan", "nsz"}
    try:
        compiled: F = njit(cache=True, nogil=True, fastmath=free)(function)
    except RuntimeError:  # no folder for the cache can be written
        compiled = njit(nogil=True, fastmath=free)(function)
    return compiled


@cache
def _njit() -> Callable[..., Any]:
    """The compiler, with a folder for what it keeps that no older loop is in.

    numba looks at the file of a loop alone: one that calls a loop of another file would be kept
    when only that one changes, and an upgrade would go on with the old formulas.
    """
    # Imported by name: numba publishes no types.
    numba = importlib.import_module("numba")
    root = Path(__file__).parent.parent
    files = sorted(path for room in _ROOMS for path in (root / room).rglob("*.py"))
    sources = (path.read_bytes() for path in files)
    digest = sha256(b"".join(one for one in sources if b"features.compiled" in one))
    kept = Path(numba.config.CACHE_DIR or root / "__pycache__")
    numba.config.CACHE_DIR = str(kept / f"loops-{digest.hexdigest()[:16]}")
    found: Callable[..., Any] = numba.njit
    return found
