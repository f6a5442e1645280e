"""Shared by oracles: how errors are reported, and distances between results.

>>> difference(np.float32([1, 2]), np.float32([1, 2.5]), 1e-3)
'0.5 apart where the largest number is 2.5'
"""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any, Final

import numpy as np

from plica.core import CompilerBug
from plica.runtime.error import PlicaError

CRASHES: Final = (
    PlicaError, CompilerBug, AssertionError, ArithmeticError, AttributeError, LookupError,
    MemoryError, NameError, RuntimeError, TypeError, ValueError,
)  # fmt: skip
"""Exceptions that indicate a compiler bug; a refusal is a `PlicaError`, but of its own kind."""

MAX_CHARACTERS: Final = 400


def crash(error: BaseException) -> str:
    """The exception and where it was raised."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    said = " ".join(str(error).split())[:MAX_CHARACTERS]
    return f"{type(error).__name__}: {said} ({Path(last.filename).name}, {last.name})"


def difference(
    mine: np.ndarray[Any, Any], other: np.ndarray[Any, Any], tolerance: float
) -> str | None:
    """How a result differs from another's; floats may by a part of the largest number."""
    if (mine.dtype, mine.shape) != (other.dtype, other.shape):
        return f"{mine.dtype} of shape {mine.shape} for {other.dtype} of shape {other.shape}"
    if mine.dtype.kind != "f":
        wrong = mine != other
        return f"{int(wrong.sum())} of {mine.size} elements differ" if wrong.any() else None
    a, b = mine.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(np.isfinite(a), finite):
        return "not the same elements are finite"
    scale = float(np.abs(b[finite]).max(initial=0.0))
    apart = float(np.abs(a[finite] - b[finite]).max(initial=0.0))
    if apart <= tolerance * scale + 1e-5:
        return None
    return f"{apart:.3g} apart where the largest number is {scale:.3g}"
