"""Running single tensor expressions and kernels natively, and comparing arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from plica.codegen.llvm import toolchain
from plica.codegen.llvm.fold import fold
from plica.codegen.memory_plan import workspace_plan
from plica.codegen.program import Launch, Program, Slot
from plica.codegen.target import Target
from plica.ir.loop.scalar import Buffer
from plica.ir.loop.statement import Kernel
from plica.ir.loop.tensor import Compute
from plica.ir.type.dim import evaluate
from plica.ir.type.dtype import DTYPES, dtype
from tests.codegen.nests import nest

Array = np.ndarray[Any, Any]

# How many units in the last place code and meaning may lie apart: the functions of the library
# differ by a few, and a few numbers are summed in another order.
UNITS = {
    **{each.name: 8 for each in DTYPES if each.is_storage},
    "f16": 8, "bf16": 8, "f32": 64, "f64": 4096,
}  # fmt: skip

PRECISION = {
    "f8e4m3fn": (4, 8), "f8e5m2": (3, 15), "f8e4m3fnuz": (4, 7), "f8e5m2fnuz": (3, 15),
    "f4e2m1fn": (2, 2),
    "f16": (11, 15), "bf16": (8, 127), "f32": (24, 127), "f64": (53, 1023),
}  # fmt: skip
"""The bits of a float's significand, and its greatest exponent."""


def native_kernel(
    kernel: Kernel, arrays: Sequence[Array], target: Target | None = None, contract: bool = False
) -> tuple[int, list[Array]]:
    """The code a kernel ends with, and what it writes; outputs begin as zeros."""
    return native_kernels([kernel], arrays, target, contract)


def native_kernels(
    kernels: Sequence[Kernel],
    arrays: Sequence[Array],
    target: Target | None = None,
    contract: bool = False,
) -> tuple[int, list[Array]]:
    """The same for kernels that all read the same arrays, one after another."""
    read = kernels[0].params[: kernels[0].inputs]
    slots = [Slot("input", i, shape_of(each), each.dtype) for i, each in enumerate(read)]
    steps = []
    for number, kernel in enumerate(kernels):
        assert kernel.params[: kernel.inputs] == read
        targets = []
        for each in kernel.params[kernel.inputs :]:
            targets.append(len(slots))
            index = len(slots) - len(read)
            slots.append(Slot("output", index, shape_of(each), each.dtype))
        steps.append(Launch(number, (*range(len(read)), *targets), "kernel"))
    names = ("kernel",) * len(kernels)
    program = Program(tuple(kernels), names, tuple(slots), (tuple(steps),), 0, ())
    machine = target or toolchain.host()
    native = toolchain.build(fold(program, workspace_plan(program), machine, contract), machine)
    given = [np.ascontiguousarray(array) for array in arrays]
    made = [np.zeros(slot.fixed, slot.dtype.numpy) for slot in slots[len(read) :]]
    table = np.array([array.ctypes.data for array in (*given, *made)] + [0], np.uintp)
    main = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(native.address)
    return main(table.ctypes.data), made


def native(compute: Compute, *arrays: Array, target: Target | None = None) -> Array:
    """What a tensor expression computes natively."""
    (made,) = native_all([compute], *arrays, target=target)
    return made


def native_all(
    computes: Sequence[Compute], *arrays: Array, target: Target | None = None
) -> list[Array]:
    """What tensor expressions over the same inputs compute natively."""
    code, made = native_kernels([nest(each) for each in computes], arrays, target)
    assert code == 0
    return made


def shape_of(buffer: Buffer) -> tuple[int, ...]:
    sizes = [evaluate(size, {}) for size in buffer.shape]
    return tuple(size for size in sizes if size is not None)


def assert_same(found: Array, expected: Array) -> None:
    """Equal bits, but for the payload of nan and the sign of zero."""
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    if dtype(found.dtype).is_float:
        with np.errstate(invalid="ignore"):
            found, expected = found.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_array_equal(found, expected)


def assert_close(found: Array, expected: Array, about: Sequence[Array] = ()) -> None:
    """Equal, or within a few units of the greatest magnitude about; nan and infinities agree."""
    expected = np.asarray(expected)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    kind = dtype(found.dtype)
    if not kind.is_float:
        np.testing.assert_array_equal(found, expected)
        return
    found, expected = found.astype(np.float64), expected.astype(np.float64)
    magnitudes = [abs(each.astype(np.float64)) for each in (found, expected, *about) if each.size]
    tame = [m[np.isfinite(m) & (m < 1e4)].max(initial=0) for m in magnitudes]
    tolerance = UNITS[kind.name] * 2.0 ** (1 - PRECISION[kind.name][0])
    np.testing.assert_allclose(
        found, expected, rtol=tolerance, atol=tolerance * max(1.0, *tame, 0.0)
    )
