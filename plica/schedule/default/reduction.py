"""Reductions along rows: lanes reduce parts of a row, and these are joined in the end.

    out[i] = sum over k of f(x[i, k])
      -->  part[i, u, v]  = sum over h of f(x[i, (h * 4 + u) * 16 + v])      vectors
           joined[i, v]   = part[i, 0, v] + … + part[i, 3, v]                vectors
           few[i, v]      = joined[i, v] + … + joined[i, v + 12]             shorter vectors
           total[i]       = few[i, 0] + … + few[i, 3]
           out[i]         = total[i]

What fills no vectors side by side is added to `joined`, what fills none to `few` and to `total`.

Terms are joined in another order than they come: only for those who allow that.

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

from plica.core.binding import free_vars, substitute
from plica.core.fold import map_bottom_up, post_order
from plica.core.term import Term
from plica.ir.loop.combiner import MEANING
from plica.ir.loop.scalar import Buffer, Lit, Load, Reduce, Scalar, ScalarVar, dtype_of, index
from plica.ir.loop.stage import Each
from plica.ir.loop.stages import Names, Stages, loads, pairs, stages, with_element
from plica.ir.loop.statement import Block, Kernel
from plica.ir.type.dim import known, polynomial
from plica.ir.type.dtype import f32, f64
from plica.schedule.default.machine import Machine
from plica.schedule.default.role import BlockFlow, block_flow, is_reduction, made_by, reads
from plica.schedule.do import Body, do
from plica.schedule.do import DoBlock as Do
from plica.schedule.handle import Handle
from plica.schedule.primitive import (
    annotate,
    block,
    compute_at,
    decompose_reduction,
    fuse,
    loops,
    parallel,
    reorder,
    set_scope,
    unroll,
    vectorize,
)

AT_ONCE = 4
"""Vectors that are under way at once, at most."""

SHARED = 1 << 15
"""Fewer terms than that are not worth waking other cores."""

FEW = 4
"""Lanes that are joined one by one."""

LONG = 256
"""A row of so many elements is long enough for the next to come from memory meanwhile."""

SHORTEST = 2
"""A row of fewer vectors is not worth them."""


def row_form(of: Stages, machine: Machine, most: int = AT_ONCE) -> Stages | None:
    """The stages of a reduction along rows, at most so many vectors at once; None where it is
    none."""
    if not all(isinstance(each, Each) for each in of.stages):
        return None
    every = pairs(flattened(of))
    if len(every) != 1:
        return None
    ((fold, epilogue),) = every
    body = fold.value
    if not isinstance(body, Reduce) or not fold.axes or any(not known(n) for n in fold.out.shape):
        return None
    cut = in_parts(body, machine, most)
    if cut is None:
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
        value = with_element(epilogue.value, fold.out, _substituted(value, at))
        axes, shape = epilogue.axes, epilogue.out.shape
    out = Buffer(names.name("out"), shape, dtype_of(value))
    return stages(flattened(of).inputs, (*found, Each(out, axes, value)))


def _in_place(read: Load, epilogue: Each) -> bool:
    """Whether each element is stored where it was reduced."""
    return len(read.indices) == len(epilogue.axes) and all(
        place is axis or known(size) == 1
        for place, axis, size in zip(read.indices, epilogue.axes, epilogue.out.shape, strict=True)
    )


def flattened(of: Stages) -> Stages:
    """The stages with the last terms of a reduction as one, where all that is read of them is
    contiguous.

    sum over h, w of x[n, c, h, w]  -->  sum over p of x[n, c, p]
    """
    first, *after = of.stages
    if not isinstance(first, Each) or not isinstance(first.value, Reduce):
        return of
    body = first.value
    if len(body.axes) < 2:
        return of
    terms = body.axes
    views: dict[Buffer, Buffer] = {}
    count = prod(known(size) or 0 for size in body.extents)
    for each in loads(body.body):
        if each.indices[-len(terms) :] != terms or each.buffer.shape[-len(terms) :] != body.extents:
            return of
        if any(not free_vars(place).isdisjoint(terms) for place in each.indices[: -len(terms)]):
            return of
        shape = (*each.buffer.shape[: -len(terms)], index(count))
        views[each.buffer] = Buffer(each.buffer.name, shape, each.buffer.dtype)
    if not views or any(load.buffer in views for each in after for load in loads(each)):
        return of
    whole = Names(of).var("p")

    def flat(node: Term) -> Term:
        if isinstance(node, Load) and node.buffer in views:
            return Load(views[node.buffer], (*node.indices[: -len(terms)], whole))
        return node

    inside = map_bottom_up(flat, body.body)
    assert isinstance(inside, Scalar)
    if not free_vars(inside).isdisjoint(terms):
        return of
    one = Reduce(body.combiner, (whole,), (index(count),), inside)
    inputs = tuple([views.get(each, each) for each in of.inputs])
    return stages(inputs, (Each(first.out, first.axes, one), *after), of.outputs)


@frozen
class RowTiling:
    """How a row is cut: vectors in all, those side by side, lanes, and the length of the row."""

    count: int
    many: int
    lanes: int
    length: int


def in_parts(body: Reduce, machine: Machine, most: int = AT_ONCE) -> RowTiling | None:
    """How a reduction along a row is cut, None where vectors do not help."""
    if dtype_of(body) not in (f32, f64) or any(not known(size) for size in body.extents):
        return None
    length, lanes = known(body.extents[-1]) or 0, machine.lanes(dtype_of(body))
    count = length // lanes
    if lanes < SHORTEST or count < SHORTEST or not _is_row(body):
        return None
    if len(body.axes) > 1:
        many = next(each for each in range(most, 0, -1) if count % each == 0)
        return RowTiling(count, many, lanes, length)
    many = min(most, count)
    return RowTiling(count // many * many, many, lanes, length)


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
    """The stages of a reduction for each place of some axes, and what it is once they are done."""
    dtype, many, lanes = dtype_of(body), cut.many, cut.lanes
    h, u, v, t = (name.var(each) for each in "huvt")
    term = body.axes[-1]
    _, join = MEANING[body.combiner]

    def at(place: Scalar) -> Scalar:
        found = substitute(body.body, {term: place})
        assert isinstance(found, Scalar)
        return found

    part = Each(
        Buffer(name.name("part"), (*sizes, index(many), index(lanes)), dtype),
        (*axes, u, v),
        Reduce(
            body.combiner,
            (*body.axes[:-1], h),
            (*body.extents[:-1], index(cut.count // many)),
            at((h * many + u) * lanes + v),
        ),
    )
    stages = [part]

    done = cut.count * lanes
    flat = len(body.axes) == 1

    def left(width: int, place: Scalar) -> list[Scalar]:
        """What is still to come, so many lanes at a time."""
        nonlocal done
        start, count = done, (cut.length - done) // width if flat else 0
        done += count * width
        return [at(place + (start + each * width)) for each in range(count)]

    last: Callable[[Scalar], Scalar] = lambda place: Load(part.out, (*axes, index(0), place))  # noqa: E731
    width = lanes
    for like, new in (("joined", lanes), ("few", FEW)):
        if new > width or (new == width and like == "few"):
            continue
        read = last
        if like == "joined":
            found: list[Scalar] = [Load(part.out, (*axes, index(n), v)) for n in range(many)]
        else:
            found = [read(v + each * new) for each in range(width // new)]
        found += left(new, v)
        if len(found) == 1:
            continue
        kept = Buffer(name.name(like), (*sizes, index(new)), dtype)
        stages.append(Each(kept, (*axes, v), halved(found, join)))
        last, width = _read(kept, axes), new
    found = [*[last(index(each)) for each in range(width)], *left(1, index(0))]
    stages.append(Each(Buffer(name.name("total"), sizes, dtype), axes, halved(found, join)))
    value: Scalar = Load(stages[-1].out, axes)
    if not flat and done < cut.length:
        rest = Reduce(
            body.combiner,
            (*body.axes[:-1], t),
            (*body.extents[:-1], index(cut.length - done)),
            at(t + done),
        )
        stages.insert(0, Each(Buffer(name.name("rest"), sizes, dtype), axes, rest))
        value = join(value, Load(stages[0].out, axes))
    return stages, value


def _moved(of: Each, at: Mapping[Term, Term]) -> Each:
    """A stage over other axes, as far as those are axes."""
    own: dict[Term, Term] = {a: b for a, b in at.items() if isinstance(b, ScalarVar)}
    axes = tuple([own.get(axis, axis) for axis in of.axes])
    return Each(of.out, axes, _substituted(of.value, own))  # type: ignore[arg-type]  # axes are variables


def _substituted(of: Scalar, at: Mapping[Term, Term]) -> Scalar:
    found = substitute(of, dict(at))
    assert isinstance(found, Scalar)
    return found


def _read(of: Buffer, axes: tuple[ScalarVar, ...]) -> Callable[[Scalar], Scalar]:
    return lambda place: Load(of, (*axes, place))


def halved(found: Sequence[Scalar], join: Callable[[Scalar, Scalar], Scalar]) -> Scalar:
    """Some numbers joined, as few after one another as can be."""
    while len(found) > 1:
        half = -(-len(found) // 2)
        pairs = zip(found, found[half:], strict=False)
        found = [*[join(a, b) for a, b in pairs], *found[len(found) - half : half]]
    return found[0]


def row_schedule(kernel: Kernel, machine: Machine) -> Do | None:
    """The schedule of such a kernel, or of a chain of them (`plica.schedule.default.row`).

    Everything goes into the loop over the rows of the result.
    """
    flow = block_flow(kernel)
    parts = [] if flow is None else [e for e in flow.blocks.values() if _is_part(e, flow)]
    if flow is None or not parts:
        return None
    around = _spatial(parts[0]) - 2
    before = [each for each in flow.blocks.values() if each is not flow.result]
    if not all(_spatial(each) >= around for each in flow.blocks.values()) or around < 1:
        return None
    lanes = _lanes(before, parts, around)
    work = sum(prod(known(size) or 0 for size in each.extents) for each in flow.blocks.values())
    shares = machine.cores > 1 and work >= SHARED

    @do
    def schedule() -> Body:
        out = yield block(str(flow.result.label))
        every: tuple[Handle, ...] = yield loops(out)
        rows = every[:around]
        handles: list[tuple[Block, Handle]] = []
        for each in reversed(before):
            one = yield block(str(each.label))
            yield compute_at(one, rows[-1])
            handles.append((each, one))
        for was, one in handles:
            kept = _spatial(was) > around and not is_reduction(was) and was not in lanes
            yield from _within_row(one, was, around, kept=kept)
        if len(every) > around:
            yield vectorize(every[-1])
            yield from _fetched(every[-1], flow.result)
        if shares:
            whole = rows[0]
            if around > 1:
                whole = yield fuse(*rows)
            yield parallel(whole)

    return schedule()


def _spatial(of: Block) -> int:
    return of.kinds.count("spatial")


def _is_part(of: Block, flow: BlockFlow) -> bool:
    """Whether a block reduces parts of rows in lanes: its last axes are vectors side by side and
    lanes, and whoever joins the vectors reads one after another."""
    if not is_reduction(of) or _spatial(of) < 2 or of is flow.result:
        return False
    buffer = made_by(of)
    found = [e for one in flow.readers.get(buffer, ()) for e in reads(one) if e.buffer is buffer]
    return bool(found) and known(buffer.shape[-1]) != 1 and all(
        isinstance(each.indices[-2], Lit) for each in found
    )  # fmt: skip


def _lanes(every: Sequence[Block], parts: Sequence[Block], around: int) -> list[Block]:
    """The blocks whose elements are lanes of parts, which are joined step by step."""
    found = [*parts]
    for each in every:
        made = {made_by(one) for one in found}
        if _spatial(each) > around and any(load.buffer in made for load in reads(each)):
            found.append(each)
    return found


def _within_row(of: Handle, was: Block, outside: int, *, kept: bool) -> Body:
    """The loops of a block inside that over rows: those of one iteration are gone.

    What is a row of its own is `kept` in memory, all else in registers.
    """
    long = [kind for kind, size in zip(was.kinds, was.extents, strict=True) if known(size) != 1]
    there = long[sum(known(size) != 1 for size in was.extents[:outside]) :]
    if not kept or not there:
        yield set_scope(of, 0, "local")
    if not there:
        return
    every: tuple[Handle, ...] = yield loops(of)
    inside = every[len(every) - len(there) :]
    spatial = [each for each, kind in zip(inside, there, strict=True) if kind == "spatial"]
    terms = [each for each, kind in zip(inside, there, strict=True) if kind == "reduce"]
    if spatial and terms:
        yield reorder(*terms, *spatial)
    if terms:
        begun = yield decompose_reduction(of, terms[0])
        if spatial:
            every = yield loops(begun)
            yield from _vectors(every[len(every) - len(spatial) :])
    if spatial:
        yield from _vectors(spatial)
        if kept:
            yield from _fetched(spatial[-1], was)


def _fetched(of: Handle, was: Block) -> Body:
    """While a long row is worked on, the next one comes nearer."""
    length = known(was.extents[-1]) or 0
    if length >= LONG:
        yield annotate(of, "fetch", length)


def _vectors(of: Sequence[Handle]) -> Body:
    *many, last = of
    for each in many:
        yield unroll(each)
    yield vectorize(last)
