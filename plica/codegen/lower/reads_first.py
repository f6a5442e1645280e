"""Reads first: an unrolled loop of a thread asks memory for all it needs before it uses any.

    for u in unrolled(4):                       with alloc(T[4, 4], "local"):
        with alloc(T[4], "local"):                  for u in unrolled(4):
            if g: T[:] = x[…]         -->               if g: T[u, :] = x[…]
            if g: acc += T[:]                       for u in unrolled(4):
                                                        if g: acc += T[u, :]

The device compiler hoists loads above earlier code, but not out of guards. The loop is distributed
if the loads are from global memory that its body does not write. So is one that copies guarded
vectors to shared memory:

    for u in unrolled(4):                       with alloc(T[4, 4], "local"):
        if g:                                       for u in unrolled(4):
            for v in vectorized(4):                     if g: T[u, :] = x[…]
                S[…] = x[…]           -->           for u in unrolled(4):
                                                        if g: S[…] = T[u, :]

Law: the kernel means the same.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final

from attrs import evolve

from plica.analysis.access import accesses
from plica.analysis.statement import mapped, with_body
from plica.core import Term, map_bottom_up, post_order, substitute
from plica.ir.loop import scalar as sc
from plica.ir.loop.memory_scope import scope
from plica.ir.loop.stages import Names
from plica.ir.loop.statement import (
    NOTHING,
    Alloc,
    Branch,
    For,
    Kernel,
    Region,
    Seq,
    Stmt,
    Store,
    statements,
)
from plica.ir.type import known

MAX_BYTES: Final = 80  # the maximum bytes that a thread loads at once


def reads_first(kernel: Kernel) -> Kernel:
    """The kernel with the guarded reads of unrolled loops before their uses."""
    names = Names(kernel)

    def change(stmt: Stmt) -> Stmt:
        statement = _distributed(_through_registers(stmt, names), names)
        return stmt if statement is None else statement

    return with_body(kernel, mapped(kernel.body, change))


def _through_registers(loop: Stmt, names: Names) -> Stmt:
    """An unrolled loop of guarded copies to shared memory, staged through registers; other
    statements are unchanged."""
    match loop:
        case For(_, _, "unrolled", Branch(condition, For(lane, extent, "vectorized", store), st)):
            pass
        case _:
            return loop
    if st is not NOTHING or not isinstance(store, Store) or not isinstance(store.value, sc.Load):
        return loop
    if [scope(each.scope).reach for each in (store.buffer, store.value.buffer)] != ["block", "all"]:
        return loop
    own = sc.Buffer(names.name(str(store.buffer.name)), (extent,), store.buffer.dtype, "local")
    read, keep = (
        Branch(condition, For(lane, extent, "vectorized", each), NOTHING)
        for each in (Store(own, (lane,), store.value), evolve(store, value=own[lane]))
    )
    return evolve(loop, body=Alloc(own, Seq((read, keep))))


def _distributed(loop: Stmt, names: Names) -> Stmt | None:
    """An unrolled loop with guarded loads and their uses as two loops, or None for others."""
    if not isinstance(loop, For) or loop.kind != "unrolled" or not isinstance(loop.body, Alloc):
        return None
    buffer, inside = loop.body.buffer, loop.body.body
    if scope(buffer.scope).reach != "thread" or not isinstance(inside, Seq):
        return None
    reads, *uses = inside.stmts
    if not uses or not isinstance(reads, Branch) or not _only_reads(reads, buffer, uses):
        return None
    shape = [known(scalar) or 0 for scalar in (loop.extent, *buffer.shape)]
    if not 0 < prod(shape) * buffer.dtype.bytes <= MAX_BYTES or buffer.strides:
        return None
    if any(isinstance(e, Region) and e.buffer is buffer for e in post_order(loop)):
        return None
    held = sc.Buffer(buffer.name, tuple(map(sc.index, shape)), buffer.dtype, buffer.scope)
    other = names.var(str(loop.var.name))
    first = _moved(reads, buffer, lambda at: (loop.var, *at), held)
    later = _moved(Seq(tuple(uses)), buffer, lambda at: (loop.var, *at), held)
    second = substitute(later, {loop.var: other})
    both = (
        For(loop.var, loop.extent, loop.kind, first, loop.annotations),
        For(other, loop.extent, loop.kind, second, loop.annotations),
    )
    return Alloc(held, Seq(both))


def _only_reads(reads: Stmt, buffer: sc.Buffer, uses: list[Stmt]) -> bool:
    """Whether a statement does nothing but write a buffer, from memory of the launch that its uses
    do not write; and these write no such buffer."""
    written = {access.buffer for part in uses for access in accesses(part) if access.written}
    if buffer in written:
        return False
    for each in accesses(reads):
        if each.written != (each.buffer is buffer):
            return False
        if not each.written and (scope(each.buffer.scope).reach != "all" or each.buffer in written):
            return False
    return all(isinstance(statement, Store | Branch | For | Seq) for statement in statements(reads))


def _moved(
    of: Stmt,
    buffer: sc.Buffer,
    place: Callable[[tuple[sc.Scalar, ...]], tuple[sc.Scalar, ...]],
    held: sc.Buffer,
) -> Stmt:
    def change(node: Term) -> Term:
        match node:
            case sc.Load(found, indices) if found is buffer:
                return sc.Load(held, place(indices))
            case Store(found, indices, value) if found is buffer:
                return Store(held, place(indices), value)
            case _:
                return node

    return map_bottom_up(change, of)
