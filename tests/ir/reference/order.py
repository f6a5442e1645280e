"""Cases and meanings of the operators of order: sorting, searching, what is different."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np

from plica.ir.type.dtype import bool_, dtype as dtype_of
from tests.ir.reference.case import NUMBERS, Array, Case, Draw, array, axis_in, case, one, shapes
from tests.ir.reference.meaning import REFERENCE

ORDERED = (*NUMBERS, bool_)


def comparable(x: Array) -> Array:
    """Numbers as numpy sorts them: it does not know the order of bf16's nan."""
    return x.astype(np.float64) if dtype_of(x.dtype).is_float else x


def argsort(x: Array, axis: int = -1, descending: bool = False) -> Array:
    """Stable in both directions, nan the greatest."""
    keys = comparable(x)
    if not descending:
        return np.argsort(keys, axis=axis, kind="stable")
    # Backwards, then the places counted from the other end: equals are in their order again.
    turned = np.flip(np.argsort(np.flip(keys, axis), axis=axis, kind="stable"), axis)
    return np.asarray(x.shape[axis] - 1 - turned)


def longer(draw: Draw, rank: int) -> tuple[int, ...]:
    """A shape with one axis long enough for several merges."""
    shape = list(draw(shapes(rank, 3)))
    shape[draw(st.integers(0, len(shape) - 1))] = draw(st.integers(0, 11))
    return tuple(shape)


@case("argsort", "sort")
def _sort(draw: Draw, _: str) -> Case:
    shape = longer(draw, 1)
    attrs = {"axis": axis_in(draw, len(shape)), "descending": draw(st.booleans())}
    return Case((one(draw, ORDERED, shape, wild=True),), attrs)


@case("topk")
def _topk(draw: Draw, _: str) -> Case:
    shape = longer(draw, 1)
    at = axis_in(draw, len(shape))
    attrs = {"axis": at, "k": draw(st.integers(0, shape[at])), "largest": draw(st.booleans())}
    return Case((one(draw, ORDERED, shape, wild=True),), attrs)


@case("first_places")
def _first(draw: Draw, _: str) -> Case:
    shape = [max(1, each) for each in longer(draw, 1)]
    at = axis_in(draw, len(shape))
    attrs = {"axis": at, "k": draw(st.integers(1, shape[at])), "descending": draw(st.booleans())}
    return Case((one(draw, NUMBERS, tuple(shape), wild=True),), attrs)


@case("merge_runs")
def _merge(draw: Draw, _: str) -> Case:
    x = one(draw, NUMBERS, longer(draw, 1), wild=True)
    width, descending = draw(st.integers(1, 6)), draw(st.booleans())
    parts = [x[..., at : at + width] for at in range(0, x.shape[-1], width)]
    runs = [np.take_along_axis(each, argsort(each, -1, descending), -1) for each in parts]
    args = (np.concatenate(runs, -1) if runs else x,)
    return Case(args, {"width": width, "descending": descending})


@case("merge_planes")
def _merge_planes(draw: Draw, _: str) -> Case:
    shape = (*draw(shapes(0, 2)), draw(st.integers(1, 3)), draw(st.integers(0, 11)))
    x = one(draw, NUMBERS, shape, wild=True)
    width, descending = draw(st.integers(1, 6)), draw(st.booleans())
    keys = [x[..., 0, at : at + width] for at in range(0, x.shape[-1], width)]
    order = [argsort(each, -1, descending) + n * width for n, each in enumerate(keys)]
    x[..., 0, :] = np.take_along_axis(x[..., 0, :], np.concatenate(order, -1), -1) if order else 0
    return Case((x,), {"width": width, "descending": descending})


@case("searchsorted")
def _search(draw: Draw, _: str) -> Case:
    shape = longer(draw, 1)
    dtype = draw(st.sampled_from(NUMBERS))
    table = draw(array(dtype, shape, wild=True))
    table = np.take_along_axis(table, argsort(table), -1)
    more = (*shape[:-1], draw(st.integers(0, 4))) if len(shape) > 1 else draw(shapes(0, 2))
    x = draw(array(dtype, more, wild=True))
    return Case((table, x), {"side": draw(st.sampled_from(["left", "right"]))})


@case("unique")
def _unique(draw: Draw, _: str) -> Case:
    return Case((one(draw, ORDERED, wild=True),), {"sorted": draw(st.booleans())})


@case("argwhere")
def _argwhere(draw: Draw, _: str) -> Case:
    return Case((one(draw, ORDERED, draw(shapes(0, 3))),), {})


def _merged(x: Array, width: int, descending: bool = False) -> Array:
    whole = np.zeros(x.shape, np.int64)
    for at in range(0, x.shape[-1], 2 * width):
        part = slice(at, at + 2 * width)
        whole[..., part] = at + argsort(x[..., part], -1, descending)
    return whole


def _searched(table: Array, x: Array, side: Any = "left") -> Array:
    table, x = comparable(table), comparable(x)
    if table.ndim == 1:
        return np.asarray(np.searchsorted(table, x, side))
    found = np.zeros(x.shape, np.int64)
    for at in np.ndindex(*table.shape[:-1]):
        found[at] = np.searchsorted(table[at], x[at], side)
    return found


def _chosen(x: Array, k: int, axis: int = -1, largest: bool = True) -> tuple[Array, Array]:
    places = np.take(argsort(x, axis, largest), np.arange(k), axis)
    return np.take_along_axis(x, places, axis), places


def _different(x: Array, sorted: bool = True) -> tuple[Any, ...]:
    flat = np.ravel(x)
    _, first, inverse, counts = np.unique(
        comparable(flat), return_index=True, return_inverse=True, return_counts=True
    )
    if not sorted:
        seen = np.argsort(first)
        inverse = np.argsort(seen)[inverse] if len(seen) else inverse
        first, counts = first[seen], counts[seen]
    count, rest = len(first), flat.size - len(first)
    # What lies past the count is the greatest element in the sorted order.
    last = argsort(flat)[-1:]
    first = np.concatenate([first, np.repeat(last, rest)])
    counts = np.concatenate([counts, np.zeros(rest, np.int64)])
    return flat[first], first, inverse.reshape(-1), counts, np.int64(count)


def _places(x: Array) -> tuple[Any, ...]:
    found = np.argwhere(x)
    rest = np.full((x.size - len(found), x.ndim), -1)
    return np.concatenate([found, rest]), np.int64(len(found))


REFERENCE.update(
    {
        "argsort": argsort,
        "sort": lambda x, axis=-1, descending=False: np.take_along_axis(
            x, argsort(x, axis, descending), axis
        ),
        "topk": _chosen,
        "first_places": lambda x, k, descending=False, axis=-1: argsort(x, axis, descending).take(
            range(k), axis
        ),
        "merge_runs": _merged,
        "merge_planes": lambda x, width, descending=False: np.take_along_axis(
            x, np.broadcast_to(_merged(x[..., 0, :], width, descending)[..., None, :], x.shape), -1
        ),
        "searchsorted": _searched,
        "unique": _different,
        "argwhere": _places,
    }
)
