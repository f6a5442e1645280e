"""Barriers: threads wait for one another where they meet in memory that they share.

    for t in threadIdx.x(32):                   for t in threadIdx.x(32):
        S[t] = A[t]                   -->           S[t] = A[t]
        B[t] = S[31 - t]                            barrier("shared")
                                                    B[t] = S[31 - t]

Statements are scanned in order, with the accesses since the last barrier; a barrier is inserted
before the first that may conflict with one of those by another thread, one of the two writing. A
loop is scanned twice, the second time with the accesses of its last iteration; a barrier inside a
possibly empty loop does not count after it. Accesses to a thread's own elements need no barrier.

Laws: the meaning is preserved, and threads do not race for block-wide memory. Refused: a barrier
that not all threads would reach.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from attrs import evolve, frozen

from plica.analysis.disjoint_access import IndexedAccess, accesses, are_disjoint
from plica.analysis.index import Context, can_prove
from plica.analysis.index.context import conjuncts
from plica.analysis.site import distinct
from plica.analysis.statement import (
    contexts,
    mapped,
    outermost,
    reads_memory,
    refused,
    with_body,
    with_substatements,
)
from plica.core import Name, Task, Term, free_vars, fresh, substitute
from plica.core.task import run
from plica.ir.loop import statement as st
from plica.ir.loop.memory_scope import scope
from plica.ir.loop.scalar import Buffer, Eq, Lit, Lt, Scalar, ScalarVar, index
from plica.ir.type import known

SHARED: Final = "shared"

Pending: TypeAlias = "tuple[IndexedAccess, ...]"
Walk: TypeAlias = Task[tuple[st.Stmt, Pending]]


def barriers(kernel: st.Kernel) -> st.Kernel:
    """The kernel with barriers where threads need them; itself where they need no more."""
    tags = {each.kind for each in st.statements(kernel.body) if isinstance(each, st.For)}
    lanes = sorted(tag for tag in tags if tag.startswith("threadIdx"))
    if not lanes or not _shares(kernel):
        return kernel
    body, variables = _named(distinct(kernel).body)
    here = _Here(outermost(kernel), (), (), len(lanes))
    new, _ = run(_Inserting(variables, _busy(body)).walk(body, (), here))
    if new is body:
        return kernel
    for launch in launches(body):
        _check_extents(launch, lanes)
    return with_body(kernel, new)


def _shares(kernel: st.Kernel) -> bool:
    return any(
        isinstance(statement, st.Alloc) and scope(statement.buffer.scope).reach == "block"
        for statement in st.statements(kernel.body)
    )


def _busy(body: st.Stmt) -> frozenset[st.Stmt]:
    """The statements that touch what threads share, or wait for one another."""
    statements: set[st.Stmt] = set()
    for stmt in reversed(list(st.statements(body))):  # what is inside comes after what is around it
        inside = st.substatements(stmt)
        if isinstance(stmt, st.Barrier) or any(statement in statements for statement in inside):
            statements.add(stmt)
            continue
        buffers = [var for part in stmt._children if part not in inside for var in free_vars(part)]
        if isinstance(stmt, st.Store):
            buffers.append(stmt.buffer)
        for buffer in buffers:
            if isinstance(buffer, Buffer) and scope(buffer.scope).reach == "block":
                statements.add(stmt)
    return frozenset(statements)


def _named(body: st.Stmt) -> tuple[st.Stmt, dict[str, ScalarVar]]:
    """One variable for all loops over the same threads: they are the same threads."""
    used = {each.var.name for each in st.statements(body) if isinstance(each, st.For | st.Bind)}
    variables: dict[str, ScalarVar] = {}
    for each in st.statements(body):
        if isinstance(each, st.For) and each.kind in st.THREADS and each.kind not in variables:
            name = fresh(Name(each.kind.replace("Idx.", "_")), used)
            variables[each.kind] = ScalarVar(name, each.var.dtype)

    def change(stmt: st.Stmt) -> st.Stmt:
        if not isinstance(stmt, st.For) or stmt.kind not in variables:
            return stmt
        var = variables[stmt.kind]
        inside = substitute(stmt.body, {stmt.var: var})
        return st.For(var, stmt.extent, stmt.kind, inside, stmt.annotations)

    return mapped(body, change), variables


@frozen(eq=False)
class _Here:
    """Facts at a place: uniform variables, enclosing thread loops, all axes."""

    context: Context
    same: tuple[ScalarVar, ...]
    threads: tuple[ScalarVar, ...]
    axes: int

    @property
    def is_whole(self) -> bool:
        """Whether a barrier here is one for all threads."""
        return len(self.threads) == self.axes


class _Inserting:
    """A walk that inserts barriers."""

    def __init__(self, variables: dict[str, ScalarVar], busy: frozenset[st.Stmt]) -> None:
        self.busy = busy
        self.found: dict[tuple[st.Stmt, Context], Pending] = {}
        self.met: dict[tuple[object, ...], bool] = {}
        self.lanes = [var for tag, var in variables.items() if tag.startswith("threadIdx")]

    def walk(self, stmt: st.Stmt, pending: Pending, here: _Here) -> Walk:
        if stmt not in self.busy:
            return stmt, pending
        match stmt:
            case st.Seq(stmts):
                parts = []
                for statement in stmts:
                    new, pending = yield self.walk(statement, pending, here)
                    parts.append(new)
                return with_substatements(stmt, tuple(parts)), pending
            case st.Barrier():
                return stmt, ()
            case st.For(var, _, kind) if kind in st.THREADS:
                lane = kind.startswith("threadIdx")
                new_lane = lane and var not in here.threads
                inner = evolve(
                    here,
                    context=contexts(stmt, here.context)[0],
                    # A loop over threads inside of one over the same is about the same threads.
                    threads=(*here.threads, var) if new_lane else here.threads,
                    same=here.same if lane else (*here.same, var),
                )
                new, pending = yield self.walk(stmt.body, pending, inner)
                if lane and not new_lane and new is not stmt.body:
                    return _barrier_first(stmt, new), pending
                return with_substatements(stmt, (new,)), pending
            case st.For(_, extent, kind) if kind in ("serial", "unrolled") and self.agrees(extent):
                found = yield from self.loop(stmt, pending, here)
                return found
            case st.Branch(condition, then, orelse) if self.agrees(condition):
                inside = contexts(stmt, here.context)
                yes, one = yield self.walk(then, pending, evolve(here, context=inside[0]))
                no, two = yield self.walk(orelse, pending, evolve(here, context=inside[1]))
                both = tuple(dict.fromkeys((*one, *two)))
                return with_substatements(stmt, (yes, no)), both
            case st.Alloc() | st.Bind():
                inner = evolve(here, context=contexts(stmt, here.context)[0])
                new, pending = yield self.walk(st.substatements(stmt)[0], pending, inner)
                return with_substatements(stmt, (new,)), pending
            case _:
                found = yield from self.whole(stmt, pending, here)
                return found

    def loop(self, stmt: st.For, pending: Pending, here: _Here) -> Walk:
        """A loop that all threads go through together."""
        inner = evolve(here, context=contexts(stmt, here.context)[0], same=(*here.same, stmt.var))
        first, once = yield self.walk(stmt.body, (), inner)
        left = tuple([_before(each, stmt.var) for each in once])
        still = here.is_whole and first is stmt.body  # else it is not known here who meets
        if still and not any(
            self.meet(old, each, inner) for old in (*left, *pending) for each in once
        ):  # nobody waits in it; to go through it again at each depth would take very long
            return stmt, tuple(dict.fromkeys((*pending, *left, *once)))
        new, after = yield self.walk(stmt.body, left, inner)
        both, since = new, after
        if pending:
            both, since = yield self.walk(stmt.body, (*left, *pending), inner)
        after = tuple(dict.fromkeys((*after, *once)))
        front = _in_front(stmt, here)
        if both is not new and front is not None:  # what came before meets what is in the loop
            return st.Seq((front, with_substatements(stmt, (new,)))), after
        if _waits(both) and can_prove(Lt(index(0), stmt.extent), here.context):
            return with_substatements(stmt, (both,)), since
        # Threads without iterations have not waited.
        return with_substatements(stmt, (both,)), tuple(dict.fromkeys((*pending, *after, *since)))

    def whole(self, stmt: st.Stmt, pending: Pending, here: _Here) -> Walk:
        """A statement that no barrier may stand inside of."""
        found = self.found.get((stmt, here.context))
        if found is None:  # loops are gone through more than once
            every = accesses(stmt, here.context)
            found = tuple([each for each in every if scope(each.buffer.scope).reach == "block"])
            self.found[stmt, here.context] = found
        if isinstance(stmt, st.Branch | st.For) and _waits(stmt):  # as reductions across threads do
            raise _not_all(stmt)
        alone = isinstance(stmt, st.Branch) and self.by_one(stmt)
        inside = () if alone else st.substatements(stmt)
        for statement, context in zip(inside, contexts(stmt, here.context), strict=not alone):
            new, _ = yield self.walk(statement, (), evolve(here, context=context))
            if new is not statement:
                raise _not_all(stmt)
        if any(self.meet(old, new, here) for old in pending for new in found):
            return st.Seq((st.Barrier(SHARED), stmt)), found
        return stmt, tuple(dict.fromkeys((*pending, *found)))

    def by_one(self, stmt: st.Branch) -> bool:
        """Whether one thread of a block does it, who need not wait for itself."""
        said = conjuncts(stmt.condition)
        pinned = {
            each.left for each in said if isinstance(each, Eq) and isinstance(each.right, Lit)
        }
        return stmt.orelse is st.NOTHING and pinned.issuperset(self.lanes)

    def agrees(self, term: Scalar) -> bool:
        return free_vars(term).isdisjoint(self.lanes) and not reads_memory(term)

    def meet(self, old: IndexedAccess, new: IndexedAccess, here: _Here) -> bool:
        """Whether two threads may access one element, one of them writing."""
        if old.buffer is not new.buffer or not (old.written or new.written):
            return False
        key = old, new, here.same, here.threads
        if key not in self.met:
            # Loops over threads may stand inside of a choice, too: then they are not around here.
            own = {each.var for access in (old, new) for each in access.context.ranges}
            lanes = [var for var in self.lanes if var in here.threads or var in own]
            self.met[key] = not all(are_disjoint(old, new, lane, here.same) for lane in lanes)
        return self.met[key]


def _waits(stmt: st.Stmt) -> bool:
    return any(isinstance(statement, st.Barrier) for statement in st.statements(stmt))


def _not_all(stmt: st.Stmt) -> Exception:
    """Not every thread of a block comes to a barrier inside of a statement."""
    message = "A barrier is needed where not all threads come."
    expected = "conditions and extents that all threads agree on"
    where = getattr(getattr(stmt, "var", None), "name", type(stmt).__name__)
    return refused(message, where, expected, f"a {type(stmt).__name__} of a thread")


def _barrier_first(loop: st.For, body: st.Stmt) -> st.Stmt:
    """A thread loop whose initial barrier can be moved before it."""
    match body:
        case st.Seq((st.Barrier() as first, *rest)):
            inside = rest[0] if len(rest) == 1 else st.Seq(tuple(rest))
            return st.Seq((first, with_substatements(loop, (inside,))))
        case _:
            return with_substatements(loop, (body,))


def _in_front(stmt: st.For, here: _Here) -> st.Stmt | None:
    """A barrier of all threads before a loop, or None if not all of them enter it."""
    missing = {
        each.kind: each
        for each in st.statements(stmt)
        if isinstance(each, st.For) and each.kind.startswith("threadIdx")
        and each.var not in here.threads
    }  # fmt: skip
    if len(here.threads) + len(missing) != here.axes:
        return None
    statement: st.Stmt = st.Barrier(SHARED)
    for loop in missing.values():
        statement = st.For(loop.var, loop.extent, loop.kind, statement)
    return statement


def _before(access: IndexedAccess, var: ScalarVar) -> IndexedAccess:
    """An access of the iteration before."""
    other = ScalarVar(Name(f"{var.name.hint} before", var.name.index), var.dtype)
    moved: dict[Term, Term] = {var: other}
    if (indices := access.indices) is not None:
        indices = tuple([substitute(scalar, moved) for scalar in indices])
    context = substitute(access.context, moved)
    return evolve(access, indices=indices, context=context, origin=access.origin or access)


def launches(root: st.Stmt) -> Iterator[st.Stmt]:
    """The outermost loops over threads."""
    return st.outermost(root, st.is_over_threads)


def _check_extents(body: st.Stmt, lanes: Sequence[str]) -> None:
    for tag in lanes:
        loops = [
            each for each in st.statements(body) if isinstance(each, st.For) and each.kind == tag
        ]
        counts = {known(loop.extent) for loop in loops}
        if len(counts) > 1 or None in counts:
            message = f"The loops over {tag} are not all over the same threads."
            raise refused(message, tag, "one number of threads", f"{len(counts)} extents")
