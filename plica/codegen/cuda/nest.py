"""Nests: the launches of a kernel, and their analysis before they are emitted.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.tensor import axis, buffer
>>> y, i = buffer("y", (4,), f32), axis("i")
>>> has_threads(st.For(i, y.shape[0], "threadIdx.x", st.Store(y, (i,), i)))
True
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from plica.analysis.statement import LoweringRefused, refused
from plica.codegen.emit.clike import count_of
from plica.core import Term, free_vars, post_order
from plica.ir.loop import (
    Buffer,
    Lit,
    Load,
    Scalar,
    ScalarVar,
    dtype_of,
    scalar as sc,
    statement as st,
)
from plica.ir.loop.memory_scope import scope
from plica.ir.type import known


def launches_of(root: st.Stmt, scratch: list[Buffer]) -> Iterator[st.Stmt]:
    """The parts of a kernel that follow one another, each a launch."""
    stack = [root]
    while stack:
        stmt = stack.pop()
        match stmt:
            case st.Seq(stmts):
                stack.extend(reversed(stmts))
            case st.Alloc(buffer, inside) if scope(buffer.scope).reach == "all":
                if buffer not in scratch:  # a copy of it comes after: it is needed no longer
                    scratch.append(buffer)
                stack.append(inside)
            case st.Alloc(buffer, inside) if has_threads(inside) and len(_parts(inside)) > 1:
                raise refused(
                    "Launches that follow one another share memory that only threads reach.",
                    buffer.name,
                    "memory of the scope global, or one launch",
                    f"{buffer.scope} around {len(_parts(inside))} launches",
                    "Compute one inside of the other's loop over blocks, or set its scope.",
                )
            case st.For(kind=kind) if kind not in st.THREADS and has_threads(stmt):
                raise _loop_around_launches(stmt)
            case _:
                if (around := _around_blocks(stmt)) is not None:
                    raise _loop_around_launches(around)
                yield stmt


def _loop_around_launches(loop: st.For) -> LoweringRefused:
    return refused(
        "A loop that is not over threads has launches inside.",
        loop.var.name,
        "loops over blocks, or over threads, outermost: blocks do not wait for one another",
        f"a {loop.kind} loop around them",
        "Bind it to blocks or threads, or reorder it inside of those that are bound.",
    )


def _around_blocks(root: st.Stmt) -> st.For | None:
    """A per-thread loop inside a launch that contains loops over blocks, if any."""
    stack: list[tuple[st.Stmt, st.For | None]] = [(root, None)]
    while stack:
        stmt, around = stack.pop()
        if isinstance(stmt, st.For):
            if around is not None and stmt.kind.startswith("blockIdx"):
                return around
            around = around if stmt.kind in st.THREADS else stmt
        stack += [(substatement, around) for substatement in st.substatements(stmt)]
    return None


def _parts(root: st.Stmt) -> list[st.Stmt]:
    """What follows one another, inside of allocations."""
    statements: list[st.Stmt] = []
    stack = [root]
    while stack:
        match stack.pop():
            case st.Seq(stmts):
                stack.extend(reversed(stmts))
            case st.Alloc(_, inside):
                stack.append(inside)
            case stmt:
                statements.append(stmt)
    return statements


def has_threads(stmt: st.Stmt) -> bool:
    return any(isinstance(each, st.For) and each.kind in st.THREADS for each in st.statements(stmt))


REGISTER_BYTES: Final = 1024
"""The bytes of all registers of a thread: larger buffers are in memory anyway."""


def _fits_registers(buffer: Buffer) -> bool:
    return scope(buffer.scope).reach == "thread" and _bytes(buffer) <= REGISTER_BYTES


def _bytes(buffer: Buffer) -> int:
    return count_of(buffer) * buffer.dtype.bytes


def large_of_one_thread(nest: st.Stmt) -> list[Buffer]:
    """Memory inside of a launch of one thread that no registers hold: it may lie in scratch memory.

    Local memory is allocated for every thread that a GPU can run, used or not.
    """
    loops = [statement for statement in st.statements(nest) if isinstance(statement, st.For)]
    if any(loop.kind in st.THREADS and known(loop.extent) != 1 for loop in loops):
        return []
    inside = [each.buffer for each in st.statements(nest) if isinstance(each, st.Alloc)]
    return [
        buffer
        for buffer in dict.fromkeys(inside)
        if scope(buffer.scope).reach in ("all", "thread") and _bytes(buffer) > REGISTER_BYTES
    ]


def thread_bytes(nest: st.Stmt, outside: Collection[Buffer]) -> int:
    """Bytes that each thread of a launch has to itself at one time, at most; `outside` are buffers
    that lie elsewhere."""
    most = 0
    stack = [(nest, 0)]
    while stack:
        stmt, held = stack.pop()
        if isinstance(stmt, st.Alloc) and stmt.buffer not in outside:
            held += _bytes(stmt.buffer) if scope(stmt.buffer.scope).reach != "block" else 0
            most = max(most, held)
        stack += [(substatement, held) for substatement in st.substatements(stmt)]
    return most


def chooses_registers(nest: st.Stmt) -> set[Term]:
    """The variables that say which element of a thread's registers is meant."""
    found: set[Term] = set()
    for stmt in st.statements(nest):
        terms: list[Term] = [part for part in stmt._children if isinstance(part, Scalar)]
        if isinstance(stmt, st.Store) and _fits_registers(stmt.buffer):
            for index in stmt.indices:
                found |= free_vars(index)
        for term in terms:
            for node in post_order(term):
                if isinstance(node, Load) and _fits_registers(node.buffer):
                    for index in node.indices:
                        found |= free_vars(index)
    return found


