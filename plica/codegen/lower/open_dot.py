"""Open dot products: sums of products of bytes whose rows, or batches on both sides, are open.

    quads[b, m, k // 4, k % 4] = stored(x[b, m, k])            a copy, where x does not lie so yet
    packed[b, n // 16, k // 4, n % 16, k % 4] = w[b, k, n]     once for all rows
    sums[b, n // 16, n % 16] = sum over k of packed            where an offset leaves the sum
    for b, groups of rows, blocks of outputs, tiles of rows:   registers
        acc[t, v, lane] += dot(quads[b, m + t, q], packed[b, n, q, lane])
        out[b, m + t, n] = f(acc + factor * sums)
    the same for what is left of the rows, in tiles of just this many

A weight that comes with a call is packed once for all of them, which kernels of some rows would do
again and again.  Terms and outputs are known in number; nothing else has to be.

Law: `evaluate_stages` gives the same elements; sums of integers are exact modulo 2**32.
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from plica.codegen.lower.loop_order import StoredElement, stored
from plica.codegen.lower.open_tile_choice import row_tile
from plica.core import Term, free_vars, map_bottom_up, substitute
from plica.ir.loop import Each, Names, Stages, loads, scalar as sc
from plica.ir.loop.stages import pairs, stages as joined
from plica.ir.type import i8, i32, known
from plica.schedule.default.machine import Dot, Machine
from plica.schedule.default.quantised import (
    moved_bytes,
    shift_of,
    signed_bytes,
    stored as stored_byte,
)
from plica.schedule.default.tile import RegisterTile
from plica.schedule.form import Facts

FEWEST: Final = 4
"""Sums of fewer terms do not fill an instruction."""

WRITTEN: Final = 4
"""Dot products of a row that are written out one after another."""

SHARED: Final = 1 << 17
"""Products of one row from which on cores share its outputs."""

ZERO: Final = sc.Lit(0, i32)


@frozen(eq=False)
class ByteProduct:
    """A sum of products of bytes: what is read of both sides, and its axes by what they are for."""

    fold: Each
    data: sc.Load
    zero: sc.Scalar
    weight: sc.Load
    middle: int
    lane: sc.ScalarVar
    row: sc.ScalarVar
    quad: sc.ScalarVar
    around: tuple[sc.ScalarVar, ...]
    """Axes of the result besides rows and lanes."""
    beside: tuple[sc.ScalarVar, ...]
    """Terms besides those of which several are taken at once."""
    sizes: dict[sc.ScalarVar, sc.Scalar]

    def count(self, of: sc.ScalarVar) -> int:
        """The size of an axis that is known."""
        return known(self.sizes[of]) or 0


@frozen(eq=False)
class OpenDot:
    """Stages of which the last sum is made of dot products, and the buffers between them."""

    stages: Stages
    product: ByteProduct
    dot: Dot
    tile: RegisterTile
    quads: sc.Load
    """What is read of the data, at the places of a sum."""
    packed: sc.Load
    sums: sc.Buffer | None
    start: sc.Scalar
    """What sums begin with: nothing, or what an offset of the data is times those of the weight."""
    after: StoredElement
    """What is stored of a sum."""
    inner: tuple[sc.ScalarVar, sc.ScalarVar, sc.ScalarVar]
    """Which quads, which of the terms of one, and which of those that are written out."""
    written: int
    """How many quads are written out one after another."""
    group: int
    """Rows that stay in a cache while all outputs are made of them."""
    shared: bool
    by_row: bool
    """Whether rows are open, which kernels of some would be called for again and again; those of
    some by a constant are as good where a machine multiplies tiles of bytes."""


def byte_product(of: Stages, facts: Facts) -> ByteProduct | None:
    """What stages sum, None where it is no product of bytes by known outputs and terms."""
    every = pairs(of) if all(isinstance(each, Each) for each in of.stages) else []
    if len(every) != 1:
        return None
    fold = every[0][0]
    body = fold.value
    if not isinstance(body, sc.Reduce) or body.combiner != "sum" or sc.dtype_of(body) is not i32:
        return None
    if not isinstance(body.body, sc.Mul):
        return None
    fixed = frozenset((*fold.axes, *body.axes))
    moved = moved_bytes(body.body.left, fixed)
    found = signed_bytes(body.body.right, fixed, [of.inputs[n] for n in facts.fits_i8])
    if moved is None or found is None:
        return None
    (data, zero), (weight, middle) = moved, found
    after = every[0][1]
    again = [] if after is None else [load.buffer for load in loads(after)]
    if data.buffer is weight.buffer or not {data.buffer, weight.buffer}.isdisjoint(again):
        return None
    if not _is_plain(data, fixed) or not _is_plain(weight, fixed):
        return None
    mine, theirs = free_vars(data), free_vars(weight)
    lanes = [axis for axis in fold.axes if axis in theirs and axis not in mine]
    rows = [axis for axis in fold.axes if axis in mine and axis not in theirs]
    terms = [axis for axis in body.axes if axis in mine and axis in theirs]
    sizes = dict(zip((*fold.axes, *body.axes), (*fold.out.shape, *body.extents), strict=True))
    if len(lanes) != 1 or not rows or len(terms) != len(body.axes):
        return None
    if any(known(sizes[axis]) is None for axis in (*lanes, *terms)):
        return None
    if any(axis not in mine and axis not in theirs for axis in fold.axes):
        return None
    row = next((axis for axis in reversed(rows) if known(sizes[axis]) is None), rows[-1])
    quad = max(terms, key=data.indices.index)
    around = tuple([axis for axis in fold.axes if axis not in (lanes[0], row)])
    beside = tuple([axis for axis in terms if axis is not quad])
    made = ByteProduct(
        fold, data, zero, weight, middle, lanes[0], row, quad, around, beside, sizes
    )  # fmt: skip
    return made if made.count(quad) >= FEWEST and made.count(lanes[0]) else None


def _is_plain(of: sc.Load, axes: frozenset[sc.ScalarVar]) -> bool:
    """Whether an access has an axis, or nothing, in each place, and none of them twice."""
    named = [each for each in of.indices if each is not sc.index(0)]
    return len({*named}) == len(named) and all(each in axes for each in named)


def open_dot(of: Stages, facts: Facts, machine: Machine) -> OpenDot | None:
    """The stages of such a sum in dot products, None where it is none, or a machine has none."""
    dot = machine.dot
    if dot is None or (found := byte_product(of, facts)) is None:
        return None
    fold, epilogue = found.fold, pairs(of)[0][1]
    itself = StoredElement(fold.out, fold.axes, sc.Load(fold.out, fold.axes))
    after = stored(fold, epilogue) or itself
    if after.indices[-1] is not found.lane:
        return None
    return _Form(of, found, dot, machine, facts).formed(epilogue, after)


class _Form:
    """What the stages of a kernel share."""

    def __init__(
        self, of: Stages, found: ByteProduct, dot: Dot, machine: Machine, facts: Facts
    ) -> None:
        self.whole, self.of, self.dot, self.machine = of, found, dot, machine
        self.constant = facts.constant[of.inputs.index(found.weight.buffer)]
        names = self.names = Names(of)
        self.outer, self.part, self.written = (names.var(each) for each in "qsu")
        self.shift = shift_of(found.zero, found.data.buffer.dtype, dot.dtype)
        depth = -(-found.count(found.quad) // dot.terms)
        self.step = next(n for n in range(WRITTEN, 0, -1) if depth % n == 0 or n >= depth)
        if self.step == 1 and not self._lies():
            self.step = min(WRITTEN, depth)  # a copy has room for more
        self.quads = -(-depth // self.step) * self.step

    def formed(self, epilogue: Each | None, after: StoredElement) -> OpenDot:
        of, dot, names, machine = self.of, self.dot, self.names, self.machine
        outputs, lanes = of.count(of.lane), dot.lanes
        terms = self.quads
        for each in of.beside:
            terms *= of.count(each)
        tile = row_tile(outputs, terms, lanes, machine)
        copies, data = self._data()
        pack, weight = self._packed()
        quad = self.outer * self.step + self.written
        at: dict[Term, Term] = {of.quad: quad}
        product = sc.Mul(sc.Cast(substitute(data, at), i32), sc.Cast(substitute(weight, at), i32))
        axes = (*of.beside, self.outer, self.written, self.part)
        extents = (
            *[of.sizes[each] for each in of.beside], sc.index(self.quads // self.step),
            sc.index(self.step), sc.index(dot.terms),
        )  # fmt: skip
        total = sc.Buffer(names.name("sum"), of.fold.out.shape, i32)
        summed = Each(total, of.fold.axes, sc.Reduce("sum", axes, extents, product))
        every = [*copies, pack]
        read: sc.Scalar = sc.Load(total, of.fold.axes)
        start: sc.Scalar = ZERO
        factor = _factor(of.zero, self.shift)
        sums = None
        if factor is not ZERO:
            shared = [each for each in of.around if each in weight.indices]
            kept = [of.sizes[each] for each in shared]
            blocks = -(-outputs // lanes)
            sums = sc.Buffer(
                names.name("sums"), (*kept, sc.index(blocks), sc.index(lanes)), i32
            )  # fmt: skip
            block, lane = names.var("b"), names.var("v")
            here: dict[Term, sc.Scalar] = {of.lane // lanes: block, of.lane % lanes: lane}
            term = sc.Cast(_put(substitute(weight, at), here), i32)
            own = (*shared, block, lane)
            every.append(Each(sums, own, sc.Reduce("sum", axes, extents, term)))
            held = sc.Load(sums, (*shared, of.lane // lanes, of.lane % lanes))
            start = sc.Mul(factor, held)
            read = sc.Add(read, start)
        every += [summed, self._finished(read, epilogue)]
        result = every[-1].out
        scratch = [each.out for each in (*copies, pack)] + ([] if sums is None else [sums])
        whole = joined(self.whole.inputs, every, (*scratch, result))
        row = terms * dot.terms * dot.dtype.bytes
        group = max(tile.steps, machine.cache(2) // 2 // row // tile.steps * tile.steps)
        shares = machine.cores > 1 and outputs * terms * dot.terms >= SHARED
        inner = self.outer, self.part, self.written
        by_row = known(of.sizes[of.row]) is None and not (dot.tiles and self.constant)
        return OpenDot(
            whole, of, dot, tile, substitute(data, at), substitute(weight, at), sums, start,
            after, inner, self.step, group, shares, by_row,
        )  # fmt: skip

    def _finished(self, read: sc.Scalar, epilogue: Each | None) -> Each:
        """The result, of sums that are read like that."""
        of = self.of
        if epilogue is None:
            return Each(of.fold.out, of.fold.axes, read)

        def new(node: Term) -> Term:
            if isinstance(node, sc.Load) and node.buffer is of.fold.out:
                return substitute(read, dict(zip(of.fold.axes, node.indices, strict=True)))
            return node

        return Each(epilogue.out, epilogue.axes, map_bottom_up(new, epilogue.value))

    def _lies(self) -> bool:
        """Whether the data lies as instructions read it."""
        of, buffer = self.of, self.of.data.buffer
        whole = of.count(of.quad) % self.dot.terms == 0 and not self.shift
        return whole and buffer.dtype is self.dot.dtype and of.data.indices[-1] is of.quad

    def _data(self) -> tuple[list[Each], sc.Load]:
        """The data with four terms side by side, and the read of one: as it lies, or a copy."""
        of, terms = self.of, self.dot.terms
        old, depth = of.data.buffer, of.count(of.quad)
        both = list(zip(of.data.indices, old.shape, strict=True))
        others = [(place, size) for place, size in both if place is not of.quad]
        last = of.quad * terms + self.part
        if self._lies() and self.quads * terms == depth:
            return [], sc.Load(old, (*[place for place, _ in others], last))
        room = sc.Buffer(
            self.names.name("quads"),
            (*[size for _, size in others], sc.index(self.quads * terms)),
            self.dot.dtype,
        )
        axes, term = [self.names.var("a") for _ in others], self.names.var("a")
        own = iter(axes)
        source = [term if place is of.quad else next(own) for place, _ in both]
        value = stored_byte(sc.Load(old, tuple(source)), self.shift, self.dot.dtype)
        if self.quads * terms != depth:
            inside = sc.Lt(term, sc.index(depth))
            value = sc.Select(inside, value, sc.Lit(0, self.dot.dtype))
        read = (*[place for place, _ in others], last)
        return [Each(room, (*axes, term), value)], sc.Load(room, read)

    def _packed(self) -> tuple[Each, sc.Load]:
        """The weight in vectors of lanes, and the read of one of them."""
        of, dot = self.of, self.dot
        old, outputs, depth = of.weight.buffer, of.count(of.lane), of.count(of.quad)
        shared = [each for each in of.around if each in of.weight.indices]
        order = [*shared, of.lane, *of.beside, of.quad]
        blocks = sc.index(-(-outputs // dot.lanes))
        counts = {**of.sizes, of.lane: blocks, of.quad: sc.index(self.quads)}
        last = (sc.index(dot.lanes), sc.index(dot.terms))
        buffer = sc.Buffer(
            self.names.name("packed"), (*[counts[each] for each in order], *last), dot.weight
        )  # fmt: skip
        axes: dict[Term, sc.ScalarVar] = {each: self.names.var("a") for each in order}
        lane, part = self.names.var("a"), self.names.var("a")
        output, term = axes[of.lane] * dot.lanes + lane, axes[of.quad] * dot.terms + part
        source: dict[Term, sc.Scalar] = {**axes, of.lane: output, of.quad: term}
        places = tuple([source.get(each, sc.index(0)) for each in of.weight.indices])
        value: sc.Scalar = sc.Load(old, places)
        if of.middle:
            value = stored_byte(value, of.middle, i8)
        for place, size, room in (
            (output, outputs, known(blocks * dot.lanes)), (term, depth, self.quads * dot.terms),
        ):  # fmt: skip
            if size != room:
                inside = sc.Lt(place, sc.index(size))
                value = sc.Select(inside, value, sc.Lit(0, sc.dtype_of(value)))
        if sc.dtype_of(value) is not dot.weight:
            value = sc.Cast(value, dot.weight)
        read = [of.lane // dot.lanes if each is of.lane else each for each in order]
        pack = Each(buffer, (*[axes[each] for each in order], lane, part), value)
        return pack, sc.Load(buffer, (*read, of.lane % dot.lanes, self.part))


def _factor(zero: sc.Scalar, shift: int) -> sc.Scalar:
    """How often the sums of a weight are added."""
    if isinstance(zero, sc.Lit):
        return sc.Lit(shift - int(zero.value), i32)
    return sc.Lit(shift, i32) - zero


def _put(of: sc.Load, terms: dict[Term, sc.Scalar]) -> sc.Load:
    """An access with other terms in its places."""
    return sc.Load(of.buffer, tuple([terms.get(each, each) for each in of.indices]))
