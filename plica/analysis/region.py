"""Regions: the box of each buffer that a statement touches, in terms of enclosing variables.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.statement import For, Store
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, y, i, o = buffer("x", (14,), f32), buffer("y", (12,), f32), axis("i"), axis("o")
>>> stencil = For(i, sc.index(4), "serial", Store(y, (o * 4 + i,), x[o * 4 + i] + x[o * 4 + i + 2]))
>>> reads, writes = boxes(stencil)
>>> [str(each.buffer.name) for each in reads], reads[0].extents[0], reads[0].exact
(['x'], Lit(6, DType('i64')), True)

A box contains every touched element. It is `exact` if its ends are touched whenever the inner loops
run and no guard intervenes. It may exceed the buffer where a guard prevents the access: `clipped`
cuts that off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from math import inf
from typing import NamedTuple

from attrs import evolve, frozen

from plica.analysis.access import Access, Inner, accesses, inside as accesses_inside, unbound
from plica.analysis.constant_bound import interval
from plica.analysis.enclosing import simple
from plica.analysis.index import EMPTY, Context, can_prove
from plica.analysis.index.count import ONE, ZERO, at_least, is_natural
from plica.analysis.index.polynomial import Polynomial, Product, polynomial
from plica.analysis.site import Site
from plica.analysis.statement import reads_memory
from plica.core import Term, fold_into, free_vars, substitute
from plica.ir.loop import Block, Region, Stmt, scalar as sc
from plica.ir.type import known, quotient


@frozen(eq=False)
class Box:
    """`extents` elements from `starts` along each dimension of a buffer."""

    buffer: sc.Buffer
    starts: tuple[sc.Scalar, ...]
    extents: tuple[sc.Scalar, ...]
    exact: bool

    @property
    def region(self) -> Region:
        return Region(self.buffer, self.starts, self.extents)

    @property
    def lasts(self) -> tuple[sc.Scalar, ...]:
        """The last element along each dimension."""
        pairs = zip(self.starts, self.extents, strict=True)
        return tuple([simple(start + extent - 1) for start, extent in pairs])


class Ends(NamedTuple):
    """The least and the greatest value of an index."""

    low: sc.Scalar
    high: sc.Scalar
    exact: bool


@lru_cache(maxsize=2048)
def boxes(stmt: Stmt) -> tuple[tuple[Box, ...], tuple[Box, ...]]:
    """The boxes that a statement reads and writes, one per buffer, in order of first access."""
    return _both(accesses(stmt), {}, (), EMPTY)


def block_boxes(block: Block) -> tuple[tuple[Box, ...], tuple[Box, ...]]:
    """The boxes that an instance of a block reads and writes, in terms of the block's variables."""
    return _block_boxes(unbound(block))


@lru_cache(maxsize=2048)
def _block_boxes(block: Block) -> tuple[tuple[Box, ...], tuple[Box, ...]]:
    return _both(accesses_inside(block), {}, (), EMPTY)


def boxes_under(
    site: Site[Block], cut: sc.ScalarVar | None, context: Context = EMPTY, *, guarded: bool = False
) -> tuple[tuple[Box, ...], tuple[Box, ...]]:
    """The boxes that a block reads and writes in one iteration of the enclosing loop `cut`.

    In terms of `cut` and the loops outside it; None for the cut means all loops of its scope.  If
    `guarded`, instances beyond the extents of its variables are left out: predicates exclude them.
    """
    loops = site.loops
    variables = [loop.var for loop in loops]
    first = 0 if cut is None else variables.index(cut) + 1
    inner = tuple([(loop.var, loop.extent) for loop in loops[first:]])
    return _under(site.node, inner, context, guarded)


