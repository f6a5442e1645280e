"""Native: one kernel run as machine code, with nothing of a model around it.

>>> from plica.ir.type.dtype import f32
>>> from plica.codegen.lower.nest import nest
>>> from plica.ir.loop.stages import stages_of
>>> from plica.ir.loop.tensor import buffer, compute
>>> x = buffer("x", (3,), f32)
>>> double = nest(stages_of(compute((x,), (3,), lambda i: x[i] * 2.0)))
>>> run_native(double, [np.array([1, 2, 3], np.float32)])
(array([2., 4., 6.], dtype=float32),)

With a `side` every array lies at a page that nobody may touch (`plica.runtime.guard`), and what is
read cannot be written.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import TypeAlias

import numpy as np

from plica.codegen.llvm import toolchain
from plica.codegen.llvm.fold import fold
from plica.codegen.lower.launch_memory import launch_memory
from plica.codegen.memory_plan import WorkspacePlan, workspace_plan
from plica.codegen.program import Launch, Program, Slot, Space
from plica.codegen.target import Target
from plica.core import CompilerBug
from plica.ir.interpret.value import Array
from plica.ir.loop import Buffer, Kernel
from plica.ir.type import evaluate
from plica.runtime.artefact import aligned_array
from plica.runtime.error import Diagnostic, EvaluationError
from plica.runtime.guard import Guarded, Side
from plica.runtime.link import LinkedCode, use_threads

Entry: TypeAlias = Callable[[Program, WorkspacePlan, bool], tuple[int, object]]
"""Makes code of a program in this process: its address, and what holds it."""


def llvm_entry(
    program: Program, plan: WorkspacePlan, fused: bool, target: Target | None = None
) -> tuple[int, object]:
    """Native code of a program by LLVM, for this machine unless another is given."""
    machine = target or toolchain.host()
    native_code = toolchain.build(fold(program, plan, machine, fused), machine)
    return native_code.address, native_code.engine


def called_back(call: Callable[[Sequence[int]], int], count: int) -> tuple[int, object]:
    """A function of the addresses of a given number of arrays, at an address: code that runs
    elsewhere."""

    def main(table: int) -> int:
        return call(list((ctypes.c_uint64 * count).from_address(table)))

    cfunction = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(main)
    return ctypes.cast(cfunction, ctypes.c_void_p).value or 0, cfunction


class Spoiled(CompilerBug):
    """Native code wrote beside an array."""


def program_of(*kernels: Kernel) -> Program:
    """The program that runs kernels one after the other, each on arguments of its own."""
    counts: Counter[Space] = Counter()
    slots: list[Slot] = []
    steps = []
    known = {each: number for number, each in enumerate(dict.fromkeys(kernels))}
    for kernel in kernels:
        first = len(slots)
        for number, param in enumerate(kernel.params):
            space: Space = "input" if number < kernel.inputs else "output"
            slots.append(Slot(space, counts[space], shape_of(param), param.dtype))
            counts[space] += 1
        steps.append(Launch(known[kernel], tuple(range(first, len(slots))), "kernel"))
    names = ("kernel", *[f"kernel{number}" for number in range(1, len(known))])
    return Program(tuple(known), names, tuple(slots), (tuple(steps),), 0, ())


class NativeKernel:
    """A kernel that is machine code in this process."""

    def __init__(
        self, kernel: Kernel, fused: bool = False, threads: int = 1, entry: Entry = llvm_entry
    ) -> None:
        program = program_of(kernel)
        self.kernel, self._slots = kernel, program.slots
        program = launch_memory(program)
        plan = workspace_plan(program)
        self._workspace = aligned_array(plan.size)
        address, self._keep = entry(program, plan, fused)
        if isinstance(self._keep, LinkedCode):
            use_threads(self._keep, threads)
        self._main = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(address)

    def __call__(self, arrays: Sequence[Array], side: Side | None = None) -> tuple[Array, ...]:
        """What the kernel writes; raises `EvaluationError` where an index is outside."""
        if side is None:
            given = [np.ascontiguousarray(each) for each in arrays]
            made = [np.zeros(each.fixed, each.dtype.numpy) for each in self._written]
            _call(self._main, [*given, *made, self._workspace])
            return tuple(made)
        rooms = [
            Guarded(slot.fixed, slot.dtype.numpy, side, buffer.align)
            for slot, buffer in zip(self._slots, self.kernel.params, strict=True)
        ]
        for room, array in zip(rooms, arrays, strict=False):
            room.array[...] = array
            room.freeze()
        for room in rooms[len(arrays) :]:
            room.array[...] = 0
        _call(self._main, [*[room.array for room in rooms], self._workspace])
        for room, buffer in zip(rooms, self.kernel.params, strict=True):
            if not room.is_intact():
                raise Spoiled(f"The kernel writes beside {buffer.name}.")
        return tuple([room.array.copy() for room in rooms[len(arrays) :]])

    @property
    def _written(self) -> tuple[Slot, ...]:
        return self._slots[self.kernel.inputs :]


def run_native(
    kernel: Kernel,
    arrays: Sequence[Array],
    *,
    target: Target | None = None,
    fused: bool = False,
    side: Side | None = None,
    entry: Entry | None = None,
) -> tuple[Array, ...]:
    """What a lowered kernel without symbolic dims writes; outputs begin as zeros.

    `entry` is that of the backend which makes the code: LLVM's if none is given.
    """
    make = entry or partial(llvm_entry, target=target)
    return NativeKernel(kernel, fused, entry=make)(arrays, side)


def run_together(
    kernels: Sequence[Kernel],
    arrays: Sequence[Sequence[Array]],
    *,
    fused: bool = False,
    entry: Entry = llvm_entry,
) -> list[tuple[Array, ...]]:
    """What each of several kernels writes, all of them being one program that runs once."""
    program = launch_memory(program_of(*kernels))
    plan = workspace_plan(program)
    address, keep = entry(program, plan, fused)
    given = [np.ascontiguousarray(array) for one in arrays for array in one]
    made = [np.zeros(slot.fixed, slot.dtype.numpy) for slot in program.space("output")]
    workspace = aligned_array(plan.size)
    _call(ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(address), [*given, *made, workspace])
    del keep  # the code was needed until here
    left = iter(made)
    return [tuple(islice(left, len(kernel.params) - kernel.inputs)) for kernel in kernels]


def _call(main: Callable[[int], int], arrays: Sequence[Array]) -> None:
    table = np.array([array.__array_interface__["data"][0] for array in arrays], np.uintp)
    if main(table.ctypes.data):
        message = "The kernel says that an index is outside the buffer it selects from."
        raise EvaluationError(Diagnostic("index-out-of-bounds", message))


def shape_of(buffer: Buffer) -> tuple[int, ...]:
    """The numbers that are the shape of a buffer."""
    sizes = [evaluate(size, {}) for size in buffer.shape]
    found = tuple([size for size in sizes if size is not None])
    if len(found) != len(sizes):
        raise CompilerBug(f"The buffer {buffer.name} has symbolic dims.")
    return found
