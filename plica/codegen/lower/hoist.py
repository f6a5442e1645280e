"""Hoist: branches move out of loops as far as their conditions allow.

    for i in range(n):                          if n < m:
        for j in range(m):            -->           for i in range(n):
            if i < k and n < m: …                       if i < k:
                                                            for j in range(m): …

Parts of a condition move apart; neighbours under one condition share one branch.  A condition that
reads memory stays where it is.

Law: the kernel means the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from plica.codegen.lower.statement import mapped, reads_memory, with_body
from plica.core.binding import free_vars
from plica.core.term import Term
from plica.ir.loop import NOTHING, Alloc, Bind, Branch, For, Kernel, Seq, Stmt
from plica.ir.scalar import And, Scalar
from plica.rewrite.index.context import conjuncts


def hoist(kernel: Kernel) -> Kernel:
    """The kernel with its branches as far out as they can go."""
    return with_body(kernel, mapped(kernel.body, _moved))


def _moved(stmt: Stmt) -> Stmt:
    match stmt:
        case For(var, extent, kind, Branch(condition, then, orelse), notes) if orelse is NOTHING:
            out, rest = _parted(condition, var)
            inside = For(var, extent, kind, guarded(rest, then), notes)
            return guarded(out, inside)
        case Bind(var, value, Branch(condition, then, orelse)) if orelse is NOTHING:
            out, rest = _parted(condition, var)
            return guarded(out, Bind(var, value, guarded(rest, then)))
        case Alloc(buffer, Branch(condition, then, orelse)) if orelse is NOTHING:
            out, rest = _parted(condition, None)
            return guarded(out, Alloc(buffer, guarded(rest, then)))
        case Branch(condition, Branch(inner, then, other), orelse) if (
            orelse is NOTHING and other is NOTHING
        ):
            return Branch(And(condition, inner), then, NOTHING)
        case Seq(stmts):
            return _together(stmts)
        case _:
            return stmt


def guarded(conditions: Sequence[Scalar], stmt: Stmt) -> Stmt:
    """The statement where all conditions hold."""
    return Branch(reduce(And, conditions), stmt, NOTHING) if conditions else stmt


def _parted(condition: Scalar, var: Term | None) -> tuple[list[Scalar], list[Scalar]]:
    """The conditions that do not depend on a variable or on memory, and the others."""
    out: list[Scalar] = []
    rest: list[Scalar] = []
    for each in conjuncts(condition):
        free = var is None or var not in free_vars(each)
        (out if free and not reads_memory(each) else rest).append(each)
    return out, rest


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
