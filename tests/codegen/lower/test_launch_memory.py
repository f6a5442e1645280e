"""Launch memory: large buffers of kernels are temporaries of their launches."""

from __future__ import annotations

import numpy as np

from plica.codegen.lower.launch_memory import MAX_STACK_BYTES, launch_memory
from plica.codegen.native import program_of, run_native
from plica.ir.loop.scalar import Lit, index
from plica.ir.loop.statement import Alloc, For, Kernel, LoopKind, Seq, Store, statements
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import f32

LARGE = MAX_STACK_BYTES // 4 + 1


def doubled(size: int, around: LoopKind = "serial") -> Kernel:
    """Twice what is read, by way of a buffer."""
    x, y, between = (buffer(name, (size,), f32) for name in ("x", "y", "between"))
    t, i = axis("t"), axis("i")
    fill = For(i, index(size), "serial", Store(between, (i,), x[i] * Lit(2.0, f32)))
    copy = For(i, index(size), "serial", Store(y, (i,), between[i]))
    body = For(t, index(1), around, Alloc(between, Seq((fill, copy))))
    return Kernel((), (x, y), 1, body)


def test_a_large_buffer_is_a_temporary_of_each_launch() -> None:
    kernel = doubled(LARGE)
    before = program_of(kernel, kernel)
    after = launch_memory(before)
    (made,) = after.kernels
    assert [str(each.name) for each in made.params] == ["x", "between", "y"]
    assert made.inputs == 1
    assert not any(isinstance(each, Alloc) for each in statements(made.body))
    assert [slot.shape for slot in after.space("temporary")] == [(LARGE,), (LARGE,)]
    (steps,) = after.regions
    assert [len(step.args) for step in steps] == [3, 3]  # type: ignore[union-attr]  # launches
    assert launch_memory(after) is after


def test_small_buffers_and_those_of_each_iteration_stay() -> None:
    for kernel in (doubled(LARGE - 1), doubled(LARGE, "parallel")):
        program = program_of(kernel)
        assert launch_memory(program) is program


def test_buffers_larger_than_a_stack_are_written_and_read() -> None:
    x = np.arange(1 << 23, dtype=np.float32)
    (y,) = run_native(doubled(x.size), [x])
    assert np.array_equal(y, x * 2)
