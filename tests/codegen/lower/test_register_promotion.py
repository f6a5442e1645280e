"""Own: what no other thread sees is in registers, and nothing else is."""

from __future__ import annotations

import numpy as np
import pytest

from plica.codegen.lower.barrier import barriers
from plica.codegen.lower.register_promotion import promote_to_registers
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.scalar import Buffer, Eq, Scalar, ScalarVar, index, lit
from plica.ir.loop.statement import (
    NOTHING,
    Alloc,
    Barrier,
    Branch,
    For,
    Kernel,
    LoopKind,
    Seq,
    Stmt,
    Store,
    statements,
)
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import f32

X, Y = buffer("x", (2, 3, 4), f32), buffer("y", (2, 3, 4), f32)
B = axis("b")


def threads(var: ScalarVar, body: Stmt, count: int = 4, tag: LoopKind = "threadIdx.x") -> For:
    return For(var, index(count), tag, body)


def two_nests(read: Scalar | int, shape: tuple[int, ...] = (3, 4), count: int = 4) -> Kernel:
    """A copy of each block's elements, made by some threads and read by some again."""
    s, t, k = axis("s"), axis("t"), axis("k")
    kept = Buffer(buffer("kept", shape, f32).name, tuple(map(index, shape)), f32, "shared")
    fill = threads(s, For(k, index(3), "serial", Store(kept, (k, s), X[B, k, s])))
    place = t if isinstance(read, int) else read
    y = buffer("y", (2, 3, count), f32)
    use = threads(t, For(k, index(3), "serial", Store(y, (B, k, t), kept[k, place])), count)
    body = Alloc(kept, Seq((fill, use)))
    return Kernel((), (X, y), 1, For(B, index(2), "blockIdx.x", body))


def scopes(kernel: Kernel) -> list[str]:
    return [each.buffer.scope for each in statements(kernel.body) if isinstance(each, Alloc)]


def test_what_a_thread_comes_back_to_is_its_own() -> None:
    kernel = two_nests(0)
    made = promote_to_registers(kernel)
    (alloc,) = [each for each in statements(made.body) if isinstance(each, Alloc)]
    assert alloc.buffer.scope == "local"
    assert alloc.buffer.shape == (index(3),)
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    (found,) = run_kernel(barriers(made), [x])
    np.testing.assert_array_equal(found, x)
    assert not any(isinstance(each, Barrier) for each in statements(barriers(made).body))


@pytest.mark.parametrize(("reader", "scope"), [(0, "local"), (1, "shared")])
def test_what_the_first_thread_alone_uses_is_its_own(reader: int, scope: str) -> None:
    s, t = axis("s"), axis("t")
    total = Buffer(buffer("total", (1,), f32).name, (index(1),), f32, "shared")
    fill = Branch(Eq(s, index(0)), Store(total, (index(0),), X[B, 1, 2]), NOTHING)
    use = Branch(Eq(t, index(reader)), Store(Y, (B, index(0), index(0)), total[0]), NOTHING)
    body = Alloc(total, Seq((threads(s, fill), threads(t, use))))
    kernel = Kernel((), (X, Y), 1, For(B, index(2), "blockIdx.x", body))
    assert scopes(promote_to_registers(kernel)) == [scope]


def test_loops_over_fewer_threads_are_guarded_without_registers() -> None:
    """Barriers want one number of threads, also where nothing becomes a register."""
    s, t = axis("s"), axis("t")
    kept = Buffer(buffer("kept", (4,), f32).name, (index(4),), f32, "shared")
    fill = threads(s, Store(kept, (s,), X[B, 0, s]))
    use = threads(t, Store(Y, (B, index(0), t), kept[index(3) - t]), 2)
    kernel = Kernel((), (X, Y), 1, For(B, index(2), "blockIdx.x", Alloc(kept, Seq((fill, use)))))
    made = promote_to_registers(kernel)
    assert scopes(made) == ["shared"]
    loops = [each for each in statements(made.body) if isinstance(each, For)]
    assert [each.kind for each in loops] == ["blockIdx.x", "threadIdx.x"]
    barriers(made)


def test_what_others_read_stays_shared() -> None:
    kernel = two_nests(index(3) - axis("t"))
    made = promote_to_registers(kernel)
    assert scopes(made) == ["shared"]
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    (found,) = run_kernel(barriers(made), [x])
    np.testing.assert_array_equal(found, x[..., ::-1])


def test_fewer_threads_have_a_guard() -> None:
    made = promote_to_registers(two_nests(0, count=2))
    assert scopes(made) == ["local"]
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    (found,) = run_kernel(barriers(made), [x])
    np.testing.assert_array_equal(found, x[..., :2])


def carried(place: Scalar | int = 0) -> Kernel:
    """Sums over a serial loop around the loops over threads, of what each or another has."""
    s, t, u, k = axis("s"), axis("t"), axis("u"), axis("k")
    kept = Buffer(buffer("kept", (4,), f32).name, (index(4),), f32, "shared")
    start = threads(s, Store(kept, (s,), lit(0.0, f32)))
    add = Store(kept, (t,), kept[t] + X[B, k, t])
    summed = For(k, index(3), "serial", threads(t, add))
    y = buffer("y", (2, 4), f32)
    use = threads(u, Store(y, (B, u), kept[u if isinstance(place, int) else place]))
    body = Alloc(kept, Seq((start, summed, use)))
    return Kernel((), (X, y), 1, For(B, index(2), "blockIdx.x", body))


def test_what_a_thread_carries_through_a_serial_loop_is_its_own() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    made = promote_to_registers(carried())
    assert scopes(made) == ["local"]
    (found,) = run_kernel(barriers(made), [x])
    np.testing.assert_array_equal(found, x.sum(1))
    assert not any(isinstance(each, Barrier) for each in statements(barriers(made).body))
    made = promote_to_registers(carried(index(3) - axis("u")))
    assert scopes(made) == ["shared"]
    (found,) = run_kernel(barriers(made), [x])
    np.testing.assert_array_equal(found, x.sum(1)[:, ::-1])


def test_a_number_of_another_axis_is_not_enough() -> None:
    """Threads of a second axis would share what one of the first has."""
    s, r = axis("s"), axis("r")
    kept = Buffer(buffer("kept", (4,), f32).name, (index(4),), f32, "shared")
    body = Alloc(kept, threads(r, threads(s, Store(kept, (s,), X[B, 0, s])), 2, "threadIdx.y"))
    kernel = Kernel((), (X, Y), 1, For(B, index(2), "blockIdx.x", body))
    assert scopes(promote_to_registers(kernel)) == ["shared"]
