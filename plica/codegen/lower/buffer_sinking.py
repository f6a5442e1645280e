"""Sinking: each buffer lives in the smallest part of the kernel that needs it.

    before                              after
    with alloc(T):                      for i in range(n):
        for i in range(n):                  with alloc(T):
            for j: T[i, j] = …                  for j: T[i, j] = …
            for j: C[i, j] = T[i, j]            for j: C[i, j] = T[i, j]

A buffer moves into a loop only if each iteration reads nothing of it but what it wrote itself
(`cover`).  Memory that threads do not share anyway may move into loops over threads.

Law: the kernel means the same.  Refused: a loop at once whose iterations, since that is not shown,
would share a buffer and do meet in it.  It works on blocks, whose inits say where a reduction
begins; `compact` makes the buffer smaller afterwards.
"""

from __future__ import annotations

from plica.analysis.dependence import conflicts
from plica.analysis.index import Context
from plica.analysis.site import distinct
from plica.analysis.statement import (
    contexts,
    holding,
    outermost,
    refused,
    walked,
    with_body,
    with_substatements,
)
from plica.analysis.statement_coverage import covered, touches_buffer
from plica.core import free_vars
from plica.ir.loop import Buffer, statement as st
from plica.ir.loop.memory_scope import scope
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.analysis.race import race_of


def sink_buffers(kernel: st.Kernel) -> st.Kernel:
    """The kernel with its allocations as far inside as they can go."""
    kernel, holds = distinct(kernel), holding(lambda stmt: isinstance(stmt, st.Alloc))
    body = walked(kernel.body, outermost(kernel), _down, _up, enters=holds)
    return with_body(kernel, body)


def _down(stmt: st.Stmt, context: Context) -> tuple[st.Stmt, tuple[Context, ...]]:
    return stmt, contexts(stmt, context)


def _up(stmt: st.Stmt, parts: tuple[st.Stmt, ...], context: Context) -> st.Stmt:
    if not isinstance(stmt, st.Alloc):
        return with_substatements(stmt, parts)
    return _moved_in(stmt.buffer, parts[0], context)


def _moved_in(buffer: Buffer, stmt: st.Stmt, context: Context) -> st.Stmt:
    """The statement with the buffer allocated as deep inside as it can be.

    If an allocation's reads are covered in a loop, they are in enclosing loops, too, so the
    innermost is tried first, and usually suffices.
    """
    way: list[tuple[st.Stmt, int]] = []
    repeated: list[tuple[int, st.Stmt, Context]] = []  # steps of the way whose iterations share it
    inside = stmt
    while True:
        at = _only(inside, buffer)
        if at is None or not _may_enter(inside, buffer):
            break
        way.append((inside, at))
        context = contexts(inside, context)[at]
        repeats = _repeats(inside, buffer)
        inside = st.substatements(inside)[at]
        if repeats:
            repeated.append((len(way), inside, context))
    depth = len(way)
    for number, body, there in reversed(repeated):
        if covered(body, buffer, there):
            break
        depth = number - 1
    for around, _ in way[depth:]:
        if isinstance(around, st.For) and (race := race_of(around, buffer)) is not None:
            message = f"The buffer {str(buffer.name)!r} can't be each iteration's own. {race}"
            expected = "iterations that read of it what they wrote themselves"
            raise refused(message, around.var.name, expected, "reads that are not shown to be such")
    if depth < len(way):
        inside = way[depth][0]
    new: st.Stmt = st.Alloc(buffer, inside) if touches_buffer(inside, buffer) else inside
    for around, at in reversed(way[:depth]):
        parts = list(st.substatements(around))
        parts[at] = new
        new = with_substatements(around, tuple(parts))
    return new


def _only(stmt: st.Stmt, buffer: Buffer) -> int | None:
    """The only substatement that touches the buffer, or None."""
    inside = st.substatements(stmt)
    found = [at for at, statement in enumerate(inside) if touches_buffer(statement, buffer)]
    return found[0] if len(found) == 1 else None


def _may_enter(stmt: st.Stmt, buffer: Buffer) -> bool:
    """Whether a statement lets a buffer in, if no iteration needs what another wrote."""
    match stmt:
        case st.Seq() | st.Alloc():
            return not (isinstance(stmt, st.Alloc) and buffer in free_vars(stmt.buffer))
        case st.Branch(condition):
            return buffer not in free_vars(condition)
        case st.Bind(var, value):
            return buffer not in free_vars(value) and var not in free_vars(buffer)
        case st.For(_, extent, kind):
            # Lanes have elements of a buffer, not buffers. If parallel iterations, here or in an
            # inner loop, would conflict, each needs its own buffer, and the allocating statement
            # becomes serial.
            lanes = kind == "vectorized" and not _is_met(stmt, buffer)
            return buffer not in free_vars(extent) and not lanes
        case st.Block() if stmt.init is None and not stmt.reads and not stmt.writes:
            terms = (stmt.predicate, *stmt.bindings)
            return not any(buffer in free_vars(term) for term in terms)
        case _:
            return False


def _is_met(root: st.For, buffer: Buffer) -> bool:
    """Whether iterations of a loop in a statement that run at once meet in an element."""
    loops = (statement for statement in st.statements(root) if isinstance(statement, st.For))
    at_once = (loop for loop in loops if loop.kind in ("vectorized", "parallel"))
    return any(buffer in conflicts(loop) for loop in at_once)


def _repeats(stmt: st.Stmt, buffer: Buffer) -> bool:
    """Whether one buffer serves several iterations of a statement."""
    match stmt:
        case st.For(_, _, kind):
            return kind not in st.THREADS or scope(buffer.scope).reach == "all"
        case st.Block():
            return True
        case _:
            return False
