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
from plica.ir.loop import scalar as sc
from plica.ir.loop.stages import loads
from plica.ir.loop.statement import (
    NOTHING,
    Alloc,
    Bind,
    Branch,
    For,
    Kernel,
    Seq,
    Stmt,
    Store,
    statements,
)
from plica.ir.type import known

IN_ONE_THREAD: Final = ("serial", "unrolled", "vectorized")
"""Kinds of loops whose iterations one thread runs."""


def hoist(kernel: Kernel) -> Kernel:
    """The kernel with its branches as far out as they can go."""
    return with_body(kernel, mapped(kernel.body, _moved))


def _moved(stmt: Stmt) -> Stmt:
    match stmt:
        case For(_, _, "vectorized", Store()):
            return looked_up(stmt)
        case For(var, extent, kind, Branch(condition, then, orelse), notes) if orelse is NOTHING:
            read = _settled(condition, stmt) if kind in IN_ONE_THREAD else []
            out, rest = _parted(condition, var, read)
            inside = For(var, extent, kind, guarded(rest, then), notes)
            some = [] if not read or (known(extent) or 0) else [sc.Lt(sc.like(0, extent), extent)]
            return guarded([*some, *out], inside if rest else _moved(inside))
        case For(var, extent, kind, Seq((Branch(condition, then, orelse), *rest)), notes) if (
            orelse is NOTHING and kind in ("serial", "unrolled")
        ):
            return _first(stmt, condition, then, Seq(tuple(rest)))
        case Bind(var, value, Branch(condition, then, orelse)) if orelse is NOTHING:
            out, rest = _parted(condition, var)
            return guarded(out, Bind(var, value, guarded(rest, then)))
        case Alloc(buffer, Branch(condition, then, orelse)) if orelse is NOTHING:
            out, rest = _parted(condition, None)
            return guarded(out, Alloc(buffer, guarded(rest, then)))
        case Branch(condition, Branch(inner, then, other), orelse) if (
            orelse is NOTHING and other is NOTHING
        ):
            return Branch(sc.And(condition, inner), then, NOTHING)
        case Seq(stmts):
            return _together(stmts)
        case _:
            return stmt


def _first(loop: For, condition: sc.Scalar, then: Stmt, rest: Stmt) -> Stmt:
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
    after = For(loop.var, loop.extent, loop.kind, _single(rest), loop.annotations)
    return Seq((guarded(others, before), after))


def looked_up(loop: Stmt) -> Stmt:
    """Vectors that are read or stored where memory says, which is the same place for all of them.

    What names the place is read for a row of no elements, too: so it is where memory says nothing.
    """
    match loop:
        case For(_, _, "vectorized", Store() as store):
            pass
        case _:
            return loop
    named: dict[Term, sc.ScalarVar] = {}
    tests: list[sc.Scalar] = []
    accesses: tuple[sc.Load | Store, ...] = (*_always_read(store.value), store)
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
    rows = For(loop.var, loop.extent, loop.kind, inner, loop.annotations)
    statement: Stmt = Branch(reduce(sc.And, tests), rows, rows) if tests else rows
    for each, var in named.items():
        assert isinstance(each, sc.Scalar)
        statement = Bind(var, each, statement)
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


def _single(stmt: Stmt) -> Stmt:
    return stmt.stmts[0] if isinstance(stmt, Seq) and len(stmt.stmts) == 1 else stmt


def guarded(conditions: Sequence[sc.Scalar], stmt: Stmt) -> Stmt:
    """The statement where all conditions hold."""
    return Branch(reduce(sc.And, conditions), stmt, NOTHING) if conditions else stmt


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


def _settled(condition: sc.Scalar, loop: For) -> list[sc.Scalar]:
    """The conditions of all iterations of a loop that read memory which the loop does not change:
    the first iteration asks them before any other that depends on it."""
    inside = list(statements(loop.body))
    if not all(isinstance(statement, For | Branch | Seq | Store) for statement in inside):
        return []
    written = {each.buffer for each in inside if isinstance(each, Store)}
    same: list[sc.Scalar] = []
    for part in conjuncts(condition):  # a part may be defined only where those before it hold
        if loop.var in free_vars(part) or any(load.buffer in written for load in loads(part)):
            break
        same.append(part)
    return [part for part in same if reads_memory(part)]


def _together(stmts: Sequence[Stmt]) -> Stmt:
    """A sequence whose statements are all under some conditions is under them as a whole."""
    if not stmts or not all(isinstance(each, Branch) and each.orelse is NOTHING for each in stmts):
        return Seq(tuple(stmts))
    each_says = [conjuncts(each.condition) for each in stmts if isinstance(each, Branch)]
    common = [
        one
        for one in each_says[0]
        if not reads_memory(one) and all(one in said for said in each_says[1:])
    ]
    if not common:
        return Seq(tuple(stmts))
    parts = []
    for stmt, said in zip(stmts, each_says, strict=True):
        assert isinstance(stmt, Branch)
        parts.append(guarded([one for one in said if one not in common], stmt.then))
    return guarded(common, Seq(tuple(parts)))
