"""The oracle of traces: whether two kernels write the same values in the interpreter.

Inputs are small integers, so that sums are exact in any order. A kernel with uninitialised reads,
accesses out of bounds or races differs from one without; barriers and buffer placements that
lowering will introduce are applied before (`unlowered`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from plica.core import Term
from plica.ir.interpret.value import Array
from plica.ir.loop.statement import Kernel
from plica.ir.type import shape_of
from plica.runtime.error import Diagnostic, EvaluationError, InputError
from plica.schedule.unlowered import run_unlowered

SIZE: Final = 5
"""The default value of a symbolic size: small and prime."""


def agree(
    before: Kernel, after: Kernel, sizes: Mapping[str, int] | None = None, seed: int = 0
) -> bool:
    """Whether both write the same, bit by bit, for sizes by the name of their dims."""
    given = sizes or {}
    known: dict[Term, int] = {var: given.get(str(var.name), SIZE) for var in before.dims}
    random = np.random.default_rng(seed)
    arrays: list[Array] = []
    for each in before.params[: before.inputs]:
        if (shape := shape_of(each.shape, known)) is None:
            message = "The shape of an input does not follow from the sizes that are given."
            raise InputError(Diagnostic("input-shape", message, found=str(each.name)))
        arrays.append(random.integers(-4, 5, shape).astype(each.dtype.numpy))
    expected = run_unlowered(before, arrays, known)
    try:
        found = run_unlowered(after, arrays, known)
    except EvaluationError:
        return False
    return all(np.array_equal(x, y) for x, y in zip(expected, found, strict=True))
