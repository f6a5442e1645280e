"""Nests: the launches of a kernel, and what is seen of one before it is written.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.tensor import axis, buffer
>>> y, i = buffer("y", (4,), f32), axis("i")
>>> has_threads(For(i, y.shape[0], "threadIdx.x", Store(y, (i,), i)))
True
"""

from __future__ import annotations

from collections.abc import Iterator

from plica.analysis.statement import refused
from plica.core.binding import free_vars
from plica.core.fold import post_order
from plica.core.term import Term
from plica.ir.loop.memory_scope import scope
from plica.ir.loop.scalar import And, Buffer, Eq, Lit, Load, Scalar, ScalarVar
from plica.ir.loop.statement import (
    THREADS,
    Alloc,
    Barrier,
    Branch,
    For,
    Seq,
    Stmt,
    Store,
    statements,
    substatements,
)
from plica.ir.type.dim import known


def launches_of(root: Stmt, scratch: list[Buffer]) -> Iterator[Stmt]:
    """The parts of a kernel that follow one another, each a launch."""
    stack = [root]
    while stack:
        stmt = stack.pop()
        match stmt:
            case Seq(stmts):
                stack.extend(reversed(stmts))
            case Alloc(buffer, inside) if scope(buffer.scope).reach == "all":
                scratch.append(buffer)
                stack.append(inside)
            case Alloc(buffer, inside) if has_threads(inside) and len(_parts(inside)) > 1:
                raise refused(
                    "Launches that follow one another share memory that only threads reach.",
                    buffer.name,
                    "memory of the scope global, or one launch",
                    f"{buffer.scope} around {len(_parts(inside))} launches",
                )
            case For(kind=kind) if kind not in THREADS and has_threads(stmt):
                raise refused(
                    "A loop that is not over threads has launches inside.",
                    stmt.var.name,
                    "loops over threads outermost",
                    f"a {kind} loop around them",
                )
            case _:
                yield stmt


def _parts(root: Stmt) -> list[Stmt]:
    """What follows one another, inside of allocations."""
    found: list[Stmt] = []
    stack = [root]
    while stack:
        match stack.pop():
            case Seq(stmts):
                stack.extend(reversed(stmts))
            case Alloc(_, inside):
                stack.append(inside)
            case stmt:
                found.append(stmt)
    return found


def has_threads(stmt: Stmt) -> bool:
    return any(isinstance(each, For) and each.kind in THREADS for each in statements(stmt))


def chooses_registers(nest: Stmt) -> set[Term]:
    """The variables that say which element of a thread's own memory is meant."""
    found: set[Term] = set()
    for stmt in statements(nest):
        terms: list[Term] = [part for part in stmt._children if isinstance(part, Scalar)]
        if isinstance(stmt, Store) and scope(stmt.buffer.scope).reach == "thread":
            for each in stmt.indices:
                found |= free_vars(each)
        for term in terms:
            for node in post_order(term):
                if isinstance(node, Load) and scope(node.buffer.scope).reach == "thread":
                    for each in node.indices:
                        found |= free_vars(each)
    return found


def by_one_thread(stmt: Stmt, nest: Stmt) -> bool:
    """Whether a statement is done by one thread of a block alone."""
    threads = {
        each.var: each.kind
        for each in statements(nest)
        if isinstance(each, For) and each.kind.startswith("threadIdx") and known(each.extent) != 1
    }
    pinned: set[str] = set()
    while isinstance(stmt, Branch) and stmt.orelse == Seq(()):
        stack = [stmt.condition]
        while stack:
            match stack.pop():
                case And(left, right):
                    stack += [left, right]
                case Eq(ScalarVar() as var, Lit()) if var in threads:
                    pinned.add(threads[var])
        stmt = stmt.then
    return pinned == {*threads.values()}


def under_way(nest: Stmt, copies: frozenset[Stmt]) -> int | None:
    """How many copies may be under way together, at most; None where there is no limit.

    Who comes to a barrier in a loop waits for copies of the turns before.
    """
    found = 0
    stack: list[tuple[Stmt, int]] = [(nest, 1)]
    while stack:
        stmt, times = stack.pop()
        if stmt in copies:
            found += times
            continue
        if isinstance(stmt, For) and stmt.kind not in THREADS:
            turns = known(stmt.extent)
            if not any(isinstance(each, Barrier) for each in statements(stmt)):
                if turns is None and any(each in copies for each in statements(stmt)):
                    return None
                times *= turns or 0
        stack += [(each, times) for each in substatements(stmt)]
    return found
