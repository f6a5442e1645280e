"""Loops cut into tiles, or into parts one after another."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, TypeVar

from attrs import frozen

from plica.analysis.constant_bound import Interval, interval
from plica.analysis.enclosing import context_of, simple
from plica.analysis.index import EMPTY, Context
from plica.analysis.index.context import conjuncts
from plica.analysis.site import distinct, replace, with_parts
from plica.core import Term, free_vars, map_top_down
from plica.core.binding import substitute
from plica.ir.loop.scalar import Le, Lit, Lt, Max, Min, Scalar, Select, index
from plica.ir.loop.statement import Block, For, Stmt, seq
from plica.ir.type import quotient
from plica.ir.type.dim import known
from plica.ir.type.dtype import i64
from plica.runtime.error import wrong_argument
from plica.schedule.block_class import complete_body
from plica.schedule.do import Body, DoBlock as Do
from plica.schedule.handle import Handle
from plica.schedule.instruction import LARGEST, Edited, Instruction, Number, Scene, primitive
from plica.schedule.launch import unsafe_after
from plica.schedule.precondition import guarded, plain_loop, unguardable
from plica.schedule.primitive.rfactor import block_below
from plica.schedule.primitive.sample import SampledTile
from plica.schedule.problem import Problem
from plica.schedule.scope_edit import named_vars
from plica.schedule.tidy import mapped, tidied


@primitive("split")
@frozen(eq=False)
class Split(Instruction):
    """Split a loop into a nest of loops.

        before                      after  split(i, (None, 4))
        for i in range(n):          for i_0 in range((n + 3) // 4):
            with block(v=i): …          for i_1 in range(4):
                                            with block(v=i_0 * 4 + i_1, where=i_0 * 4 + i_1 < n): …

    One factor may be None: as many iterations as needed. If the product is not known to be the
    extent, every block inside gets a predicate.

    Preconditions:

    - `plain-loop`: a serial loop without annotations.
    - `factors`: at least two, positive, at most one None.
    - `covers`: factors without None reach the extent.
    - `blocks-only`: only loops and blocks inside, where a predicate is needed.
    """

    gives = "several"

    loop: Handle
    factors: tuple[Number | None, ...]

    def check(self, scene: Scene) -> Problem | None:
        loop = scene.loop(self.loop).node
        if (problem := plain_loop(loop)) is not None:
            return problem
        factors = self.numbers(scene)
        positive = all(factor is None or factor > 0 for factor in factors)
        product = prod(factor for factor in factors if factor is not None)
        if len(factors) < 2 or not positive or factors.count(None) > 1 or product >= LARGEST:
            expected = "two or more positive factors of a product in range, one may be None"
            return Problem("factors", loop, expected, str(factors))
        extent = known(loop.extent)
        if None not in factors and (extent is None or product < extent):
            expected = f"factors whose product is at least {extent or 'the extent'}"
            hint = "Leave one factor open: None."
            return Problem("covers", loop, expected, f"{factors}: {product}", hint)
        if not self.exact(loop, factors):
            return unguardable(loop)
        return None

    def edit(self, scene: Scene) -> Edited:
        site = scene.loop(self.loop)
        loop, factors = site.node, self.numbers(scene)
        inner = prod(factor for factor in factors if factor is not None)
        extents: list[Scalar] = []
        outer = quotient(loop.extent, Lit(inner, i64))
        for factor in factors:
            if factor is None:
                extents.append(outer or simple((loop.extent + (inner - 1)) // inner))
            else:
                extents.append(Lit(factor, i64))
        variables = named_vars(scene.kernel, [loop.var.name] * len(factors))
        value: Scalar = variables[0]
        for var, extent in zip(variables[1:], extents[1:], strict=True):
            value = value * extent + var
        body = substitute(loop.body, {loop.var: value})
        if not self.exact(loop, factors):
            body = guarded(body, Lt(value, loop.extent))
        context = context_of(site.above)
        for var, extent in zip(variables, extents, strict=True):
            context = context.loop(var, extent)
        body = tidied(body, frozenset(variables), context)
        for var, extent in zip(reversed(variables), reversed(extents), strict=True):
            body = For(var, extent, "serial", body)
        return Edited(replace(scene.kernel, site, body), variables)

    def numbers(self, scene: Scene) -> list[int | None]:
        """The factors as numbers."""
        return [None if factor is None else scene.number(factor) for factor in self.factors]

    def exact(self, loop: For, factors: list[int | None]) -> bool:
        """Whether the factors are known to make no more iterations than there were."""
        extent = known(loop.extent)
        inner = prod(factor for factor in factors if factor is not None)
        if extent is None:
            return quotient(loop.extent, Lit(inner, i64)) is not None
        return extent % inner == 0 if None in factors else inner == extent


def split(loop: Handle, factors: SampledTile | tuple[Number | None, ...]) -> Instruction | Do:
    """A loop by factors, or by factors that are sampled."""
    if isinstance(factors, tuple | list):
        return Split(loop, tuple(factors))
    if not isinstance(factors, SampledTile):
        message = "split takes a tuple of factors, or sample_tile(…)."
        raise wrong_argument(message, "a tuple, as (None, 8)", factors)
    tile = factors

    def sampled() -> Body:
        decided = yield tile.of(loop)
        return (yield Split(loop, decided))

    return Do(sampled)


@primitive("overlap_split")
@frozen(eq=False)
class OverlapSplit(Instruction):
    """Tile a loop so that the last tile overlaps the previous one.

        before                      after  overlap_split(i, 8)
        for i in range(20):         for i_0 in range(3):
            with block(v=i): …          for i_1 in range(8):
                                            with block(v=min(i_0 * 8, 12) + i_1): …

    No tile is cut: vectors need no guard at the end, but some elements are computed twice (Halide's
    `ShiftInwards`). A length that divides the extent overlaps nothing.

    Preconditions:

    - `plain-loop`: a serial loop without annotations.
    - `length`: from 1 to the extent, which is a number.
    - `one-block`: the loop contains one block and nothing else.
    - repeatable stores: `spatial-only`, `no-self-read`, `distinct-writes`.
    - `independent`, `handed-over`: parallel loops around it and inside it stay legal.
    """

    gives = "several"

    loop: Handle
    length: Number

    def check(self, scene: Scene) -> Problem | None:
        site = scene.loop(self.loop)
        loop = site.node
        if (problem := plain_loop(loop)) is not None:
            return problem
        length, extent = scene.number(self.length), known(loop.extent)
        if extent is None or not 1 <= length <= extent:
            found = f"{length} and {loop.extent!r}"
            return Problem("length", loop, "at least 1, and no more than the extent", found)
        if (inside := block_below(scene, site)) is None:
            return Problem("one-block", loop, "one block inside it, and nothing else", "another")
        return complete_body(inside.node) or unsafe_after(self, scene)

    def edit(self, scene: Scene) -> Edited:
        site = scene.loop(self.loop)
        loop, length = site.node, scene.number(self.length)
        extent = known(loop.extent) or 0
        tile, inner = named_vars(scene.kernel, [loop.var.name] * 2)
        start: Scalar = tile * length
        if extent % length:
            start = Min(start, index(extent - length))
        tiles, size = index(-(-extent // length)), index(length)
        context = context_of(site.above).loop(tile, tiles).loop(inner, size)
        body = substitute(loop.body, {loop.var: start + inner})
        body = tidied(body, frozenset((tile, inner)), context)
        nest = For(tile, tiles, "serial", For(inner, size, "serial", body))
        return Edited(replace(scene.kernel, site, nest), (tile, inner))


overlap_split = OverlapSplit


@primitive("loop_partition")
@frozen(eq=False)
class LoopPartition(Instruction):
    """Cut a loop into several loops, one after another.

        before                      after  loop_partition(i, (2, None))
        for i in range(n): …        for i_0 in range(min(2, n)): …  with i = i_0
                                    for i_1 in range(max(n - 2, 0)): …  with i = 2 + i_1

    One length may be None: the remainder. Blocks and loops inside are copied for each part; the
    first copy keeps their handles. With a constant extent, conditions that the range of a part
    decides are resolved: a part of a concatenation reads one tensor.

    Preconditions:

    - `plain-loop`: a serial loop without annotations.
    - `lengths`: at least two, positive, at most one None.
    - `fits`: the lengths add up to the extent; with a None, to at most the extent. With a symbolic
      extent the last one is None.
    - `independent`, `handed-over`: parallel loops inside stay legal when the parts share buffers
      that were private before.
    """

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
        variables = named_vars(scene.kernel, [loop.var.name] * len(lengths))
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
