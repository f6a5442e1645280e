"""Lanes: all elements of a tensor expression evaluated together.

Note [Guards]: nothing is skipped lane by lane.  A load outside its buffer gives some element and a
*mark* at that place: the number of the load.  Marks flow with the values, and a `Select`, `And` or
`Or` drops those of the side it does not choose.  Only a mark that reaches the result is an error.
No marks at all are None, the usual case.

>>> places, marks = locate((3,), code=1)(np.array([0, 5]))
>>> places, marks
(array([0, 2]), array([0, 1], dtype=uint8))
>>> choose(np.array([True, False]), None, marks, None) is None
True
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from plica.ir.interpret.array_arithmetic import Array, Function, binary
from plica.ir.loop.scalar import And, Max, Min, Or, Scalar, Select


def strides_of(shape: tuple[int, ...]) -> list[int]:
    strides = [1] * len(shape)
    for at in range(len(shape) - 2, -1, -1):
        strides[at] = strides[at + 1] * shape[at + 1]
    return strides


def laid(low: int, high: int, ahead: int) -> Array:
    """The numbers of a range along the dimension `ahead` from the last."""
    return np.arange(low, high, dtype=np.int64).reshape((-1,) + (1,) * (ahead - 1))


def locate(shape: tuple[int, ...], code: int) -> Function:
    """From indices to places in the flat buffer, and marks where they are outside."""
    strides = strides_of(shape)

    def locate(*indices: Any) -> tuple[Any, Any]:
        places: Any = 0
        marks = None
        for index, size, stride in zip(indices, shape, strides, strict=True):
            index = np.asarray(index, np.int64)
            if int(index.min()) < 0 or int(index.max()) >= size:
                outside = ((index < 0) | (index >= size)).astype(np.uint8) * np.uint8(code)
                marks = outside if marks is None else np.maximum(marks, outside)
                index = np.clip(index, 0, max(0, size - 1))
            places = places + index * stride if stride != 1 else places + index
        return places, marks

    return locate


def take(array: Array, found: tuple[Any, Any]) -> Array:
    if array.size == 0:
        return np.zeros(np.shape(found[0]), array.dtype)
    return np.asarray(array.reshape(-1).take(found[0]))


def either(*marks: Any) -> Any:
    some = [mark for mark in marks if mark is not None]
    if len(some) < 2:
        return some[0] if some else None
    total = some[0]
    for each in some[1:]:
        total = np.maximum(total, each)
    return total


def _where_true(condition: Any, marks: Any) -> Any:
    if marks is None:
        return None
    kept = np.where(condition, marks, np.uint8(0))
    return kept if kept.any() else None


def choose(condition: Any, of_condition: Any, then: Any, orelse: Any) -> Any:
    chosen = _where_true(condition, then), _where_true(np.logical_not(condition), orelse)
    return either(of_condition, *chosen)


CHOOSE: Final[dict[type[Scalar], Function]] = {
    Select: choose,
    And: lambda left, of_left, of_right: either(of_left, _where_true(left, of_right)),
    Or: lambda left, of_left, of_right: either(
        of_left, _where_true(np.logical_not(left), of_right)
    ),
}


def rows(value: Any, sizes: tuple[int, ...], rank: int, keep: bool = False) -> Array:
    """The elements of a chunk, its points along the first dimension, the rest as it was."""
    array = np.asarray(value)
    array = array.reshape((1,) * (rank - array.ndim) + array.shape)
    depth, rest = len(sizes), array.shape[len(sizes) :]
    if not keep and array.shape[:depth] != sizes:
        array = np.broadcast_to(array, sizes + rest)
    return array.reshape((-1, *rest))


def fold(combiner: str, is_float: bool) -> Callable[[Any, Array], Any]:
    """Combine a total with rows, in order where the order matters."""
    function: Any = {
        "sum": np.add,
        "prod": np.multiply,
        "max": np.maximum,
        "min": np.minimum,
        "all": np.logical_and,
        "any": np.logical_or,
    }[combiner]

    def at_once(total: Any, rows: Array) -> Any:
        dtype = rows.dtype
        return function(total, rows[0] if len(rows) == 1 else function.reduce(rows, 0, dtype))

    def in_order(total: Any, rows: Array) -> Any:
        if len(rows) == 1:
            return function(total, rows[0])
        if rows[0].size < 64:
            first = np.broadcast_to(np.asarray(total, rows.dtype), rows.shape[1:])
            return function.accumulate(np.concatenate((first[None], rows)), 0)[-1]
        result = function(total, rows[0])
        for row in rows[1:]:
            function(result, row, out=result)
        return result

    def extreme(total: Any, rows: Array) -> Any:
        found = function.reduce(rows, 0, rows.dtype)
        if np.all(found):
            return function(total, found)
        # The sign of a zero follows the law, not numpy's order: halves are compared pairwise.
        lawful = binary(Max if combiner == "max" else Min)
        while len(rows) > 1:
            half = len(rows) // 2
            halved = lawful(rows[:half], rows[half : 2 * half])
            rows = np.concatenate((halved, rows[2 * half :])) if len(rows) % 2 else halved
        return lawful(total, rows[0])

    if not is_float or combiner not in ("sum", "prod", "max", "min"):
        return at_once
    return in_order if combiner in ("sum", "prod") else extreme
