"""Short rows side by side: stages along rows that fill no vectors have a row in each lane.

    m[i]    = max over k of x[i, k]            for b:  rows i = b * 16 + v, a row in each lane
    e[i, j] = exp(x[i, j] - m[i])       -->        for k: m[v]    = max(m[v], x[i, k])
    s[i]    = sum over k of e[i, k]                for j: e[j, v] = exp(x[i, j] - m[v])
    y[i, j] = e[i, j] / s[i]                       for k: s[v]    = s[v] + e[k, v]
                                                   for j: y[i, j] = e[j, v] / s[v]

Along such a row most lanes of a vector would have nothing to do, and what a row has once, a
logarithm or a root, would be computed for one row at a time.  Rows are reduced in the order of
their elements.  Lanes behind the last row compute that row again, which nobody reads.  The stages
are scheduled by `plica.schedule.default.short_row_schedule`.

Functions of the elements of such rows need no sums of a row, so lanes go on from row to row as
elements lie; what a row has once is put into the lanes of that row, and what all rows share is laid
out as often as some whole rows fill whole vectors.

    y[i, j] = f(x[i, j], r[i], c[j])   -->   for b: for some p: y[p] = f(x[p], r[p // 3], again[p])

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.tensor import buffer, reduce
>>> x = buffer("x", (40, 5), f32)
>>> top = stage("m", (40, 1), lambda i, j: reduce("max", (5,), lambda k: x[i, k]))
>>> away = stage("y", (40, 5), lambda i, j: x[i, j] - top[i, 0])
>>> made = short_row_form(stages((x,), (top, away)), Machine(512, 32))
>>> print(made)
lanes[b < 3, v < 16] = max(x[min(b * 16 + v, 39), k] for k in range(5))
out[i < 40, i_1 < 5] = x[i, i_1] - lanes[i // 16, i % 16]
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod
from typing import Final, TypeVar

from plica.core import Term, free_vars, map_bottom_up, post_order, substitute
from plica.ir.loop import scalar as sc
from plica.ir.loop.combiner import MEANING
from plica.ir.loop.scalar import row_of
from plica.ir.loop.stage import Each, ExternStage
from plica.ir.loop.stages import Names, Stages, loads, reductions, stages
from plica.ir.loop.statement import For, LoopKind, Stmt, Store, allocated, seq
from plica.ir.type import f32, known
from plica.schedule.default.elementwise import COSTLY, UNEVEN
from plica.schedule.default.machine import Machine
from plica.schedule.default.row import rows_of
from plica.schedule.default.share import pays

S = TypeVar("S")

MIN_ROW_ELEMENTS: Final = 4
"""Of rows that are shorter still, plain loops become vectors: there are instructions that take two
or three vectors apart."""

MAX_ROW_ELEMENTS: Final = 15
"""Elements of a short row: as many vectors of them stay in registers, and longer ones fill four of
the shortest vectors there are."""

MIN_VECTOR_ELEMENTS: Final = 4
"""Plain loops make vectors of rows of so many elements."""

VECTORS_SIDE_BY_SIDE: Final = 4
"""Vectors of functions that are computed side by side, so that none waits for another's steps."""


def short_row_form(of: Stages, machine: Machine) -> Stages | None:
    """Stages along short rows with the loops they should have, None where rows are no such ones."""
    if len(of.stages) == 1:
        return _end_to_end(of, machine)
    rows = rows_of(of)
    every = [each for each in of.stages if isinstance(each, Each)]
    if rows is None or of.dims or len(of.outputs) > 1:
        return None
    if not all(_is_short(each, rows) for each in every):
        return None
    lanes, count = machine.lanes(f32), known(every[0].out.shape[rows - 1]) or 0
    if (
        lanes < MIN_ROW_ELEMENTS
        or count < lanes
        or max(_length(e, rows) for e in every) < MIN_ROW_ELEMENTS
    ):
        return None
    return _side_by_side(of, rows, lanes)


def _is_short(of: Each, rows: int) -> bool:
    """Whether a stage has few elements in a row, each made of numbers or of few terms."""
    if of.out.dtype is not f32 or not all(known(size) for size in of.out.shape):
        return False
    if _length(of, rows) > MAX_ROW_ELEMENTS:
        return False
    if not isinstance(of.value, sc.Reduce):
        return not reductions(of.value)
    fold = of.value
    if fold.combiner not in MEANING or reductions(fold.body) or sc.dtype_of(fold.body) is not f32:
        return False
    return 0 < prod([known(size) or 0 for size in fold.extents]) <= MAX_ROW_ELEMENTS


def _length(of: Each, rows: int) -> int:
    """How many elements of a stage are in a row."""
    return prod([known(size) or 0 for size in of.out.shape[rows:]])


