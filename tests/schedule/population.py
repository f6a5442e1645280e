"""Random stages of every kind that forms look for, at sizes nothing divides.

product      sums of products with batch, M, N and K axes, sides and axes in any order
window       convolutions: strides, dilation, guards, groups, or a channel by itself
pool         windows without a weight: max, min, sum
reduction    along any axes, of anything that is read
chain        rows in stages: softmax, norms
elementwise, concat, transpose, quantised (bytes and zero points), winograd
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, Final, cast

import numpy as np
from attrs import frozen
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from plica.core.binding import substitute
from plica.core.name import Name
from plica.ir.dim import known
from plica.ir.dtype import DType, f16, f32, f64, i8, i32, u8
from plica.ir.op.winograd import TILES, conv_winograd
from plica.ir.scalar import (
    And,
    Buffer,
    Cast,
    Combiner,
    Intrinsic,
    Le,
    Lit,
    Load,
    Lt,
    Max,
    Reduce,
    Scalar,
    ScalarVar,
    Select,
    dtype_of,
    index,
)
from plica.ir.stage import Each, placeholder
from plica.ir.stages import Stages, stages
from plica.ir.tensor import Compute, axis
from plica.rewrite.contract import approx, reassociates
from plica.schedule.form import Facts

Array = np.ndarray[Any, Any]

FLOATS: Final = (f32, f32, f32, f64, f16, i32)
SIZES: Final = (1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 20, 32, 48)
LEAST, MOST = 2048, 1 << 14
"""Products of a contraction: fewer have no form, more take too long to interpret."""


@frozen(eq=False)
class Case:
    """Stages, what is known of their inputs, arrays for them, and what an element may be off by."""

    stages: Stages
    facts: Facts
    arrays: list[Array]
    near: float = 0.0

    def __repr__(self) -> str:
        shapes = [
            f"{each.name}: {each.dtype.name}{list(shape_of(each))}" for each in self.stages.inputs
        ]
        return f"{', '.join(shapes)}\n{self.stages}\n{self.facts}"

    def _repr_pretty_(self, printer: Any, _: bool) -> None:
        """What hypothesis shows: stages as they are printed, and no arrays."""
        printer.text(repr(self))


def shape_of(of: Buffer) -> tuple[int, ...]:
    """The sizes of a buffer, all of them known."""
    return tuple([known(size) or 0 for size in of.shape])


def numbers(seed: int, shape: tuple[int, ...], dtype: DType, strange: bool = False) -> Array:
    """Small whole numbers, whose sums are exact in any order; bytes of all kinds."""
    random = np.random.default_rng(seed)
    if dtype in (i8, u8):
        low, high = (int(each) for each in dtype.bounds)
        return random.integers(low, high, shape, endpoint=True).astype(dtype.numpy)
    found = random.integers(-3, 4, shape).astype(dtype.numpy)
    if strange and found.size:
        found.flat[random.integers(found.size)] = np.nan
        found.flat[random.integers(found.size)] = np.inf
    return found


def case(
    draw: DrawFn,
    inputs: Sequence[Buffer],
    of: Sequence[Each],
    *,
    weights: Sequence[int] = (),
    fits_i8: Sequence[int] = (),
    near: float = 0.0,
) -> Case:
    """A case of some stages; inputs that are weights may be known."""
    constant = [number in weights and draw(st.booleans()) for number in range(len(inputs))]
    contract = draw(st.sampled_from((reassociates, approx(1e-3)) if near else (reassociates,)))
    strange = not near and draw(st.sampled_from((False, False, True)))
    arrays = [
        numbers(seed, shape_of(each), each.dtype, strange and each.dtype in (f32, f64))
        for seed, each in enumerate(inputs)
    ]
    for number in fits_i8:
        arrays[number] = numbers(number, shape_of(inputs[number]), i8).astype(np.int32)
    held = tuple([number for number in fits_i8 if constant[number]])
    facts = Facts(tuple(constant), held, contract)
    return Case(stages(inputs, of), facts, arrays, near)


class Axes:
    """Index variables of some sizes, with names of their own."""

    def __init__(self) -> None:
        self.sizes: dict[ScalarVar, int] = {}

    def __call__(self, size: int) -> ScalarVar:
        found = axis("i", len(self.sizes))
        self.sizes[found] = size
        return found

    def shape(self, of: Sequence[ScalarVar]) -> tuple[int, ...]:
        return tuple([self.sizes[each] for each in of])

    def read(self, name: str, of: Sequence[ScalarVar], dtype: DType) -> Load:
        """A load of a buffer of its own, at variables alone."""
        return Load(placeholder(name, self.shape(of), dtype), tuple(of))

    def reduced(self, combiner: Combiner, terms: Sequence[ScalarVar], body: Scalar) -> Reduce:
        extents = tuple([index(size) for size in self.shape(terms)])
        return Reduce(combiner, tuple(terms), extents, body)

    def stage(self, name: str, of: Sequence[ScalarVar], value: Scalar) -> Each:
        out = placeholder(name, self.shape(of), dtype_of(value))
        return Each(out, tuple(of), value)


# --- contractions ---------------------------------------------------------------------------------


def followed(
    draw: DrawFn, axes: Axes, fold: Each, bias: Sequence[ScalarVar]
) -> tuple[list[Each], list[Buffer]]:
    """What is done to each element of a stage, and what that reads."""
    kinds = draw(
        st.lists(st.sampled_from(("bias", "relu", "residual", "cast", "scale")), max_size=3)
    )
    turned = draw(st.sampled_from((False, False, True)))
    if not kinds and not turned:
        return [fold], []
    shuffled: list[ScalarVar] = draw(st.permutations(fold.axes))
    order = tuple(shuffled) if turned else fold.axes
    units = [each for each in fold.axes if axes.sizes[each] == 1 and each not in bias]
    if bool(units) and draw(st.booleans()):  # axes of length 1 that are gone, or new
        order = tuple([each for each in order if each not in units])
        first: bool = draw(st.booleans())
        added: bool = draw(st.booleans())
        fresh = [axes(1)] if added or not order else []
        order = (*fresh, *order) if first else (*order, *fresh)
    read_at = tuple([each if each in order else index(0) for each in fold.axes])
    value: Scalar = Load(fold.out, read_at)
    read: list[Buffer] = []
    for number, kind in enumerate(dict.fromkeys(kinds)):
        dtype = dtype_of(value)
        match kind:
            case "bias" | "residual":
                at = list(bias) if kind == "bias" else list(order)
                other = axes.read(f"{kind}{number}", at, dtype)
                read.append(other.buffer)
                value = value + other
            case "relu":
                value = Max(value, Lit(0, dtype))
            case "scale":
                value = value * Lit(2, dtype)
            case _:
                value = Cast(value, f64 if dtype is not f64 else f32)
    return [fold, axes.stage("y", order, value)], read


def _sizes(draw: DrawFn, count: int, most: int = MOST) -> list[int]:
    """Sizes whose product is not too large."""
    found: list[int] = []
    for _ in range(count):
        room = most // prod(found)
        found.append(draw(st.sampled_from([size for size in SIZES if size <= room])))
    return found


@st.composite
def products(
    draw: DrawFn,
    layouts: tuple[str, ...] = ("any", "rows"),
    dtypes: tuple[DType, ...] = FLOATS,
    least: int = LEAST,
) -> Case:
    """out = sum over K of x[B, M, K] * w[B, N, K], all axes and sides in any order."""
    layout = draw(st.sampled_from(layouts))
    counts = [draw(st.sampled_from(each)) for each in ((0, 0, 1), (1, 1, 2), (1, 1, 1, 0), (1, 2))]
    axes = Axes()
    sizes = draw(st.permutations(_sizes(draw, sum(counts))))
    parts = [sizes[sum(counts[:n]) : sum(counts[: n + 1])] for n in range(4)]
    if parts[2] and layout != "any":
        parts[2][-1] = draw(st.sampled_from((8, 12, 16, 24, 33)))
    if layout == "octets":
        parts = [[8 * draw(st.integers(1, 3)) if n else size for size in each]
                 for n, each in enumerate(parts)]  # fmt: skip
    if prod(map(prod, parts)) < least:  # one axis grows, so that there is enough to do
        grown = parts[draw(st.integers(1, 3))] or parts[1]
        grown[-1] *= -(-least // prod(map(prod, parts)))
    batch, rows, columns, terms = ([axes(size) for size in each] for each in parts)
    dtype = draw(st.sampled_from(dtypes))
    names = draw(st.sampled_from((("x", "w"), ("w", "x"), ("sum", "out"), ("packed", "pad"))))
    orders = [[*batch, *rows, *terms], [*batch, *columns, *terms], [*batch, *rows, *columns]]
    if layout == "columns":
        orders[0], orders[2] = [*batch, *terms, *rows], [*batch, *columns, *rows]
    if layout == "any":
        orders = [draw(st.permutations(each)) for each in orders]
    x, w = (axes.read(name, each, dtype) for name, each in zip(names, orders[:2], strict=True))
    wide = dtype is f16 and draw(st.sampled_from((True, True, False)))
    left, right = (Cast(x, f32), Cast(w, f32)) if wide else (x, w)
    sides = draw(st.sampled_from(((left, right), (right, left))))
    fold = axes.stage("y0", orders[2], axes.reduced("sum", terms, sides[0] * sides[1]))
    after, more = followed(draw, axes, fold, columns or rows)
    inputs = [x.buffer, w.buffer, *more]
    return case(draw, inputs, after, weights=(0,) if not columns else (1,))


def _place(
    draw: DrawFn, axes: Axes, out: int, taps: int, padded: bool
) -> tuple[ScalarVar, ScalarVar, Scalar, int, int]:
    """An axis of the result, one of the window, the place, the size of the data, and the border."""
    stride, dilation = draw(st.sampled_from((1, 1, 2, 3))), draw(st.sampled_from((1, 1, 2)))
    reach = (out - 1) * stride + (taps - 1) * dilation + 1
    before = draw(st.integers(0, min(2, reach - 1))) if padded else 0
    after = draw(st.integers(0, 1)) if padded else 0
    size = max(1, reach - before - after)
    i, k = axes(out), axes(taps)
    place: Scalar = i if stride == 1 else i * stride
    place = place + (k if dilation == 1 else k * dilation)
    return i, k, place - before if before else place, size, before


def _inside(load: Load, padded: bool, fill: Lit) -> Scalar:
    """A load where it is inside."""
    condition: Scalar | None = None
    for place, size in zip(load.indices, load.buffer.shape, strict=True) if padded else ():
        if isinstance(place, ScalarVar):
            continue
        both = And(Le(index(0), place), Lt(place, size))
        condition = both if condition is None else And(condition, both)
    return load if condition is None else Select(condition, load, fill)


@st.composite
def windows(draw: DrawFn, kind: str = "all", least: int = LEAST) -> Case:
    """Convolutions: of all channels, in groups, or each channel by itself; guarded where padded."""
    padded = draw(st.booleans())
    axes = Axes()
    dtype = draw(st.sampled_from((f32, f32, f64)))
    one = draw(st.booleans())  # a single axis of places
    taps = [1, draw(st.integers(1, 3))] if one else [draw(st.integers(1, 3)) for _ in range(2)]
    out = [1 if one else draw(st.integers(1, 8)), draw(st.sampled_from((1, 5, 8, 16, 21, 37)))]
    batch = axes(draw(st.sampled_from((1, 1, 2))))
    channels = draw(st.sampled_from((1, 2, 3, 6, 8)))
    outputs = draw(st.sampled_from((1, 4, 6, 8, 16, 20)))
    groups = draw(st.integers(2, 3)) if kind == "groups" else 1
    count = axes.sizes[batch] * prod(out) * prod(taps) * channels
    channels *= -(-least // (count * (2 if kind == "single" else groups * outputs)))
    parts = [_place(draw, axes, o, t, padded) for o, t in zip(out, taps, strict=True)]
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
    total = axes.reduced("sum", terms, _inside(data, padded, Lit(0, dtype)) * weight)
    fold = axes.stage("y0", (batch, o, parts[0][0], parts[1][0]), total)
    after, more = followed(draw, axes, fold, (o,))
    return case(draw, [data.buffer, weight.buffer, *more], after, weights=(1,))


@st.composite
def pools(draw: DrawFn) -> Case:
    """Windows without a weight."""
    combiner: Combiner = draw(st.sampled_from(cast("tuple[Combiner, ...]", ("max", "min", "sum"))))
    padded, dtype = draw(st.booleans()), draw(st.sampled_from((f32, f32, f64)))
    axes = Axes()
    first = [axes(draw(st.sampled_from((1, 2)))), axes(draw(st.sampled_from((1, 3, 8))))]
    parts = [
        _place(draw, axes, draw(st.sampled_from(sizes)), draw(st.integers(1, 3)), padded)
        for sizes in ((1, 4, 7), (5, 16, 21, 40))
    ]
    shape = (*axes.shape(first), *[part[3] for part in parts])
    load = Load(placeholder("x", shape, dtype), (*first, *[part[2] for part in parts]))
    start = {"max": -np.inf, "min": np.inf, "sum": 0}[combiner]
    total = axes.reduced(combiner, [p[1] for p in parts], _inside(load, padded, Lit(start, dtype)))
    fold = axes.stage("y0", (*first, *[part[0] for part in parts]), total)
    after, more = followed(draw, axes, fold, first[1:])
    return case(draw, [load.buffer, *more], after)


# --- rows -----------------------------------------------------------------------------------------


@st.composite
def reductions(draw: DrawFn) -> Case:
    """Reductions along any axes, of what is read and maybe changed."""
    combiner: Combiner = draw(st.sampled_from(cast("tuple[Combiner, ...]", ("max", "min", "sum"))))
    axes = Axes()
    sizes = [
        *_sizes(draw, draw(st.integers(1, 2)), 24),
        draw(st.sampled_from((7, 16, 33, 70, 130))),
    ]
    every = [axes(size) for size in sizes]
    terms = [every[-1], *draw(st.lists(st.sampled_from(every[:-1]), max_size=1))]
    if draw(st.sampled_from((False, False, True))):
        terms = [draw(st.sampled_from(every))]
    terms = [each for each in every if each in terms]
    dtype = draw(st.sampled_from(FLOATS))
    x = axes.read("x", every, dtype)
    body: Scalar = x
    inputs = [x.buffer]
    if draw(st.booleans()):
        other = axes.read("u", every, dtype)
        body, inputs = body * other, [*inputs, other.buffer]
    rest = [each for each in every if each not in terms]
    if draw(st.booleans()):  # an axis of length 1 where terms were
        rest = [each if each not in terms else axes(1) for each in every]
    fold = axes.stage("y0", rest, axes.reduced(combiner, terms, body))
    after, more = followed(draw, axes, fold, rest[-1:])
    return case(draw, [*inputs, *more], after)


@st.composite
def chains(draw: DrawFn) -> Case:
    """Rows in stages: softmax, and what is moved and scaled by its mean."""
    axes = Axes()
    rows = [axes(size) for size in _sizes(draw, draw(st.integers(1, 2)), 12)]
    length = draw(st.sampled_from((5, 16, 33, 64, 100, 200)))
    j, unit = axes(length), axes(1)
    dtype = draw(st.sampled_from((f32, f32, f64)))
    x = axes.read("x", (*rows, j), dtype)

    def one(of: Each) -> Load:
        return Load(of.out, (*rows, index(0)))

    def total(name: str, combiner: Combiner, of: Scalar) -> Each:
        k = axes(length)
        body = substitute(of, {j: k})
        assert isinstance(body, Scalar)
        return axes.stage(name, (*rows, unit), axes.reduced(combiner, (k,), body))

    inputs = [x.buffer]
    if draw(st.booleans()):
        top = total("top", "max", x)
        away = axes.stage("away", (*rows, j), Intrinsic("exp", (x - one(top),)))
        whole = total("whole", "sum", Load(away.out, away.axes))
        last: Scalar = Load(away.out, away.axes) / one(whole)
        of = [top, away, whole]
    else:
        whole = total("whole", "sum", x)
        mean = axes.stage("mean", (*rows, unit), one(whole) / Lit(length, dtype))
        moved = axes.stage("moved", (*rows, j), x - one(mean))
        again = Load(moved.out, moved.axes)
        squares = total("squares", "sum", again * again)
        weight = axes.read("g", (j,), dtype)
        inputs.append(weight.buffer)
        root = Intrinsic("sqrt", (one(squares) / Lit(length, dtype) + Lit(0.5, dtype),))
        last = again / root * weight
        of = [whole, mean, moved, squares]
    return case(draw, inputs, [*of, axes.stage("y", (*rows, j), last)], near=1e-4)


# --- elements -------------------------------------------------------------------------------------


@st.composite
def elements(draw: DrawFn) -> Case:
    """Functions of each element; enough of them to be shared, or not."""
    axes = Axes()
    shape = draw(
        st.sampled_from(((8, 2100), (16400,), (1, 3, 5600), (40, 17), (2, 9000), (130, 129)))
    )
    every = [axes(size) for size in shape]
    dtype = draw(st.sampled_from((f32, f64)))
    x, row = axes.read("x", every, dtype), axes.read("r", every[-1:], dtype)
    return case(
        draw,
        [x.buffer, row.buffer],
        [axes.stage("y", every, Intrinsic("exp", (x * Lit(0.5, dtype),)) + row)],
        near=1e-6,
    )


@st.composite
def concats(draw: DrawFn) -> Case:
    """Tensors that are joined along an axis."""
    axes = Axes()
    along = draw(st.integers(0, 1))
    lengths = draw(st.lists(st.integers(1, 12), min_size=2, max_size=4))
    rest, row = draw(st.sampled_from((8, 20))), draw(st.sampled_from((5, 16, 33, 70)))
    dtype = draw(st.sampled_from((f32, f32, f64, i32)))
    sizes = [rest, rest, row]
    sizes[along] = sum(lengths)
    every = [axes(size) for size in sizes]
    value: Scalar | None = None
    inputs, start = [], sum(lengths)
    for number, length in reversed(list(enumerate(lengths))):
        start -= length
        shape = [*sizes]
        shape[along] = length
        places: list[Scalar] = [*every]
        places[along] = every[along] - start if start else every[along]
        load = Load(placeholder(f"x{number}", shape, dtype), tuple(places))
        inputs.append(load.buffer)
        inside = Lt(every[along], index(start + length))
        value = load if value is None else Select(inside, load, value)
    assert value is not None
    value = Max(value, Lit(0, dtype)) if draw(st.booleans()) else value
    return case(draw, inputs, [axes.stage("y", every, value)])


@st.composite
def transposes(draw: DrawFn) -> Case:
    """Axes in another order, and what is done on the way."""
    axes = Axes()
    wide = st.sampled_from((7, 16, 17, 20, 33))
    every = [axes(size) for size in (draw(st.sampled_from((1, 2, 3))), draw(wide), draw(wide))]
    every = every[draw(st.integers(0, 1)) :]
    dtype = draw(st.sampled_from((f32, f32, i32, f16, i8, f64)))
    x = axes.read("x", draw(st.permutations(every)), dtype)
    other = axes.read("u", every, dtype)
    added = draw(st.booleans())
    value = x + other if added else x
    inputs = [x.buffer, other.buffer] if added else [x.buffer]
    return case(draw, inputs, [axes.stage("y", every, value)])


# --- bytes and tiles ------------------------------------------------------------------------------


@st.composite
def quantised(draw: DrawFn) -> Case:
    """Products and windows of bytes, moved by zero points that are known or given."""
    axes = Axes()
    data, weights = draw(st.sampled_from((u8, i8))), draw(st.sampled_from((i8, i8, i32)))
    zero = draw(st.sampled_from(("none", "known", "given")))
    m, n, k = draw(st.integers(1, 17)), draw(st.integers(2, 35)), draw(st.integers(1, 40))
    k = max(k, -(-LEAST // (m * n)))
    padded = False
    if draw(st.booleans()):
        i, o, c = axes(m), axes(n), axes(k)
        x = axes.read("x", (i, c), data)
        w = axes.read("w", draw(st.permutations((o, c))), weights)
        out, terms = [i, o], [c]
    else:
        padded = draw(st.booleans())
        o, c = axes(n), axes(max(2, -(-k // 3)))
        i, tap, place, size, _ = _place(draw, axes, m, draw(st.integers(1, 3)), padded)
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
        guarded = _inside(x, padded, Lit(0, data))
        assert isinstance(guarded, Select)
        left = Select(guarded.condition, left, Lit(0, i32))
    right: Scalar = w if weights is i32 else Cast(w, i32)
    fold = axes.stage("y0", out, axes.reduced("sum", terms, left * right))
    after, more = followed(draw, axes, fold, (o,))
    small = (1,) if weights is i32 else ()
    return case(draw, [*inputs, *more], after, weights=(1,), fits_i8=small)


@st.composite
def winograds(draw: DrawFn) -> Case:
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
    made = case(draw, [x, w], [fold], weights=(1,), near=1e-4)
    # The operator means a convolution for weights that were transformed, and for no others.
    table = np.array([[float(each) for each in row] for row in TILES[tile].weight])
    taps = numbers(1, (outputs, channels, 3, 3), f32)
    weight = np.einsum("ak,ockl,bl->abco", table, taps, table)
    made.arrays[1] = weight.reshape(shape_of(w)).astype(np.float32)
    return made


KINDS: Final[dict[str, Callable[[], st.SearchStrategy[Case]]]] = {
    "product": products, "columns": partial(products, ("columns",)), "window": windows,
    "grouped": partial(windows, "groups"),
    "depthwise": partial(windows, "single"), "pool": pools, "reduction": reductions,
    "chain": chains, "elementwise": elements, "concat": concats, "transpose": transposes,
    "quantised": quantised, "winograd": winograds,
}  # fmt: skip