def counts_of_clamped_differences(nest: st.Stmt) -> set[Term]:
    """The variables of quotients that are subtracted from before a minimum or maximum.

    # Note [Clamped differences]
    ptxas 13.0 to 13.4 makes `max(0, x - 4)` of `max(0, 4 - x)` for sm_90 and sm_100 (VIADDMNMX, by
    any level but -O0) where it comes to know the 4 late: as what high halves of 64 bits are, which
    is how quotients by constants are computed, once it has written out a loop itself.  Loops over
    such variables are therefore written out by NVVM, in part, which tells ptxas to leave them.
    """
    bound = {each.var: each.value for each in st.statements(nest) if isinstance(each, st.Bind)}
    terms: set[Term] = set()
    for stmt in st.statements(nest):
        for term in [part for part in stmt._children if isinstance(part, Scalar)]:
            for node in post_order(term):
                if isinstance(node, sc.Min | sc.Max) and dtype_of(node).is_integer:
                    for side in (node.left, node.right):
                        terms |= _counts_of_minuends(side, bound)
    return terms


def _counts_of_minuends(of: Scalar, bound: Mapping[ScalarVar, Scalar]) -> set[Term]:
    """The variables of a sum's quotients from which a non-constant is subtracted."""
    positive: list[Scalar] = []
    is_difference = False
    stack = [(of, 1)]
    while stack:
        term, sign = stack.pop()
        match term:
            case sc.Add(left, right):
                stack += [(left, sign), (right, sign)]
            case sc.Sub(left, right):
                stack += [(left, sign), (right, -sign)]
            case sc.Cast(value):
                stack.append((value, sign))
            case sc.Mul(Lit(int(factor)), value) | sc.Mul(value, Lit(int(factor))) if factor < 0:
                stack.append((value, -sign))
            case ScalarVar() if term in bound:
                stack.append((bound[term], sign))
            case _ if sign > 0:
                positive.append(term)
            case _:
                is_difference = is_difference or not isinstance(term, Lit)
    if not is_difference:
        return set()
    inside = [node for scalar in positive for node in _reached(scalar, bound)]
    if not any(isinstance(node, sc.FloorDiv | sc.FloorMod | sc.ShiftRight) for node in inside):
        return set()
    return {node for node in inside if isinstance(node, ScalarVar)}


