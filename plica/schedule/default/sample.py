"""Subsampling: strided data of a convolution by one pixel, gathered into a dense buffer.

    x[c, 2 * i, 2 * j] * w[o, c]  -->  sampled[c, p] = x[c, 2 * (p // W), 2 * (p % W)]
                                       sampled[c, p] * w[o, c]

The last two axes of the copy can then be merged, as those of unstrided data (`merged`).

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import stages
>>> from plica.ir.loop.tensor import buffer, reduce
>>> from plica.schedule.default.contraction import contraction
>>> x, w = buffer("x", (8, 10, 12), f32), buffer("w", (4, 8), f32)
>>> halved = stage("y", (4, 5, 6), lambda o, i, j: reduce(
...     "sum", (8,), lambda c: x[c, i * 2, j * 2] * w[o, c]))
>>> copy, found = sampled(contraction(stages((x, w), (halved,))))
>>> [known(size) for size in copy.out.shape], [found.sizes[each] for each in found.axes]
([8, 30], [4, 30])
>>> row_length(copy.value)
6
"""

from __future__ import annotations

from math import prod

from attrs import evolve

from plica.core import free_vars, post_order, substitute
from plica.ir.loop import Block, Buffer, Each, Lit, Load, Scalar, Store, index
from plica.ir.loop.scalar import FloorDiv
from plica.ir.type import known
from plica.schedule.default.contraction import Contraction, merged
from plica.schedule.default.form import elements, names_of


def sampled(of: Contraction) -> tuple[Each, Contraction] | None:
    """The gathering stage and the contraction of its result; None if elements would be copied
    twice, or it does not apply."""
    if of.weight is None or of.guarded or len(of.axes) < 2:
        return None
    i, j = of.axes[-2:]
    mine = free_vars(of.data)
    around = [var for var in (*of.axes[:-2], *of.k) if var in mine]
    sizes = [of.sizes[var] for var in (*around, i, j)]
    if j not in of.m or prod(sizes) > elements(of.data.buffer):
        return None
    names = names_of(of)
    shape = tuple([index(size) for size in sizes])
    dense = Buffer(names.name("sampled"), shape, of.data.buffer.dtype)
    if (contraction := merged(evolve(of, data=Load(dense, (*around, i, j))))) is None:
        return None
    own = {var: names.var("a") for var in around}
    column = names.var("q")
    width = of.sizes[j]
    value = substitute(of.data, {**own, i: column // width, j: column % width})
    return Each(contraction.data.buffer, (*own.values(), column), value), contraction


def row_length(of: Scalar) -> int | None:
    """The row length by which the value of a gathering stage divides its merged axis, if any."""
    for node in post_order(of):
        if isinstance(node, FloorDiv) and isinstance(node.right, Lit):
            return known(node.right)
    return None


def is_sample(of: Block) -> bool:
    """Whether a block gathers subsampled data."""
    return isinstance(of.body, Store) and row_length(of.body.value) is not None
