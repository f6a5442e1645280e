"""One thread: what all threads of a block would write alike to shared memory, the first writes.

    for t in threadIdx.x(32):               for t in threadIdx.x(32):
        for i in range(8):                      if t == 0:
            S[i] = A[i]               -->           for i in range(8):
        B[t] = S[t // 4]                                S[i] = A[i]
                                                B[t] = S[t // 4]

A schedule that stages data for threads has such kernels on its way, until it binds a loop of the
copy to the threads.

Threads that only a part of a launch has come to what lies beside that part, too.  Where that reads
what it writes, as a sum in memory does, it is a loop of one of them:

    for t in threadIdx.z(3):                  for t in threadIdx.z(3):
        for u in threadIdx.x(3): …                for u in threadIdx.x(3): …
        for i in range(8):            -->         for v in threadIdx.x(1):
            S[t] += A[t, i]                           for i in range(8): S[t] += A[t, i]

Refused: such a part whose threads meet in memory that they share, where all would have to wait.

Law: the kernel means the same, and no two threads write one element of what is read meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from plica.analysis.access import accesses
from plica.analysis.statement import (
    mapped,
    refused,
    same_state,
    walked,
    with_body,
    with_substatements,
)
from plica.core import post_order
from plica.ir.loop import Buffer, Load, Names, ScalarVar, index, statement as st
from plica.ir.loop.memory_scope import scope
from plica.ir.loop.scalar import Eq
from plica.ir.type import known
from plica.schedule.launch import repeated, shares


def predicate_single_thread(kernel: st.Kernel) -> st.Kernel:
    """The kernel with one thread for what all would do alike."""
    guarded = with_body(kernel, mapped(kernel.body, _guarded))
    return with_body(guarded, _of_launches(guarded.body, guarded))


def _of_launches(stmt: st.Stmt, of: st.Kernel) -> st.Stmt:
    """Launches, which are outermost loops over threads: one thread beside each part of them."""
    if isinstance(stmt, st.For) and stmt.kind in st.THREADS:
        for kind in sorted({loop.kind for loop in _several(stmt)}):
            if summed := _summed(_without(stmt, kind)):
                stmt = _beside(stmt, kind, summed, Names(of).var(f"first_{kind[-1]}"))
        return stmt
    if not isinstance(stmt, st.Seq | st.Alloc | st.For | st.Branch):
        return stmt
    return with_substatements(stmt, tuple([_of_launches(e, of) for e in st.substatements(stmt)]))


def _several(stmt: st.Stmt) -> Iterator[st.For]:
    """Loops over several threads of a block."""
    for statement in st.statements(stmt):
        if (
            isinstance(statement, st.For)
            and statement.kind.startswith("threadIdx")
            and known(statement.extent) != 1
        ):
            yield statement


def _without(stmt: st.Stmt, kind: st.LoopKind) -> Iterator[st.Stmt]:
    """The parts of a statement beside loops over threads of a kind."""
    if isinstance(stmt, st.For) and stmt.kind == kind:
        return
    if any(loop.kind == kind for loop in _several(stmt)):
        for substatement in st.substatements(stmt):
            yield from _without(substatement, kind)
    else:
        yield stmt


def _summed(parts: Iterable[st.Stmt]) -> frozenset[Buffer]:
    """The memory that parts read and write: of all threads what they have not to themselves, of
    those of a block what is added to, as what they only stage there is the same for all."""
    read, written, added = set[Buffer](), set[Buffer](), set[Buffer]()
    for part in parts:
        for access in accesses(part):
            (written if access.written else read).add(access.buffer)
        added |= {statement.buffer for statement in st.statements(part)
                  if isinstance(statement, st.Store) and _adds(statement)}  # fmt: skip
    whole = [buffer for buffer in read & written if _reach(buffer) == "all"]
    return frozenset([*whole, *[buffer for buffer in added if _reach(buffer) == "block"]])


def _adds(store: st.Store) -> bool:
    """Whether a store reads the memory that it writes."""
    loads = (each for each in post_order(store.value) if isinstance(each, Load))
    return any(load.buffer is store.buffer for load in loads)


def _reach(buffer: Buffer) -> str:
    return scope(buffer.scope).reach


def _beside(
    stmt: st.Stmt, kind: st.LoopKind, summed: frozenset[Buffer], first: ScalarVar
) -> st.Stmt:
    """A statement in which parts beside loops over threads of a kind that use what is summed there
    are those of the first."""
    if isinstance(stmt, st.For) and stmt.kind == kind:
        return stmt
    if any(loop.kind == kind for loop in _several(stmt)):
        parts = [_beside(statement, kind, summed, first) for statement in st.substatements(stmt)]
        return with_substatements(stmt, tuple(parts))
    stores = [each.buffer for each in st.statements(stmt) if isinstance(each, st.Store)]
    used = summed.intersection([*stores, *[access.buffer for access in accesses(stmt)]])
    if not used:
        return stmt
    if shared := [str(buffer.name) for buffer in used if _reach(buffer) == "block"]:
        message = f"Threads of {kind} would do again what others do together."
        hint = f"Bind a loop around it to {kind} as well."
        raise refused(message, min(shared), f"a loop over {kind} around it", "none", hint)
    return st.For(first, index(1), kind, stmt)


def _guarded(stmt: st.Stmt) -> st.Stmt:
    """A loop over threads, with what they would repeat left to the first."""
    if not isinstance(stmt, st.For) or not stmt.kind.startswith("threadIdx"):
        return stmt
    if not (alike := {part for part in shares(stmt) if repeated(stmt, part)}):
        return stmt
    first = Eq(stmt.var, index(0))

    def up(part: st.Stmt, parts: tuple[st.Stmt, ...], _: None) -> st.Stmt:
        return (
            st.Branch(first, part, st.NOTHING) if part in alike else with_substatements(part, parts)
        )

    return with_substatements(stmt, (walked(stmt.body, None, same_state, up),))
