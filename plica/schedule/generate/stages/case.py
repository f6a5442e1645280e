"""What random stages are made of: a case, numbers for it, axes, epilogues and windows."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np
from attrs import frozen
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from plica.ir.contract import approx, reassociates
from plica.ir.loop import Each, Scan, Stages, axis, scalar as sc
from plica.ir.loop.stage import placeholder
from plica.ir.loop.stages import stages
from plica.ir.type import DType, f16, f32, f64, i8, i32, known, u8
from plica.schedule.form import Facts
from plica.schedule.generate.stages.source import with_source

Array = np.ndarray[Any, Any]

FLOATS: Final = (f32, f32, f32, f64, f16, i32)
SIZES: Final = (1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 20, 32, 48)
LEAST, MOST = 2048, 1 << 14
"""Products of a contraction: fewer have no form, more take too long to interpret."""


@frozen(eq=False)
class StagesCase:
    """Stages, facts about their inputs, input arrays, and the tolerance per element."""

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
        """Hypothesis's display: printed stages without arrays."""
        printer.text(repr(self))


def shape_of(of: sc.Buffer) -> tuple[int, ...]:
    """The sizes of a buffer, all of them known."""
    return tuple([known(size) or 0 for size in of.shape])


def numbers(seed: int, shape: tuple[int, ...], dtype: DType, strange: bool = False) -> Array:
    """Small whole numbers, whose sums are exact in any order; bytes of all kinds."""
    random = np.random.default_rng(seed)
    if dtype in (i8, u8):
        low, high = (int(bound) for bound in dtype.bounds)
        return random.integers(low, high, shape, endpoint=True).astype(dtype.numpy)
    array = random.integers(-3, 4, shape).astype(dtype.numpy)
    if strange and array.size:
        array.flat[random.integers(array.size)] = np.nan
        array.flat[random.integers(array.size)] = np.inf
    return array


def case(
    draw: DrawFn,
    inputs: Sequence[sc.Buffer],
    of: Sequence[Each | Scan],
    *,
    weights: Sequence[int] = (),
    fits_i8: Sequence[int] = (),
    near: float = 0.0,
    whole: bool = False,
) -> StagesCase:
    """A case of some stages; inputs that are weights may be known.  One of the others may be made
    by a producer, unless all are read `whole`."""
    if not whole:
        inputs, of = with_source(draw, inputs, of, {*weights, *fits_i8})
    constant = [number in weights and draw(st.booleans()) for number in range(len(inputs))]
    contract = draw(st.sampled_from((reassociates, approx(1e-3)) if near else (reassociates,)))
    strange = not near and draw(st.sampled_from((False, False, True)))
    arrays = [
        numbers(seed, shape_of(buffer), buffer.dtype, strange and buffer.dtype in (f32, f64))
        for seed, buffer in enumerate(inputs)
    ]
    for number in fits_i8:
        arrays[number] = numbers(number, shape_of(inputs[number]), i8).astype(np.int32)
    held = tuple([number for number in fits_i8 if constant[number]])
    facts = Facts(tuple(constant), held, contract)
    return StagesCase(stages(inputs, of), facts, arrays, near)


class Axes:
    """Index variables of some sizes, with unique names."""

    def __init__(self) -> None:
        self.sizes: dict[sc.ScalarVar, int] = {}

    def __call__(self, size: int) -> sc.ScalarVar:
        var = axis("i", len(self.sizes))
        self.sizes[var] = size
        return var

    def shape(self, of: Sequence[sc.ScalarVar]) -> tuple[int, ...]:
        return tuple([self.sizes[var] for var in of])

    def read(self, name: str, of: Sequence[sc.ScalarVar], dtype: DType) -> sc.Load:
        """A load of a new buffer, indexed by variables only."""
        return sc.Load(placeholder(name, self.shape(of), dtype), tuple(of))

    def reduced(
        self, combiner: sc.Combiner, terms: Sequence[sc.ScalarVar], body: sc.Scalar
    ) -> sc.Reduce:
        extents = tuple([sc.index(size) for size in self.shape(terms)])
        return sc.Reduce(combiner, tuple(terms), extents, body)

    def stage(self, name: str, of: Sequence[sc.ScalarVar], value: sc.Scalar) -> Each:
        out = placeholder(name, self.shape(of), sc.dtype_of(value))
        return Each(out, tuple(of), value)


