"""Meanings at speed: a tensor expression over one element, applied to many elements at once.

>>> from plica.codegen.accel.vta import vta
>>> gemm = vta().operation("gemm").does
>>> product = contraction(gemm.meaning)
>>> product.subscripts, product.operands
(('ac', 'bc', 'ab'), (1, 2))

A sum of products that is added to the old element is a `Contraction`, which one call of BLAS does
for all elements that meet the same right side.  Anything else is evaluated term by term, each a
numpy operation over all elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
from attrs import frozen

from plica.core.fold import post_order
from plica.core.term import Term
from plica.ir import scalar as s
from plica.ir.dtype import DType
from plica.ir.scalar import Buffer, Cast, Lit, Load, Mul, Reduce, Scalar, ScalarVar, Select
from plica.ir.size import shape_of
from plica.ir.tensor import Compute
from plica.runtime.error import Diagnostic, UnsupportedError

Array = np.ndarray[Any, Any]

# fmt: off
_BINARY: Final[dict[type[Scalar], Any]] = {  # Any: numpy's functions
    s.Add: np.add,          s.Sub: np.subtract,      s.Mul: np.multiply,
    s.Min: np.minimum,      s.Max: np.maximum,
    s.BitAnd: np.bitwise_and, s.BitOr: np.bitwise_or, s.BitXor: np.bitwise_xor,
    s.Eq: np.equal,         s.Ne: np.not_equal,      s.Lt: np.less,         s.Le: np.less_equal,
}
# fmt: on

_REDUCE: Final[dict[str, np.ufunc]] = {
    "sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum,
}  # fmt: skip


@frozen
class Contraction:
    """`old + sum of left * right`: letters of the left, of the right, of the result."""

    subscripts: tuple[str, str, str]
    operands: tuple[int, int]
    inner: int

    def exact(self, dtypes: tuple[DType, DType]) -> Any:
        """The type in which the sums are exact: the narrowest float that BLAS has, or i64."""
        if not all(each.kind in ("int", "uint") for each in dtypes):
            return np.result_type(*(each.numpy for each in dtypes))
        most = self.inner
        for each in dtypes:
            most *= max(abs(bound) for bound in each.bounds)
        if most <= 1 << 24:
            return np.float32
        return np.float64 if most <= 1 << 53 else np.int64


@lru_cache(maxsize=256)
def contraction(meaning: Compute) -> Contraction | None:
    """The meaning as a contraction added to the first element, if it is one."""
    body = meaning.body
    if not isinstance(body, s.Add) or not meaning.inputs:
        return None
    if body.left is not Load(meaning.inputs[0], meaning.axes):
        return None
    product: Scalar = body.right
    bound: tuple[ScalarVar, ...] = ()
    if isinstance(product, Reduce):
        if product.combiner != "sum":
            return None
        bound, product = product.axes, product.body
    if not isinstance(product, Mul):
        return None
    axes = (*meaning.axes, *bound)
    letters = {axis: chr(ord("a") + at) for at, axis in enumerate(axes)}
    words: list[str] = []
    which: list[int] = []
    sizes: dict[str, int] = {}
    for side in (product.left, product.right):
        load = side.value if isinstance(side, Cast) else side
        if not isinstance(load, Load) or any(each not in letters for each in load.indices):
            return None
        if load.buffer is meaning.inputs[0] or len(set(load.indices)) < len(load.indices):
            return None
        words.append("".join(letters[each] for each in load.indices))  # type: ignore[index]  # they are axes
        which.append(meaning.inputs.index(load.buffer))
        sizes.update(zip(words[-1], _shape(load.buffer), strict=True))
    inner = 1
    for axis in bound:
        if letters[axis] not in words[0] or letters[axis] not in words[1]:
            return None
        inner *= sizes[letters[axis]]
    result = "".join(letters[axis] for axis in meaning.axes)
    return Contraction((words[0], words[1], result), (which[0], which[1]), inner)


def apply(meaning: Compute, inputs: Sequence[Array], given: Mapping[str, int]) -> Array:
    """The result for each of many elements: all arrays have an axis for them in front.

    `given` are the values of the free variables, by name.
    """
    count = len(inputs[0]) if inputs else 1
    reduces = [each for each in post_order(meaning.body) if isinstance(each, Reduce)]
    axes = (*meaning.axes, *(axis for each in reduces for axis in each.axes))
    sizes = [*_sizes(meaning.shape), *(size for each in reduces for size in _sizes(each.extents))]
    grid: dict[Term, Array] = {}
    for at, (axis, size) in enumerate(zip(axes, sizes, strict=True), 1):
        shape = [1] * (len(axes) + 1)
        shape[at] = size
        grid[axis] = np.arange(size).reshape(shape)
    everyone = np.arange(count).reshape([count] + [1] * len(axes))
    around = _Around(grid, dict(zip(meaning.inputs, inputs, strict=True)), everyone, given)
    memo: dict[Term, Array] = {}
    with np.errstate(over="ignore"):
        for node in post_order(meaning.body):
            if isinstance(node, Scalar):
                memo[node] = _value(node, memo, around)
    result = memo[meaning.body]
    shown = result.reshape(result.shape[: 1 + len(meaning.axes)])
    return np.broadcast_to(shown, (count, *sizes[: len(meaning.axes)]))


@frozen
class _Around:
    """What the variables of a meaning are: axes, elements, and operands of the instruction."""

    grid: Mapping[Term, Array]
    inputs: Mapping[Buffer, Array]
    everyone: Array
    given: Mapping[str, int]

    def number(self, value: float, dtype: DType) -> Array:
        return np.full((1,) * self.everyone.ndim, value, dtype.numpy)


def _value(node: Scalar, memo: Mapping[Term, Array], around: _Around) -> Array:
    make = _BINARY.get(type(node))
    if make is not None:
        left, right = node._children
        made: Array = make(memo[left], memo[right])
        return made
    match node:
        case Lit(value, dtype):
            return around.number(value, dtype)
        case ScalarVar(name, dtype):
            known = around.grid.get(node)
            return around.number(around.given[str(name)], dtype) if known is None else known
        case Load(buffer, indices):
            places = (around.everyone, *(memo[each] for each in indices))
            loaded: Array = around.inputs[buffer][places]
            return loaded
        case Cast(value, dtype):
            return memo[value].astype(dtype.numpy)
        case Select(condition, then, orelse):
            return np.where(memo[condition], memo[then], memo[orelse])
        case s.ShiftLeft(left, right) | s.ShiftRight(left, right):
            return _shift(node, memo[left], memo[right])
        case Reduce(combiner, axes, _, body) if combiner in _REDUCE:
            along = tuple(list(around.grid).index(axis) + 1 for axis in axes)
            shapes = [memo[body].shape, *(around.grid[axis].shape for axis in axes)]
            wide = np.broadcast_to(memo[body], np.broadcast_shapes(*shapes))
            reduced: Array = _REDUCE[combiner].reduce(
                wide, axis=along, keepdims=True, dtype=wide.dtype
            )
            return reduced
        case _:
            raise UnsupportedError(
                Diagnostic(
                    "unsupported",
                    f"The meaning of an instruction uses {type(node).__name__}.",
                    suggestion="Write it with sums, products, minima, maxima, shifts and choices.",
                )
            )


def _shift(node: Scalar, value: Array, by: Array) -> Array:
    """A shift by the width or more gives 0, or all sign bits; what is negative is not looked at."""
    most = value.dtype.itemsize * 8
    some = np.clip(by, 0, most - 1).astype(value.dtype)
    if isinstance(node, s.ShiftRight):
        right: Array = value >> some
        return right
    return np.where(by >= most, np.zeros_like(value), value << some)


def _shape(buffer: Buffer) -> tuple[int, ...]:
    return _sizes(buffer.shape)


def _sizes(shape: Sequence[Scalar]) -> tuple[int, ...]:
    known = shape_of(tuple(shape), {})
    assert known is not None  # the shapes of elements are numbers
    return known
