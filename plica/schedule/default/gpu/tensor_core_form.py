"""Forms for tensor cores: products of f16 or bf16, summed in f32, their sizes in digits.

    left[by, q, s, wm, i, half, h, g, e]            slices of rows; e are terms, g rows
    right[bx, q, s, wn, j, h, t, pair, e]           slices of columns (t, pair)
    part[by, wm, i, half, g, bx, wn, j, t, pair]    sum over q, s, h, e of left * right
    out[m, n]                                       what is done to each sum

Where rows or columns, not terms, are neighbours in memory, they come last: eight neighbours are
fetched at once.  Only products whose sizes are multiples of the tile's are in this form.

>>> from plica.ir.tensor import buffer, compute, reduce
>>> x, w = buffer("x", (128, 64), f16), buffer("w", (64, 128), f16)
>>> dense = compute(
...     (x, w), (128, 128),
...     lambda m, n: reduce("sum", (64,), lambda k: Cast(x[m, k], f32) * Cast(w[k, n], f32)),
... )
>>> found = tensor_core_form(Work(dense), Warps())
>>> found.along, found.sizes
((True, False), (1, 128, 128, 64))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from attrs import evolve

from plica.core.fold import map_bottom_up, post_order
from plica.core.name import Name, fresh
from plica.core.term import Term
from plica.ir.define import define
from plica.ir.dtype import DType, bf16, f16, f32, i64
from plica.ir.scalar import (
    Buffer,
    Cast,
    Load,
    Mul,
    Reduce,
    Scalar,
    ScalarVar,
    dtype_of,
    index,
)
from plica.ir.stage import Each
from plica.schedule.default.contraction import Contraction, Work, bared, contraction
from plica.schedule.default.gpu.form import ProductForm, digits
from plica.schedule.default.gpu.tensor_core import Warps

NARROW: Final = (f16, bf16)
"""What tensor cores multiply."""


def tensor_core_form(of: Work, warps: Warps) -> ProductForm | None:
    """The form of a product, None for work that is none, or that tiles do not divide."""
    found, narrow = _widened(of)
    if found is None or found.weight is None or found.combiner != "sum" or found.guarded:
        return None
    if len(found.axes) != 2 or found.shared or found.reduced.dtype is not f32:
        return None
    if any(len(axes) != 1 for axes in (found.lanes, found.pixels, found.terms)):
        return None
    if any(side.buffer not in narrow for side in (found.data, found.weight)):
        return None
    if len({narrow[side.buffer].dtype for side in (found.data, found.weight)}) > 1:
        return None
    sides = (found.data, found.weight)
    if found.axes[0] in found.lanes:
        sides = (found.weight, found.data)
    (term,) = found.terms
    sizes = tuple([found.sizes[each] for each in (*found.axes, term)])
    if any(size % step for size, step in zip(sizes, warps.tile, strict=True)):
        return None
    plain = [{*side.indices} == {axis, term} for side, axis in zip(sides, found.axes, strict=True)]
    return _formed(found, sides, narrow, warps) if all(plain) else None


def _widened(of: Work) -> tuple[Contraction | None, dict[Buffer, Buffer]]:
    """The contraction of the same work on inputs of f32, where narrow ones are but read and cast.

    With it, which buffer each of those stands for.
    """
    given = of.compute.inputs
    twins = {each: Buffer(each.name, each.shape, f32) for each in given if each.dtype in NARROW}

    def change(node: Term) -> Term:
        match node:
            case Cast(Load(buffer, indices), dtype) if dtype is f32 and buffer in twins:
                return Load(twins[buffer], indices)
            case _:
                return node

    body = map_bottom_up(change, of.compute.body)
    assert isinstance(body, Scalar)
    others = [body] if of.value is None else [body, of.value]
    kept = {node.buffer for node in post_order(*others) if isinstance(node, Load)}
    if not kept.isdisjoint(twins):
        return None, {}
    inputs = tuple([twins.get(each, each) for each in given])
    wide = evolve(of, compute=evolve(of.compute, inputs=inputs, body=body))
    return contraction(bared(wide)), {twin: each for each, twin in twins.items()}


def _formed(
    of: Contraction, sides: tuple[Load, Load], narrow: Mapping[Buffer, Buffer], warps: Warps
) -> ProductForm:
    inputs = tuple([narrow.get(each, each) for each in of.inputs])
    used = {each.name for each in (*inputs, of.reduced)} | {each.name for each in of.sizes}
    (term,) = of.terms
    places, wholes, extent = list[list[ScalarVar]](), [], dict[ScalarVar, int]()
    digit: dict[str, ScalarVar] = {}
    for words, steps, axis in zip(warps.words, warps.digits, (*of.axes, term), strict=True):
        own = [ScalarVar(_name(word, used), i64) for word in words]
        count = of.sizes[axis]
        for step in steps:
            count //= step
        extent |= dict(zip(own, (count, *steps), strict=True))
        digit |= dict(zip(words, own, strict=True))
        whole: Scalar = own[0]
        for each, step in zip(own[1:], steps, strict=True):
            whole = whole * step + each
        places.append(own)
        wholes.append(whole)
    where: dict[Term, Scalar] = dict(zip((*of.axes, term), wholes, strict=True))
    along = (sides[0].indices[-1] is term, sides[1].indices[-1] is term)
    rows, columns = (tuple([digit[word] for word in words]) for words in warps.order(along))
    both = (*places[0], *places[1])

    def made(like: str, axes: tuple[ScalarVar, ...], dtype: DType) -> Buffer:
        return Buffer(_name(like, used), tuple([index(extent[each]) for each in axes]), dtype)

    left, right, part = (
        made("left", rows, narrow[sides[0].buffer].dtype),
        made("right", columns, narrow[sides[1].buffer].dtype),
        made("part", both, f32),
    )
    gathered: list[Scalar] = []
    for side in sides:
        at = [where[each] for each in side.indices]
        gathered.append(Load(narrow[side.buffer], tuple(at)))
    product = Mul(Cast(Load(left, rows), f32), Cast(Load(right, columns), f32))
    counts = tuple([index(extent[each]) for each in places[2]])
    shape = tuple([index(of.sizes[each]) for each in of.axes])
    m, n = of.axes
    result = Load(part, (*digits(m, warps.digits[0]), *digits(n, warps.digits[1])))

    def finished(node: Term) -> Term:
        match node:
            case Load(buffer) if buffer is of.reduced:
                return result
            case Load(buffer, indices) if buffer in narrow:
                return Cast(Load(narrow[buffer], indices), f32)
            case _:
                return node

    value = map_bottom_up(finished, of.value)
    assert isinstance(value, Scalar)
    out = Buffer(_name("out", used), shape, dtype_of(value))
    stages = [
        Each(left, rows, gathered[0]),
        Each(right, columns, gathered[1]),
        Each(part, both, Reduce("sum", tuple(places[2]), counts, product)),
        Each(out, of.axes, value),
    ]
    kernel = define(*stages, inputs=inputs, outputs=(out,))
    sizes = (1, of.sizes[m], of.sizes[n], of.sizes[term])
    return ProductForm(kernel, sizes, tuple([str(each.out.name) for each in stages]), along)


def _name(like: str, used: set[Name]) -> Name:
    found = fresh(Name(like), used)
    used.add(found)
    return found