def followed(
    draw: DrawFn, axes: Axes, fold: Each | Scan, bias: Sequence[sc.ScalarVar]
) -> tuple[list[Each | Scan], list[sc.Buffer]]:
    """An elementwise epilogue of a stage, and its operands."""
    kinds = draw(
        st.lists(st.sampled_from(("bias", "relu", "residual", "cast", "scale")), max_size=3)
    )
    turned = draw(st.sampled_from((False, False, True)))
    if not kinds and not turned:
        return [fold], []
    order = tuple(draw(st.permutations(fold.axes))) if turned else fold.axes
    units = [var for var in fold.axes if axes.sizes[var] == 1 and var not in bias]
    if bool(units) and draw(st.booleans()):  # axes of length 1 that are gone, or new
        order = tuple([var for var in order if var not in units])
        first, added = draw(st.booleans()), draw(st.booleans()) or not order
        fresh = [axes(1)] if added else []
        order = (*fresh, *order) if first else (*order, *fresh)
    read_at = tuple([var if var in order else sc.index(0) for var in fold.axes])
    value: sc.Scalar = sc.Load(fold.out, read_at)
    read: list[sc.Buffer] = []
    for number, kind in enumerate(dict.fromkeys(kinds)):
        dtype = sc.dtype_of(value)
        match kind:
            case "bias" | "residual":
                at = list(bias) if kind == "bias" else list(order)
                other = axes.read(f"{kind}{number}", at, dtype)
                read.append(other.buffer)
                value = value + other
            case "relu":
                value = sc.Max(value, sc.Lit(0, dtype))
            case "scale":
                value = value * sc.Lit(2, dtype)
            case _:
                value = sc.Cast(value, f64 if dtype is not f64 else f32)
    return [fold, axes.stage("y", order, value)], read


def combiner(draw: DrawFn, *words: sc.Combiner) -> sc.Combiner:
    """One of several."""
    return draw(st.sampled_from(words))


def product_with(
    draw: DrawFn, axes: Axes, x: sc.Load, body: sc.Scalar, orders: Sequence[Sequence[sc.ScalarVar]]
) -> tuple[sc.Scalar, list[sc.Buffer]]:
    """A load, sometimes multiplied by another operand of the same dtype; and all loads."""
    if not draw(st.booleans()):
        return body, [x.buffer]
    order = draw(st.sampled_from(orders)) if len(orders) > 1 else orders[0]
    other = axes.read("u", order, sc.dtype_of(x))
    return body * other, [x.buffer, other.buffer]


def axis_sizes(
    draw: DrawFn, count: int, most: int = MOST, sizes: tuple[int, ...] = SIZES
) -> list[int]:
    """Sizes whose product is not too large; the least of them leave room for one another."""
    found: list[int] = []
    for rest in range(count - 1, -1, -1):
        room = most // prod(found) // min(sizes) ** rest
        found.append(draw(st.sampled_from([size for size in sizes if size <= room])))
    return found


def window_place(
    draw: DrawFn, axes: Axes, out: int, taps: int, padded: bool
) -> tuple[sc.ScalarVar, sc.ScalarVar, sc.Scalar, int, int]:
    """An axis of the result, one of the window, the place, the size of the data, and the border."""
    stride, dilation = draw(st.sampled_from((1, 1, 2, 3))), draw(st.sampled_from((1, 1, 2)))
    reach = (out - 1) * stride + (taps - 1) * dilation + 1
    before = draw(st.integers(0, min(2, reach - 1))) if padded else 0
    after = draw(st.integers(0, 1)) if padded else 0
    size = max(1, reach - before - after)
    i, k = axes(out), axes(taps)
    place: sc.Scalar = i if stride == 1 else i * stride
    place = place + (k if dilation == 1 else k * dilation)
    return i, k, place - before if before else place, size, before


def guarded(load: sc.Load, padded: bool, fill: sc.Lit) -> sc.Scalar:
    """A load where it is inside."""
    condition: sc.Scalar | None = None
    for place, size in zip(load.indices, load.buffer.shape, strict=True) if padded else ():
        if isinstance(place, sc.ScalarVar):
            continue
        both = sc.And(sc.Le(sc.index(0), place), sc.Lt(place, size))
        condition = both if condition is None else sc.And(condition, both)
    return load if condition is None else sc.Select(condition, load, fill)