def within_extents(block: Block, inner: Inner) -> tuple[dict[Term, sc.Scalar], Inner]:
    """The values of a block's variables, and the loops around them; a variable that inner loops
    would take beyond its extent ranges over all of the extent."""
    ranges: dict[Term, tuple[int, int]] = {
        var: (0, (known(size) or 0) - 1) for var, size in inner if known(size)
    }
    values: dict[Term, sc.Scalar] = {}
    for var, size, at in zip(block.vars, block.extents, block.bindings, strict=True):
        if free_vars(at) <= ranges.keys() and interval(at, ranges, {})[1] >= (known(size) or inf):
            inner = (*inner, (var, size))
        else:
            values[var] = at
    return values, inner


@lru_cache(maxsize=2048)
def _under(
    block: Block, inner: Inner, context: Context, guarded: bool
) -> tuple[tuple[Box, ...], tuple[Box, ...]]:
    values: dict[Term, sc.Scalar] = dict(zip(block.vars, block.bindings, strict=True))
    if guarded:
        values, inner = within_extents(block, inner)
    return _both(accesses_inside(block), values, inner, context)


def _both(
    touched: Iterable[Access], values: Mapping[Term, sc.Scalar], inner: Inner, context: Context
) -> tuple[tuple[Box, ...], tuple[Box, ...]]:
    found: tuple[dict[sc.Buffer, Box], dict[sc.Buffer, Box]] = ({}, {})
    for access in neighbours(touched):
        mine = found[access.written]
        box = relaxed(access, values, inner, context)
        old = mine.get(access.buffer)
        mine[access.buffer] = box if old is None else hull(old, box, context)
    return tuple(found[0].values()), tuple(found[1].values())


def neighbours(touched: Iterable[Access]) -> Iterator[Access]:
    """The accesses, the least around those that differ in the numbers of their starts alone.

    Law: the hull of the touched elements is unchanged.
    """
    groups: dict[object, list[tuple[Access, tuple[Polynomial, ...]]]] = {}
    for access in touched:
        if None in access.starts:
            groups[access] = [(access, ())]
            continue
        starts = tuple([polynomial(scalar) for scalar in access.starts if scalar is not None])
        forms = tuple([each.form for each in starts])
        key = access.buffer, access.written, access.inner, access.extents, forms
        groups.setdefault(key, []).append((access, starts))
    for (first, begins), *others in groups.values():
        if not others:
            yield first
            continue
        lows, highs = [*begins], [begin.constant for begin in begins]
        firsts = list(first.starts)
        for access, starts in others:
            for at, start in enumerate(starts):
                highs[at] = max(highs[at], start.constant)
                if start.constant < lows[at].constant:
                    lows[at], firsts[at] = start, access.starts[at]
        extents = [
            extent + (high - low.constant)
            for extent, high, low in zip(first.extents, highs, lows, strict=True)
        ]
        yield evolve(first, starts=tuple(firsts), extents=tuple(extents))


def relaxed(
    access: Access, values: Mapping[Term, sc.Scalar], inner: Inner, context: Context = EMPTY
) -> Box:
    """The box of an access over all points of some loops, where variables have these values."""
    sizes = dict(inner) | {var: substitute(extent, values) for var, extent in access.inner}
    starts: list[sc.Scalar] = []
    extents: list[sc.Scalar] = []
    exact = True
    triples = zip(access.starts, access.extents, access.buffer.shape, strict=True)
    for start, extent, size in triples:
        ends = None
        if start is not None:
            place = substitute(start, values)
            ends = ends_of(place, sizes)
            if ends is None or not ends.exact:  # a digit may be that of some loops alone
                ends = ends_of(simple(place, context.loops(sizes.items())), sizes) or ends
        wide = substitute(extent, values)
        if ends is None or not free_vars(wide).isdisjoint(sizes):
            starts.append(ZERO)
            extents.append(size)
            exact = False
            continue
        starts.append(simple(ends.low, context))
        extents.append(simple(ends.high - ends.low + wide, context))
        exact = exact and ends.exact
    return Box(access.buffer, tuple(starts), tuple(extents), exact)


