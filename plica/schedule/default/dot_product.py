"""Dot products of bytes: the form of a quantised contraction for an instruction that does four,
or two of i16 where a machine has none for bytes.

    quads[m, k // 4, k % 4] = stored(x[m, k])           a copy, where x does not lie in rows yet
    packed[n // 16, k // 4, n % 16, k % 4] = w[k, n]    once, where the weight is a constant
    sum[n // 16, m, n % 16] = sum over k // 4, k % 4 of quads * packed
    out[m, n // 16, n % 16] = f(sum + factor * sums)

If lanes do not divide the outputs, all sums are kept before `out` reads them.

>>> from plica.ir.type.dtype import i8, u8
>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.tensor import buffer, reduce
>>> from plica.schedule.form import Facts
>>> x, w = buffer("x", (4, 8), u8), buffer("w", (8, 32), i8)
>>> product = stage("y", (4, 32), lambda m, n: reduce(
...     "sum", (8,), lambda k: sc.Cast(x[m, k], i32) * sc.Cast(w[k, n], i32)))
>>> found = quantised(stages((x, w), (product,)), Facts((False, True)), u8)
>>> form = dotted(found, Dot("some.dot", 16, u8), RegisterTile(2, 4))
>>> [[known(size) for size in each.out.shape] for each in form.stages]
[[2, 2, 16, 4], [2, 4, 16], [4, 2, 16]]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plica.analysis.enclosing import simple
from plica.core import Term, map_bottom_up, substitute
from plica.ir.loop import Each, Stages, scalar as sc
from plica.ir.loop.stages import stages, with_element
from plica.ir.type import DType, i8, i32, known
from plica.schedule.default.contraction import Contraction
from plica.schedule.default.form import bounds, names_of, span, where
from plica.schedule.default.grouped import AxisSplit
from plica.schedule.default.machine import QUADS_NEAR, Dot
from plica.schedule.default.quantised import QuantisedContraction, quantised, stored
from plica.schedule.default.tile import RegisterTile

__all__ = ["Dot", "dotted", "quantised"]

NOWHERE = sc.index(0)  # the place at an axis of length 1


def dotted(of: QuantisedContraction, dot: Dot, tile: RegisterTile) -> Stages:
    """The stages, for tiles of a given number of vectors of lanes and steps of the last axis of the
    data."""
    return DotForm(of, dot, tile).formed()


class DotForm:
    """The common parameters of a kernel's stages."""

    def __init__(self, of: QuantisedContraction, dot: Dot, tile: RegisterTile) -> None:
        self.of, self.dot, self.steps = of, dot, tile.steps
        self.whole: Contraction = of.whole
        whole = self.whole
        names = self.names = names_of(whole)
        self.outer, self.inner = names.var("b"), names.var("v")
        self.quads, self.part = names.var("q"), names.var("s")
        lane, quad = of.lane, of.quad
        self.column = whole.m[-1] if whole.m else None
        sizes = self.sizes = dict(whole.sizes)
        sizes[self.outer] = -(-sizes[lane] // dot.lanes)
        sizes[self.inner] = dot.lanes
        sizes[self.quads], sizes[self.part] = -(-sizes[quad] // dot.terms), dot.terms
        if self.column is not None and self.column not in whole.open:
            sizes[self.column] = -(-sizes[self.column] // tile.steps) * tile.steps
        apart = [a for a in whole.axes if a is not lane and a is not self.column]
        steps = [] if self.column is None else [self.column]
        self.axes = (*apart, self.outer, *steps, self.inner)
        self.batch = tuple([var for var in whole.batch if var is not lane])
        rest = tuple([var for var in whole.k if var is not quad])
        self.terms = (self.quads, *rest, self.part)
        self.stages: list[Each] = []
        self.near: sc.Buffer | None = None  # what is copied for each tile anew
        self.unstored: list[sc.Buffer] = []  # what the schedule keeps in registers

    def formed(self) -> Stages:
        whole = self.whole
        data = self.data()
        weight = self.weight()
        product = sc.Mul(sc.Cast(data, i32), sc.Cast(weight, i32))
        total = self.buffer("sum", self.axes, i32)
        correction = self.correction(weight)
        own = (self.near, *self.unstored)
        scratch = [stage.out for stage in self.stages if stage.out not in own]
        self.stages.append(Each(total, self.axes, self.summed(product)))
        views = self.given()
        if (cut := self.cut(total, correction, views)) is None:
            kept = self.buffer("kept", self.axes, i32)
            self.stages.append(Each(kept, self.axes, sc.Load(total, self.axes)))
            scratch.append(kept)
            lane, lanes = self.of.lane, self.dot.lanes
            there: dict[Term, Term] = {self.outer: lane // lanes, self.inner: lane % lanes}
            sizes = [whole.extent(axis) for axis in whole.axes]
            cut = whole.axes, sizes, self.finished(kept, correction, there)
        places, shape, value = cut
        out = sc.Buffer(self.names.name("out"), tuple(shape), sc.dtype_of(value))
        self.stages.append(Each(out, tuple(places), value))
        inputs = [views.get(buffer, buffer) for buffer in whole.inputs]
        return stages(inputs, self.stages, (*scratch, out))

    def given(self) -> dict[sc.Buffer, sc.Buffer]:
        """The buffers that are read, for those of i32 that stand for them."""
        assert self.whole.weight is not None
        return {self.whole.data.buffer: self.of.source, self.whole.weight.buffer: self.of.weight}

    def weight_at(self, places: list[sc.Scalar]) -> sc.Scalar:
        """An element of the weight."""
        return sc.Load(self.of.weight, tuple(places))

    def buffer(self, name: str, axes: Sequence[sc.ScalarVar], dtype: DType) -> sc.Buffer:
        shape = tuple([self.extent(axis) for axis in axes])
        return sc.Buffer(self.names.name(name), shape, dtype)

    def extent(self, axis: sc.ScalarVar) -> sc.Scalar:
        """The extent of an axis, steps that fill no tile included."""
        return self.whole.open.get(axis) or sc.index(self.sizes[axis])

    # --- data ------------------------------------------------------------------------------------

    def data(self) -> sc.Load:
        """The load of the data: directly, or from a copy."""
        of, whole = self.of, self.whole
        old = of.source
        counts = [known(size) or 0 for size in old.shape]
        places = whole.data.indices
        reach = [span(place, self.sizes) for place in places]
        at = places.index(of.quad)
        inside = all(
            place in whole.open or (low >= 0 and high < n)
            for place, (low, high), n in zip(places, reach, counts, strict=True)
        )
        lies = (
            at == len(places) - 1
            and counts[at] % self.dot.terms == 0
            and counts[at] == self.sizes[of.quad]
        )
        if not of.shift and inside and lies and old.dtype is self.dot.dtype:
            return sc.Load(old, (*places[:-1], self.quads * self.dot.terms + self.part))
        terms, in_rows = self.dot.terms, at == len(places) - 1  # what is read lies in rows
        axes = [self.names.var("a") for _ in places]
        last = self.names.var("a")
        shape: list[sc.Scalar] = []
        source: list[sc.Scalar] = []
        read: list[sc.Scalar] = []
        tests: list[sc.Scalar] = []
        for number, (place, (low, high), count) in enumerate(
            zip(places, reach, counts, strict=True)
        ):
            axis: sc.Scalar = axes[number]
            if isinstance(place, sc.ScalarVar) and place in whole.open:
                shape.append(whole.open[place])
                source.append(axis)
                read.append(place)
                continue
            if number == at:
                depth = self.sizes[self.quads] * terms
                shape.append(sc.index(depth if in_rows else self.sizes[self.quads]))
                there, low, high = axis if in_rows else axis * terms + last, 0, depth - 1
                read.append(self.quads * terms + self.part if in_rows else self.quads)
            else:
                shape.append(sc.index(high - low + 1))
                there = simple(axis + low)
                read.append(simple(place - low))
            source.append(there)
            tests += bounds(there, (low, high), sc.index(count))
        parts = () if in_rows else (last,)
        shape += [sc.index(terms)] * len(parts)
        room = sc.Buffer(self.names.name("quads"), tuple(shape), self.dot.dtype)
        value = stored(sc.Load(old, tuple(source)), of.shift, self.dot.dtype)
        self.stages.append(Each(room, (*axes, *parts), where(tests, value, of.fill)))
        if self.is_apart():
            self.near = room
        return sc.Load(room, tuple(read) if in_rows else (*read, self.part))

    def is_apart(self) -> bool:
        """Whether tiles read disjoint data, each a small part."""
        places = self.whole.data.indices
        if self.column in self.whole.open:
            return False  # a tile of what is left over has another number of steps
        plain = all(isinstance(place, sc.ScalarVar | sc.Lit) for place in places)
        depth = self.sizes[self.quads] * self.dot.terms * self.dot.dtype.bytes
        for term in self.terms[1:-1]:
            depth *= self.sizes[term]
        return plain and self.column in places and depth * self.steps <= QUADS_NEAR

    # --- weights ---------------------------------------------------------------------------------

    def weight(self) -> sc.Load:
        """The load of the packed weight."""
        of, whole = self.of, self.whole
        assert whole.weight is not None
        places = whole.weight.indices
        rest = [var for var in whole.k if var in places and var is not of.quad]
        inside = (*self.batch, self.outer, self.quads, *rest, self.inner, self.part)
        packed = sc.Load(self.buffer("packed", inside, self.dot.weight), inside)
        self.stages.append(self.packer(packed))
        return packed

    def packer(self, packed: sc.Load) -> Each:
        """The stage that packs the weight; a constant of i32 is known to hold bytes."""
        of, whole = self.of, self.whole
        assert whole.weight is not None
        axes = [self.names.var("a") for _ in packed.indices]
        own = dict(zip(packed.indices, axes, strict=True))
        output = own[self.outer] * self.dot.lanes + own[self.inner]
        term = own[self.quads] * self.dot.terms + own[self.part]
        source: dict[sc.Scalar, sc.Scalar] = {**own, of.lane: output, of.quad: term}
        places = [source.get(index, NOWHERE) for index in whole.weight.indices]
        value = self.weight_at(places)
        tests = []
        for place, axis, outer, inner in (
            (output, of.lane, self.outer, self.inner),
            (term, of.quad, self.quads, self.part),
        ):
            if whole.sizes[axis] != self.sizes[outer] * self.sizes[inner]:
                tests.append(sc.Lt(place, sc.index(whole.sizes[axis])))
        if of.middle:
            value = stored(value, of.middle, i8)
        for test in tests:
            value = sc.Select(test, value, sc.Lit(0, sc.dtype_of(value)))
        if sc.dtype_of(value) is not self.dot.weight:
            value = sc.Cast(value, self.dot.weight)
        return Each(packed.buffer, tuple(axes), value)

    def correction(self, weight: sc.Load) -> sc.Scalar | None:
        """The correction added to a sum, or None."""
        factor = self.of.factor
        if factor is sc.Lit(0, i32):
            return None
        axes = (*self.batch, self.outer, self.inner)
        sums = self.buffer("sums", axes, i32)
        term = sc.Cast(weight, i32)
        total = self.summed_by_ones(term, axes) if self.of.given else self.summed(term)
        self.stages.append(Each(sums, axes, total))
        return sc.Mul(factor, sc.Load(sums, axes))

    def summed(self, term: sc.Scalar) -> sc.Scalar:
        """The sum of all terms."""
        extents = tuple([sc.index(self.sizes[var]) for var in self.terms])
        return sc.Reduce("sum", self.terms, extents, term)

    def summed_by_ones(self, term: sc.Scalar, axes: tuple[sc.ScalarVar, ...]) -> sc.Scalar:
        """The same as products: an instruction adds four terms where it multiplies by ones."""
        ones = self.buffer("ones", (self.part,), self.dot.dtype)
        self.stages.append(Each(ones, (self.part,), sc.Lit(1, self.dot.dtype)))
        held = self.buffer("held", axes, i32)
        product = sc.Mul(sc.Cast(sc.Load(ones, (self.part,)), i32), term)
        self.stages.append(Each(held, axes, self.summed(product)))
        self.unstored += [ones, held]
        return sc.Load(held, axes)

    # --- results ---------------------------------------------------------------------------------

    def cut(
        self, total: sc.Buffer, correction: sc.Scalar | None, views: dict[sc.Buffer, sc.Buffer]
    ) -> tuple[Sequence[sc.ScalarVar], Sequence[sc.Scalar], sc.Scalar] | None:
        """The result with the lane axis split, or None if it cannot be read that way."""
        whole, lane, lanes = self.whole, self.of.lane, self.dot.lanes
        if self.sizes[self.outer] * lanes != whole.sizes[lane]:
            return None
        apart = AxisSplit(lanes, self.outer, self.inner)
        value = apart.scalar(self.finished(total, correction), lane)
        if apart.fails:
            return None
        views |= apart.views
        shape = apart.shape(whole.axes, tuple([whole.extent(axis) for axis in whole.axes]))
        return apart.places(whole.axes), shape, value  # type: ignore[return-value]  # variables

    def finished(
        self, total: sc.Buffer, correction: sc.Scalar | None, there: Mapping[Term, Term] = {}
    ) -> sc.Scalar:
        """The value of the result, with the sum read at its own axes, or at other places."""
        read: sc.Scalar = sc.Load(total, self.axes)
        read = substitute(read if correction is None else read + correction, there)
        value = with_element(self.whole.value, self.whole.reduced, read)
        value = map_bottom_up(lambda node: _added_last(node, total), value)
        assert isinstance(value, sc.Scalar)
        return value


def _added_last(node: Term, total: sc.Buffer) -> Term:
    """A sum of integers to which what belongs to a channel is added as one number, once for all
    steps of a tile: they wrap alike in any order."""
    match node:
        case sc.Add(sc.Add(sc.Load() as read, some), more) if read.buffer is total:
            pass
        case sc.Add(more, sc.Add(sc.Load() as read, some)) if read.buffer is total:
            pass
        case _:
            return node
    return sc.Add(read, sc.Add(some, more)) if sc.dtype_of(read) is i32 else node
