"""Choices: those that the range of a block's variable decides are made.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, y, c = buffer("x", (8,), f32), buffer("y", (4,), f32), axis("c")
>>> both = Select(Lt(c, index(8)), x[c], y[c - 8])
>>> chosen(both, {c: (8, 11)}) is y[c - 8], chosen(both, {c: (6, 11)}) is both
(True, True)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from plica.analysis.constant_bound import Interval, interval
from plica.analysis.index import EMPTY, Context
from plica.analysis.index.context import conjuncts
from plica.analysis.site import with_parts
from plica.core import Term, free_vars, map_top_down
from plica.ir.loop import Block, Le, Lit, Lt, Scalar, Select, Stmt, index
from plica.schedule.tidy import mapped

__all__ = ["chosen", "chosen_in", "index"]

Ranges = Mapping[Term, Interval]  # the least and the greatest value of variables

T = TypeVar("T", bound=Term)


def chosen_in(root: Stmt, place: Scalar, low: int, high: int) -> Stmt:
    """The statement, in whose blocks a variable bound to a place is from `low` to below `high`."""

    def change(stmt: Stmt, _: Context) -> Stmt:
        if not isinstance(stmt, Block):
            return stmt
        ranges: dict[Term, Interval] = {
            var: (low, high - 1)
            for var, binding in zip(stmt.vars, stmt.bindings, strict=True)
            if binding is place
        }
        return with_parts(stmt, body=chosen(stmt.body, ranges)) if ranges else stmt

    return mapped(root, change, EMPTY)


def chosen(root: T, ranges: Ranges) -> T:
    """The term with the choices that the ranges decide made."""

    def choose(node: Term) -> Term:
        while isinstance(node, Select):
            if (said := _decided(node.condition, ranges)) is None:
                break
            node = node.then if said else node.orelse
        return node

    return map_top_down(choose, root)


def _decided(condition: Scalar, ranges: Ranges) -> bool | None:
    """Whether a condition is true or false on the whole ranges; None if unknown."""
    always = True
    for conjunct in conjuncts(condition):
        match conjunct:
            case Lt(left, Lit(int() as stop)) if not free_vars(left).isdisjoint(ranges):
                low, high = interval(left, ranges, {})
                holds, fails = high < stop, low >= stop
            case Le(Lit(int() as start), right) if not free_vars(right).isdisjoint(ranges):
                low, high = interval(right, ranges, {})
                holds, fails = low >= start, high < start
            case _:
                holds, fails = False, False
        if fails:
            return False
        always = always and holds
    return True if always else None
