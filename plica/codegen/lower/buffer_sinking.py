"""Place: each buffer lives in the smallest part of the kernel that needs it.

    before                              after
    with alloc(T):                      for i in range(n):
        for i in range(n):                  with alloc(T):
            for j: T[i, j] = …                  for j: T[i, j] = …
            for j: C[i, j] = T[i, j]            for j: C[i, j] = T[i, j]

A buffer moves into a loop only if each iteration reads nothing of it but what it wrote itself
(`cover`).  Memory that threads do not share anyway may move into loops over threads.

Law: the kernel means the same.  It works on blocks, whose inits say where a reduction begins;
`compact` makes the buffer smaller afterwards.
"""

from __future__ import annotations

from plica.analysis.index import Context
from plica.analysis.site import distinct
from plica.analysis.statement import contexts, outermost, walked, with_body, with_substatements
from plica.analysis.statement_coverage import covered, touches_buffer
from plica.core.binding import free_vars
from plica.ir.loop.memory_scope import scope
from plica.ir.loop.scalar import Buffer
from plica.ir.loop.statement import (
    THREADS,
    Alloc,
    Bind,
    Block,
    Branch,
    For,
    Kernel,
    Seq,
    Stmt,
    substatements,
)


def sink_buffers(kernel: Kernel) -> Kernel:
    """The kernel with its allocations as far inside as they can go."""
    kernel = distinct(kernel)
    return with_body(kernel, walked(kernel.body, outermost(kernel), _down, _up))


def _down(stmt: Stmt, context: Context) -> tuple[Stmt, tuple[Context, ...]]:
    return stmt, contexts(stmt, context)


def _up(stmt: Stmt, parts: tuple[Stmt, ...], context: Context) -> Stmt:
    if not isinstance(stmt, Alloc):
        return with_substatements(stmt, parts)
    return _moved_in(stmt.buffer, parts[0], context)


def _moved_in(buffer: Buffer, stmt: Stmt, context: Context) -> Stmt:
    """The statement with the buffer allocated as deep inside as it can be."""
    way: list[tuple[Stmt, int]] = []
    while True:
        at = _only(stmt, buffer)
        if at is None or not _may_enter(stmt, at, buffer, context):
            break
        way.append((stmt, at))
        context = contexts(stmt, context)[at]
        stmt = substatements(stmt)[at]
    new: Stmt = Alloc(buffer, stmt) if touches_buffer(stmt, buffer) else stmt
    for around, at in reversed(way):
        parts = list(substatements(around))
        parts[at] = new
        new = with_substatements(around, tuple(parts))
    return new


def _only(stmt: Stmt, buffer: Buffer) -> int | None:
    """Which substatement alone touches the buffer, None where none or several do."""
    inside = substatements(stmt)
    found = [at for at, each in enumerate(inside) if touches_buffer(each, buffer)]
    return found[0] if len(found) == 1 else None


def _may_enter(stmt: Stmt, at: int, buffer: Buffer, context: Context) -> bool:
    inside = substatements(stmt)[at]
    match stmt:
        case Seq() | Alloc():
            return not (isinstance(stmt, Alloc) and buffer in free_vars(stmt.buffer))
        case Branch(condition):
            return buffer not in free_vars(condition)
        case Bind(var, value):
            return buffer not in free_vars(value) and var not in free_vars(buffer)
        case For(_, extent, kind):
            if buffer in free_vars(extent) or kind == "vectorized":
                return False  # lanes have registers, not buffers
            if kind in THREADS and scope(buffer.scope).reach != "all":
                return True
            return covered(inside, buffer, contexts(stmt, context)[at])
        case Block() if stmt.init is None and not stmt.reads and not stmt.writes:
            terms = (stmt.predicate, *stmt.bindings)
            if any(buffer in free_vars(each) for each in terms):
                return False
            return covered(inside, buffer, contexts(stmt, context)[at])
        case _:
            return False