def hull(a: Box, b: Box, context: Context = EMPTY) -> Box:
    """The least box around two of one buffer."""
    if a.starts == b.starts and a.extents == b.extents:
        return a if a.exact else b
    starts: list[sc.Scalar] = []
    extents: list[sc.Scalar] = []
    for at, (one, two) in enumerate(zip(a.starts, b.starts, strict=True)):
        low = _least(one, two, context)
        high = _greatest(one + a.extents[at], two + b.extents[at], context)
        starts.append(low)
        extents.append(simple(high - low, context))
    return Box(a.buffer, tuple(starts), tuple(extents), a.exact and b.exact)


def clipped(box: Box, context: Context = EMPTY) -> Box:
    """The part of a box inside its buffer."""
    starts: list[sc.Scalar] = []
    extents: list[sc.Scalar] = []
    for start, extent, size in zip(box.starts, box.extents, box.buffer.shape, strict=True):
        low = _greatest(start, ZERO, context)
        high = _least(start + extent, size, context)
        starts.append(low)
        extents.append(simple(high - low, context))
    return Box(box.buffer, tuple(starts), tuple(extents), box.exact)


def covers(outer: Box, inner: Box, context: Context = EMPTY) -> bool:
    """Whether every element of a box is shown to be in another one."""
    outer_ends = zip(outer.starts, outer.extents, strict=True)
    inner_ends = zip(inner.starts, inner.extents, strict=True)
    for (a, wide), (b, narrow) in zip(outer_ends, inner_ends, strict=True):
        if a is b and wide is narrow:
            continue
        for condition in (sc.Le(a, b), sc.Le(b + narrow, a + wide)):
            if not can_prove(condition, context):
                return False
    return True


def ends_of(term: sc.Scalar, sizes: Mapping[sc.ScalarVar, sc.Scalar]) -> Ends | None:
    """The ends of an index over `0 <= var < size`, or None if unknown."""
    return _ends_within(term, tuple(sizes.items()))


@lru_cache(maxsize=4096)  # the blocks of a schedule are asked for the same places again and again
def _ends_within(term: sc.Scalar, every: tuple[tuple[sc.ScalarVar, sc.Scalar], ...]) -> Ends | None:
    sizes = dict(every)
    if reads_memory(term):
        return None
    if any(not free_vars(size).isdisjoint(sizes) for size in sizes.values()):
        apart = _independent(sizes)
        found = None if apart is None else ends_of(term, apart)
        return None if found is None else Ends(found.low, found.high, False)
    memo: dict[sc.Scalar, Ends | None] = {}

    def ends(node: sc.Scalar) -> Ends | None:
        if free_vars(node).isdisjoint(sizes):
            return Ends(node, node, True)
        if isinstance(node, sc.ScalarVar):
            return Ends(ZERO, simple(sizes[node] - 1), True)
        return _ends(node, memo, sizes)

    return fold_into(
        memo, term, lambda node: () if free_vars(node).isdisjoint(sizes) else _parts(node), ends
    )


def _independent(sizes: Mapping[sc.ScalarVar, sc.Scalar]) -> dict[sc.ScalarVar, sc.Scalar] | None:
    """Sizes without other loop variables: each replaced by its maximum."""
    found: dict[sc.ScalarVar, sc.Scalar] = {}
    for var, size in sizes.items():  # outermost first, so those it depends on are found already
        if free_vars(size).isdisjoint(sizes):
            found[var] = size
            continue
        if not free_vars(size).intersection(sizes) <= found.keys():
            return None
        if (ends := ends_of(size, found)) is None:
            return None
        found[var] = ends.high
    return found


def _parts(node: sc.Scalar) -> list[sc.Scalar]:
    """The terms whose ends give those of a node."""
    match node:
        case sc.Add() | sc.Sub() | sc.Mul():
            whole = polynomial(node)
            return list(dict.fromkeys(whole.atoms())) if node not in whole.terms else []
        case (
            sc.FloorDiv(left, right)
            | sc.FloorMod(left, right)
            | sc.Min(left, right)
            | sc.Max(left, right)
        ):
            return [left, right]
        case _:
            return []


