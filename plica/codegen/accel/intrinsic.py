"""The words of an accelerator in the loop language: its memory scopes, and its tensor intrinsics.

The per-element operation of a sweep becomes a tensor intrinsic with the simulators' meaning:
`tensorize` matches it, and the interpreter runs it.

>>> from plica.codegen.accel.vta import vta
>>> words = declare(vta())
>>> [each.name for each in words][:2]
['vta.gemm', 'vta.gemm.reset']
>>> [str(each.name) for each in words[0].meaning.params]
['inp', 'wgt', 'acc']

The last buffer is written. If a meaning refers to an operand of the instruction, such as an
immediate, that is a dim of the kernel, and so a number of each invocation.
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
    """Declare the scopes and the intrinsics of a machine; doing so twice is fine."""
    scopes(machine)
    return tuple(
        intrinsic(f"{machine.name}.{each.name}", kernel_of(each), hints=(("operation", each.name),))
        for each in machine.operations
        if isinstance(each.does, Sweep)
    )


def scopes(machine: Accelerator) -> tuple[MemoryScope, ...]:
    """The memory scopes of the loop language that are the machine's."""
    return tuple(
        declare_scope(f"{machine.name}.{each.name}", each.depth * each.bytes)
        for each in machine.scopes
    )


def kernel_of(operation: Operation) -> Kernel:
    """What one turn of the operation does, as loops over the numbers in its elements."""
    does = operation.does
    assert isinstance(does, Sweep)
    meaning = does.meaning
    written = (does.writes.base, does.writes.strides)
    target = next(
        (
            buffer
            for reach, buffer in zip(does.reads, meaning.inputs, strict=True)
            if (reach.base, reach.strides) == written
        ),
        None,
    )
    if target is None:
        target = _fresh(meaning, does.writes.scopes[0])
    bound = {*meaning.axes}
    for node in post_order(meaning.body):
        if isinstance(node, Reduce):
            bound.update(node.axes)
    free = [
        node
        for node in post_order(meaning.body)
        if isinstance(node, ScalarVar) and node not in bound
    ]
    dims = {each: ScalarVar(each.name, i64) for each in free}
    value: Scalar = meaning.body
    axes, extents = list(meaning.axes), list(meaning.shape)
    if contraction(meaning) is not None and isinstance(value, Add):
        total = value.right
        if isinstance(total, Reduce):
            axes += total.axes
            extents += total.extents
            value = Load(target, meaning.axes) + total.body
    body: Stmt = Store(target, meaning.axes, _renamed(value, dims))
    for axis, extent in zip(reversed(axes), reversed(extents), strict=True):
        body = For(axis, extent, "serial", body)
    inputs = tuple(each for each in meaning.inputs if each is not target)
    return Kernel(tuple(dims.values()), (*inputs, target), len(inputs), body)


def _fresh(meaning: Compute, name: str) -> Buffer:
    """A buffer that is written but not read."""
    return Buffer(Name(name), meaning.shape, meaning.dtype)


def _renamed(value: Scalar, dims: dict[ScalarVar, ScalarVar]) -> Scalar:
    """The value with dims, which are i64, for operands of other types."""

    def one(node: Term) -> Term:
        if isinstance(node, ScalarVar) and node in dims:
            return Cast(dims[node], node.dtype)
        return node

    return map_bottom_up(one, value)
