"""Loop parts: what becomes of a loop that is cut where its guards hold, and where they do not.

A separate loop for each part duplicates the whole body. If most of the body has no guard, the loop
stays one, and guarded statements are selected by the part that an iteration belongs to:

    for i in range(17):                     for i in range(17):
        … (much work)                           … (much work)
        for j in unrolled(3):                   if i < 16:
            if i * 3 + j < 49: …                    for j in unrolled(3): …
                                                else:
                                                    for j in unrolled(3):
                                                        if 48 + j < 49: …

A parallel loop is never split, so that no part waits for another.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial, reduce
from typing import Final

from attrs import frozen

from plica.analysis.enclosing import simple
from plica.analysis.index import can_prove
from plica.analysis.index.context import FALSE, TRUE, conjuncts
from plica.analysis.statement import mapped
from plica.core import free_vars, post_order, substitute
from plica.ir.loop import scalar as sc, statement as st
from plica.ir.type import known

ONE: Final = sc.index(1)

MAX_PEELED_ITERATIONS: Final = 3
"""The maximum number of iterations around the middle that are peeled one by one, if their
conditions become constant."""

MIN_STORES_PER_BRANCH: Final = 16  # the number of stores next to which a branch is negligible


@frozen(eq=False)
class LoopCut:
    """The middle of a loop, `start` to `stop`; what some conditions are before, in and after it."""

    start: sc.Scalar
    stop: sc.Scalar
    before: dict[sc.Scalar, sc.Scalar]
    settled: dict[sc.Scalar, sc.Scalar]
    after: dict[sc.Scalar, sc.Scalar]


@frozen(eq=False)
class LoopPart:
    """The iterations of a loop from `start` to `stop`, and the values of some conditions there."""

    loop: st.For
    start: sc.Scalar
    stop: sc.Scalar
    settled: Mapping[sc.Scalar, sc.Scalar]
    is_middle: bool = False

    def here(self, stmt: st.Stmt) -> st.Stmt:
        """A statement of the loop specialised to this part."""
        return mapped(stmt, partial(_settle, settled=self.settled)) if self.settled else stmt

    def alone(self, stmt: st.Stmt) -> st.Stmt:
        """The same, in the iteration that is all of the part where it has one."""
        if known(simple(self.stop - self.start)) != 1:
            return self.here(stmt)
        return substitute(self.here(stmt), {self.loop.var: self.start})


def parts_of(loop: st.For, cut: LoopCut) -> list[LoopPart]:
    """The non-empty parts of a loop."""
    loop_parts: list[LoopPart] = []
    for start, stop, settled in (
        (sc.index(0), cut.start, cut.before),
        (cut.start, cut.stop, cut.settled),
        (cut.stop, loop.extent, cut.after),
    ):
        count = known(simple(stop - start))
        if count is None or count > 0:
            loop_parts.append(LoopPart(loop, start, stop, settled, settled is cut.settled))
    return loop_parts


def cut_apart(parts: Sequence[LoopPart]) -> st.Seq:
    """A loop for each part; one for each iteration of a short one that asks what to choose."""
    statements: list[st.Stmt] = []
    for loop_part in (one for part in parts for one in _one_by_one(part)):
        loop, body = loop_part.loop, loop_part.here(loop_part.loop.body)
        extent = simple(loop_part.stop - loop_part.start)
        if can_prove(sc.Le(extent, ONE)):  # loops inside are cut at its only iteration then
            body = substitute(body, {loop.var: loop_part.start})
        elif known(loop_part.start) != 0:
            body = substitute(body, {loop.var: loop.var + loop_part.start})
        notes = st.annotated(loop.annotations, cut_choices=None)
        statements.append(st.For(loop.var, extent, loop.kind, body, notes))
    return st.Seq(tuple(statements))


def _one_by_one(part: LoopPart) -> list[LoopPart]:
    """The iterations of a part, where they are few and its choices depend on which one it is."""
    start, stop = known(part.start), known(part.stop)
    if (
        start is None
        or stop is None
        or part.is_middle
        or not 1 < stop - start <= MAX_PEELED_ITERATIONS
    ):
        return [part]
    if not dict(part.loop.annotations).get("cut_choices"):
        return [part]
    return [LoopPart(part.loop, sc.index(at), sc.index(at + 1), part.settled)
            for at in range(start, stop)]  # fmt: skip


def chosen(loop: st.For, parts: Sequence[LoopPart]) -> st.For:
    """The loop, each iteration of which is that of the part it belongs to."""
    notes = st.annotated(loop.annotations, cut_choices=None)
    return st.For(loop.var, loop.extent, loop.kind, _by_part(loop.body, parts), notes)


def _by_part(stmt: st.Stmt, parts: Sequence[LoopPart]) -> st.Stmt:
    """A statement of a loop, selected by the part of an iteration."""
    statement = parts[-1].alone(stmt)
    for part in reversed(parts[:-1]):
        statement = st.Branch(sc.Lt(part.loop.var, part.stop), part.alone(stmt), statement)
    return statement


def chosen_within(loop: st.For, parts: Sequence[LoopPart]) -> st.For | None:
    """The loop with only its guarded statements selected by part, or None if these dominate."""
    if "cut_choices" in dict(loop.annotations):
        return None
    asked = {scalar for part in parts for scalar in part.settled}
    places = _places(loop, asked)
    if not places:
        return None

    def change(stmt: st.Stmt) -> st.Stmt:
        return _by_part(stmt, parts) if stmt in places else stmt

    return st.For(loop.var, loop.extent, loop.kind, mapped(loop.body, change), loop.annotations)


def _places(loop: st.For, asked: Collection[sc.Scalar]) -> set[st.Stmt]:
    """The innermost statements in a loop that depend on its parts, with ample work around them;
    empty if there are none."""
    asks: dict[st.Stmt, bool] = {}
    free: dict[st.Stmt, int] = {}  # stores that ask nothing: of some loops, in one iteration
    every = [*st.statements(loop.body)]
    for stmt in reversed(every):  # what is inside comes first
        inside = st.substatements(stmt)
        here = _asks(stmt, loop.var, asked)
        asks[stmt] = here or any(asks[statement] for statement in inside)
        free[stmt] = 0 if here else _stores(stmt, [free[each] for each in inside], asks[stmt])
    statements: set[st.Stmt] = set()
    stack = [loop.body]
    while stack:
        stmt = stack.pop()
        if not asks[stmt]:
            continue
        if (
            isinstance(stmt, st.Seq | st.Alloc | st.Bind | st.For)
            and free[stmt] >= MIN_STORES_PER_BRANCH
        ):
            stack.extend(st.substatements(stmt))
        elif stmt is loop.body:
            return set()
        else:
            statements.add(stmt)
    return statements


def _asks(stmt: st.Stmt, var: sc.ScalarVar, asked: Collection[sc.Scalar]) -> bool:
    """Whether a statement itself depends on the part of a loop that an iteration belongs to: it has
    a guard, chooses between values, or is as long as the variable says."""
    match stmt:
        case st.Branch(condition):
            return any(conjunct in asked for conjunct in conjuncts(condition))
        case st.For(_, extent):
            return var in free_vars(extent)
        case st.Store(_, _, value) | st.Bind(_, value):
            if var not in free_vars(value):
                return False
            nodes = post_order(value)
            return any(isinstance(e, sc.Select) and var in free_vars(e.condition) for e in nodes)
        case _:
            return False


def _stores(stmt: st.Stmt, inside: Sequence[int], asks: bool) -> int:
    """How many stores of a statement ask nothing, given those inside it; a vector is one.

    A loop in which something asks has those of one iteration, since each has a branch; one that is
    written out has none.
    """
    match stmt:
        case st.Store() | st.Invoke():
            return 1
        case st.For(_, extent, kind):
            count = 1 if kind == "vectorized" else known(extent) or 1
            if not asks:
                return count * inside[0]
            return inside[0] if kind == "serial" else 0
        case st.Branch():
            return min(inside)
        case _:
            return sum(inside)


def _settle(stmt: st.Stmt, settled: Mapping[sc.Scalar, sc.Scalar]) -> st.Stmt:
    """A branch without the conditions that are settled."""
    if not isinstance(stmt, st.Branch):
        return stmt
    kept: list[sc.Scalar] = []
    for conjunct in conjuncts(stmt.condition):
        said = settled.get(conjunct, conjunct)
        if said is FALSE:
            return stmt.orelse
        if said is not TRUE:
            kept.append(conjunct)
    return st.Branch(reduce(sc.And, kept), stmt.then, stmt.orelse) if kept else stmt.then
