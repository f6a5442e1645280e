"""Launch memory: large buffers that a kernel allocates have their place in the arena.

    kernel(x, out):                          kernel(x, tmp, out):
        tmp = alloc(Buffer[(1 << 20,)])  -->     for i …: tmp[i] = x[i]
        for i …: tmp[i] = x[i]                   …
        …

Local buffers are on the stack, which is limited: 8 MB for the main thread of a process, half a MB
for others on some systems. A buffer larger than a small part of that becomes a parameter, and each
launch gets a temporary for it. Buffers inside parallel loops stay: each iteration has its own.

Law: the program computes the same.
"""

from __future__ import annotations

from math import prod
from typing import Final

from attrs import evolve

from plica.analysis.statement import mapped
from plica.codegen.program import Chunks, Launch, Program, Slot, Step
from plica.ir.loop import Buffer, statement as st
from plica.ir.type import known

MAX_STACK_BYTES: Final = 1 << 18  # a buffer that is larger is memory of the launch


def launch_memory(program: Program) -> Program:
    """The program without large stack buffers; open sizes are unchanged."""
    if program.dims:
        return program
    chunked = {
        piece.kernel
        for steps in program.regions
        for step in steps
        if isinstance(step, Chunks)
        for piece in step.pieces
    }
    large = {
        number: buffers
        for number, kernel in enumerate(program.kernels)
        if number not in chunked and (buffers := _large(kernel.body))
    }
    if not large:
        return program
    kernels = tuple([
        _with_parameters(kernel, large[number]) if number in large else kernel
        for number, kernel in enumerate(program.kernels)
    ])  # fmt: skip
    slots, count = list(program.slots), len(program.space("temporary"))

    def given(step: Step) -> Step:
        nonlocal count
        if not isinstance(step, Launch) or step.kernel not in large:
            return step
        *inputs, result = step.args
        for buffer in large[step.kernel]:
            shape = tuple([known(size) or 0 for size in buffer.shape])
            inputs.append(len(slots))
            slots.append(Slot("temporary", count, shape, buffer.dtype))
            count += 1
        return evolve(step, args=(*inputs, result))

    regions = tuple([tuple(map(given, steps)) for steps in program.regions])
    return evolve(program, kernels=kernels, slots=tuple(slots), regions=regions)


def _large(body: st.Stmt) -> tuple[Buffer, ...]:
    """The large buffers that are allocated outside of loops that run at once."""
    buffers: list[Buffer] = []
    for stmt in st.statements(body, lambda s: not (isinstance(s, st.For) and s.kind == "parallel")):
        if isinstance(stmt, st.Alloc):
            bytes_ = prod([known(size) or 0 for size in stmt.buffer.shape])
            if bytes_ * stmt.buffer.dtype.bytes > MAX_STACK_BYTES:
                buffers.append(stmt.buffer)
    return tuple(dict.fromkeys(buffers))


def _with_parameters(kernel: st.Kernel, buffers: tuple[Buffer, ...]) -> st.Kernel:
    """The kernel with buffers that it allocated as parameters before its result."""
    *before, result = kernel.params
    body = mapped(kernel.body, lambda stmt: _given(stmt, buffers))
    return st.Kernel(
        kernel.dims, (*before, *buffers, result), kernel.inputs, body, kernel.annotations
    )


def _given(stmt: st.Stmt, buffers: tuple[Buffer, ...]) -> st.Stmt:
    return stmt.body if isinstance(stmt, st.Alloc) and stmt.buffer in buffers else stmt
