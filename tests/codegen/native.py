"""Running single tensor expressions and kernels natively, and comparing arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from plica.codegen.llvm import toolchain
from plica.codegen.llvm.fold import fold
from plica.codegen.lower.nest import nest
from plica.codegen.program import Launch, Program, Slot, place
from plica.codegen.target import Target
from plica.ir.dim import known
from plica.ir.loop import Kernel
from plica.ir.scalar import Buffer
from plica.ir.tensor import Compute

Array = np.ndarray[Any, Any]


def native_kernel(
    kernel: Kernel, arrays: Sequence[Array], target: Target | None = None
) -> tuple[int, list[Array]]:
    """The code a kernel ends with, and what it writes; outputs begin as zeros."""
    slots = [
        Slot("input" if i < kernel.inputs else "output", i, shape_of(buffer), buffer.dtype)
        for i, buffer in enumerate(kernel.params)
    ]
    slots = [
        slot if slot.space == "input" else Slot("output", slot.index - kernel.inputs, *rest(slot))
        for slot in slots
    ]
    launch = Launch(0, tuple(range(len(slots))), "kernel")
    program = Program((kernel,), ("kernel",), tuple(slots), ((launch,),), 0, ())
    machine = target or toolchain.host()
    native = toolchain.build(fold(program, place(program), machine), machine)
    given = [np.ascontiguousarray(array) for array in arrays]
    made = [np.zeros(slot.shape, slot.dtype.numpy) for slot in slots[kernel.inputs :]]
    table = np.array([array.ctypes.data for array in (*given, *made)] + [0], np.uintp)
    main = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(native.address)
    return main(table.ctypes.data), made


def rest(slot: Slot) -> tuple[tuple[int, ...], Any]:
    return slot.shape, slot.dtype


def native(compute: Compute, *arrays: Array, target: Target | None = None) -> Array:
    """What a tensor expression computes natively."""
    code, (made,) = native_kernel(nest(compute), arrays, target)
    assert code == 0
    return made


def shape_of(buffer: Buffer) -> tuple[int, ...]:
    sizes = [known(size) for size in buffer.shape]
    return tuple(size for size in sizes if size is not None)


def assert_same(found: Array, expected: Array) -> None:
    """Equal bits, but for the payload of nan and the sign of zero."""
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    if found.dtype.kind in "fV" or found.dtype == ml_dtypes.bfloat16:
        found, expected = found.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_array_equal(found, expected)


def assert_near(found: Array, expected: Array, ulps: float) -> None:
    """Equal up to a few units in the last place; nan and the infinities exactly."""
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    if found.dtype.kind not in "fV" and found.dtype != ml_dtypes.bfloat16:
        np.testing.assert_array_equal(found, expected)
        return
    info = ml_dtypes.finfo(found.dtype)
    step = float(info.eps) * ulps
    tiny = float(info.smallest_normal) * step
    found, expected = found.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_allclose(found, expected, rtol=step, atol=tiny)
