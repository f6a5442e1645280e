"""In-flight buffers: those a thread may read although copies to them are not done.

    copy slice 0 to T[0]
    for q in range(n - 1):
        barrier                                     waits for copies, too
        copy slice q + 1 to T[(q + 1) % 2]          under way ...
        use T[q % 2]                                ... while others are read
    barrier
    use T[(n - 1) % 2]

Not here: how many copies may be under way at a barrier (`patience`).
"""

from __future__ import annotations

from collections.abc import Sequence

from plica.codegen.cuda.in_flight_depth import copied, flat, numbers, places
from plica.core import post_order
from plica.ir.loop import Buffer, ScalarVar, statement as st
from plica.ir.loop.memory_scope import scope
from plica.ir.type import known


def in_flight_buffers(nest: st.Stmt) -> frozenset[Buffer]:
    """The buffers of shared memory that copies may be under way to while others are read."""
    body = _inside(nest)
    buffers: list[Buffer] = []
    for buffer in dict.fromkeys(
        statement.buffer for statement in st.statements(nest) if isinstance(statement, st.Store)
    ):
        plain = scope(buffer.scope).reach == "block" and len(buffer.shape) > 1
        if plain and not _has_regions(nest, buffer) and _is_lent(body, buffer):
            buffers.append(buffer)
    return frozenset(buffers)


def _inside(nest: st.Stmt) -> list[st.Stmt]:
    """The statements inside all loops over threads, one after another."""

    def is_inside(stmt: st.Stmt) -> bool:
        return not (isinstance(stmt, st.Alloc | st.Bind | st.Seq) or st.is_over_threads(stmt))

    return list(st.outermost(nest, is_inside))


def _has_regions(nest: st.Stmt, buffer: Buffer) -> bool:
    return any(isinstance(e, st.Region) and e.buffer is buffer for e in post_order(nest))


def _is_lent(stmts: Sequence[st.Stmt], buffer: Buffer) -> bool:
    under_way: set[int] | None = set()  # versions copied to since the last barrier; None: any
    nobody = ScalarVar(buffer.name, next(iter(buffer.shape)).dtype)  # type: ignore[attr-defined]  # a size is a number
    for stmt in stmts:
        if isinstance(stmt, st.Barrier):
            under_way = set()
            continue
        first = next(flat((stmt.body,)), None) if isinstance(stmt, st.For) else None
        if isinstance(stmt, st.For) and isinstance(first, st.Barrier):
            if not _turns_are_lent(stmt, buffer):
                return False
            under_way = None
            continue
        writes = buffer in copied(stmt)
        if not writes and any(
            isinstance(each, st.Barrier) or (isinstance(each, st.Store) and each.buffer is buffer)
            for each in st.statements(stmt)
        ):
            return False  # copies among other things
        if writes and not _only_copies(stmt, buffer):
            return False
        read = numbers(places([stmt], buffer, written=False), nobody, 0)
        if read is None or (read and (under_way is None or not read.isdisjoint(under_way))):
            return False
        if writes:
            told = numbers(places([stmt], buffer, written=True), nobody, 0)
            under_way = None if told is None or under_way is None else under_way | told
    return True


def _turns_are_lent(loop: st.For, buffer: Buffer) -> bool:
    """Whether no turn reads versions that it copies to, nor those that a wait may leave out."""
    count = known(loop.extent)
    rest = [*flat((loop.body,))][1:]
    if (
        loop.kind != "serial"
        or count is None
        or any(isinstance(each, st.Barrier) for stmt in rest for each in st.statements(stmt))
    ):
        return False
    mine = [statement for statement in rest if buffer in copied(statement)]
    others = [statement for statement in rest if buffer not in copied(statement)]
    if not all(_only_copies(statement, buffer) for statement in mine) or any(
        isinstance(statement, st.Store) and statement.buffer is buffer
        for stmt in others
        for statement in st.statements(stmt)
    ):
        return False
    written, read = places(mine, buffer, written=True), places(rest, buffer, written=False)
    for turn in range(count):
        now, seen = numbers(written, loop.var, turn), numbers(read, loop.var, turn)
        if now is None or seen is None or not now.isdisjoint(seen):
            return False
    return True


def _only_copies(stmt: st.Stmt, buffer: Buffer) -> bool:
    """Whether a statement does nothing but write one buffer, from memory outside."""
    for statement in st.statements(stmt):
        if isinstance(statement, st.Store) and statement.buffer is not buffer:
            return False
        if not isinstance(statement, st.Store | st.For | st.Seq):
            return False
    return True
