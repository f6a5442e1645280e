"""Random contractions: products, windows, pools, products of bytes, and Winograd's tiles.

product      sums of products with batch, M, N and K axes, sides and axes in any order
window       convolutions: strides, dilation, guards, groups, or a channel by itself
pool         windows without a weight: max, min, sum
quantised    products and windows of bytes, with zero points
few bits     products by weights of few bits, with scales of groups
coded        products by weights that are unpacked from blocks of bytes
winograd     convolutions by tiles
"""

from __future__ import annotations

from math import prod

import numpy as np
from attrs import evolve
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from plica.core import Name, substitute
from plica.ir.contract import approx
from plica.ir.loop.scalar import BitAnd, Buffer, Cast, Lit, Load, Scalar, Select, ShiftRight
from plica.ir.loop.stage import Each, placeholder
from plica.ir.loop.tensor import Compute
from plica.ir.op.bitserial import packed_dense
from plica.ir.op.winograd import TILES, conv_winograd
from plica.ir.type import DType, f16, f32, f64, i8, i32, u8
from plica.schedule.generate.stages import case as cases


@st.composite
def products(
    draw: DrawFn,
    layouts: tuple[str, ...] = ("any", "rows"),
    dtypes: tuple[DType, ...] = cases.FLOATS,
    least: int = cases.LEAST,
) -> cases.StagesCase:
    """out = sum over K of x[B, M, K] * w[B, N, K], all axes and sides in any order."""
    layout = draw(st.sampled_from(layouts))
    counts = [draw(st.sampled_from(each)) for each in ((0, 0, 1), (1, 1, 2), (1, 1, 1, 0), (1, 2))]
    axes = cases.Axes()
    sizes = draw(st.permutations(cases.axis_sizes(draw, sum(counts))))
    parts = [sizes[sum(counts[:n]) : sum(counts[: n + 1])] for n in range(4)]
    if parts[2] and layout != "any":
        parts[2][-1] = draw(st.sampled_from((8, 12, 16, 24, 33)))
    if layout == "octets":
        most = 4 * least
        eights = iter(cases.axis_sizes(draw, sum(counts[1:]), most, (8, 16, 24)))
        parts[1:] = [[next(eights) for _ in part] for part in parts[1:]]
        room = most // prod(map(prod, parts[1:]))
        parts[0] = [min(size, room) for size in parts[0]]
    if prod(map(prod, parts)) < least:  # one axis grows, so that there is enough to do
        grown = parts[draw(st.integers(1, 3))] or parts[1]
        grown[-1] *= -(-least // prod(map(prod, parts)))
    batch, rows, columns, terms = ([axes(size) for size in part] for part in parts)
    dtype = draw(st.sampled_from(dtypes))
    names = draw(st.sampled_from((("x", "w"), ("w", "x"), ("sum", "out"), ("packed", "pad"))))
    orders = [[*batch, *rows, *terms], [*batch, *columns, *terms], [*batch, *rows, *columns]]
    if layout == "columns":
        orders[0], orders[2] = [*batch, *terms, *rows], [*batch, *columns, *rows]
    if layout == "any":
        orders = [draw(st.permutations(order)) for order in orders]
    x, w = (axes.read(name, order, dtype) for name, order in zip(names, orders[:2], strict=True))
    wide = dtype is f16 and draw(st.sampled_from((True, True, False)))
    left, right = (Cast(x, f32), Cast(w, f32)) if wide else (x, w)
    sides = draw(st.sampled_from(((left, right), (right, left))))
    fold = axes.stage("y0", orders[2], axes.reduced("sum", terms, sides[0] * sides[1]))
    after, more = cases.followed(draw, axes, fold, columns or rows)
    inputs = [x.buffer, w.buffer, *more]
    return cases.case(draw, inputs, after, weights=(0,) if not columns else (1,))


@st.composite
def windows(draw: DrawFn, kind: str = "all", least: int = cases.LEAST) -> cases.StagesCase:
    """Convolutions: of all channels, in groups, or each channel by itself; guarded where padded."""
    padded = draw(st.booleans())
    axes = cases.Axes()
    dtype = draw(st.sampled_from((f32, f32, f64)))
    one = draw(st.booleans())  # a single axis of places
    lengths = st.sampled_from((3, 5, 7, 1, 2)) if kind == "single" else st.integers(1, 3)
    taps = [1, draw(lengths)] if one else [draw(lengths) for _ in range(2)]
    out = [1 if one else draw(st.integers(1, 8)), draw(st.sampled_from((1, 5, 8, 16, 21, 37)))]
    batch = axes(draw(st.sampled_from((1, 1, 2))))
    channels = draw(st.sampled_from((1, 2, 3, 6, 8)))
    outputs = draw(st.sampled_from((1, 4, 6, 8, 16, 20)))
    groups = draw(st.integers(2, 3)) if kind == "groups" else 1
    count = axes.sizes[batch] * prod(out) * prod(taps) * channels
    channels *= -(-least // (count * (2 if kind == "single" else groups * outputs)))
    parts = [cases.window_place(draw, axes, o, t, padded) for o, t in zip(out, taps, strict=True)]
    high, wide = (part[3] for part in parts)
    o, c = axes(groups * outputs if kind != "single" else channels * 2), axes(channels)
    spots = [parts[0][2], parts[1][2]]
    window = [parts[0][1], parts[1][1]]
    if kind == "single":
        data = Load(placeholder("x", (axes.sizes[batch], axes.sizes[o], high, wide), dtype), (
            batch, o, *spots))  # fmt: skip
        weight = axes.read("w", (o, *window), dtype)
        terms = window
    else:
        at: Scalar = c if groups == 1 else o // outputs * channels + c
        shape = (axes.sizes[batch], groups * channels, high, wide)
        data = Load(placeholder("x", shape, dtype), (batch, at, *spots))
        weight = axes.read("w", (o, c, *window), dtype)
        terms = [c, *window]
    total = axes.reduced("sum", terms, cases.guarded(data, padded, Lit(0, dtype)) * weight)
    fold = axes.stage("y0", (batch, o, parts[0][0], parts[1][0]), total)
    after, more = cases.followed(draw, axes, fold, (o,))
    return cases.case(draw, [data.buffer, weight.buffer, *more], after, weights=(1,))


@st.composite
def pools(draw: DrawFn) -> cases.StagesCase:
    """Windows without a weight."""
    join = cases.combiner(draw, "max", "min", "sum")
    padded, dtype = draw(st.booleans()), draw(st.sampled_from((f32, f32, f64)))
    axes = cases.Axes()
    first = [axes(draw(st.sampled_from((1, 2)))), axes(draw(st.sampled_from((1, 3, 8))))]
    parts = [
        cases.window_place(
            draw, axes, draw(st.sampled_from(sizes)), draw(st.integers(1, 3)), padded
        )
        for sizes in ((1, 4, 7), (5, 16, 21, 40))
    ]
    shape = (*axes.shape(first), *[part[3] for part in parts])
    load = Load(placeholder("x", shape, dtype), (*first, *[part[2] for part in parts]))
    start = {"max": -np.inf, "min": np.inf, "sum": 0}[join]
    total = axes.reduced(
        join, [p[1] for p in parts], cases.guarded(load, padded, Lit(start, dtype))
    )
    fold = axes.stage("y0", (*first, *[part[0] for part in parts]), total)
    after, more = cases.followed(draw, axes, fold, first[1:])
    return cases.case(draw, [load.buffer, *more], after)


@st.composite
def quantised(draw: DrawFn) -> cases.StagesCase:
    """Products and windows of bytes, moved by zero points that are known or given."""
    axes = cases.Axes()
    data, weights = draw(st.sampled_from((u8, i8))), draw(st.sampled_from((i8, u8, i32)))
    zero = draw(st.sampled_from(("none", "known", "given")))
    m, n, k = draw(st.integers(1, 17)), draw(st.integers(2, 35)), draw(st.integers(1, 40))
    if draw(st.integers(0, 3)) == 0:  # rows and terms of tiles
        m, n, k = draw(st.integers(8, 40)), draw(st.integers(2, 20)), draw(st.integers(48, 70))
    k = max(k, -(-cases.LEAST // (m * n)))
    padded = False
    if draw(st.booleans()):
        i, o, c = axes(m), axes(n), axes(k)
        x = axes.read("x", (i, c), data)
        w = axes.read("w", draw(st.permutations((o, c))), weights)
        out, terms = [i, o], [c]
    else:
        padded = draw(st.booleans())
        o, c = axes(n), axes(max(2, -(-k // 3)))
        i, tap, place, size, _ = cases.window_place(draw, axes, m, draw(st.integers(1, 3)), padded)
        x = Load(placeholder("x", (axes.sizes[c], size), data), (c, place))
        w = axes.read("w", (o, c, tap), weights)
        out, terms = [o, i], [c, tap]
    inputs = [x.buffer, w.buffer]
    left: Scalar = Cast(x, i32)
    match zero:
        case "known":
            left = left + Lit(draw(st.sampled_from((-3, -128, 5, 127))), i32)
        case "given":
            at = axes.read("zero", (), data)
            inputs.append(at.buffer)
            left = left - Cast(at, i32)
        case _:
            pass
    if padded:
        border = cases.guarded(x, padded, Lit(0, data))
        assert isinstance(border, Select)
        left = Select(border.condition, left, Lit(0, i32))
    right: Scalar = w if weights is i32 else Cast(w, i32)
    if weights is u8:
        right = right + Lit(-128, i32)
    fold = axes.stage("y0", out, axes.reduced("sum", terms, left * right))
    after, more = cases.followed(draw, axes, fold, (o,))
    small = (1,) if weights is i32 else ()
    return cases.case(draw, [*inputs, *more], after, weights=(1,), fits_i8=small, whole=True)


@st.composite
def few_bits(draw: DrawFn) -> cases.StagesCase:
    """Products with grouped 2-, 4- or 8-bit weights, and their epilogues."""
    axes, bits = cases.Axes(), draw(st.sampled_from((2, 4, 8)))
    m, words = draw(st.integers(1, 3)), draw(st.sampled_from((1, 2, 24)))
    groups = draw(st.integers(1, 3)) if words < 24 else 1
    n = draw(st.integers(1, max(2, cases.MOST // 4 // (m * groups * words * 32 // bits))))
    i, o = axes(m), axes(n)
    x = placeholder("x", (m, groups * words * 32 // bits), f32)
    w, scale = placeholder("w", (n, groups * words), i32), placeholder("scale", (n, groups), f32)
    zero = placeholder("zero", (n, groups), draw(st.sampled_from((u8, f32))))
    assert packed_dense.compute is not None
    of = packed_dense.compute({"bits": bits}, x, w, scale, zero)
    assert isinstance(of, Compute)
    value = substitute(of.body, dict(zip(of.axes, (i, o), strict=True)))
    after, more = cases.followed(draw, axes, axes.stage("y0", (i, o), value), (o,))
    made = cases.case(draw, [x, w, scale, zero, *more], after, weights=(1, 2, 3), near=1e-4)
    low, high = i32.bounds
    drawn = np.random.default_rng(bits).integers(low, high, cases.shape_of(w), endpoint=True)
    made.arrays[1] = drawn.astype(np.int32)
    return evolve(made, facts=evolve(made.facts, contract=approx(1e-3)))


@st.composite
def coded(draw: DrawFn) -> cases.StagesCase:
    """Products by nibbles of blocks of bytes, the first of which is their scale."""
    axes, width = cases.Axes(), draw(st.sampled_from((4, 8, 16, 32)))
    # Unpacked for a few rows, or once for all, which may be whole vectors.
    m = draw(st.integers(1, 3) | st.sampled_from((16, 17, 32)))
    blocks, block = draw(st.integers(1, 3)), 2 * width
    n = draw(st.integers(1, max(2, cases.MOST // 4 // (m * blocks * block))))
    i, o, k = axes(m), axes(n), axes(blocks * block)
    x, w = (
        placeholder("x", (m, blocks * block), f32),
        placeholder("w", (n, blocks * (width + 1)), u8),
    )
    start = k // block * (width + 1)
    shift = Cast(k % block // width, i32) * Lit(4, i32)
    number = BitAnd(ShiftRight(Cast(w[o, start + 1 + k % width], i32), shift), Lit(15, i32))
    weight = Cast(w[o, start], f32) * Cast(number - Lit(8, i32), f32)
    fold = axes.stage("y0", (i, o), axes.reduced("sum", (k,), x[i, k] * weight))
    after, more = cases.followed(draw, axes, fold, (o,))
    made = cases.case(draw, [x, w, *more], after, near=1e-4)
    if draw(st.booleans()):
        return evolve(made, facts=evolve(made.facts, contract=approx(1e-3)))
    # Data that is rounded to 8 bits of the greatest of a group loses nothing.
    arrays = [127 * np.sign(array) if array.dtype == np.float32 else array for array in made.arrays]
    return evolve(made, facts=evolve(made.facts, contract=approx(1e-2)), arrays=arrays)


@st.composite
def winograds(draw: DrawFn) -> cases.StagesCase:
    """Convolutions by tiles, whose weights are transformed already."""
    tile = draw(st.sampled_from((2, 4)))
    channels, outputs = draw(st.sampled_from((4, 8))), draw(st.sampled_from((4, 8)))
    size = draw(st.integers(3, 7)), draw(st.integers(3, 7))
    x = placeholder("x", (draw(st.sampled_from((1, 2))), channels, *size), f32)
    w = placeholder("w", ((tile + 2) ** 2, channels, outputs), f32)
    pads = tuple([(draw(st.integers(0, 1)), draw(st.integers(0, 2))) for _ in range(2)])
    assert conv_winograd.compute is not None
    of = conv_winograd.compute({"tile": tile, "padding": pads}, x, w)
    assert isinstance(of, Compute)
    fold = Each(Buffer(Name("y0"), of.shape, f32), of.axes, of.body)
    made = cases.case(draw, [x, w], [fold], weights=(1,), near=1e-4)
    # The operator means a convolution for weights that were transformed, and for no others.
    table = np.array([[float(each) for each in row] for row in TILES[tile].weight])
    taps = cases.numbers(1, (outputs, channels, 3, 3), f32)
    weight = np.einsum("ak,ockl,bl->abco", table, taps, table)
    made.arrays[1] = weight.reshape(cases.shape_of(w)).astype(np.float32)
    return made
