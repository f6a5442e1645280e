"""Cases and meanings of the operators that gradients are made of: sums at places, and marks."""

from __future__ import annotations

import itertools
from typing import Any

import hypothesis.strategies as st
import numpy as np

from plica.ir.type.dtype import DTYPES
from tests.ir.reference.case import CASES, NUMBERS, Array, Case, Draw, axis_in, case, one, shapes
from tests.ir.reference.case_neural import padding, per_axis, spread
from tests.ir.reference.case_shape import indices
from tests.ir.reference.meaning import REFERENCE, exact, nn, rounded, wide
from tests.ir.reference.neural import windows

# --- marks ---------------------------------------------------------------------------------------


@case("stop_gradient")
def _stop(draw: Draw, _: str) -> Case:
    return Case((one(draw, DTYPES, wild=True),), {})


@case("after")
def _after(draw: Draw, _: str) -> Case:
    return Case((one(draw, DTYPES, wild=True), one(draw, DTYPES)), {})


exact(stop_gradient=lambda x: x, after=lambda x, y: x)

# --- scattering ----------------------------------------------------------------------------------


def place(index: int, size: int, mode: str) -> int:
    """Where in an axis an index is."""
    if mode == "wrap":
        return index % size
    if mode == "clip":
        return min(max(index, 0), size - 1)
    return index + size if index < 0 else index


@case("scatter_sum")
def _scatter(draw: Draw, _: str) -> Case:
    shape = list(draw(shapes(1, 3, side=1)))
    at = draw(st.integers(0, len(shape) - 1))
    mode = draw(st.sampled_from(["raise", "clip", "wrap"]))
    chosen = indices(draw, shape[at], draw(shapes(0, 2)), mode)
    x = one(draw, NUMBERS, (*shape[:at], *chosen.shape, *shape[at + 1 :]), finite=True)
    from_end = draw(st.booleans())
    return Case(
        (x, chosen), {"size": shape[at], "axis": at - len(shape) if from_end else at, "mode": mode}
    )


def _scattered(x: Array, chosen: Array, *, size: int, axis: int = 0, mode: str = "raise") -> Any:
    rank = x.ndim - chosen.ndim + 1
    at = axis % rank
    out = np.zeros((*x.shape[:at], size, *x.shape[at + chosen.ndim :]), x.dtype)
    for k in np.ndindex(*chosen.shape):
        where = place(int(chosen[k]), size, mode)
        out[(slice(None),) * at + (where,)] += x[(slice(None),) * at + k]
    return out


@case("scatter_sum_along_axis")
def _scatter_along(draw: Draw, _: str) -> Case:
    shape = list(draw(shapes(1, 3, side=1)))
    at = axis_in(draw, len(shape))
    mode = draw(st.sampled_from(["raise", "clip", "wrap"]))
    wanted = [draw(st.integers(0, size)) for size in shape]
    wanted[at] = draw(st.integers(0, 3))
    chosen = indices(draw, shape[at], wanted, mode)
    x = one(draw, NUMBERS, wanted, finite=True)
    return Case((x, chosen), {"shape": tuple(shape), "axis": at, "mode": mode})


def _scattered_along(
    x: Array, chosen: Array, *, shape: Any, axis: int = -1, mode: str = "raise"
) -> Any:
    out = np.zeros(shape, x.dtype)
    at = axis % len(shape)
    for k in np.ndindex(*chosen.shape):
        out[(*k[:at], place(int(chosen[k]), shape[at], mode), *k[at + 1 :])] += x[k]
    return out


@case("unslice")
def _unslice(draw: Draw, _: str) -> Case:
    whole = draw(CASES["slice"])
    part = REFERENCE["slice"](whole.args[0], **whole.attrs)
    x = one(draw, DTYPES, part.shape, wild=True)
    return Case((x,), {**whole.attrs, "shape": whole.args[0].shape})


def _unsliced(x: Array, *, shape: Any, **attrs: Any) -> Any:
    places = np.arange(int(np.prod(shape))).reshape(shape)
    out = np.zeros(shape, x.dtype)
    np.put(out, REFERENCE["slice"](places, **attrs).ravel(), x.ravel())
    return out


exact(unslice=_unsliced)
rounded(scatter_sum=_scattered, scatter_sum_along_axis=_scattered_along)

# --- windows -------------------------------------------------------------------------------------


def window(draw: Draw) -> tuple[dict[str, Any], tuple[int, ...]]:
    """A window, and the shape of something that it slides over."""
    rank = draw(st.integers(1, 2))
    kernel = per_axis(draw, rank, 1, 3)
    attrs: dict[str, Any] = {
        "kernel": kernel,
        "strides": draw(st.one_of(st.none(), st.just(per_axis(draw, rank, 1, 3)))),
        "padding": padding(draw, rank, min(spread(kernel, rank)) - 1),
        "dilation": per_axis(draw, rank, 1, 2),
        "ceil_mode": draw(st.booleans()),
    }
    pairs = zip(spread(attrs["dilation"], rank), spread(kernel, rank), strict=True)
    reach = [d * (k - 1) + 1 for d, k in pairs]
    size = tuple(draw(st.integers(each, each + 3)) for each in reach)
    return attrs, (draw(st.integers(0, 2)), draw(st.integers(1, 2)), *size)


