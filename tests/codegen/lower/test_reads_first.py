"""Reads first: guarded reads of an unrolled loop come before their uses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from plica.codegen.lower.reads_first import reads_first
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.scalar import Buffer, Lt, index, lit
from plica.ir.loop.statement import (
    NOTHING,
    Alloc,
    Branch,
    For,
    Kernel,
    LoopKind,
    Stmt,
    Store,
    seq,
    statements,
)
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import f32

U, V = axis("u"), axis("v")
X, Y = buffer("x", (6, 4), f32), buffer("y", (1,), f32)


def fold(
    kind: LoopKind = "unrolled", source: Buffer = X, *, guarded: bool = True, into: Buffer = Y
) -> Kernel:
    """A sum of the first rows of x, a vector at a time."""
    near = Buffer(axis("near").name, (index(4),), f32, "local")
    inside = Lt(U, index(4))
    read: Stmt = For(V, index(4), "vectorized", Store(near, (V,), source[U, V]))
    read = Branch(inside, read, NOTHING) if guarded else read
    add = For(V, index(4), "unrolled", Store(into, (index(0),) * len(into.shape),
                                             into[(0,) * len(into.shape)] + near[V]))  # fmt: skip
    loop = For(U, index(5), kind, Alloc(near, seq(read, Branch(inside, add, NOTHING))))
    return Kernel((), (X, Y), 1, seq(Store(Y, (index(0),), lit(0.0, f32)), loop))


def test_reads_come_first_and_mean_the_same() -> None:
    kernel = fold()
    after = reads_first(kernel)
    loops = [each for each in statements(after.body) if isinstance(each, For)]
    assert [each.kind for each in loops if each.kind != "vectorized"].count("unrolled") == 3
    (held,) = [each.buffer for each in statements(after.body) if isinstance(each, Alloc)]
    assert len(held.shape) == 2
    x = np.arange(24, dtype=np.float32).reshape(6, 4)
    (before,), (found,) = (run_kernel(each, (x,)) for each in (kernel, after))
    np.testing.assert_array_equal(before, found)


@pytest.mark.parametrize(
    "made",
    [
        lambda: fold("serial"),
        lambda: fold(guarded=False),  # the device compiler moves those
        lambda: fold(source=X, into=X),  # what is read next is written
    ],
)
def test_other_loops_stay(made: Callable[[], Kernel]) -> None:
    kernel = made()
    assert reads_first(kernel) is kernel


def test_too_much_for_registers_stays() -> None:
    near = Buffer(axis("near").name, (index(4),), f32, "local")
    x = buffer("x", (60, 4), f32)
    read = Branch(Lt(U, index(5)), For(V, index(4), "vectorized", Store(near, (V,), x[U, V])),
                  NOTHING)  # fmt: skip
    loop = For(U, index(60), "unrolled", Alloc(near, seq(read, Store(Y, (index(0),), near[0]))))
    kernel = Kernel((), (x, Y), 1, loop)
    assert reads_first(kernel) is kernel


def test_guarded_copies_to_shared_memory_go_through_registers() -> None:
    shared = Buffer(axis("s").name, X.shape, f32, "shared")
    copy = For(V, index(4), "vectorized", Store(shared, (U, V), X[U, V]))
    loop = For(U, index(5), "unrolled", Branch(Lt(U, index(4)), copy, NOTHING))
    use = Store(Y, (index(0),), shared[3, 2])
    kernel = Kernel((), (X, Y), 1, Alloc(shared, seq(loop, use)))
    after = reads_first(kernel)
    loops = [each for each in statements(after.body) if isinstance(each, For)]
    assert [each.kind for each in loops] == ["unrolled", "vectorized", "unrolled", "vectorized"]
    x = np.arange(24, dtype=np.float32).reshape(6, 4)
    (before,), (found,) = (run_kernel(each, (x,)) for each in (kernel, after))
    np.testing.assert_array_equal(before, found)