def _reached(of: Scalar, bound: Mapping[ScalarVar, Scalar]) -> Iterator[Term]:
    """The nodes of a term, with variables expanded."""
    stack, seen = [of], {of}
    while stack:
        for node in post_order(stack.pop()):
            yield node
            if isinstance(node, ScalarVar) and node in bound and bound[node] not in seen:
                seen.add(bound[node])
                stack.append(bound[node])


def shared_before(nest: st.Stmt) -> dict[Buffer, frozenset[Buffer]]:
    """Memory of a block that is needed no longer when other memory is first touched, which was
    there before it: what may lie in the same place, if threads wait for each other in between.

    They have been executed before in the remaining code, so all threads reach them.
    """
    touched: list[frozenset[Buffer]] = []  # by what is done once, in its order
    waits: list[bool] = []
    begun: dict[Buffer, tuple[int, tuple[Buffer, ...]]] = {}
    ended: dict[Buffer, int] = {}
    stack: list[tuple[st.Stmt | Buffer, tuple[Buffer, ...]]] = [(nest, ())]
    while stack:
        item, around = stack.pop()
        if isinstance(item, Buffer):
            ended[item] = len(touched)
        elif isinstance(item, st.Alloc) and scope(item.buffer.scope).reach == "block":
            begun[item.buffer] = (len(touched), around)
            stack += [(item.buffer, ()), (item.body, (*around, item.buffer))]
        elif _is_once(item):
            stack += [(substatement, around) for substatement in reversed(st.substatements(item))]
        else:
            nodes = [*post_order(item)]
            mine = [node.buffer for node in nodes if isinstance(node, Load | st.Store | st.Region)]
            touched.append(frozenset(mine))
            waits.append(any(isinstance(node, st.Barrier) for node in nodes))
    found: dict[Buffer, frozenset[Buffer]] = {}
    for buffer, (begin, around) in begun.items():
        end = ended[buffer]
        later = [each for each in around if not any(each in one for one in touched[:end])]
        if later and any(waits[begin:end]):
            found[buffer] = frozenset(later)
    return found


def _is_once(stmt: st.Stmt) -> bool:
    """Whether each thread executes a statement's body once."""
    over_threads = isinstance(stmt, st.For) and stmt.kind in st.THREADS
    return over_threads or isinstance(stmt, st.Alloc | st.Bind | st.Seq)


def by_one_thread(stmt: st.Stmt, nest: st.Stmt) -> bool:
    """Whether a statement is done by one thread of a block alone."""
    threads = {
        statement.var: statement.kind
        for statement in st.statements(nest)
        if isinstance(statement, st.For)
        and statement.kind.startswith("threadIdx")
        and known(statement.extent) != 1
    }
    pinned: set[str] = set()
    while isinstance(stmt, st.Branch) and stmt.orelse == st.Seq(()):
        stack = [stmt.condition]
        while stack:
            match stack.pop():
                case sc.And(left, right):
                    stack += [left, right]
                case sc.Eq(ScalarVar() as var, Lit()) if var in threads:
                    pinned.add(threads[var])
        stmt = stmt.then
    return pinned == {*threads.values()}


def under_way(nest: st.Stmt, copies: frozenset[st.Stmt]) -> int | None:
    """The maximum number of copies pending together, or None if unlimited.

    A barrier in a loop waits for the copies of previous iterations.
    """
    found = 0
    stack: list[tuple[st.Stmt, int]] = [(nest, 1)]
    while stack:
        stmt, times = stack.pop()
        if stmt in copies:
            found += times
            continue
        if isinstance(stmt, st.For) and stmt.kind not in st.THREADS:
            turns = known(stmt.extent)
            if not any(isinstance(statement, st.Barrier) for statement in st.statements(stmt)):
                if turns is None and any(statement in copies for statement in st.statements(stmt)):
                    return None
                times *= turns or 0
        stack += [(substatement, times) for substatement in st.substatements(stmt)]
    return found