def slid(x: Array, attrs: dict[str, Any]) -> tuple[list[int], list[list[list[int]]]]:
    """The windows over an array."""
    given = {"strides": None, "padding": 0, "dilation": 1, "ceil_mode": False, **attrs}
    return windows(
        x,
        given["kernel"],
        given["strides"],
        given["padding"],
        dilation=given["dilation"],
        ceil_mode=given["ceil_mode"],
    )


def held(places: Any, at: tuple[int, ...], sizes: tuple[int, ...]) -> Any:
    """The places of a window with their numbers, without those in the padding."""
    whole = [places[a][i] for a, i in enumerate(at)]
    for number, q in enumerate(itertools.product(*whole)):
        if all(0 <= each < size for each, size in zip(q, sizes, strict=True)):
            yield number, q


@case("nn.window_sum")
def _window_sum(draw: Draw, _: str) -> Case:
    attrs, shape = window(draw)
    return Case((one(draw, NUMBERS, shape, finite=True),), attrs)


@nn("nn.window_sum")
def _window_summed(x: Array, **attrs: Any) -> Any:
    counts, places = slid(x, attrs)
    out = np.zeros((*x.shape[:2], *counts), x.dtype)
    for at in np.ndindex(*counts):
        for _, q in held(places, at, x.shape[2:]):
            out[(..., *at)] += x[(..., *q)]
    return out


@case("nn.window_spread")
def _window_spread(draw: Draw, _: str) -> Case:
    attrs, shape = window(draw)
    counts, _places = slid(np.zeros(shape), attrs)
    x = one(draw, NUMBERS, (*shape[:2], *counts), finite=True)
    return Case((x,), {**attrs, "size": shape[2:]})


@nn("nn.window_spread")
def _window_spread_out(x: Array, *, size: Any, **attrs: Any) -> Any:
    out = np.zeros((*x.shape[:2], *size), x.dtype)
    counts, places = slid(out, attrs)
    for at in np.ndindex(*counts):
        for _, q in held(places, at, size):
            out[(..., *q)] += x[(..., *at)]
    return out


@case("nn.window_first")
def _window_first(draw: Draw, _: str) -> Case:
    attrs, shape = window(draw)
    x = one(draw, NUMBERS, shape)
    counts, places = slid(x, attrs)
    value = np.zeros((*shape[:2], *counts), x.dtype)
    for at in np.ndindex(*counts):
        inside = [x[(..., *q)] for _, q in held(places, at, shape[2:])]
        value[(..., *at)] = inside[draw(st.integers(0, len(inside) - 1))]
    return Case((x, value), attrs)


def _first_places(x: Array, value: Array, **attrs: Any) -> Any:
    counts, places = slid(x, attrs)
    out = np.zeros(value.shape, np.int64)
    for at in np.ndindex(*counts):
        there, b = list(held(places, at, x.shape[2:])), value[(..., *at)]
        for number, q in reversed(there):
            out[(..., *at)] = np.where(x[(..., *q)] == b, number, out[(..., *at)])
        for number, q in there:  # of nans torch takes the last
            nan = np.isnan(wide(x[(..., *q)])) & np.isnan(wide(b))
            out[(..., *at)] = np.where(nan, number, out[(..., *at)])
    return out


def _placed(draw: Draw) -> tuple[dict[str, Any], tuple[int, ...], Array]:
    attrs, shape = window(draw)
    counts, places = slid(np.zeros(shape), attrs)
    chosen = np.zeros((*shape[:2], *counts), np.int64)
    for at in np.ndindex(*chosen.shape):
        numbers = [number for number, _ in held(places, at[2:], shape[2:])]
        chosen[at] = draw(st.sampled_from(numbers))
    return attrs, shape, chosen


@case("nn.window_take")
def _window_take(draw: Draw, _: str) -> Case:
    attrs, shape, chosen = _placed(draw)
    return Case((one(draw, NUMBERS, shape), chosen), attrs)


@case("nn.window_put")
def _window_put(draw: Draw, _: str) -> Case:
    attrs, shape, chosen = _placed(draw)
    return Case(
        (one(draw, NUMBERS, chosen.shape, finite=True), chosen), {**attrs, "size": shape[2:]}
    )


def _taken(x: Array, chosen: Array, **attrs: Any) -> Any:
    counts, places = slid(x, attrs)
    out = np.zeros(chosen.shape, x.dtype)
    for at in np.ndindex(*counts):
        for number, q in held(places, at, x.shape[2:]):
            here = chosen[(..., *at)] == number
            out[(..., *at)] = np.where(here, x[(..., *q)], out[(..., *at)])
    return out


def _put(x: Array, chosen: Array, *, size: Any, **attrs: Any) -> Any:
    out = np.zeros((*x.shape[:2], *size), x.dtype)
    counts, places = slid(out, attrs)
    for at in np.ndindex(*counts):
        for number, q in held(places, at, size):
            out[(..., *q)] += np.where(chosen[(..., *at)] == number, x[(..., *at)], 0)
    return out


exact(**{"nn.window_first": _first_places})
exact(**{"nn.window_take": _taken})
rounded(**{"nn.window_put": _put})