def _end_to_end(of: Stages, machine: Machine) -> Stages | None:
    """Functions of the elements of short rows, None where vectors along them are as good."""
    (whole,) = of.stages
    if of.dims or not isinstance(whole, Each) or not _has_function(whole):
        return None
    if whole.out.dtype is not f32 or len(of.outputs) > 1:
        return None
    lanes = machine.lanes(whole.out.dtype)
    sizes = [known(size) or 0 for size in whole.out.shape]
    rows = next((at for at in range(len(sizes) - 1, 0, -1) if sizes[at - 1] >= lanes), 0)
    if not rows or lanes < 2 or not 1 < prod(sizes[rows:]) <= MAX_ROW_ELEMENTS:
        return None
    found = _EndToEnd(of, whole, rows, lanes, machine)
    return found.stages() if found.pays() else None


def _has_function(of: Each) -> bool:
    """Whether elements have a function in them, and are read where axes say."""
    nodes = post_order(of.value)
    if any(isinstance(node, UNEVEN) for node in nodes):
        return False
    rows = [row_of(node) for node in nodes if isinstance(node, sc.Scalar)]
    return any(row is not None and row.cost == "function" for row in rows)


class _EndToEnd:
    """The loops of elements of short rows, each of which begins in the lane after the last one."""

    def __init__(self, of: Stages, whole: Each, rows: int, lanes: int, machine: Machine) -> None:
        self.of, self.whole, self.lanes = of, whole, lanes
        self.names = Names(of)
        sizes = [known(size) or 0 for size in whole.out.shape]
        self.around, self.count, self.inner = sizes[: rows - 1], sizes[rows - 1], sizes[rows:]
        self.length = prod(self.inner)
        self.joined = whole.axes[rows - 1 :]
        self.together = self.lanes // gcd(self.lanes, self.length)
        while (
            self.together * self.length < VECTORS_SIDE_BY_SIDE * lanes
            and 2 * self.together <= self.count
        ):
            self.together *= 2
        every = [*dict.fromkeys(loads(whole.value))]
        self.flat = {each.buffer: self.view(each.buffer) for each in every if self.is_whole(each)}
        block = sc.index(self.together * self.length)
        self.repeated = {
            each: sc.Buffer(self.names.name("again"), (block,), each.buffer.dtype)
            for each in every
            if self.axes_of(each) and self.joined[0] not in self.axes_of(each)
        }
        self.shares = pays(machine, COSTLY * prod(sizes), of.inputs)
        self.masks = machine.masks

    def pays(self) -> bool:
        """Whether there are clearly fewer vectors than along rows, or single ones, which wait."""
        whole, rest = divmod(self.length, self.lanes)
        along = self.count * (whole + (min(rest, 1) if self.masks else rest.bit_count()))
        if self.length < MIN_VECTOR_ELEMENTS:
            along = self.count * self.length  # nobody makes vectors of these
        blocks = -(-self.count // self.together)
        vectors = blocks * self.together * self.length // self.lanes
        alone = self.length == self.lanes and self.count >= 2 * VECTORS_SIDE_BY_SIDE * self.together
        return alone or 9 * vectors < 8 * along

    def axes_of(self, of: Term) -> set[Term]:
        """The joined axes in a term."""
        return {*free_vars(of)} & {*self.joined}

    def is_whole(self, of: sc.Load) -> bool:
        """Whether an element is read where it is stored, as far as the joined axes go."""
        last = len(self.joined)
        same = of.buffer.shape[-last:] == self.whole.out.shape[-last:]
        return (
            same
            and of.indices[-last:] == self.joined
            and not any(map(self.axes_of, of.indices[:-last]))
        )

    def view(self, of: sc.Buffer) -> sc.Buffer:
        """A tensor whose joined axes are one."""
        shape = (*of.shape[: -len(self.joined)], sc.index(self.count * self.length))
        return sc.Buffer(of.name, shape, of.dtype, of.scope, of.strides, of.align)

    def stages(self) -> Stages | None:
        """The stages, None where a tensor is read in two ways."""
        for load in loads(self.whole.value):
            if load.buffer in self.flat and not self.is_whole(load):
                return None
        out = self.view(self.whole.out)
        inputs = tuple([self.flat.get(each, each) for each in self.of.inputs])
        return stages(inputs, (ExternStage((out,), self.body(out)),))

    def body(self, out: sc.Buffer) -> Stmt:
        """All elements, as many at once as whole rows fill whole vectors."""
        outer = [self.names.var("i") for _ in self.around]
        whole, left = divmod(self.count, self.together)
        block = self.names.var("b")
        first = next((at for at, size in enumerate(self.around) if size > 1), None)
        kind: LoopKind = "parallel" if self.shares and first is None else "serial"
        start, last = block * self.together, sc.index(self.count - self.together)
        rest: list[Stmt] = []
        if left and kind == "parallel":
            rest = [self.block(out, outer, last)]  # no two cores write one row
        elif left:
            start, whole = sc.Min(start, last), whole + 1
        rows = self.block(out, outer, start)
        again = [self.filled(load, kept, outer) for load, kept in self.repeated.items()]
        made: Stmt = seq(*again, For(block, sc.index(whole), kind, rows), *rest)
        made = allocated(made, self.repeated.values())
        for at in reversed(range(len(outer))):
            kind = "parallel" if self.shares and at == first else "serial"
            made = For(outer[at], sc.index(self.around[at]), kind, made)
        return made

    def filled(self, of: sc.Load, kept: sc.Buffer, outer: Sequence[sc.ScalarVar]) -> Stmt:
        """What all rows share, as often as it is read in a block of rows."""
        place = self.names.var("k")
        value = substitute(of, self.places(outer, sc.index(0), place))
        return For(place, kept.shape[0], "serial", Store(kept, (place,), value))

    def places(
        self, outer: Sequence[sc.ScalarVar], start: sc.Scalar, place: sc.Scalar
    ) -> dict[Term, Term]:
        """Where an element is along each axis, which is so many behind the first of a row."""
        found: dict[Term, Term] = dict(zip(self.whole.axes, outer, strict=False))
        found[self.joined[0]] = start + sc.FloorDiv(place, sc.index(self.length))
        step = self.length
        for axis, size in zip(self.joined[1:], self.inner, strict=True):
            rest: sc.Scalar = sc.FloorMod(place, sc.index(step))
            step //= size
            found[axis] = rest if step == 1 else sc.FloorDiv(rest, sc.index(step))
        return found

    def block(self, out: sc.Buffer, outer: Sequence[sc.ScalarVar], start: sc.Scalar) -> Stmt:
        """Vector after vector of some rows."""
        every = range(0, self.together * self.length, self.lanes)
        return seq(*[self.vector(out, outer, start, first) for first in every])

    def vector(
        self, out: sc.Buffer, outer: Sequence[sc.ScalarVar], start: sc.Scalar, first: int
    ) -> Stmt:
        """A vector of elements, the first of which is so many behind that of a row."""
        lane = self.names.var("v")
        there = start * self.length + first + lane
        flat = self.names.var("p")

        def new(node: Term) -> Term:
            if not isinstance(node, sc.Load):
                return node
            if node in self.repeated:
                return sc.Load(self.repeated[node], (lane + first,))
            if node.buffer in self.flat:
                return sc.Load(self.flat[node.buffer], (*node.indices[: -len(self.joined)], flat))
            alone = self.axes_of(node) == {self.joined[0]}
            return self.of_rows(node, start, lane, first) if alone else node

        places = {**self.places(outer, start, lane + first), flat: there}
        value = substitute(map_bottom_up(new, self.whole.value), places)
        return For(lane, sc.index(self.lanes), "vectorized", Store(out, (*outer, there), value))

    def of_rows(self, of: sc.Load, start: sc.Scalar, lane: sc.ScalarVar, first: int) -> sc.Scalar:
        """What each of the rows in a vector has once, in the lanes of that row."""
        last = (first + self.lanes - 1) // self.length
        found: sc.Scalar = substitute(of, {self.joined[0]: start + first // self.length})
        for row in range(first // self.length + 1, last + 1):
            one = substitute(of, {self.joined[0]: start + row})
            found = sc.Select(sc.Lt(lane, sc.index(row * self.length - first)), found, one)
        return found


def _side_by_side(of: Stages, rows: int, lanes: int) -> Stages:
    """The stages with a row in each lane; lanes behind the last row compute that row again."""
    names = Names(of, anew=of.made)
    every = [each for each in of.stages if isinstance(each, Each)]
    count = known(every[0].out.shape[rows - 1]) or 0
    block, lane = names.var("b"), names.var("v")
    kept: dict[sc.Buffer, sc.Buffer] = {}

    def filled(value: sc.Scalar, block: sc.Scalar, lane: sc.Scalar) -> sc.Scalar:
        def new(node: Term) -> Term:
            if not isinstance(node, sc.Load) or node.buffer not in kept:
                return node
            inner = _long(node.indices, node.buffer.shape, rows)
            return sc.Load(kept[node.buffer], (*node.indices[: rows - 1], block, *inner, lane))

        return map_bottom_up(new, value)

    made: list[Each] = []
    for each in every:
        row, inner = each.axes[rows - 1], _long(each.axes, each.out.shape, rows)
        if each.out is of.result:
            value = filled(each.value, row // lanes, row % lanes)
            out = sc.Buffer(names.name("out"), each.out.shape, each.out.dtype)
            made.append(Each(out, each.axes, value))
            continue
        units = {axis: sc.index(0) for axis in each.axes[rows:] if axis not in inner}
        at = block * lanes + lane
        at = sc.Min(at, sc.index(count - 1)) if count % lanes else at
        value = substitute(filled(each.value, block, lane), {**units, row: at})
        sizes = each.out.shape
        shape = (*sizes[: rows - 1], sc.index(-(-count // lanes)),
                 *_long(sizes, sizes, rows), sc.index(lanes))  # fmt: skip
        kept[each.out] = sc.Buffer(names.name("lanes"), shape, each.out.dtype)
        made.append(Each(kept[each.out], (*each.axes[: rows - 1], block, *inner, lane), value))
    return stages(of.inputs, made)


def _long(of: Sequence[S], sizes: Sequence[sc.Scalar], rows: int) -> tuple[S, ...]:
    """What belongs to axes within a row, but for those of one element."""
    both = zip(of[rows:], sizes[rows:], strict=True)
    return tuple([each for each, size in both if known(size) != 1])
