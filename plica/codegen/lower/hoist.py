"""Hoist: branches move out of loops as far as their conditions allow.

    for i in range(n):                          if n < m:
        for j in range(m):            -->           for i in range(n):
            if i < k and n < m: …                       if i < k:
                                                            for j in range(m): …

    for k in range(4):                          C[i] = 0
        if k == 0: C[i] = 0           -->       for k in range(4):
        C[i] += A[i, k]                             C[i] += A[i, k]

    for j in vectorized(m):                     p = at[i]
        y[i, j] = x[at[i], j]         -->       if 0 <= p and p < n:
                                                    for j in vectorized(m): y[i, j] = x[p, j]
                                                else: …     the same, which tells that p is outside

Parts of a condition move apart; neighbours under one condition share one branch.  A condition that
reads memory moves out of loops of one thread that do not change what it reads.  A place that memory
names is looked up, and looked at, once for all vectors of a row.

Law: the kernel means the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final

from plica.analysis.constant_bound import interval
from plica.analysis.index.context import conjuncts
from plica.analysis.statement import mapped, reads_memory, with_body
from plica.core import Name, Term, free_vars, map_bottom_up, post_order, substitute
from plica.ir.loop import scalar as sc, statement as st
from plica.ir.loop.stages import loads
from plica.ir.type import known

IN_ONE_THREAD: Final = ("serial", "unrolled", "vectorized")
"""Kinds of loops whose iterations one thread runs."""


def hoist(kernel: st.Kernel) -> st.Kernel:
    """The kernel with its branches as far out as they can go."""
    return with_body(kernel, mapped(kernel.body, _moved))


def _moved(stmt: st.Stmt) -> st.Stmt:
    match stmt:
        case st.For(_, _, "vectorized", st.Store()):
            return looked_up(stmt)
        case st.For(var, extent, kind, st.Branch(condition, then, st.NOTHING), notes):
            read = _settled(condition, stmt) if kind in IN_ONE_THREAD else []
            out, rest = _parted(condition, var, read)
            inside = st.For(var, extent, kind, guarded(rest, then), notes)
            some = [] if not read or (known(extent) or 0) else [sc.Lt(sc.like(0, extent), extent)]
            return guarded([*some, *out], inside if rest else _moved(inside))
        case st.For(
            _, _, "serial" | "unrolled", st.Seq((st.Branch(condition, then, st.NOTHING), *rest))
        ):
            return _first(stmt, condition, then, st.Seq(tuple(rest)))
        case st.Bind(var, value, st.Branch(condition, then, st.NOTHING)):
            out, rest = _parted(condition, var)
            return guarded(out, st.Bind(var, value, guarded(rest, then)))
        case st.Alloc(buffer, st.Branch(condition, then, st.NOTHING)):
            out, rest = _parted(condition, None)
            return guarded(out, st.Alloc(buffer, guarded(rest, then)))
        case st.Branch(condition, st.Branch(inner, then, st.NOTHING), st.NOTHING):
            return st.Branch(sc.And(condition, inner), then, st.NOTHING)
        case st.Seq(stmts):
            return _together(stmts)
        case _:
            return stmt


def _first(loop: st.For, condition: sc.Scalar, then: st.Stmt, rest: st.Stmt) -> st.Stmt:
    """Moves a conditional of the first iteration before the loop."""
    said = conjuncts(condition)
    start = sc.Eq(loop.var, sc.like(0, loop.var))
    others = [scalar for scalar in said if scalar is not start]
    moves = not any(loop.var in free_vars(scalar) or reads_memory(scalar) for scalar in others)
    if start not in said or not moves:
        return loop
    if (known(loop.extent) or 0) < 1:
        others.append(sc.Lt(sc.like(0, loop.extent), loop.extent))
    before = substitute(then, {loop.var: sc.like(0, loop.var)})
    after = st.For(loop.var, loop.extent, loop.kind, _single(rest), loop.annotations)
    return st.Seq((guarded(others, before), after))


def looked_up(loop: st.Stmt) -> st.Stmt:
    """Vectors that are read or stored where memory says, which is the same place for all of them.

    What names the place is read for a row of no elements, too: so it is where memory says nothing.
    """
    match loop:
        case st.For(_, _, "vectorized", st.Store() as store):
            pass
        case _:
            return loop
    named: dict[Term, sc.ScalarVar] = {}
    tests: list[sc.Scalar] = []
    accesses: tuple[sc.Load | st.Store, ...] = (*_always_read(store.value), store)
    for access in accesses:
        for place, size in zip(access.indices, access.buffer.shape, strict=True):
            inside = [each for each in post_order(place) if isinstance(each, sc.Load)]
            if not inside or place in named or loop.var in free_vars(place):
                continue
            if any(
                load.buffer is store.buffer or any(map(reads_memory, load.indices))
                for load in inside
            ):
                continue
            var = sc.ScalarVar(Name("place", len(named)), sc.dtype_of(place))
            named[place] = var
            low, high = interval(place, {}, {})
            if access is not store and not 0 <= low <= high < (known(size) or 0):
                tests += [sc.Le(sc.like(0, var), var), sc.Lt(var, size)]
    used = {each.name for each in post_order(loop) if isinstance(each, sc.ScalarVar)}
    if not named or any(each.name in used for each in named.values()):
        return loop
    inner = map_bottom_up(lambda node: named.get(node, node), store)
    rows = st.For(loop.var, loop.extent, loop.kind, inner, loop.annotations)
    statement: st.Stmt = st.Branch(reduce(sc.And, tests), rows, rows) if tests else rows
    for each, var in named.items():
        assert isinstance(each, sc.Scalar)
        statement = st.Bind(var, each, statement)
    return statement


def _always_read(of: sc.Scalar) -> list[sc.Load]:
    """The loads that are always executed: under no condition, and in no reduction."""
    found: list[sc.Load] = []
    stack: list[Term] = [of]
    while stack:
        node = stack.pop()
        if isinstance(node, sc.Load):
            found.append(node)
        elif isinstance(node, sc.Pair | sc.Cast | sc.Intrinsic) and not isinstance(
            node, sc.And | sc.Or
        ):
            stack += node._children
    return found


def _single(stmt: st.Stmt) -> st.Stmt:
    return stmt.stmts[0] if isinstance(stmt, st.Seq) and len(stmt.stmts) == 1 else stmt


def guarded(conditions: Sequence[sc.Scalar], stmt: st.Stmt) -> st.Stmt:
    """The statement where all conditions hold."""
    return st.Branch(reduce(sc.And, conditions), stmt, st.NOTHING) if conditions else stmt


def _parted(
    condition: sc.Scalar, var: Term | None, settled: Sequence[sc.Scalar] = ()
) -> tuple[list[sc.Scalar], list[sc.Scalar]]:
    """The conditions that do not depend on a variable or on memory, or that are settled before the
    loop, and the others."""
    out: list[sc.Scalar] = []
    rest: list[sc.Scalar] = []
    for part in conjuncts(condition):
        free = var is None or var not in free_vars(part)
        (out if part in settled or (free and not reads_memory(part)) else rest).append(part)
    return out, rest


def _settled(condition: sc.Scalar, loop: st.For) -> list[sc.Scalar]:
    """The conditions of all iterations of a loop that read memory which the loop does not change:
    the first iteration asks them before any other that depends on it."""
    inside = list(st.statements(loop.body))
    if not all(
        isinstance(statement, st.For | st.Branch | st.Seq | st.Store) for statement in inside
    ):
        return []
    written = {each.buffer for each in inside if isinstance(each, st.Store)}
    same: list[sc.Scalar] = []
    for part in conjuncts(condition):  # a part may be defined only where those before it hold
        if loop.var in free_vars(part) or any(load.buffer in written for load in loads(part)):
            break
        same.append(part)
    return [part for part in same if reads_memory(part)]


def _together(stmts: Sequence[st.Stmt]) -> st.Stmt:
    """A sequence whose statements are all under some conditions is under them as a whole."""
    if not stmts or not all(
        isinstance(each, st.Branch) and each.orelse is st.NOTHING for each in stmts
    ):
        return st.Seq(tuple(stmts))
    each_says = [conjuncts(each.condition) for each in stmts if isinstance(each, st.Branch)]
    common = [
        one
        for one in each_says[0]
        if not reads_memory(one) and all(one in said for said in each_says[1:])
    ]
    if not common:
        return st.Seq(tuple(stmts))
    parts = []
    for stmt, said in zip(stmts, each_says, strict=True):
        assert isinstance(stmt, st.Branch)
        parts.append(guarded([one for one in said if one not in common], stmt.then))
    return guarded(common, st.Seq(tuple(parts)))
