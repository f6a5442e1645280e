"""Virtual threads: their statements are interleaved into one stream.

    before                                      after
    for v in virtual(2):                        with alloc(T[2, 8]):
        with alloc(T[8]):                           for v in range(2): load(T[v], v)
            load(T, v)                              for k in range(4):
            for k in range(4):                          for v in range(2): use(T[v], v, k)
                use(T, v, k)

What one thread waits for, another hides.  The loop over the threads moves inside, as far as nothing
depends on it; each thread has its own part of the buffers allocated inside.

Law: the kernel means the same.  Refused: threads that touch one element of a buffer outside, one of
them writing it.
"""

from __future__ import annotations

from plica.analysis.index import Context
from plica.analysis.site import distinct
from plica.analysis.statement import (
    contexts,
    outermost,
    reads_memory,
    refused,
    walked,
    with_body,
    with_substatements,
)
from plica.core import Term, free_vars, map_bottom_up, post_order
from plica.ir.loop import Buffer, Load, Scalar, ScalarVar, statement as st
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.analysis.disjoint_access import IndexedAccess, accesses, are_disjoint


def virtual_threads(kernel: st.Kernel) -> st.Kernel:
    """The kernel without virtual threads."""
    kernel = distinct(kernel)

    def down(stmt: st.Stmt, context: Context) -> tuple[st.Stmt, tuple[Context, ...]]:
        return stmt, contexts(stmt, context)

    def up(stmt: st.Stmt, parts: tuple[st.Stmt, ...], context: Context) -> st.Stmt:
        new = with_substatements(stmt, parts)
        if isinstance(new, st.For) and new.kind == "virtual":
            return _interleaved(new, context)
        return new

    return with_body(kernel, walked(kernel.body, outermost(kernel), down, up))


def _interleaved(loop: st.For, context: Context) -> st.Stmt:
    own = tuple(
        dict.fromkeys(e.buffer for e in st.statements(loop.body) if isinstance(e, st.Alloc))
    )
    _check(loop, own, context)
    body = _private(loop, own)

    def down(stmt: st.Stmt, alone: bool) -> tuple[st.Stmt, tuple[bool, ...]]:
        return stmt, (alone or not _splits(stmt, loop.var),) * len(st.substatements(stmt))

    def up(stmt: st.Stmt, parts: tuple[st.Stmt, ...], alone: bool) -> st.Stmt:
        new = with_substatements(stmt, parts)
        if alone or _splits(stmt, loop.var):
            return new
        return st.For(loop.var, loop.extent, "serial", new)

    return walked(body, False, down, up)


def _splits(stmt: st.Stmt, var: ScalarVar) -> bool:
    """Whether all threads go through a statement together, part by part."""
    match stmt:
        case st.Seq() | st.Barrier():
            return True
        case st.Alloc(buffer):
            return var not in free_vars(buffer)
        case st.For(_, extent, kind):
            return kind in ("serial", "unrolled") and _common(extent, var)
        case st.Branch(condition):
            return _common(condition, var)
        case _:
            return False


def _common(term: Scalar, var: ScalarVar) -> bool:
    return var not in free_vars(term) and not reads_memory(term)


def _private(loop: st.For, own: tuple[Buffer, ...]) -> st.Stmt:
    """The body where each thread has its part of its buffers."""
    larger = {
        each: Buffer(each.name, (loop.extent, *each.shape), each.dtype, each.scope, (), each.align)
        for each in own
    }

    def change(node: Term) -> Term:
        match node:
            case Load(buffer, indices) if buffer in larger:
                return Load(larger[buffer], (loop.var, *indices))
            case st.Store(buffer, indices, value) if buffer in larger:
                return st.Store(larger[buffer], (loop.var, *indices), value)
            case st.Alloc(buffer, body) if buffer in larger:
                return st.Alloc(larger[buffer], body)
            case _:
                return node

    return map_bottom_up(change, loop.body)


def _check(loop: st.For, own: tuple[Buffer, ...], context: Context) -> None:
    message = f"The virtual threads of {str(loop.var.name)!r} cannot be interleaved."
    where = loop.var.name
    for buffer in own:
        if buffer.strides or loop.var in free_vars(buffer):
            raise refused(
                message, where, "buffers of one form", f"{buffer.name} has strides of its own"
            )
    for node in post_order(loop.body):
        if isinstance(node, st.Region) and node.buffer in own:
            found = f"an intrinsic on {node.buffer.name}, which each thread has its own of"
            raise refused(message, where, "loads and stores of buffers allocated inside", found)
    touched = [access for access in accesses(loop, context) if access.buffer not in own]
    for one in touched:
        for two in touched:
            if one.written and one.buffer is two.buffer and not _apart(one, two, loop, context):
                expected = "threads that have their elements for themselves, or all only read"
                found = f"threads that may meet in {one.buffer.name}"
                raise refused(message, where, expected, found)


def _apart(one: IndexedAccess, two: IndexedAccess, loop: st.For, context: Context) -> bool:
    return are_disjoint(one, two, loop.var, [each.var for each in context.ranges])
