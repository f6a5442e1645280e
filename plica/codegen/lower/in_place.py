"""In place: writes a temporary row directly into the result buffer.

    before                                     after
    for i:                                     for i:
        e = alloc(Buffer[(1024,), f32])            for j in vectorized(1024):
        for j in vectorized(1024):                     out[i, j] = exp(x[i, j])
            e[j] = exp(x[i, j])                    …
        …                                          for j in vectorized(1024):
        for j in vectorized(1024):                     out[i, j] = out[i, j] * s
            out[i, j] = e[j] * s

This saves memory, and brings the result into cache while there is still work to do. A buffer is
replaced if its last reader is the only statement that touches the result, reads it elementwise at
the stored place, and writes all of it.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.statement import statements
>>> from plica.ir.loop.scalar import index
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, out, e = buffer("x", (4, 8), f32), buffer("out", (4, 8), f32), buffer("e", (8,), f32)
>>> i, j, k = axis("i"), axis("j"), axis("k")
>>> first = For(j, index(8), "serial", Store(e, (j,), x[i, j]))
>>> last = For(k, index(8), "serial", Store(out, (i, k), e[k] + 1.0))
>>> body = For(i, index(4), "serial", Alloc(e, Seq((first, last))))
>>> new = in_place(Kernel((), (x, out), 1, body))
>>> [str(s.buffer.name) for s in statements(new.body) if isinstance(s, Store)]
['out', 'out']
"""

from __future__ import annotations

from attrs import evolve

from plica.analysis.statement import mapped
from plica.core import Term, free_vars, map_bottom_up, post_order
from plica.ir.loop import Alloc, Buffer, For, Kernel, Load, Scalar, Seq, Stmt, Store, statements
from plica.ir.type import known, same_dim


def in_place(kernel: Kernel) -> Kernel:
    """The kernel with temporary rows placed in its results."""
    results = kernel.params[kernel.inputs :]

    def moved(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Alloc):
            return stmt
        for out in results:
            if (place := _place(stmt, out)) is not None:
                return _within(stmt.body, stmt.buffer, out, place)
        return stmt

    body = mapped(kernel.body, moved)
    return kernel if body is kernel.body else evolve(kernel, body=body)


def _place(of: Alloc, out: Buffer) -> tuple[Scalar, ...] | None:
    """The row of a result that can replace a buffer, or None."""
    held = of.buffer
    if not held.shape or any(known(size) != 1 for size in held.shape[:-1]):
        return None
    if held.dtype is not out.dtype or held.scope != out.scope:
        return None
    inside = of.body
    while isinstance(inside, Alloc):
        inside = inside.body
    if not isinstance(inside, Seq):
        return None
    touching = [statement for statement in inside.stmts if _touches(statement, out)]
    if len(touching) != 1:
        return None
    (last,) = touching
    after = inside.stmts[inside.stmts.index(last) + 1 :]
    if any(_touches(statement, held) for statement in after):
        return None
    match last:
        case For(var, extent, _, Store(buffer, (*row, end), value)):
            reads = [node for node in post_order(value) if isinstance(node, Load)]
            if buffer is not out or end is not var or not same_dim(extent, held.shape[-1]):
                return None
            if known(extent) is None or not same_dim(extent, out.shape[-1]):
                return None
            if any(read.buffer is held and read.indices[-1] is not var for read in reads):
                return None
            if any(read.buffer is out for read in reads) or held not in [r.buffer for r in reads]:
                return None
            bound = _bound(inside)
            if any(not bound.isdisjoint(free_vars(scalar)) for scalar in row):
                return None
            return tuple(row)
        case _:
            return None


def _touches(of: Stmt, buffer: Buffer) -> bool:
    return buffer in free_vars(of)


def _bound(of: Stmt) -> frozenset[Term]:
    """The variables of loops inside a statement."""
    return frozenset([statement.var for statement in statements(of) if isinstance(statement, For)])


def _within(of: Stmt, held: Buffer, out: Buffer, row: tuple[Scalar, ...]) -> Stmt:
    """The statement with a row of the result for a buffer."""

    def new(node: Term) -> Term:
        if isinstance(node, Load) and node.buffer is held:
            return Load(out, (*row, node.indices[-1]))
        if isinstance(node, Store) and node.buffer is held:
            return Store(out, (*row, node.indices[-1]), node.value)
        return node

    return map_bottom_up(new, of)
