"""Reuse: buffers that are never needed together share their memory.

    with alloc(T[8]), alloc(U[8]):              with alloc(T[8]):
        make(T); use(T)               -->           make(T); use(T)
        make(U); use(U)                             make(U -> T); use(T)

Buffers of one `with`, one element type and one memory scope are looked at: a buffer is needed from
the first statement that touches it to the last.  `clashes` finds, in another way, buffers whose
contents would be lost.

Laws: the kernel means the same; it needs no more memory.  Symbolic sizes are left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plica.analysis.statement import holding, walked, with_body, with_substatements
from plica.core import CompilerBug, Term, free_vars, map_bottom_up
from plica.ir.loop import Buffer, Load, index, statement as st
from plica.ir.type import known


def reuse(kernel: st.Kernel) -> st.Kernel:
    """The kernel with less memory."""
    holds = holding(lambda stmt: isinstance(stmt, st.Alloc))
    return with_body(kernel, walked(kernel.body, False, _down, _up, enters=holds))


def _down(stmt: st.Stmt, inside: bool) -> tuple[st.Stmt, tuple[bool, ...]]:
    return stmt, (isinstance(stmt, st.Alloc),) * len(st.substatements(stmt))


def _up(stmt: st.Stmt, parts: tuple[st.Stmt, ...], inside: bool) -> st.Stmt:
    new = with_substatements(stmt, parts)
    return _shared(new) if isinstance(new, st.Alloc) and not inside else new


def _shared(stmt: st.Alloc) -> st.Stmt:
    """Directly nested allocations with their buffers merged."""
    held: list[Buffer] = []
    body: st.Stmt = stmt
    while isinstance(body, st.Alloc):
        held.append(body.buffer)
        body = body.body
    if not isinstance(body, st.Seq):
        return stmt
    tenants = arranged(held, body.stmts)
    if lost := clashes(tenants, body.stmts):
        raise CompilerBug(f"Sharing memory would lose what is in {lost[0].name}.")
    if len(tenants) == len(held):
        return stmt  # each has its own
    homes: dict[Buffer, Buffer] = {}
    for several in tenants:
        first = several[0]
        size = max((known(buffer.shape[0]) or 0 for buffer in several), default=0)
        home = first
        if len(several) > 1:
            align = max(buffer.align for buffer in several)
            home = Buffer(first.name, (index(size),), first.dtype, first.scope, (), align)
        homes.update(dict.fromkeys(several, home))
    new = _moved(body, homes)
    return st.allocated(new, reversed(list(dict.fromkeys(homes[buffer] for buffer in held))))


def arranged(held: Sequence[Buffer], stmts: Sequence[st.Stmt]) -> list[list[Buffer]]:
    """The buffers, those that can share their memory together."""
    spans = {buffer: _span(buffer, stmts) for buffer in held}
    order = sorted(held, key=lambda each: (spans[each], held.index(each)))
    groups: list[list[Buffer]] = []
    for buffer in order:
        if (fit := next((g for g in groups if _fits(buffer, g, spans)), None)) is None:
            groups.append([buffer])
        else:
            fit.append(buffer)
    return groups


def _span(buffer: Buffer, stmts: Sequence[st.Stmt]) -> tuple[int, int]:
    touched = [at for at, statement in enumerate(stmts) if buffer in free_vars(statement)]
    return (touched[0], touched[-1]) if touched else (len(stmts), len(stmts))


def _fits(buffer: Buffer, group: Sequence[Buffer], spans: Mapping[Buffer, tuple[int, int]]) -> bool:
    alike = all((each.dtype, each.scope) == (buffer.dtype, buffer.scope) for each in group)
    plain = all(
        len(each.shape) == 1 and known(each.shape[0]) is not None and not each.strides
        for each in (buffer, *group)
    )
    return alike and plain and all(spans[each][1] < spans[buffer][0] for each in group)


def clashes(tenants: Sequence[Sequence[Buffer]], stmts: Sequence[st.Stmt]) -> list[Buffer]:
    """The buffers whose contents another one of the same memory would overwrite, found by going
    through the statements and noting whose the memory is."""
    lost: dict[Buffer, None] = {}
    for group in tenants:
        gone: set[Buffer] = set()
        owner: Buffer | None = None
        for stmt in stmts:
            here = [buffer for buffer in group if buffer in free_vars(stmt)]
            lost.update(dict.fromkeys([buffer for buffer in here if buffer in gone]))
            if len(here) > 1:
                lost.update(dict.fromkeys(here))
            for buffer in here:
                if owner is not None and owner is not buffer:
                    gone.add(owner)
                owner = buffer
    return list(lost)


def _moved(body: st.Stmt, homes: Mapping[Buffer, Buffer]) -> st.Stmt:
    def change(node: Term) -> Term:
        match node:
            case Load(buffer, indices) if homes.get(buffer, buffer) is not buffer:
                return Load(homes[buffer], indices)
            case st.Store(buffer, indices, value) if homes.get(buffer, buffer) is not buffer:
                return st.Store(homes[buffer], indices, value)
            case st.Region(buffer, starts, extents) if homes.get(buffer, buffer) is not buffer:
                return st.Region(homes[buffer], starts, extents)
            case _:
                return node

    return map_bottom_up(change, body)
