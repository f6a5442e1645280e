"""Forms of contractions: what is read with the sum is read at its own place."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve

import plica
from plica.codegen.llvm import toolchain
from plica.codegen.llvm.fold import fold
from plica.codegen.memory_plan import workspace_plan
from plica.codegen.native import program_of
from plica.core.binding import substitute
from plica.core.diagnostic import CompilerBug
from plica.ir.loop.scalar import index
from plica.ir.loop.statement import Kernel

PARTS = """
import plica
from plica.op import nn

@plica.function
def main(
    a: Tensor[(1, A, 50), f32],
    b: Tensor[(1, B, 50), f32],
    c: Tensor[(1, 24, 50), f32],
    w: Tensor[(48, 24, 1), f32],
):
    return op.concat((a, b * 2.0), axis=1) + nn.conv(c, w)
"""

OPEN = """
import plica

@plica.kernel
def doubled(x: Buffer[("n",), f32], out: Buffer[("n",), f32]):
    for i in range(n):
        out[i] = x[i] * 2.0
"""


@pytest.mark.parametrize("first", [16, 24, 32, 47])
def test_the_parts_of_a_concatenation_end_where_no_block_of_lanes_does(first: int) -> None:
    source = PARTS.replace("A", str(first)).replace("B", str(48 - first))
    module = plica.from_text(source)
    random = np.random.default_rng(0)
    shapes = ((1, first, 50), (1, 48 - first, 50), (1, 24, 50), (48, 24, 1))
    arrays = [random.normal(size=each).astype(np.float32) for each in shapes]
    found = plica.compile(module, threads=1, cache=False)(*arrays)
    np.testing.assert_allclose(found, plica.interpret(module, *arrays), rtol=1e-4, atol=1e-4)


def test_a_kernel_whose_size_nobody_gives_is_a_bug() -> None:
    (kernel,) = plica.from_text(OPEN).values
    assert isinstance(kernel, Kernel)
    inside = Kernel((), kernel.params, kernel.inputs, kernel.body)
    known = substitute(inside, dict.fromkeys(kernel.dims, index(4)))
    assert isinstance(known, Kernel)
    program = program_of(known)
    wrong = evolve(program, kernels=(kernel,))
    with pytest.raises(CompilerBug, match="no size for n"):
        fold(wrong, workspace_plan(program), toolchain.host())
