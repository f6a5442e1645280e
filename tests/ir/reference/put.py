"""Cases and meanings of the operators that put values at places."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np

from plica.ir.type.dtype import DTYPES
from tests.ir.reference.case import NUMBERS, Array, Case, Draw, array, axis_in, case, one, shapes
from tests.ir.reference.case_shape import indices
from tests.ir.reference.meaning import REFERENCE

KINDS = ("replace", "add", "mul", "max", "min")


@case("scatter_elements")
def _elements(draw: Draw, _: str) -> Case:
    shape = draw(shapes(1, 3, side=1))
    at, kind = axis_in(draw, len(shape)), draw(st.sampled_from(KINDS))
    dtype = draw(st.sampled_from(DTYPES if kind == "replace" else NUMBERS))
    part = [draw(st.integers(0, size)) for size in shape]
    part[at] = draw(st.integers(0, 5))
    places = indices(draw, shape[at], tuple(part))
    args = (draw(array(dtype, shape, finite=True)), places, draw(array(dtype, part, finite=True)))
    return Case(args, {"axis": at, "reduction": kind})


@case("scatter_nd")
def _nd(draw: Draw, _: str) -> Case:
    shape = draw(shapes(1, 3, side=1))
    kind = draw(st.sampled_from(KINDS))
    dtype = draw(st.sampled_from(DTYPES if kind == "replace" else NUMBERS))
    depth, outer = draw(st.integers(1, len(shape))), draw(shapes(0, 2))
    columns = [indices(draw, shape[at], outer).astype(np.int64) for at in range(depth)]
    updates = draw(array(dtype, (*outer, *shape[depth:]), finite=True))
    args = (draw(array(dtype, shape, finite=True)), np.stack(columns, -1), updates)
    return Case(args, {"reduction": kind})


@case("scatter_rows")
def _rows(draw: Draw, _: str) -> Case:
    shape = draw(shapes(1, 3, side=1))
    kind = draw(st.sampled_from(KINDS))
    dtype = draw(st.sampled_from(DTYPES if kind == "replace" else NUMBERS))
    named = indices(draw, shape[0], (draw(st.integers(0, 6)),))
    updates = draw(array(dtype, (*named.shape, *shape[1:]), finite=True))
    return Case((draw(array(dtype, shape, finite=True)), named, updates), {"reduction": kind})


@case("sparse_to_dense")
def _sparse(draw: Draw, _: str) -> Case:
    shape, count = draw(shapes(1, 3, side=1)), draw(st.integers(0, 4))
    columns = [indices(draw, size, (count,)).astype(np.int64) for size in shape]
    values = one(draw, DTYPES, (count,))
    return Case((np.stack(columns, -1), values), {"shape": shape, "default": 1})


@case("strided_set")
def _set(draw: Draw, _: str) -> Case:
    shape = draw(shapes(1, 3))
    steps = tuple(draw(st.sampled_from([1, 2, 3, -1, -2])) for _ in shape)
    starts, stops = (
        tuple(draw(st.one_of(st.none(), st.integers(-4, 4))) for _ in shape) for _ in range(2)
    )
    dtype = draw(st.sampled_from(DTYPES))
    x = draw(array(dtype, shape))
    part = x[_cuts(starts, stops, steps)].shape
    value = part if draw(st.booleans()) else part[draw(st.integers(0, len(part))) :]
    value = tuple(draw(st.sampled_from([size, 1])) for size in value)
    args = (x, draw(array(dtype, value)))
    return Case(args, {"starts": starts, "stops": stops, "steps": steps})


@case("matrix_set_diag")
def _diagonal(draw: Draw, _: str) -> Case:
    dtype, k = draw(st.sampled_from(DTYPES)), draw(st.integers(-3, 3))
    x = draw(array(dtype, draw(shapes(2, 4))))
    held = np.diagonal(x, k, -2, -1).shape if _has_diagonal(x, k) else (*x.shape[:-2], 0)
    return Case((x, draw(array(dtype, held))), {"k": k})


@case("nn.dilate")
def _dilate(draw: Draw, _: str) -> Case:
    x = one(draw, DTYPES)
    strides = tuple(draw(st.integers(1, 3)) for _ in x.shape)
    return Case((x,), {"strides": strides, "value": draw(st.integers(0, 1))})


def _has_diagonal(x: Array, k: int) -> bool:
    return -x.shape[-2] < k < x.shape[-1] and 0 not in x.shape[-2:]


def _cuts(starts: Any, stops: Any, steps: Any) -> tuple[slice, ...]:
    return tuple(map(slice, starts, stops, steps))


def _combined(x: Array, at: Any, update: Any, kind: str) -> None:
    with np.errstate(all="ignore"):
        here = x[at]
        if kind == "replace":
            x[at] = update
        elif kind in ("add", "mul"):
            x[at] = here + update if kind == "add" else here * update
        else:
            x[at] = np.maximum(here, update) if kind == "max" else np.minimum(here, update)


def _wide(x: Array) -> Array:
    return x.astype(np.float64) if x.dtype.itemsize <= 4 and x.dtype.kind not in "iub" else x.copy()


def _put_elements(
    x: Array, places: Array, updates: Array, axis: int = 0, reduction: str = "replace"
) -> Array:
    found, given = _wide(x), _wide(updates)
    for at in np.ndindex(*places.shape):
        target = list(at)
        target[axis] = int(places[at])
        _combined(found, tuple(target), given[at], reduction)
    return found


def _put_nd(x: Array, places: Array, updates: Array, reduction: str = "replace") -> Array:
    found, given = _wide(x), _wide(updates)
    for at in np.ndindex(*places.shape[:-1]):
        _combined(found, tuple(map(int, places[at])), given[at], reduction)
    return found


def _from_sparse(places: Array, values: Array, shape: Any, default: Any = 0) -> Array:
    return _put_nd(np.full(shape, default, values.dtype), places, values)


def _strided_set(x: Array, value: Array, starts: Any, stops: Any, steps: Any) -> Array:
    found = x.copy()
    found[_cuts(starts, stops, steps)] = value
    return found


def _with_diagonal(x: Array, diagonal: Array, k: int = 0) -> Array:
    found = x.copy()
    for i in range(diagonal.shape[-1]):
        found[..., i + max(-k, 0), i + max(k, 0)] = diagonal[..., i]
    return found


def _apart(x: Array, strides: Any, value: Any = 0) -> Array:
    sizes = [(n - 1) * s + 1 if n else 0 for n, s in zip(x.shape, strides, strict=True)]
    found = np.full(sizes, value, x.dtype)
    found[tuple(slice(None, None, s) for s in strides)] = x
    return found


REFERENCE.update(
    {
        "scatter_elements": _put_elements,
        "scatter_nd": _put_nd,
        "scatter_rows": lambda x, i, u, **how: _put_nd(x, i[:, None], u, **how),
        "sparse_to_dense": _from_sparse,
        "strided_set": _strided_set,
        "matrix_set_diag": _with_diagonal,
        "nn.dilate": _apart,
    }
)
