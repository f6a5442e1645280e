"""Epilogues: the elementwise function of each result, removed to record its schedule, and put back.

    out[i, j] = max(acc[i, j] + bias[j], 0)   -->   out[i, j] = acc[i, j]

Layers of one shape differ in their epilogues. No schedule step depends on an elementwise function,
so one recording serves all: it is made for the kernel without an epilogue, and the result gets the
epilogue inserted.

Law: `with_epilogue(scheduled(trace, bare), epilogue)` is `scheduled(trace, kernel)`, for the `bare`
kernel and the epilogue of a kernel, and a trace that is legal for either.

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import kernel_of, stages
>>> from plica.ir.loop.tensor import buffer
>>> from plica.ir.type.dtype import f32
>>> x, bias = buffer("x", (4, 8), f32), buffer("bias", (8,), f32)
>>> acc = stage("acc", (4, 8), lambda i, j: x[i, j] * x[i, j])
>>> out = stage("out", (4, 8), lambda i, j: acc[i, j] + bias[j])
>>> kernel = kernel_of(stages((x, bias), (acc, out)))
>>> bare, epilogue = without_epilogue(kernel)
>>> [str(each.name) for each in bare.params], with_epilogue(bare, epilogue) is kernel
(['x', 'out'], True)
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from plica.analysis.site import map_of, replace, with_parts
from plica.analysis.statement import mapped
from plica.core import Name, substitute
from plica.ir.loop import Buffer, Kernel, Scalar, ScalarVar, Stmt, Store, dtype_of, loads
from plica.ir.loop.stages import with_element
from plica.schedule.default.role import block_flow, is_reduction

ELEMENT: Final = Name("an element")


@frozen(eq=False)
class Epilogue:
    """The value stored in place of an `element`, over the result's axes and the kernel's inputs."""

    result: Buffer
    axes: tuple[Scalar, ...]
    element: ScalarVar
    value: Scalar
    params: tuple[Buffer, ...]
    inputs: int

    def of(self, stmt: Stmt) -> Stmt:
        """A store of a result element with the epilogue applied; other stores unchanged."""
        if not isinstance(stmt, Store) or stmt.buffer is not self.result:
            return stmt
        there = dict(zip(self.axes, stmt.indices, strict=True))
        value = substitute(self.value, {**there, self.element: stmt.value})
        return Store(stmt.buffer, stmt.indices, value)


def without_epilogue(kernel: Kernel) -> tuple[Kernel, Epilogue] | None:
    """The kernel that stores what its last block reads of another one, and that block's function;
    None if it is trivial or uses several elements."""
    flow = block_flow(kernel)
    if flow is None or is_reduction(flow.result) or flow.result.reads or flow.result.writes:
        return None
    site = map_of(kernel).blocks[flow.result.label]
    store = site.node.body
    assert isinstance(store, Store)
    every = loads(store.value)
    made = [load for load in every if load.buffer in flow.writer]
    if len(made) != 1 or store.value is made[0] or store.indices != site.node.vars:
        return None
    (read,) = made
    if read.buffer.dtype is not store.buffer.dtype:
        return None
    others = [load.buffer for load in every if load is not read]
    own = [buffer for buffer in others if flow.readers[buffer] == (site.node,)]
    element = ScalarVar(ELEMENT, dtype_of(read))
    value = with_element(store.value, read.buffer, element)
    bare = with_parts(site.node, body=Store(store.buffer, store.indices, read))
    body = replace(kernel, site, bare).body
    params = tuple([param for param in kernel.params if param not in own])
    inputs = kernel.inputs - len(kernel.params) + len(params)
    without = Kernel(kernel.dims, params, inputs, body, kernel.annotations)
    return without, Epilogue(
        store.buffer, store.indices, element, value, kernel.params, kernel.inputs
    )


def with_epilogue(kernel: Kernel, epilogue: Epilogue) -> Kernel | None:
    """The kernel with the epilogue applied to its results, or None if a name it uses is rebound
    there."""
    more = {param.name for param in epilogue.params if param not in kernel.params}
    if not more.isdisjoint(map_of(kernel).names):
        return None
    body = mapped(kernel.body, epilogue.of)
    return Kernel(kernel.dims, epilogue.params, epilogue.inputs, body, kernel.annotations)