def _ends(
    node: sc.Scalar, memo: Mapping[sc.Scalar, Ends | None], sizes: Mapping[sc.ScalarVar, sc.Scalar]
) -> Ends | None:
    match node:
        case sc.Add() | sc.Sub() | sc.Mul():
            whole = polynomial(node)
            return None if node in whole.terms else _of_sum(whole, memo, sizes)
        case sc.FloorDiv(left, right):
            ends = memo[left]
            if ends is None or not free_vars(right).isdisjoint(sizes) or not is_natural(right):
                return None
            return Ends(ends.low // right, ends.high // right, ends.exact)
        case sc.FloorMod(left, right):
            ends = memo[left]
            if ends is None or not free_vars(right).isdisjoint(sizes):
                return None
            return _of_remainder(left, right, ends, sizes)
        case sc.Min(left, right) | sc.Max(left, right):
            a, b = memo[left], memo[right]
            if a is None or b is None:
                return None
            make = type(node)
            return Ends(make(a.low, b.low), make(a.high, b.high), False)
        case _:
            return None


def _of_sum(
    whole: Polynomial,
    memo: Mapping[sc.Scalar, Ends | None],
    sizes: Mapping[sc.ScalarVar, sc.Scalar],
) -> Ends | None:
    low: sc.Scalar = sc.index(whole.constant)
    high: sc.Scalar = low
    exact = True
    used: set[Term] = set()
    for key, coefficient in whole.terms.items():
        factor: sc.Scalar = sc.index(coefficient)
        moving: sc.Scalar | None = None
        for atom in key.atoms if isinstance(key, Product) else (key,):
            if free_vars(atom).isdisjoint(sizes):
                factor = factor * atom
            elif moving is not None:
                return None
            else:
                moving = atom
                if not used.isdisjoint(free_vars(atom) & sizes.keys()):
                    exact = False
                used |= free_vars(atom)
        if moving is None:
            low, high = low + factor, high + factor
            continue
        if (ends := memo[moving]) is None:
            return None
        first, last = ends.low, ends.high
        size = simple(factor if coefficient > 0 else ZERO - factor)
        if not is_natural(size):
            return None
        if coefficient < 0:
            first, last = last, first
        low, high = low + factor * first, high + factor * last
        exact = exact and ends.exact
    return Ends(simple(low), simple(high), exact)


def _of_remainder(
    left: sc.Scalar, by: sc.Scalar, ends: Ends, sizes: Mapping[sc.ScalarVar, sc.Scalar]
) -> Ends | None:
    if not is_natural(by):
        return None
    if at_least(by, ONE):
        first, last = simple(ends.low // by), simple(ends.high // by)
        if first is last:
            return Ends(simple(ends.low % by), simple(ends.high % by), ends.exact)
    full = isinstance(left, sc.ScalarVar) and quotient(sizes[left], by) is not None
    if not full and not at_least(by, ONE):
        return None  # where by is 0 the remainder is 0
    return Ends(ZERO, simple(by - 1), full)


def _least(a: sc.Scalar, b: sc.Scalar, context: Context) -> sc.Scalar:
    a, b = simple(a, context), simple(b, context)
    order = _order(a, b, context)
    return simple(sc.Min(a, b), context) if order is None else (a if order else b)


def _greatest(a: sc.Scalar, b: sc.Scalar, context: Context) -> sc.Scalar:
    a, b = simple(a, context), simple(b, context)
    order = _order(a, b, context)
    return simple(sc.Max(a, b), context) if order is None else (b if order else a)


def _order(a: sc.Scalar, b: sc.Scalar, context: Context) -> bool | None:
    """Whether `a <= b`, or None if it depends or is unknown."""
    if a is b:
        return True
    if (difference := known(simple(b - a, context))) is not None:
        return difference >= 0
    if can_prove(sc.Le(a, b), context):
        return True
    return False if can_prove(sc.Le(b, a), context) else None
