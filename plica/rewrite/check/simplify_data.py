"""Smaller data for a counterexample: irrelevant elements become simple."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import numpy as np

from plica.ir.type import bool_, dtype
from plica.rewrite.check.trial import SidesDiffer, Trial

Array: TypeAlias = np.ndarray[Any, Any]

MAX_COMPARISONS: Final = 120  # how often the sides are compared for it


def plainer(trial: Trial, found: SidesDiffer) -> SidesDiffer:
    """The same difference on plainer data."""
    if found.after is not trial.after:  # told apart in f64
        trial = trial.wide or trial
    best, tries = found, 0
    for at in range(len(found.made.inputs)):
        for change in _changes([array for _, array in best.made.inputs][at]):
            if tries == MAX_COMPARISONS:
                return best
            inputs = [array for _, array in best.made.inputs]
            made = change(inputs[at])
            if made.tobytes() == inputs[at].tobytes():
                continue
            tries += 1
            inputs[at] = made
            again = trial.outcome(inputs)
            if isinstance(again, SidesDiffer) and again.after is best.after:
                best = again
    return best


def _changes(of: Array) -> Iterator[Any]:
    """Functions from an array to a plainer one, the boldest first."""
    plain = (False,) if dtype(of.dtype) is bool_ else (0, 1)
    for value in plain:
        yield lambda array, value=value: np.full_like(array, value)
    for element in range(of.size):
        for value in plain:
            yield lambda array, element=element, value=value: _set(array, element, value)
        if dtype(of.dtype).is_float:
            yield lambda array, element=element: _set(
                array, element, float(f"{float(array.reshape(-1)[element]):.2g}")
            )


def _set(array: Array, element: int, value: Any) -> Array:
    made = array.copy()
    with np.errstate(over="ignore", invalid="ignore"):
        made.reshape(-1)[element] = np.asarray(value).astype(array.dtype)
    return made
