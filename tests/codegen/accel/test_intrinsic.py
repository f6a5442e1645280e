"""Intrinsics: in the loop language they mean what the simulators do."""

from __future__ import annotations

import numpy as np
import pytest

from plica.codegen.accel.declaration import Accelerator, Sweep
from plica.codegen.accel.intrinsic import declare, kernel_of, scopes
from plica.codegen.accel.meaning import apply
from plica.codegen.accel.vta import vta
from plica.core.term import Term
from plica.ir.interpret.kernel import run_in_place
from plica.ir.loop.memory_scope import scope
from tests.codegen.accel.machines import OUTER, filled_like

SWEEPS = [
    (machine, each.name)
    for machine in (vta(), OUTER)
    for each in machine.operations
    if isinstance(each.does, Sweep)
]


@pytest.mark.parametrize(("machine", "name"), SWEEPS, ids=[f"{m.name}-{n}" for m, n in SWEEPS])
def test_the_kernel_means_the_same(machine: Accelerator, name: str) -> None:
    operation = machine.operation(name)
    does = operation.does
    assert isinstance(does, Sweep)
    kernel = kernel_of(operation)
    arrays = [filled_like(each, seed) for seed, each in enumerate(kernel.params)]
    sizes: dict[Term, int] = dict.fromkeys(kernel.dims, -3)
    by_name = {str(each.name): array for each, array in zip(kernel.params, arrays, strict=True)}
    inputs = [by_name[str(each.name)][None] for each in does.meaning.inputs]
    expected = apply(does.meaning, inputs, {str(each.name): -3 for each in kernel.dims})[0]
    (found,) = run_in_place(kernel, [array.copy() for array in arrays], sizes)[-1:]
    assert np.array_equal(found, expected)


def test_declaring_twice_is_fine() -> None:
    assert declare(vta()) == declare(vta())
    scopes(OUTER)
    assert scope("vta.inp").capacity == 1 << 15
    assert scope("outer.tile").capacity == 32 * 256
