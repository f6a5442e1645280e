"""Remainder tiles: unrolled loops whose extent is an open remainder get a text for each extent.

    before                                  after
    for i in unrolled(m % 3):               if m % 3 == 1:      # so m // 3 * 3 + 1 <= m
        acc[i] = 0.0                            acc[0] = 0.0
    for k in range(64):                         for k in range(64): acc[0] += x[k]
        for i in unrolled(m % 3):           else:
            acc[i] += x[i * 64 + k]             if m % 3 == 2: …

What fills no register tile of open rows is such a remainder (`plica.codegen.lower.partition`); with
its extent known, sums stay in registers. The texts stand where all loops of one extent are inside.

Law: the meaning is preserved.
"""

from __future__ import annotations

from typing import Final

from plica.analysis.statement import holding, with_body, with_substatements
from plica.core import Term, free_vars, map_top_down
from plica.ir.loop import scalar as sc, statement as st
from plica.ir.type import dim, known, polynomial

MAX_REMAINDER_TEXTS: Final = 8
"""The maximum divisor whose remainders have texts of their own; beyond it loops stay loops."""


def remainder_tiles(kernel: st.Kernel) -> st.Kernel:
    """The kernel with a text for each extent of its open remainder tiles."""
    extents = dict.fromkeys(
        [statement.extent for statement in st.statements(kernel.body)
         if isinstance(statement, st.For) and statement.kind == "unrolled"]
    )  # fmt: skip
    body = kernel.body
    for extent in extents:
        if known(extent) is None and free_vars(extent) <= {*kernel.dims}:
            left, count = _remainder(extent) or (extent, 0)
            if 1 < count <= MAX_REMAINDER_TEXTS:
                body = _by_extent(body, extent, left, count)
    return kernel if body is kernel.body else with_body(kernel, body)


def _remainder(of: sc.Scalar) -> tuple[sc.Scalar, int] | None:
    """The dividend and the divisor of an extent that is a remainder, written as `m % 6` or as
    `max(min(m - m // 6 * 6, 6), 0)`; None for others."""
    match of:
        case sc.FloorMod(left, sc.Lit(by)):
            return left, int(by)
        case sc.Max(inside, sc.Lit(0)):
            return _remainder(inside)
        case sc.Min(inside, sc.Lit(most)):
            found = _remainder(inside)
            return found if found is not None and found[1] <= most + 1 else None
        case _:
            for atoms, _ in polynomial(of).values():
                for atom in atoms:
                    match atom:
                        case sc.FloorDiv(left, sc.Lit(by)) if (
                            known(dim(of - left + atom * by)) == 0
                        ):
                            return left, int(by)
                        case _:
                            pass
            return None


def _by_extent(stmt: st.Stmt, extent: sc.Scalar, left: sc.Scalar, count: int) -> st.Stmt:
    """A statement in which the innermost part with all loops of an extent, which is a remainder,
    has a text for each."""
    holds = holding(lambda each: isinstance(each, st.For) and each.extent is extent)
    around: list[tuple[st.Stmt, int]] = []
    while True:
        inside = st.substatements(stmt)
        holders = [at for at, each in enumerate(inside) if holds(each)]
        if len(holders) != 1 or (isinstance(stmt, st.For) and stmt.extent is extent):
            break
        around.append((stmt, holders[0]))
        stmt = inside[holders[0]]
    statement: st.Stmt = st.NOTHING
    whole = left // count * count
    for rest in reversed(range(count)):
        value = sc.index(rest)

        def put(node: Term, value: sc.Scalar = value) -> Term:
            return value if node is extent else node

        text = map_top_down(put, stmt)
        assert isinstance(text, st.Stmt)
        if _does_anything(text):
            here = sc.And(sc.Eq(left % count, value), sc.Le(whole + rest, left))  # it is
            statement = st.Branch(here, text, statement)
    for outer, at in reversed(around):
        parts = st.substatements(outer)
        statement = with_substatements(outer, (*parts[:at], statement, *parts[at + 1 :]))
    return statement


def _does_anything(stmt: st.Stmt) -> bool:
    """Whether a statement stores anything, in loops that run."""
    runs = st.statements(stmt, lambda s: not (isinstance(s, st.For) and known(s.extent) == 0))
    return any(isinstance(each, st.Store | st.Invoke) for each in runs)
