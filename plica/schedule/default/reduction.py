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

from attrs import frozen

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

AT_ONCE = 4
"""Vectors that are under way at once, at most."""


SHORT = 4
"""The maximum vectors of a row kept in registers."""

RUN = 16
"""Vectors that a lane adds up one by one in a long sum."""

ONE_RUN = 32
"""This many are one run."""

SHORT_RUN = 8
"""The minimum number of vectors of a run, unless it is the only one."""

WIDE = 512
"""Lanes of a sum of this many terms are joined in f64."""


def row_form(of: Stages, machine: Machine, most: int = AT_ONCE) -> Stages | None:
    """The stages of a reduction along rows, with at most a number of vectors at once, or None."""
    if not all(isinstance(each, Each) for each in of.stages):
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
        found = [_moved(each, at) for each in found]
        value = with_element(epilogue.value, fold.out, substitute(value, at))
        axes, shape = epilogue.axes, epilogue.out.shape
    out = Buffer(names.name("out"), shape, dtype_of(value))
    return stages(of.inputs, (*found, Each(out, axes, value)))


def is_across_rows(of: Stages, *, factors: bool = True) -> bool:
    """Whether stages begin with a reduction that keeps the last axis of its operand, each term of
    which has one result: operands shared by results are for tiles. Rows may have `factors`."""
    match of.stages[0]:
        case Each(out, (*_, lane) as axes, Reduce(_, terms, _, body)):
            found = [each for each in loads(body) if not free_vars(each).isdisjoint(terms)]
        case _:
            return False
    # An axis of one element is read at 0.
    every = {*terms, *[at for at, size in zip(axes, out.shape, strict=True) if known(size) != 1]}
    rows = [each for each in found if lane in free_vars(each)]
    if not factors and len(rows) < len(found):
        return False
    return bool(rows) and all(
        each.indices[-1] is lane and {at for at in each.indices if known(at) != 0} == every
        for each in rows
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
        if any(term in free_vars(each) for each in node.indices[:-1]):
            return False
        for atoms, factor in polynomial(node.indices[-1]).values():
            if any(term in free_vars(each) for each in atoms) and (atoms != (term,) or factor != 1):
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
    dtype, many, lanes = dtype_of(body), cut.many, cut.lanes
    h, u, v, t = (name.var(each) for each in "huvt")
    term = body.axes[-1]
    start_, join = MEANING[body.combiner]
    flat = len(body.axes) == 1

    def at(place: Scalar, partly: bool = False) -> Scalar:
        found = substitute(body.body, {term: place})
        return Select(Lt(place, index(cut.length)), found, start_(dtype)) if partly else found

    behind = [] if cut.strips is None else _behind_strips(body, cut, axes, sizes, name)
    stages: list[Each] = [*behind]
    first: list[Scalar] = []
    length = _run_length(body, cut)
    before = dim(cut.groups // length * length) if length else index(0)
    long = _rounds(body) and prod(map(_size, body.extents)) >= WIDE
    wide = f64 if length or long else dtype
    if length:
        stages += _in_runs(body, cut, length, axes, sizes, name)
        first.append(Load(stages[-1].out, (*axes, v)))
    groups = dim(cut.groups - before)

    def widened(of: Scalar) -> Scalar:
        return of if dtype_of(of) is wide else Cast(of, wide)

    if known(groups) != 0:
        start = dim(before * (many * lanes))
        part = Each(
            Buffer(name.name("part"), (*sizes, index(many), index(lanes)), dtype),
            (*axes, u, v),
            Reduce(
                body.combiner,
                (*body.axes[:-1], h),
                (*body.extents[:-1], groups),
                at(
                    (h * many + u) * lanes + v + start
                    if known(start) != 0
                    else (h * many + u) * lanes + v,
                    partly=cut.is_partly,
                ),
            ),
        )
        stages.append(part)
        beside: list[Scalar] = [Load(part.out, (*axes, index(n), v)) for n in range(many)]
        beside += [Load(each.out, (*axes, v)) for each in behind[:1]]
        first.append(widened(halved(beside, join)))
    done = min(cut.count * lanes, cut.length)
    while cut.masked and cut.length - done > FEW_LANES:
        first.append(widened(at(v + done, partly=cut.length - done < lanes)))
        done = min(done + lanes, cut.length)

    def left(width: int, place: Scalar) -> list[Scalar]:
        """The remaining elements, a number of lanes at a time."""
        nonlocal done
        start, count = done, (cut.length - done) // width if flat else 0
        done += count * width
        return [widened(at(place + (start + each * width))) for each in range(count)]

    width = lanes
    last = _lane(first[0], v)
    for like, new in (("joined", lanes), ("few", FEW_LANES)):
        if new > width or (new == width and like == "few"):
            continue
        read = last
        if like == "joined":
            found = list(first)
        else:
            found = [read(v + each * new) for each in range(width // new)]
        found += left(new, v)
        if len(found) == 1 and isinstance(found[0], Load):
            continue
        kept = Buffer(name.name(like), (*sizes, index(new)), wide)
        stages.append(Each(kept, (*axes, v), halved(found, join)))
        last, width = _read(kept, axes), new
    found = [*[last(index(each)) for each in range(width)], *left(1, index(0))]
    found += [widened(Load(each.out, axes)) for each in behind[1:]]
    stages.append(Each(Buffer(name.name("total"), sizes, wide), axes, halved(found, join)))
    value: Scalar = Load(stages[-1].out, axes)
    if not flat and done < cut.length:
        rest = Reduce(
            body.combiner,
            (*body.axes[:-1], t),
            (*body.extents[:-1], index(cut.length - done)),
            widened(at(t + done)),
        )
        stages.insert(0, Each(Buffer(name.name("rest"), sizes, wide), axes, rest))
        value = join(value, Load(stages[0].out, axes))
    return stages, value if wide is dtype else Cast(value, dtype)


def _rounds(of: Reduce) -> bool:
    """Whether sums round; integer sums are exact."""
    return of.combiner == "sum" and dtype_of(of).is_float


def _size(of: Scalar) -> int:
    return known(of) or 0


def _run_length(body: Reduce, cut: RowTiling) -> int:
    """The vectors of a run, 0 where a lane reduces all it has at once."""
    groups = cut.count // cut.many
    outer = prod(map(_size, body.extents[:-1]))
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


def _in_runs(  # noqa: PLR0917  # a reduction is these things
    body: Reduce,
    cut: RowTiling,
    length: int,
    axes: tuple[ScalarVar, ...],
    sizes: tuple[Scalar, ...],
    name: Names,
) -> list[Each]:
    """The stages of whole runs: `run`, and in `wide` their totals per lane."""
    many, lanes = cut.many, cut.lanes
    h, u, v, o = (name.var(each) for each in "huvo")
    count = dim(cut.groups // length)
    over, counts = body.axes[:-1], body.extents[:-1]
    place = (h * many + u) * lanes + v
    if known(count) != 1:
        over, counts = (*over, o), (*counts, count)
        place = ((o * length + h) * many + u) * lanes + v
    inside = substitute(body.body, {body.axes[-1]: place})
    start_, join = MEANING[body.combiner]
    if cut.is_partly:
        inside = Select(Lt(place, index(cut.length)), inside, start_(dtype_of(body)))
    one = Buffer(name.name("run"), (*sizes, *counts, index(many), index(lanes)), dtype_of(body))
    run = Each(one, (*axes, *over, u, v), Reduce(body.combiner, (h,), (index(length),), inside))
    own = tuple([name.var(str(each.name.hint)) for each in over])
    beside = halved([Load(one, (*axes, *own, index(n), v)) for n in range(many)], join)
    total = Reduce(
        body.combiner, own, counts, beside if dtype_of(body) is f64 else Cast(beside, f64)
    )
    wide = Buffer(name.name("wide"), (*sizes, index(lanes)), f64)
    return [run, Each(wide, (*axes, v), total)]


def _behind_strips(
    body: Reduce,
    cut: RowTiling,
    axes: tuple[ScalarVar, ...],
    sizes: tuple[Scalar, ...],
    name: Names,
) -> list[Each]:
    """The stages behind the strips of an open row: `tail`, by vectors, and `rest`, by elements, if
    there are no partial vectors."""
    dtype, lanes, (size,) = dtype_of(body), cut.lanes, body.extents
    t, v = name.var("t"), name.var("v")
    start_, _ = MEANING[body.combiner]
    done = cut.groups * (cut.many * lanes)

    def folded(like: str, lane: tuple[ScalarVar, ...], count: Scalar, value: Scalar) -> Each:
        out = Buffer(name.name(like), (*sizes, *[index(lanes) for _ in lane]), dtype)
        return Each(out, (*axes, *lane), Reduce(body.combiner, (t,), (count,), value))

    def term(place: Scalar) -> Scalar:
        return substitute(body.body, {body.axes[0]: place})

    place = done + t * lanes + v
    if cut.masked:
        value = Select(Lt(place, size), term(place), start_(dtype))
        return [folded("tail", (v,), (size - done + (lanes - 1)) // lanes, value)]
    ends = size // lanes * lanes
    return [
        folded("tail", (v,), (size - done) // lanes, term(place)),
        folded("rest", (), size - ends, term(ends + t)),
    ]


def _lane(of: Scalar, lane: ScalarVar) -> Callable[[Scalar], Scalar]:
    """The value of a lane."""
    return lambda place: substitute(of, {lane: place})


def _moved(of: Each, at: Mapping[Term, Term]) -> Each:
    """A stage over other axes, as far as those are axes."""
    own: dict[Term, Term] = {a: b for a, b in at.items() if isinstance(b, ScalarVar)}
    axes = tuple([own.get(axis, axis) for axis in of.axes])
    return Each(of.out, axes, substitute(of.value, own))  # type: ignore[arg-type]  # axes are variables


def _read(of: Buffer, axes: tuple[ScalarVar, ...]) -> Callable[[Scalar], Scalar]:
    return lambda place: Load(of, (*axes, place))


def halved(found: Sequence[Scalar], join: Callable[[Scalar, Scalar], Scalar]) -> Scalar:
    """Some numbers joined, as few after one another as can be."""
    while len(found) > 1:
        half = -(-len(found) // 2)
        pairs = zip(found, found[half:], strict=False)
        found = [*[join(a, b) for a, b in pairs], *found[len(found) - half : half]]
    return found[0]
