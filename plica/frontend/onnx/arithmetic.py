"""Shape arithmetic: what integer operators give on index terms.

>>> from plica.ir.type.dim import dim_var
>>> _divided(dim_var("n"), 0) is None
True
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import accumulate
from typing import Any, Final

import numpy as np

from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.storage import Array
from plica.frontend.onnx.value import TensorValue, as_objects, of_terms
from plica.ir.graph.expression import const
from plica.ir.loop.scalar import FloorDiv, Max, Min, Scalar, ScalarVar, index
from plica.ir.type.dim import known, normal_dim, polynomial, same_dim

Term = Any  # int or Scalar: numpy's arrays of objects do not say


def shape_arithmetic(node: OnnxNode, value: TensorValue) -> TensorValue:
    """The value, with its integers as far as they are known."""
    compute = _TABLE.get(node.proto.op_type)
    if compute is None or value.dims is not None or not _any_terms(node):
        return value
    if not (value.type.dtype.is_integer or value.type.dtype.kind == "bool"):
        return value
    arrays = [None if each is None else each.terms() for each in node.inputs]
    if any(a is None for a, each in zip(arrays, node.inputs, strict=True) if each is not None):
        return value
    if (array := compute(node, *arrays)) is None:
        return value
    if value.type.dtype.kind == "bool":
        return TensorValue(const(np.asarray(array, bool)))
    return of_terms(array, value.expr, value.type.dtype)


def split_arithmetic(node: OnnxNode, values: list[TensorValue]) -> list[TensorValue]:
    """The parts of a vector of index terms, where a node splits one."""
    first = node.inputs[0] if node.inputs else None
    if node.proto.op_type != "Split" or first is None or first.dims is None:
        return values
    sizes = [known(value.type.shape[0]) for value in values if len(value.type.shape) == 1]
    if len(sizes) != len(values) or None in sizes:
        return values
    starts = accumulate((size or 0 for size in sizes), initial=0)
    return [
        of_terms(first.dims[start : start + (size or 0)], value.expr, value.type.dtype)
        for start, size, value in zip(starts, sizes, values, strict=False)
    ]


def _any_terms(node: OnnxNode) -> bool:
    return any(value is not None and value.dims is not None for value in node.inputs)


def _elementwise(function: Callable[[Term, Term], Term | None]) -> Callable[..., Array | None]:
    def compute(node: OnnxNode, *arrays: Array) -> Array | None:
        whole = arrays[0]
        for array in arrays[1:]:
            left, right = np.broadcast_arrays(whole, array)
            flat = [function(a, b) for a, b in zip(left.flat, right.flat, strict=True)]
            if any(one is None for one in flat):
                return None
            whole = as_objects(flat, left.shape)
        return whole

    return compute


def is_size(term: Term) -> bool:
    """Whether a term is 0 or more whatever its dims are: a sum of positive products of dims."""
    if isinstance(term, int):
        return term >= 0
    return all(
        factor > 0 and all(isinstance(atom, ScalarVar) for atom in atoms)
        for atoms, factor in polynomial(term).values()
    )


def _divided(a: Term, b: Term) -> Term | None:
    """Division rounded towards zero, which is down where both sides are no less than zero."""
    if isinstance(a, int) and isinstance(b, int):
        return None if b == 0 else (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)
    if not isinstance(b, int) or b <= 0 or not is_size(a):
        return None
    return normal_dim(FloorDiv(a, index(b)))


def _equal(a: Term, b: Term) -> bool | None:
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    left, right = (each if isinstance(each, Scalar) else index(each) for each in (a, b))
    if same_dim(left, right):
        return True
    if (apart := known(normal_dim(left - right))) is not None:
        return apart == 0
    # A size is never negative: the -1 that exported models compare dims with is none.
    negative = (isinstance(a, int) and a < 0 and is_size(b)) or (
        isinstance(b, int) and b < 0 and is_size(a)
    )
    return False if negative else None


def _least(a: Term, b: Term) -> Term | None:
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    return normal_dim(Min(*(x if isinstance(x, Scalar) else index(x) for x in (a, b))))


def _greatest(a: Term, b: Term) -> Term | None:
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    return normal_dim(Max(*(x if isinstance(x, Scalar) else index(x) for x in (a, b))))


def _gather(node: OnnxNode, data: Array, indices: Array) -> Array | None:
    axis = node.integer("axis", 0)
    size = data.shape[axis]
    if any(not isinstance(each, int) or not -size <= each < size for each in indices.flat):
        return None
    return np.asarray(np.take(data, indices.astype(np.int64), axis=axis), object)


def _squeeze(node: OnnxNode, data: Array, axes: Array | None = None) -> Array:
    given = node.integers("axes") if axes is None else tuple(int(each) for each in axes.flat)
    if given is None:
        return np.squeeze(data)
    return np.squeeze(data, tuple(axis % data.ndim for axis in given))


def _unsqueeze(node: OnnxNode, data: Array, axes: Array | None = None) -> Array:
    given = node.integers("axes") if axes is None else tuple(int(each) for each in axes.flat)
    return np.expand_dims(data, tuple(given or ()))


def _slice(
    node: OnnxNode,
    data: Array,
    starts: Array | None = None,
    ends: Array | None = None,
    *more: Array | None,
) -> Array | None:
    if starts is None or ends is None:
        low, high = node.integers("starts") or (), node.integers("ends") or ()
        axes = node.integers("axes") or tuple(range(len(low)))
        steps: tuple[int, ...] = (1,) * len(low)
    else:
        if any(not isinstance(one, int) for a in (starts, ends, *more) if a is not None
               for one in a.flat):  # fmt: skip
            return None
        low, high = tuple(starts.flat), tuple(ends.flat)
        given, strides = (*more, None, None)[:2]
        axes = tuple(range(len(low))) if given is None else tuple(given.flat)
        steps = (1,) * len(low) if strides is None else tuple(strides.flat)
    cut: list[slice] = [slice(None)] * data.ndim
    for start, stop, axis, step in zip(low, high, axes, steps, strict=True):
        last = None if step < 0 and stop < -data.shape[axis] else stop
        cut[axis] = slice(start, last, step)
    return data[tuple(cut)]


def _reshape(node: OnnxNode, data: Array, shape: Array) -> Array | None:
    if any(not isinstance(each, int) for each in shape.flat):
        return None
    sizes = [data.shape[at] if size == 0 else size for at, size in enumerate(shape.flat)]
    return data.reshape(sizes)


def _where(node: OnnxNode, condition: Array, yes: Array, no: Array) -> Array | None:
    if any(not isinstance(each, int | bool) for each in condition.flat):
        return None
    flags, a, b = np.broadcast_arrays(condition, yes, no)
    flat = [x if bool(c) else y for c, x, y in zip(flags.flat, a.flat, b.flat, strict=True)]
    return as_objects(flat, flags.shape)


def _product(node: OnnxNode, data: Array, axes: Array | None = None) -> Array | None:
    if data.ndim != 1:
        return None
    whole = math.prod(data.tolist(), start=1)
    keep = node.flag("keepdims", True)
    return as_objects([whole], (1,) if keep else ())


def _total(node: OnnxNode, data: Array, axes: Array | None = None) -> Array | None:
    if data.ndim != 1:
        return None
    whole: Term = sum(data.tolist())
    return as_objects([whole], (1,) if node.flag("keepdims", True) else ())


def _expand(node: OnnxNode, data: Array, shape: Array) -> Array | None:
    if any(not isinstance(each, int) for each in shape.flat):
        return None
    return np.asarray(data * np.ones(tuple(shape.flat), object), object)


# fmt: off
_TABLE: Final[dict[str, Callable[..., Array | None]]] = {
    "Identity":   lambda node, data: data,
    "Cast":       lambda node, data: data,
    "Add":        _elementwise(lambda a, b: a + b),
    "Sub":        _elementwise(lambda a, b: a - b),
    "Mul":        _elementwise(lambda a, b: a * b),
    "Div":        _elementwise(_divided),
    "Min":        _elementwise(_least),
    "Max":        _elementwise(_greatest),
    "Equal":      _elementwise(_equal),
    "Neg":        lambda node, data: as_objects([-each for each in data.flat], data.shape),
    "Concat":     lambda node, *parts: np.concatenate(parts, axis=node.integer("axis", 0)),
    "Gather":     _gather,
    "Squeeze":    _squeeze,
    "Unsqueeze":  _unsqueeze,
    "Slice":      _slice,
    "Reshape":    _reshape,
    "Where":      _where,
    "Expand":     _expand,
    "ReduceProd": _product,
    "ReduceSum":  _total,
}
# fmt: on
