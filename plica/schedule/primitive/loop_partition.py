"""loop_partition: cut a loop into several loops, one after another.

    before                      after  loop_partition(i, (2, None))
    for i in range(n): …        for i_0 in range(min(2, n)): …  with i = i_0
                                for i_1 in range(max(n - 2, 0)): …  with i = 2 + i_1

One length may be None: the remainder. Blocks and loops inside are copied for each part; the first
copy keeps their handles. With a constant extent, conditions that the range of a part decides are
resolved: a part of a concatenation reads one tensor.

Preconditions:

- `plain-loop`: a serial loop without annotations.
- `lengths`: at least two, positive, at most one None.
- `fits`: the lengths add up to the extent; with a None, to at most the extent. With a symbolic
  extent the last one is None.
- `independent`, `handed-over`: parallel loops inside stay legal when the parts share buffers that
  were private before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import frozen

from plica.analysis.constant_bound import Interval, interval
from plica.analysis.enclosing import simple
from plica.analysis.index import EMPTY, Context
from plica.analysis.index.context import conjuncts
from plica.analysis.site import distinct, fresh_names, replace, with_parts
from plica.core import Term, free_vars, map_top_down, substitute
from plica.ir.loop.scalar import Le, Lit, Lt, Max, Min, Scalar, ScalarVar, Select, index
from plica.ir.loop.statement import Block, For, Stmt, seq
from plica.ir.type import i64, known
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Number, Scene, primitive
from plica.schedule.launch import unsafe_after
from plica.schedule.precondition import plain_loop
from plica.schedule.problem import Problem
from plica.schedule.tidy import mapped


@primitive("loop_partition")
@frozen(eq=False)
class LoopPartition(Instruction):
    """A loop, and the lengths of its parts; gives the new loops."""

    gives = "several"

    loop: Handle
    lengths: tuple[Number | None, ...]

    def check(self, scene: Scene) -> Problem | None:
        loop = scene.loop(self.loop).node
        if (problem := plain_loop(loop)) is not None:
            return problem
        lengths = self.numbers(scene)
        positive = all(length is None or length > 0 for length in lengths)
        if len(lengths) < 2 or not positive or lengths.count(None) > 1:
            expected = "at least two positive lengths, one of which may be None"
            return Problem("lengths", loop, expected, str(lengths))
        extent, total = known(loop.extent), sum(length or 0 for length in lengths)
        if extent is None:
            if lengths[-1] is not None:
                hint = "Leave the last length open: None."
                return Problem("fits", loop, "the extent", f"{lengths}", hint)
        elif total > extent or (None not in lengths and total != extent):
            expected = f"lengths that add up to {extent}"
            hint = "Leave one length open: None."
            return Problem("fits", loop, expected, f"{lengths}: {total}", hint)
        return unsafe_after(self, scene)

    def edit(self, scene: Scene) -> Edited:
        site = scene.loop(self.loop)
        loop, lengths = site.node, self.numbers(scene)
        names = fresh_names(scene.kernel, [loop.var.name] * len(lengths))
        variables = tuple([ScalarVar(name, i64) for name in names])
        total, start = sum(each or 0 for each in lengths), 0
        whole, begin = known(loop.extent), index(0)
        parts: list[Stmt] = []
        for var, length in zip(variables, lengths, strict=True):
            extent: Scalar
            if whole is not None:
                size = whole - total if length is None else length
                extent, start = Lit(size, i64), start + size
                following: Scalar = Lit(start, i64)
            else:
                left = Max(loop.extent - begin, index(0))
                extent = simple(left if length is None else Min(index(length), left))
                following = begin if length is None else simple(begin + length)
            place = simple(begin + var)
            body: Any = substitute(loop.body, {loop.var: place})
            if whole is not None:
                body = chosen_in(body, place, start - (known(extent) or 0), start)
            parts.append(For(var, extent, "serial", body))
            begin = following
        after = distinct(replace(scene.kernel, site, seq(*parts)))
        return Edited(after, variables)

    def numbers(self, scene: Scene) -> list[int | None]:
        """The lengths as numbers."""
        return [None if length is None else scene.number(length) for length in self.lengths]


def loop_partition(loop: Handle, lengths: tuple[Number | None, ...]) -> Instruction:
    """A loop as several, one after another, of these lengths."""
    return LoopPartition(loop, tuple(lengths))


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
    """The term with the choices that the ranges decide made.

    >>> from plica.ir.type.dtype import f32
    >>> from plica.ir.loop.tensor import axis, buffer
    >>> x, y, c = buffer("x", (8,), f32), buffer("y", (4,), f32), axis("c")
    >>> both = Select(Lt(c, index(8)), x[c], y[c - 8])
    >>> chosen(both, {c: (8, 11)}) is y[c - 8], chosen(both, {c: (6, 11)}) is both
    (True, True)
    """

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
