"""Tensor intrinsics and memory scopes of the loop language, from the declaration of an accelerator.

`declare(machine)` makes a memory scope for each scope of the machine, and a tensor intrinsic for
each operation that sweeps over memory (a `Sweep`: one vector or matrix operation, repeated). The
meaning of the intrinsic is a kernel of plain loops, with the semantics of the simulators.
`tensorize` replaces loops that match the meaning by the intrinsic, and the interpreter runs the
meaning.

>>> from plica.codegen.accel.vta import vta
>>> words = declare(vta())
>>> [each.name for each in words][:2]
['vta.gemm', 'vta.gemm.reset']
>>> [str(each.name) for each in words[0].meaning.params]
['inp', 'wgt', 'acc']

The last parameter is the output. An operand of the instruction that the meaning refers to, such as
an immediate, is a dim of the kernel: each invocation gives its value.
"""

from __future__ import annotations

from plica.codegen.accel.declaration import Accelerator, Operation, Sweep
from plica.codegen.accel.meaning import contraction
from plica.core import Name, Term, map_bottom_up, post_order
from plica.ir.loop import Buffer, Compute, For, Kernel, Load, Reduce, Scalar, ScalarVar, Stmt, Store
from plica.ir.loop.intrinsic import TensorIntrinsic, intrinsic
from plica.ir.loop.memory_scope import MemoryScope, declare_scope
from plica.ir.loop.scalar import Add, Cast
from plica.ir.type import i64


def declare(machine: Accelerator) -> tuple[TensorIntrinsic, ...]:
    """Declare the scopes of a machine, and return its intrinsics; idempotent."""
    scopes(machine)
    return tuple(
        intrinsic(f"{machine.name}.{each.name}", kernel_of(each), hints=(("operation", each.name),))
        for each in machine.operations
        if isinstance(each.does, Sweep)
    )


def scopes(machine: Accelerator) -> tuple[MemoryScope, ...]:
    """The memory scopes of a machine, each with its capacity in bytes."""
    return tuple(
        declare_scope(f"{machine.name}.{scope.name}", scope.depth * scope.bytes)
        for scope in machine.scopes
    )


def kernel_of(operation: Operation) -> Kernel:
    """The meaning of one repetition of a sweep, as loops over the elements of its operands.

    A contraction accumulates into its output. An output that the operation also reads is one
    parameter, the last.
    """
    sweep = operation.does
    assert isinstance(sweep, Sweep)
    meaning = sweep.meaning
    written = (sweep.writes.base, sweep.writes.strides)
    updated = [
        buffer
        for reach, buffer in zip(sweep.reads, meaning.inputs, strict=True)
        if (reach.base, reach.strides) == written
    ]
    output = updated[0] if updated else _output_of(meaning, sweep.writes.scopes[0])
    bound = {*meaning.axes}
    for node in post_order(meaning.body):
        if isinstance(node, Reduce):
            bound.update(node.axes)
    operands = [
        node
        for node in post_order(meaning.body)
        if isinstance(node, ScalarVar) and node not in bound
    ]
    dims = {operand: ScalarVar(operand.name, i64) for operand in operands}
    value: Scalar = meaning.body
    axes, extents = list(meaning.axes), list(meaning.shape)
    if contraction(meaning) is not None and isinstance(value, Add):
        total = value.right
        if isinstance(total, Reduce):
            axes += total.axes
            extents += total.extents
            value = Load(output, meaning.axes) + total.body
    body: Stmt = Store(output, meaning.axes, _with_dims(value, dims))
    for axis, extent in zip(reversed(axes), reversed(extents), strict=True):
        body = For(axis, extent, "serial", body)
    inputs = tuple(buffer for buffer in meaning.inputs if buffer is not output)
    return Kernel(tuple(dims.values()), (*inputs, output), len(inputs), body)


def _output_of(meaning: Compute, scope: str) -> Buffer:
    """A new output buffer, named after its scope."""
    return Buffer(Name(scope), meaning.shape, meaning.dtype)


def _with_dims(value: Scalar, dims: dict[ScalarVar, ScalarVar]) -> Scalar:
    """The value with dims for operands; dims are i64, and are cast to the operand's dtype."""

    def replaced(node: Term) -> Term:
        if isinstance(node, ScalarVar) and node in dims:
            return Cast(dims[node], node.dtype)
        return node

    return map_bottom_up(replaced, value)
