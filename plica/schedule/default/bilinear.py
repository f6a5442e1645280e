"""The form of bilinear algorithms: a window sum as a product of transformed tiles (Winograd).

    padded    x with its border, channels last                        padded[n, h, w, c]
    columns   B x          of each tile, its columns first            columns[n, i, j, tile, c]
    data      (B x) Bᵀ     then its rows; p = i * span + j            data[n, p, tile, c]
    product   sum over c   a matrix product for each place of a tile  product[n, p, tile, o]
    half      A product    of each tile, its columns first            half[n, i, j, tile, o]
    image     … Aᵀ         then its rows, at their places             image[n, h, w, o]
    out       f(image)     channels where they belong                 out[n, o, h, w]

An algorithm is given by its matrices, as data.  The stages are plain maps and one sum, which a
template schedules (`plica.schedule.default.bilinear_schedule`); rows of a transform are one stage
whose value is chosen by the number of the row, without products by zero.  The transformed weight is
packed once, when it is known.

>>> from plica.ir.loop.tensor import buffer
>>> from plica.ir.op.winograd import conv_winograd
>>> x, w = buffer("x", (1, 32, 8, 8), f32), buffer("w", (36, 32, 32), f32)
>>> of = conv_winograd.compute({"tile": 4, "padding": 1}, x, w)
>>> conv = Each(buffer("y", of.shape, f32), of.axes, of.body)
>>> form = bilinear_form(stages((x, w), (conv,)), Facts((False, True)), Machine(512, 32))
>>> [f"{each.out.name} {[size.value for size in each.out.shape]}" for each in form.stages[-3:]]
['half [1, 4, 6, 4, 32]', 'image [1, 8, 8, 32]', 'y [1, 32, 8, 8]']
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from plica.ir.loop.scalar import Le, Lit, Load, Lt, Scalar, index
from plica.ir.loop.stage import Each, stage
from plica.ir.loop.stages import Names, Stages, loads, pairs, stages, with_element
from plica.ir.loop.tensor import reduce
from plica.ir.op.winograd import Matrix, chosen
from plica.ir.type.dtype import f32, f64
from plica.schedule.default.form import where
from plica.schedule.default.machine import LINE, Machine
from plica.schedule.default.transform import products
from plica.schedule.default.winograd_plan import (
    AnyWinograd,
    extents_of,
    found_open,
    padded_grid,
    planned,
)
from plica.schedule.form import Facts


def bilinear_form(of: Stages, facts: Facts, machine: Machine) -> Stages | None:
    """The stages of a Winograd convolution of static size, or None for other stages, unknown
    weights, or channels that fill no vectors."""
    parts = winograd_parts(of, facts)
    if parts is None:
        return None
    fold, epilogue, work = parts
    exact = extents_of(work, fold)
    if exact is None:
        return None
    extents = padded_grid(exact, machine)
    plan = planned(extents, machine)
    if plan is None:
        return None
    names = Names(of)
    matrices, batch, tiles = work.of, work.batch, extents.tiles[0] * extents.tiles[1]
    span, size, across = extents.span, extents.size, extents.tiles[1]
    high, wide = (count * size for count in extents.tiles)
    # A stream of vectors: those that are no lines of a cache by themselves lie side by side.
    is_line = plan.outer * extents.dtype.bytes >= LINE
    lanes = plan.outer if is_line else plan.outer * plan.tile.vectors

    def name(hint: str) -> str:
        return str(names.name(hint))

    packed = stage(
        name("packed"),
        (span**2, extents.outputs // lanes, extents.channels, lanes),
        lambda p, g, c, v: Load(work.weight, (p, c, g * lanes + v)),
    )
    padded = stage(
        name("padded"),
        (batch, high + span - size, wide + span - size, extents.channels),
        lambda n, h, w, c: _padded(work, (high, wide), n, h, w, c),
    )
    columns = stage(
        name("columns"),
        (batch, span, span, tiles, extents.channels),
        lambda n, i, j, t, c: _row(
            matrices.data, i, lambda k: padded[n, t // across * size + k, t % across * size + j, c]
        ),
    )
    data = stage(
        name("data"),
        (batch, span**2, tiles, extents.channels),
        lambda n, p, t, c: _row(matrices.data, p % span, lambda k: columns[n, p // span, k, t, c]),
    )
    product = stage(
        name("product"),
        (batch, span**2, tiles, extents.outputs),
        lambda n, p, t, o: reduce(
            "sum",
            (extents.channels,),
            lambda c: data[n, p, t, c] * packed[p, o // lanes, c, o % lanes],
        ),
    )
    half = stage(
        name("half"),
        (batch, size, span, tiles, extents.outputs),
        lambda n, i, j, t, o: _row(matrices.result, i, lambda k: product[n, k * span + j, t, o]),
    )
    image = stage(
        name("image"),
        (batch, high, wide, extents.outputs),
        lambda n, h, w, o: _row(
            matrices.result,
            w % size,
            lambda k: half[n, h % size, k, h // size * across + w // size, o],
        ),
    )
    out = _finished(fold, epilogue, lambda n, o, h, w: image[n, h, w, o])
    return stages(of.inputs, (packed, padded, columns, data, product, half, image, out))


def winograd_parts(of: Stages, facts: Facts) -> tuple[Each, Each | None, AnyWinograd] | None:
    """The Winograd convolution stage, its epilogue and its parameters, or None if there is none or
    the weight is unknown."""
    if not all(isinstance(each, Each) for each in of.stages):
        return None
    every = pairs(of)
    if len(every) != 1:
        return None
    ((fold, epilogue),) = every
    work = found_open(fold)
    if work is None or work.x.dtype not in (f32, f64):
        return None
    return (fold, epilogue, work) if facts.constant[of.inputs.index(work.weight)] else None


def _row(matrix: Matrix, at: Scalar, read: Callable[[Scalar], Scalar]) -> Scalar:
    """The element of a matrix times a vector whose number is `at`: a choice, which is made where
    the loop is written out."""
    return chosen(at, products(matrix, [read(index(k)) for k in range(len(matrix[0]))]))


def _padded(  # noqa: PLR0917  # four are the place
    of: AnyWinograd, tiled: Sequence[int], n: Scalar, h: Scalar, w: Scalar, c: Scalar
) -> Scalar:
    """An element of the data with its border, from the first tile to the end of the last."""
    places: list[Scalar] = []
    inside: list[Scalar] = []
    for place, before, size, end in zip((h, w), of.before, of.x.shape[2:], tiled, strict=True):
        places.append(place - before)
        if before:
            inside.append(Le(index(before), place))
        last = size + before
        if not isinstance(last, Lit) or last.value < end + of.of.span - of.of.size:
            inside.append(Lt(place, last))
    return where(inside, Load(of.x, (n, c, *places)), Lit(0, of.x.dtype))


def _finished(fold: Each, epilogue: Each | None, read: Callable[..., Scalar]) -> Each:
    """The last stage: the epilogue of each result, read from its new place."""
    if epilogue is None:
        return Each(fold.out, fold.axes, read(*fold.axes))
    (load,) = [each for each in loads(epilogue.value) if each.buffer is fold.out]
    value = with_element(epilogue.value, fold.out, read(*load.indices))
    return Each(epilogue.out, epilogue.axes, value)
