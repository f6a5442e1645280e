"""Reductions along rows: lanes reduce parts of a row, and these are joined in the end.

    out[i] = sum over k of f(x[i, k])
      -->  part[i, u, v]  = sum over h of f(x[i, (h * 4 + u) * 16 + v])      vectors
           joined[i, v]   = part[i, 0, v] + … + part[i, 3, v]                vectors
           few[i, v]      = joined[i, v] + … + joined[i, v + 12]             shorter vectors
           total[i]       = few[i, 0] + … + few[i, 3]
           out[i]         = total[i]

Of a row of open length the vectors behind the last ones side by side are joined in `tail`, and
where vectors are not read in part what fills none of them in `rest`.

Vectors beyond the unrolled ones are added to `joined`, and single elements to `few` and `total`. A
machine with partial vectors joins the rest of a row as one; likewise a row shorter than a vector,
and the last vector of several rows.

A long float sum would lose digits in lanes that accumulate throughout, so it goes in runs of 16
vectors with f64 totals; the rest is summed as above.

    run[i, o, u, v]  = sum over h < 16 of f(x[i, ((o * 16 + h) * 4 + u) * 16 + v])
    wide[i, v]       = sum over o of f64(run[i, o, 0, v] + … + run[i, o, 3, v])

Terms are reordered, which needs the contract's permission.

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.tensor import buffer, reduce
>>> x = buffer("x", (4, 100), f32)
>>> total = stage("y", (4,), lambda i: reduce("sum", (100,), lambda k: x[i, k]))
>>> made = row_form(stages((x,), (total,)), Machine(512, 32))
>>> [str(each.out.name) for each in made.stages]
['part', 'joined', 'few', 'total', 'out']
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from attrs import field, frozen

from plica.core import Term, free_vars, post_order, substitute
from plica.ir.loop.combiner import MEANING
from plica.ir.loop.scalar import (
    Buffer,
    Cast,
    Load,
    Lt,
    Reduce,
    Scalar,
    ScalarVar,
    Select,
    dtype_of,
    index,
)
from plica.ir.loop.stage import Each
from plica.ir.loop.stages import Names, Stages, loads, pairs, stages, with_element
from plica.ir.type import dim, f32, f64, i32, i64, known, polynomial
from plica.schedule.default.lane import MAX_STRIDE, is_row
from plica.schedule.default.machine import FEW_LANES, Machine

AT_ONCE = 4  # vectors that are under way at once, at most


SHORT = 4  # the maximum vectors of a row kept in registers
RUN = 16  # vectors that a lane adds up one by one in a long sum
ONE_RUN = 32  # this many are one run
SHORT_RUN = 8  # the minimum number of vectors of a run, unless it is the only one
WIDE = 512  # lanes of a sum of this many terms are joined in f64


def row_form(of: Stages, machine: Machine, most: int = AT_ONCE) -> Stages | None:
    """The stages of a reduction along rows, with at most a number of vectors at once, or None."""
    if not all(isinstance(stage, Each) for stage in of.stages):
        return None
    every = pairs(of)
    if len(every) != 1:
        return None
    ((fold, epilogue),) = every
    body = fold.value
    if not isinstance(body, Reduce) or any(known(n) == 0 for n in fold.out.shape):
        return None
    if (cut := in_parts(body, machine, most)) is None:
        return None
    names = Names(of, anew=of.made)
    found, value = reduced_in_parts(body, cut, fold.axes, fold.out.shape, names)
    axes, shape = fold.axes, fold.out.shape
    if epilogue is not None:
        (read,) = [load for load in loads(epilogue.value) if load.buffer is fold.out]
        if not _in_place(read, epilogue):
            return None
        at: dict[Term, Term] = dict(zip(fold.axes, read.indices, strict=True))
        found = [_moved(stage, at) for stage in found]
        value = with_element(epilogue.value, fold.out, substitute(value, at))
        axes, shape = epilogue.axes, epilogue.out.shape
    out = Buffer(names.name("out"), shape, dtype_of(value))
    return stages(of.inputs, (*found, Each(out, axes, value)))


def is_across_rows(of: Stages, *, factors: bool = True) -> bool:
    """Whether stages begin with a reduction that keeps the last axis of its operand, each term of
    which has one result: operands shared by results are for tiles. Rows may have `factors`."""
    match of.stages[0]:
        case Each(out, (*_, lane) as axes, Reduce(_, terms, _, body)):
            found = [load for load in loads(body) if not free_vars(load).isdisjoint(terms)]
        case _:
            return False
    # An axis of one element is read at 0.
    every = {*terms, *[at for at, size in zip(axes, out.shape, strict=True) if known(size) != 1]}
    rows = [load for load in found if lane in free_vars(load)]
    if not factors and len(rows) < len(found):
        return False
    return bool(rows) and all(
        row.indices[-1] is lane and {at for at in row.indices if known(at) != 0} == every
        for row in rows
    )


def _in_place(read: Load, epilogue: Each) -> bool:
    """Whether each element is stored where it was reduced."""
    return len(read.indices) == len(epilogue.axes) and all(
        place is axis or known(size) == 1
        for place, axis, size in zip(read.indices, epilogue.axes, epilogue.out.shape, strict=True)
    )


@frozen
class RowTiling:
    """How a row is cut: vectors in all, those side by side, lanes, and the length of the row, 0
    where it is open; and whether vectors are read in part."""

    count: int
    many: int
    lanes: int
    length: int
    masked: bool = False
    strips: Scalar | None = None
    """How many whole groups of vectors side by side a row of open length has."""

    @property
    def groups(self) -> Scalar:
        """The number of whole groups of adjacent vectors."""
        return index(self.count // self.many) if self.strips is None else self.strips

    @property
    def is_partly(self) -> bool:
        """Whether the last vectors are partial."""
        return self.length < self.count * self.lanes


def in_parts(body: Reduce, machine: Machine, most: int = AT_ONCE) -> RowTiling | None:
    """The split of a reduction along a row, or None if vectors do not help."""
    numbers = dtype_of(body) in (f32, f64, i32, i64)
    if numbers and len(body.axes) == 1 and known(body.extents[0]) is None:
        return _in_strips(body, machine, most)
    if not numbers or any(not known(n) for n in body.extents):
        return None
    length, lanes = known(body.extents[-1]) or 0, machine.lanes(dtype_of(body))
    count = length // lanes
    least = 1 if len(body.axes) == 1 else 2  # rows of a box are vectors side by side
    masked = machine.masks and len(body.axes) == 1
    if masked and lanes // 2 < length < lanes and _is_row(body):
        return RowTiling(1, 1, lanes, length, masked)
    if lanes < 2 or count < least or not _is_row(body):
        return None
    if len(body.axes) > 1:
        if machine.masks and length > count * lanes:
            count += 1  # the last vector of each row is read in part
        beside = (*range(most, 1, -1), *range(most + 1, 2 * most + 1), 1)
        many = next(each for each in beside if count % each == 0)
        return RowTiling(count, many, lanes, length)
    many = min(most, count)
    return RowTiling(count // many * many, many, lanes, length, masked)


def _in_strips(body: Reduce, machine: Machine, most: int) -> RowTiling | None:
    """The split of an open row, or None if vectors do not help."""
    lanes = machine.lanes(dtype_of(body))
    if lanes < 2 or not is_row(body.body, body.axes[0], (), MAX_STRIDE):
        return None
    return RowTiling(0, most, lanes, 0, machine.masks, body.extents[0] // (most * lanes))


def _is_row(of: Reduce) -> bool:
    """Whether all that is read along the last term is contiguous there."""
    term = of.axes[-1]
    found = False
    for node in post_order(of.body):
        if isinstance(node, Reduce):
            return False
        if not isinstance(node, Load) or term not in free_vars(node):
            continue
        found = True
        if any(term in free_vars(scalar) for scalar in node.indices[:-1]):
            return False
        for atoms, factor in polynomial(node.indices[-1]).values():
            if any(term in free_vars(atom) for atom in atoms) and (atoms != (term,) or factor != 1):
                return False
    return found


def reduced_in_parts(
    body: Reduce,
    cut: RowTiling,
    axes: tuple[ScalarVar, ...],
    sizes: tuple[Scalar, ...],
    name: Names,
) -> tuple[list[Each], Scalar]:
    """The stages of a reduction for each point of some axes, and its final value."""
    parts = _Parts(body, cut, axes, sizes, name)
    value = parts.total()
    return parts.made, value


@frozen(eq=False)
class _Parts:
    """The stages of a reduction that is cut, under construction: each for all points of some
    axes."""

    body: Reduce
    cut: RowTiling
    axes: tuple[ScalarVar, ...]
    sizes: tuple[Scalar, ...]
    names: Names
    made: list[Each] = field(factory=list)

    def add(self, like: str, value: Scalar, *lanes: tuple[ScalarVar, Scalar]) -> Load:
        """An element of a new stage, of some lanes at each point."""
        shape = (*self.sizes, *[size for _, size in lanes])
        out = Buffer(self.names.name(like), shape, dtype_of(value))
        self.made.append(Each(out, (*self.axes, *[lane for lane, _ in lanes]), value))
        return Load(out, self.made[-1].axes)

    def fold(self, value: Scalar, *over: tuple[ScalarVar, Scalar]) -> Reduce:
        """The same reduction of other terms."""
        axes, extents = zip(*over, strict=True)
        return Reduce(self.body.combiner, axes, extents, value)

    def term(self, place: Scalar, length: Scalar | None = None) -> Scalar:
        """The term at a place of the row; behind its `length`, if there is one, the identity."""
        found = substitute(self.body.body, {self.body.axes[-1]: place})
        if length is None:
            return found
        return Select(Lt(place, length), found, MEANING[self.body.combiner][0](dtype_of(self.body)))

    @property
    def outer(self) -> list[tuple[ScalarVar, Scalar]]:
        """The axes of the terms but the last, with their sizes."""
        return list(zip(self.body.axes[:-1], self.body.extents, strict=False))

    @property
    def length(self) -> Scalar | None:
        """Where terms end within vectors, or None."""
        return index(self.cut.length) if self.cut.is_partly else None

    def total(self) -> Scalar:
        """The value, made in vectors, which are joined to shorter and shorter ones."""
        body, cut, lanes = self.body, self.cut, self.cut.lanes
        dtype, join = dtype_of(body), MEANING[body.combiner][1]
        h, u, v, t = (self.names.var(each) for each in "huvt")
        behind = [] if cut.strips is None else self.behind_strips(v)
        length = _run_length(body, cut)
        before = dim(cut.groups // length * length) if length else index(0)
        long = _rounds(body) and prod([known(size) or 0 for size in body.extents]) >= WIDE
        wide = f64 if length or long else dtype
        first: list[Scalar] = [self.in_runs(length, u, v)] if length else []

        def widened(of: Scalar) -> Scalar:
            return of if dtype_of(of) is wide else Cast(of, wide)

        if known(groups := dim(cut.groups - before)) != 0:
            start, place = dim(before * (cut.many * lanes)), (h * cut.many + u) * lanes + v
            value = self.term(place if known(start) == 0 else place + start, self.length)
            part = self.add("part", self.fold(value, *self.outer, (h, groups)), *self.vectors(u, v))
            first.append(widened(halved([*self.beside(part, u), *behind[:1]], join)))
        done = min(cut.count * lanes, cut.length)
        while cut.masked and cut.length - done > FEW_LANES:
            ends = index(cut.length) if cut.length - done < lanes else None
            first.append(widened(self.term(v + done, ends)))
            done = min(done + lanes, cut.length)

        def left(width: int, place: Scalar) -> list[Scalar]:
            """The remaining elements, a number of lanes at a time."""
            nonlocal done
            start, count = done, 0 if self.outer else (cut.length - done) // width
            done += count * width
            return [widened(self.term(place + (start + each * width))) for each in range(count)]

        def lane(place: Scalar) -> Scalar:
            return substitute(last, {v: place})

        width, last = lanes, first[0]
        for like, new in (("joined", lanes), ("few", FEW_LANES)):
            if new > width or (new == width and like == "few"):
                continue
            terms = first if like == "joined" else [lane(v + n * new) for n in range(width // new)]
            terms = [*terms, *left(new, v)]
            if len(terms) > 1 or not isinstance(terms[0], Load):
                last, width = self.add(like, halved(terms, join), (v, index(new))), new
        terms = [*[lane(index(each)) for each in range(width)], *left(1, index(0))]
        whole: Scalar = self.add("total", halved([*terms, *map(widened, behind[1:])], join))
        if self.outer and done < cut.length:
            over = (*self.outer, (t, index(cut.length - done)))
            whole = join(whole, self.add("rest", self.fold(widened(self.term(t + done)), *over)))
            self.made.insert(0, self.made.pop())
        return whole if wide is dtype else Cast(whole, dtype)

    def vectors(self, u: ScalarVar, v: ScalarVar) -> tuple[tuple[ScalarVar, Scalar], ...]:
        """The lanes of vectors side by side."""
        return (u, index(self.cut.many)), (v, index(self.cut.lanes))

    def beside(self, part: Load, u: ScalarVar) -> list[Scalar]:
        """What vectors side by side have in a lane."""
        return [substitute(part, {u: index(n)}) for n in range(self.cut.many)]

    def in_runs(self, length: int, u: ScalarVar, v: ScalarVar) -> Load:
        """The stages of whole runs: `run`, and in `wide` their totals per lane."""
        h, o = self.names.var("h"), self.names.var("o")
        over, count = self.outer, dim(self.cut.groups // length)
        step: Scalar = h
        if known(count) != 1:
            over, step = [*over, (o, count)], o * length + h
        value = self.term((step * self.cut.many + u) * self.cut.lanes + v, self.length)
        one = self.fold(value, (h, index(length)))
        run = self.add("run", one, *over, *self.vectors(u, v))
        part = halved(self.beside(run, u), MEANING[self.body.combiner][1])
        total = part if dtype_of(part) is f64 else Cast(part, f64)
        return self.add("wide", self.fold(total, *over), (v, index(self.cut.lanes)))

    def behind_strips(self, v: ScalarVar) -> list[Load]:
        """Elements of the stages behind the strips of an open row: `tail`, by vectors, and `rest`,
        by elements, if there are no partial vectors."""
        cut, lanes, t, (size,) = self.cut, self.cut.lanes, self.names.var("t"), self.body.extents
        done = cut.groups * (cut.many * lanes)
        count = (size - done + (lanes - 1 if cut.masked else 0)) // lanes
        value = self.term(done + t * lanes + v, size if cut.masked else None)
        tail = self.add("tail", self.fold(value, (t, count)), (v, index(lanes)))
        if cut.masked:
            return [tail]
        ends = size // lanes * lanes
        return [tail, self.add("rest", self.fold(self.term(ends + t), (t, size - ends)))]


def _rounds(of: Reduce) -> bool:
    """Whether sums round; integer sums are exact."""
    return of.combiner == "sum" and dtype_of(of).is_float


def _run_length(body: Reduce, cut: RowTiling) -> int:
    """The vectors of a run, 0 where a lane reduces all it has at once."""
    groups = cut.count // cut.many
    outer = prod([known(size) or 0 for size in body.extents[:-1]])
    if cut.strips is not None:
        return RUN if _rounds(body) else 0
    if not _rounds(body) or groups * outer <= ONE_RUN:
        return 0
    if outer == 1 and len(body.axes) == 1:
        return RUN
    if groups <= ONE_RUN:
        return groups
    usual = [*range(ONE_RUN, SHORT_RUN, -1), *range(ONE_RUN, 2 * ONE_RUN)]
    lengths = [*usual, *range(SHORT_RUN, 0, -1)]
    length: int = next(each for each in lengths if groups % each == 0)
    return length


def _moved(of: Each, at: Mapping[Term, Term]) -> Each:
    """A stage over other axes, as far as those are axes."""
    own: dict[Term, Term] = {a: b for a, b in at.items() if isinstance(b, ScalarVar)}
    axes = tuple([own.get(axis, axis) for axis in of.axes])
    return Each(of.out, axes, substitute(of.value, own))  # type: ignore[arg-type]  # axes are variables


def halved(found: Sequence[Scalar], join: Callable[[Scalar, Scalar], Scalar]) -> Scalar:
    """Some numbers joined, as few after one another as can be."""
    while len(found) > 1:
        half = -(-len(found) // 2)
        pairs = zip(found, found[half:], strict=False)
        found = [*[join(a, b) for a, b in pairs], *found[len(found) - half : half]]
    return found[0]
