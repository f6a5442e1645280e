"""Cases of operators that arrange, pick and create."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
from hypothesis import assume

from plica.ir.type.dtype import DTYPES, bool_
from tests.ir.reference.case import (
    INTEGERS,
    NUMBERS,
    Array,
    Case,
    Draw,
    array,
    axis_in,
    case,
    one,
    shapes,
    some_axes,
)


@case("reshape")
def _reshape(draw: Draw, _: str) -> Case:
    shape = draw(shapes())
    left, wanted = math.prod(shape), list[int]()
    while left > 1:
        part = draw(st.sampled_from([n for n in range(2, left + 1) if left % n == 0]))
        wanted.append(part)
        left //= part
    wanted += [1] * draw(st.integers(0, 2)) + ([0] if left == 0 else [])
    wanted = list(draw(st.permutations(wanted)))
    if wanted and 0 not in wanted and draw(st.booleans()):
        wanted[draw(st.integers(0, len(wanted) - 1))] = -1
    return Case((one(draw, DTYPES, shape),), {"shape": tuple(wanted)})


@case("ravel")
def _ravel(draw: Draw, _: str) -> Case:
    return Case((one(draw, DTYPES),), {})


@case("nn.flatten")
def _flatten(draw: Draw, _: str) -> Case:
    shape = draw(shapes())
    at = draw(st.integers(-len(shape), len(shape)))
    return Case((one(draw, DTYPES, shape),), {"axis": at})


@case("transpose")
def _transpose(draw: Draw, _: str) -> Case:
    shape = draw(shapes())
    order = tuple(draw(st.permutations(range(len(shape)))))
    axes = draw(st.sampled_from([None, order]))
    return Case((one(draw, DTYPES, shape),), {"axes": axes})


@case("swapaxes")
def _swapaxes(draw: Draw, _: str) -> Case:
    shape = draw(shapes(1))
    pair = [axis_in(draw, len(shape)) for _ in range(2)]
    return Case((one(draw, DTYPES, shape),), {"axis1": pair[0], "axis2": pair[1]})


@case("moveaxis")
def _moveaxis(draw: Draw, _: str) -> Case:
    shape = draw(shapes(1))
    rank = len(shape)
    count = draw(st.integers(0, rank))
    source, target = (tuple(draw(st.permutations(range(rank)))[:count]) for _ in range(2))
    return Case((one(draw, DTYPES, shape),), {"source": source, "destination": target})


@case("match_shape")
def _match_shape(draw: Draw, _: str) -> Case:
    shape = draw(shapes())
    return Case((one(draw, DTYPES, shape),), {"shape": tuple(shape)})


@case("squeeze")
def _squeeze(draw: Draw, _: str) -> Case:
    shape = draw(shapes())
    ones = [at for at, size in enumerate(shape) if size == 1]
    chosen = tuple(draw(st.lists(st.sampled_from(ones), unique=True))) if ones else ()
    axis = draw(st.sampled_from([None, chosen]))
    return Case((one(draw, DTYPES, shape),), {"axis": axis})


@case("expand_dims")
def _expand_dims(draw: Draw, _: str) -> Case:
    shape = draw(shapes(0, 3))
    rank = len(shape) + draw(st.integers(1, 2))
    new = draw(st.permutations(range(rank)))[: rank - len(shape)]
    return Case((one(draw, DTYPES, shape),), {"axis": tuple(new)})


@case("broadcast_to")
def _broadcast_to(draw: Draw, _: str) -> Case:
    found = draw(
        hnp.mutually_broadcastable_shapes(num_shapes=1, max_dims=3, min_side=0, max_side=3)
    )
    (shape,) = found.input_shapes
    tail = tuple(draw(st.integers(0, 3)) if size == 1 else size for size in shape)
    lead = tuple(draw(st.lists(st.integers(0, 3), max_size=2)))
    return Case((one(draw, DTYPES, shape),), {"shape": (*lead, *tail)})


@case("tile")
def _tile(draw: Draw, _: str) -> Case:
    reps = tuple(draw(st.lists(st.integers(0, 3), max_size=4)))
    return Case((one(draw, DTYPES, draw(shapes(0, 3))),), {"reps": reps})


@case("repeat")
def _repeat(draw: Draw, _: str) -> Case:
    shape = draw(shapes(1))
    attrs = {"repeats": draw(st.integers(0, 3)), "axis": axis_in(draw, len(shape))}
    return Case((one(draw, DTYPES, shape),), attrs)


@case("flip")
def _flip(draw: Draw, _: str) -> Case:
    shape = draw(shapes())
    return Case((one(draw, DTYPES, shape),), {"axis": some_axes(draw, len(shape))})


@case("roll")
def _roll(draw: Draw, _: str) -> Case:
    shape = draw(shapes(1))
    axes = tuple(axis_in(draw, len(shape)) for _ in range(draw(st.integers(1, 2))))
    shift = tuple(draw(st.integers(-5, 5)) for _ in axes)
    return Case((one(draw, DTYPES, shape),), {"shift": shift, "axis": axes})


@case("concat", "stack")
def _joined(draw: Draw, name: str) -> Case:
    shape = list(draw(shapes(1 if name == "concat" else 0, 3)))
    dtype = draw(st.sampled_from(DTYPES))
    rank = len(shape) + (name == "stack")
    at = axis_in(draw, rank)
    args = []
    for _ in range(draw(st.integers(1, 4))):
        if name == "concat":
            shape[at] = draw(st.integers(0, 3))
        args.append(draw(array(dtype, shape)))
    return Case(tuple(args), {"axis": at})


@case("split")
def _split(draw: Draw, _: str) -> Case:
    shape = list(draw(shapes(1)))
    at = axis_in(draw, len(shape))
    if draw(st.booleans()):
        parts: Any = draw(st.integers(1, 3))
        shape[at] *= parts
    else:
        parts = tuple(sorted(draw(st.lists(st.integers(0, 5), max_size=3))))
    return Case((one(draw, DTYPES, shape),), {"indices_or_sections": parts, "axis": at})


@case("slice")
def _slice(draw: Draw, _: str) -> Case:
    shape = draw(shapes())
    count = draw(st.integers(0, len(shape)))
    axes = tuple(draw(st.permutations(range(len(shape))))[:count])
    end = st.one_of(st.none(), st.integers(-6, 6))
    starts, stops = (tuple(draw(end) for _ in axes) for _ in range(2))
    steps = tuple(draw(st.sampled_from([1, 2, 3, -1, -2])) for _ in axes)
    attrs = {"starts": starts, "stops": stops, "steps": steps, "axes": axes}
    return Case((one(draw, DTYPES, shape),), attrs)


@case("diagonal")
def _diagonal(draw: Draw, _: str) -> Case:
    shape = draw(shapes(2))
    first, second = draw(st.permutations(range(len(shape))))[:2]
    attrs = {"offset": draw(st.integers(-3, 3)), "axis1": first, "axis2": second}
    return Case((one(draw, DTYPES, shape),), attrs)


@case("tril", "triu")
def _triangle(draw: Draw, _: str) -> Case:
    return Case((one(draw, DTYPES, draw(shapes(2))),), {"k": draw(st.integers(-3, 3))})


@case("pad")
def _pad(draw: Draw, _: str) -> Case:
    mode = draw(st.sampled_from(["constant", "edge", "reflect", "symmetric", "wrap"]))
    shape = draw(shapes(0, 3, side=0 if mode == "constant" else 1))
    width = tuple((draw(st.integers(0, 5)), draw(st.integers(0, 5))) for _ in shape)
    attrs: dict[str, Any] = {"pad_width": width, "mode": mode}
    if mode == "constant":
        attrs["constant_values"] = draw(st.integers(0, 1))
    return Case((one(draw, DTYPES, shape),), attrs)


@case("nn.depth_to_space", "nn.space_to_depth")
def _pixels(draw: Draw, name: str) -> Case:
    n, c, h, w = (draw(st.integers(0, 2)) for _ in range(4))
    b = draw(st.integers(1, 3))
    if name == "nn.depth_to_space":
        attrs = {"block": b, "column_row_depth": draw(st.booleans())}
        return Case((one(draw, DTYPES, (n, c * b * b, h, w)),), attrs)
    return Case((one(draw, DTYPES, (n, c, h * b, w * b)),), {"block": b})


@case("nn.upsample")
def _upsample(draw: Draw, _: str) -> Case:
    return Case((one(draw, DTYPES, draw(shapes(3))),), {"scale": draw(st.integers(1, 3))})


# --- indices -------------------------------------------------------------------------------------


@case("where")
def _where(draw: Draw, _: str) -> Case:
    dtype = draw(st.sampled_from(DTYPES))
    found = draw(
        hnp.mutually_broadcastable_shapes(num_shapes=3, max_dims=3, min_side=0, max_side=3)
    )
    a, b, c = found.input_shapes
    chosen = draw(array(bool_, a))
    return Case((chosen, draw(array(dtype, b, wild=True)), draw(array(dtype, c, wild=True))), {})


def indices(draw: Draw, size: int, shape: Sequence[int], mode: str = "raise") -> Array:
    """Indices of an axis, within bounds unless the mode settles it."""
    dtype = draw(st.sampled_from(INTEGERS))
    low, high = (-size, size - 1) if mode == "raise" else (-9, 9)
    low = 0 if dtype.kind == "uint" else low
    assume(low <= high or 0 in shape)
    numbers = st.integers(low, max(low, high))
    return np.asarray(
        draw(hnp.arrays(np.int64, tuple(shape), elements=numbers)).astype(dtype.numpy)
    )


@case("take", "take_along_axis")
def _take(draw: Draw, name: str) -> Case:
    shape = list(draw(shapes(1, 3, side=1)))
    at = axis_in(draw, len(shape))
    mode = draw(st.sampled_from(["raise", "clip", "wrap"]))
    x = one(draw, DTYPES, shape)
    if name == "take":
        wanted: Any = draw(shapes(0, 2))
    else:
        wanted = list(shape)
        wanted[at] = draw(st.integers(0, 3))
    chosen = indices(draw, shape[at], wanted, mode)
    return Case((x, chosen), {"axis": at, "mode": mode})


@case("gather_nd")
def _gather_nd(draw: Draw, _: str) -> Case:
    shape = draw(shapes(1, 4, side=1))
    batch = draw(st.integers(0, min(2, len(shape) - 1)))
    depth = draw(st.integers(1, len(shape) - batch))
    outer = (*shape[:batch], *draw(shapes(0, 2)))
    columns = [indices(draw, shape[batch + d], outer).astype(np.int64) for d in range(depth)]
    return Case((one(draw, DTYPES, shape), np.stack(columns, -1)), {"batch_dims": batch})


@case("one_hot")
def _one_hot(draw: Draw, _: str) -> Case:
    shape = draw(shapes(0, 2))
    attrs = {
        "depth": draw(st.integers(0, 4)),
        "axis": axis_in(draw, len(shape) + 1),
        "dtype": draw(st.sampled_from(DTYPES)).name,
        "on": draw(st.integers(0, 1)),
        "off": draw(st.integers(0, 1)),
    }
    return Case((indices(draw, 4, shape, "wrap"),), attrs)


# --- creation ------------------------------------------------------------------------------------


@case("full", "zeros", "ones", "iota")
def _created(draw: Draw, name: str) -> Case:
    shape = draw(shapes(1 if name == "iota" else 0))
    dtypes = NUMBERS if name == "iota" else DTYPES
    attrs: dict[str, Any] = {"shape": shape, "dtype": draw(st.sampled_from(dtypes)).name}
    if name == "full":
        attrs["value"] = draw(st.integers(0, 1))
    if name == "iota":
        attrs["axis"] = axis_in(draw, len(shape))
    return Case((), attrs)


@case("dim_value")
def _dim_value(draw: Draw, _: str) -> Case:
    return Case((), {"dim": draw(st.integers(0, 1 << 40))})


@case("full_like", "zeros_like", "ones_like", "iota_like")
def _created_like(draw: Draw, name: str) -> Case:
    shape = draw(shapes(1 if name == "iota_like" else 0))
    attrs: dict[str, Any] = {"dtype": draw(st.sampled_from(NUMBERS)).name}
    if name == "full_like":
        attrs["value"] = draw(st.integers(0, 1))
    if name == "iota_like":
        attrs["axis"] = axis_in(draw, len(shape))
    return Case((one(draw, DTYPES, shape),), attrs)


@case("arange")
def _arange(draw: Draw, _: str) -> Case:
    start, stop = (draw(st.integers(0, 9)) for _ in range(2))
    step = draw(st.sampled_from([1, 2, 3]))
    dtype = draw(st.sampled_from(NUMBERS)).name
    return Case((), {"start": start, "stop": stop, "step": step, "dtype": dtype})


@case("eye")
def _eye(draw: Draw, _: str) -> Case:
    n, m = draw(st.integers(0, 4)), draw(st.one_of(st.none(), st.integers(0, 4)))
    dtype = draw(st.sampled_from(DTYPES)).name
    return Case((), {"n": n, "m": m, "k": draw(st.integers(-3, 3)), "dtype": dtype})


@case("size")
def _size(draw: Draw, _: str) -> Case:
    shape = draw(shapes())
    return Case((one(draw, DTYPES, shape),), {"axis": some_axes(draw, len(shape))})


@case("shape_of")
def _shape_of(draw: Draw, _: str) -> Case:
    return Case((one(draw, DTYPES),), {})
