"""Register tiles: a micro-kernel keeps its accumulators in registers, on every kind of machine."""

from __future__ import annotations

import re

import numpy as np
import pytest

from benchmarks.gemm import program_of, tiled, tiles_for
from plica.codegen.llvm import toolchain
from plica.codegen.llvm.fold import emit, fold
from plica.codegen.llvm.writer import PLAIN, CodeTraits
from plica.codegen.memory_plan import workspace_plan
from plica.codegen.target import Target
from plica.ir.loop.scalar import index
from plica.ir.loop.statement import For, Kernel, Store
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import f32
from tests.codegen.native import native_kernel

X86 = "x86_64-unknown-linux-gnu"
AVX2 = ("+avx", "+avx2", "+fma")
TARGETS = {
    "avx2": Target("cpu", X86, "haswell", AVX2),
    "avx512": Target("cpu", X86, "skylake-avx512", (*AVX2, "+avx512f", "+avx512vl", "+avx512dq")),
    "neon": Target("cpu", "aarch64-unknown-linux-gnu", "neoverse-n1", ("+neon",)),
}
MULTIPLY_ADD = re.compile(r"\s(vfmadd\w+ps|fmla)\s")
BRANCH = re.compile(r"\s+(j\w+|b(\.\w+)?|cbn?z|tbn?z)\s")
STACK = re.compile(r"%rsp|%rbp|\bsp\b")


def inner_loop(assembly: str) -> list[str]:
    """The lines of the block with the most multiply-adds."""
    blocks: list[list[str]] = [[]]
    for line in assembly.splitlines():
        if line.startswith((".LBB", "k0")):
            blocks.append([])
        blocks[-1].append(line)
        if BRANCH.match(line):
            blocks.append([])
    return max(blocks, key=lambda block: sum(bool(MULTIPLY_ADD.search(line)) for line in block))


@pytest.mark.parametrize("name", TARGETS)
def test_the_inner_loop_touches_no_stack(name: str) -> None:
    target = TARGETS[name]
    lanes = target.vector_bits // 32
    for m, n in tiles_for(target):
        program = program_of(tiled(m, n, 64, 2))
        text = fold(program, workspace_plan(program), target, contract=True)
        loop = inner_loop(toolchain.assembly(text, target))
        # Four steps of k, each a multiply-add for every register of the tile.
        assert sum(bool(MULTIPLY_ADD.search(line)) for line in loop) == 4 * m * n // lanes
        assert [line for line in loop if STACK.search(line)] == []
        # Nothing else is there but loads, two or three steps of pointers, and the test.
        assert len(loop) <= 4 * (m * n // lanes + m + n // lanes) + 10


def test_tiles_fill_the_registers() -> None:
    assert tiles_for(TARGETS["neon"])[1] == (8, 12)
    assert tiles_for(TARGETS["avx2"])[0] == (6, 16)
    assert tiles_for(TARGETS["avx512"])[2] == (6, 64)


@pytest.mark.parametrize(("m", "n"), [(6, 16), (5, 12), (1, 7)])
def test_a_tile_computes_a_product(m: int, n: int) -> None:
    kernel = tiled(m, n, 8, 3)
    assert PLAIN not in emit(kernel, "k").lines[0]
    random = np.random.default_rng(0)
    a = random.integers(-4, 5, (3, 8, m)).astype(np.float32)
    b = random.integers(-4, 5, (8, n)).astype(np.float32)
    for contract in (False, True):
        _, (found,) = native_kernel(kernel, [a, b], contract=contract)
        np.testing.assert_array_equal(found, np.einsum("tki,kj->tij", a, b))


def test_addresses_are_opaque_where_any_offset_costs_nothing() -> None:
    kernel = tiled(6, 16, 8, 3)
    assert any("launder" in line for line in emit(kernel, "k", traits=CodeTraits(far=True)).lines)
    assert not any("launder" in line for line in emit(kernel, "k").lines)


def test_the_loop_passes_look_through_addresses() -> None:
    x, y, i = buffer("x", (64,), f32), buffer("y", (64,), f32), axis("i")
    loop = For(i, index(60), "serial", Store(y, (i + 2,), x[i + 1] * 2))
    text = emit(Kernel((), (x, y), 1, loop), "k", traits=CodeTraits(far=True)).lines
    assert PLAIN in text[0]
    assert not any("launder" in line for line in text)
