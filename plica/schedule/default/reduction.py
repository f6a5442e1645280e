"""Reductions along rows: lanes reduce parts of a row, and these are joined in the end.

    out[i] = sum over k of f(x[i, k])
      -->  part[i, u, v]  = sum over h of f(x[i, (h * 4 + u) * 16 + v])      vectors
           joined[i, v]   = sum over u of part[i, u, v]                      vectors
           total[i]       = sum over v of joined[i, v]
           rest[i]        = sum over t of f(x[i, 1024 + t])                  what fills no vector
           out[i]         = total[i] + rest[i]

Terms are joined in another order than they come: only for those who allow that.

>>> from plica.ir.loop import Block, statements
>>> from plica.ir.tensor import buffer, compute, reduce
>>> x = buffer("x", (4, 100), f32)
>>> total = compute((x,), (4,), lambda i: reduce("sum", (100,), lambda k: x[i, k]))
>>> kernel = row_form(Work(total), Machine(512, 32)).kernel
>>> [str(each.label) for each in statements(kernel.body) if isinstance(each, Block)]
['rest', 'part', 'joined', 'total', 'out']
"""

from __future__ import annotations

from math import prod

from plica.core.binding import free_vars, substitute
from plica.core.fold import map_bottom_up, post_order
from plica.core.name import Name, fresh
from plica.core.term import Term
from plica.ir.combiner import MEANING
from plica.ir.define import define
from plica.ir.dim import known, polynomial
from plica.ir.dtype import f32, f64, i64
from plica.ir.loop import Kernel
from plica.ir.scalar import Buffer, Load, Reduce, Scalar, ScalarVar, dtype_of, index
from plica.ir.stage import Each
from plica.schedule.default.contraction import Work, stored_in_place
from plica.schedule.default.form import Formed
from plica.schedule.default.machine import Machine
from plica.schedule.do import Block as Do
from plica.schedule.do import Body, do
from plica.schedule.handle import Handle
from plica.schedule.primitive import (
    block,
    compute_at,
    decompose_reduction,
    loops,
    reorder,
    reverse_compute_at,
    set_scope,
    unroll,
    vectorize,
)
from plica.schedule.site import map_of

AT_ONCE = 4
"""Vectors that are under way at once, at most."""

SHORTEST = 2
"""A row of fewer vectors is not worth them."""


def row_form(of: Work, machine: Machine) -> Formed | None:
    """The kernel of a reduction along rows, None where it is none."""
    compute, body = of.compute, of.compute.body
    if not isinstance(body, Reduce) or dtype_of(body) not in (f32, f64) or not compute.axes:
        return None
    shape = [known(size) for size in (*compute.shape, *body.extents)]
    if any(not size for size in shape) or not _is_row(body):
        return None
    length = known(body.extents[-1]) or 0
    lanes = machine.lanes(dtype_of(body))
    count = length // lanes
    if count < SHORTEST or (of.value is not None and not stored_in_place(of)):
        return None
    many = next(each for each in range(AT_ONCE, 0, -1) if count % each == 0)
    return _formed(of, body, (count, many, lanes), length)


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


def _formed(of: Work, body: Reduce, parts: tuple[int, int, int], length: int) -> Formed:
    count, many, lanes = parts
    compute, dtype = of.compute, dtype_of(body)
    used = {each.name for each in (*compute.inputs, *([] if of.reduced is None else [of.reduced]))}
    used |= {each.name for each in post_order(compute) if isinstance(each, ScalarVar)}

    def name(like: str) -> Name:
        found = fresh(Name(like), used)
        used.add(found)
        return found

    h, u, v, t = (ScalarVar(name(each), i64) for each in "huvt")
    term, axes, sizes = body.axes[-1], compute.axes, compute.shape
    _, join = MEANING[body.combiner]

    def at(place: Scalar) -> Scalar:
        found = substitute(body.body, {term: place})
        assert isinstance(found, Scalar)
        return found

    part = Each(
        Buffer(name("part"), (*sizes, index(many), index(lanes)), dtype),
        (*axes, u, v),
        Reduce(
            body.combiner,
            (*body.axes[:-1], h),
            (*body.extents[:-1], index(count // many)),
            at((h * many + u) * lanes + v),
        ),
    )
    stages = [part]
    last = Load(part.out, (*axes, index(0), v))
    if many > 1:
        joined = Reduce(body.combiner, (u,), (index(many),), Load(part.out, (*axes, u, v)))
        stages.append(
            Each(Buffer(name("joined"), (*sizes, index(lanes)), dtype), (*axes, v), joined)
        )
        last = Load(stages[-1].out, (*axes, v))
    total = Reduce(body.combiner, (v,), (index(lanes),), last)
    stages.append(Each(Buffer(name("total"), sizes, dtype), axes, total))
    value: Scalar = Load(stages[-1].out, axes)
    if count * lanes < length:
        left = Reduce(
            body.combiner,
            (*body.axes[:-1], t),
            (*body.extents[:-1], index(length - count * lanes)),
            at(t + count * lanes),
        )
        stages.insert(0, Each(Buffer(name("rest"), sizes, dtype), axes, left))
        value = join(value, Load(stages[0].out, axes))
    if of.value is not None:

        def filled(node: Term) -> Term:
            return value if isinstance(node, Load) and node.buffer is of.reduced else node

        whole = map_bottom_up(filled, of.value)
        assert isinstance(whole, Scalar)
        value = whole
    out = Buffer(name("out"), sizes, dtype_of(value))
    stages.append(Each(out, axes, value))
    kernel = define(*stages, inputs=compute.inputs, outputs=(out,))
    return Formed(kernel, (), ())


def row_schedule(kernel: Kernel) -> Do | None:
    """The schedule of such a kernel."""
    blocks = map_of(kernel).blocks
    found = blocks.get(Name("part"))
    if found is None or Name("total") not in blocks:
        return None
    kinds = found.node.kinds
    around = kinds.count("spatial") - 2
    extents = found.node.extents
    single = prod([known(each) or 0 for each in extents[around : around + 1]]) == 1

    @do
    def schedule() -> Body:
        part = yield block("part")
        every: tuple[Handle, ...] = yield loops(part)
        rows, u, v, terms = every[:around], every[around], every[around + 1], every[around + 2 :]
        yield reorder(*rows, *terms, u, v)
        several = [] if single else [(yield block("joined"))]
        total = yield block("total")
        out = yield block("out")
        rest = [(yield block("rest"))] if Name("rest") in blocks else []
        for each in (*several, total, out):
            yield reverse_compute_at(each, rows[-1])
        for each in rest:
            yield compute_at(each, rows[-1])
        for each in (part, *several, total, *rest):
            yield set_scope(each, 0, "local")
        begun = yield decompose_reduction(part, terms[0])
        yield from _vectors(begun, around)
        yield unroll(u)
        yield vectorize(v)
        for each in several:
            every = yield loops(each)
            lanes, many = every[-2:]
            yield reorder(many, lanes)
            begun = yield decompose_reduction(each, many)
            yield from _vectors(begun, around)
            yield unroll(many)
            yield vectorize(lanes)
        every = yield loops(total)
        begun = yield decompose_reduction(total, every[-1])
        yield unroll(every[-1])

    return schedule()


def _vectors(of: Handle, outside: int) -> Body:
    every: tuple[Handle, ...] = yield loops(of)
    *many, last = every[outside:]
    for each in many:
        yield unroll(each)
    yield vectorize(last)
