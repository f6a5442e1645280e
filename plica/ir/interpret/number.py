"""Numbers: what each operation of a scalar term does to single numbers.

Integers are Python's, wrapped to their dtype; floats are Python's, rounded to theirs; bools are
Python's. Operations are defined by their table rows; `plica.ir.interpret.evaluate` implements the
same on whole arrays, and a property test compares the two.

>>> from plica.ir.type.dtype import i8
>>> binary(Add, i8)(127, 1), binary(FloorDiv, i8)(5, 0), binary(Div, f32)(1.0, 0.0)
(-128, 0, inf)
>>> cast(f32, i8)(300.0), cast(f32, i8)(float("nan"))
(127, 0)

Callers silence numpy's warnings about overflow; the results are defined all the same.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np

from plica.core import CompilerBug
from plica.ir.loop import scalar as sc
from plica.ir.loop.scalar import Add, Div, FloorDiv
from plica.ir.loop.scalar_row import Function, ScalarRow
from plica.ir.loop.scalar_table import ROWS
from plica.ir.type import DType, bool_, f32, f64

__all__ = [
    "Add", "Div", "FloorDiv", "binary", "cast", "combine", "identity", "intrinsic", "rounding",
]  # fmt: skip

# Any: a number is a bool, an int or a float as its dtype says, and Python adds them all alike.
Unary: TypeAlias = Callable[[Any], Any]


@lru_cache(maxsize=1024)
def binary(kind: type[sc.Scalar], dtype: DType) -> Function:
    """The meaning of a two-sided operation whose left side has the dtype."""
    row = sc.ROW_OF[kind]
    if (exact := row.numbers.get(dtype.kind)) is None:
        if dtype.is_float and "float" in row.takes:
            return _by_numpy(row, dtype)
        raise CompilerBug(f"{kind.__name__} has no meaning for {dtype}.")
    if row.is_bool or not row.rounds or dtype is f64 or dtype is bool_:
        return exact
    narrow = rounding(dtype)
    if kind in (sc.ShiftLeft, sc.ShiftRight):
        bits = dtype.bits
        return lambda a, b: narrow(exact(a, b, bits))
    return lambda a, b: narrow(exact(a, b))


@lru_cache(maxsize=64)
def rounding(dtype: DType) -> Unary:
    """Into the dtype: integers wrap around, floats round to nearest even."""
    if dtype is bool_:
        return bool
    if dtype is f64:
        return float
    if dtype.is_float:
        kind = dtype.numpy.type
        if dtype.row.by_way_of_f32:
            single = np.float32
            return lambda x: float(kind(single(x)))
        return lambda x: float(kind(x))
    low, high = dtype.bounds
    span = high - low + 1
    return lambda x: x if low <= x <= high else (x - low) % span + low


@lru_cache(maxsize=256)
def cast(source: DType, target: DType) -> Unary:
    """A number of one dtype in another."""
    if source is target:
        return lambda x: x
    if target is bool_:
        return lambda x: x != 0
    narrow = rounding(target)
    if target.is_float:
        return narrow if source.is_float else _to_float(source, target, narrow)
    if not source.is_float:
        return lambda x: narrow(int(x))
    low, high = target.bounds

    def saturate(x: float) -> int:
        if math.isnan(x):
            return 0
        if math.isinf(x):
            return high if x > 0 else low
        return min(max(int(x), low), high)

    return saturate


@lru_cache(maxsize=256)
def intrinsic(name: str, dtype: DType) -> Function:
    """A function of the library on numbers of a dtype."""
    row = ROWS.get(name)
    exact = None if row is None else row.numbers.get(dtype.kind)
    if row is None or (exact is None and dtype.kind not in row.takes):
        raise CompilerBug(f"The intrinsic {name} has no meaning for {dtype}.")
    if exact is None:
        return _by_numpy(row, dtype)
    if row.is_bool:
        return exact
    narrow = rounding(dtype)
    return lambda *args: narrow(exact(*args))


COMBINERS: Final[dict[str, type[sc.Scalar]]] = {
    "sum": Add, "prod": sc.Mul, "max": sc.Max, "min": sc.Min, "all": sc.And, "any": sc.Or,
}  # fmt: skip
"""What each combiner of a reduction does in one step."""


def identity(combiner: str, dtype: DType) -> sc.Number:
    """The result of a reduction over no elements: the identity of its operation."""
    match sc.ROW_OF[COMBINERS[combiner]].unit:
        case "zero":
            return rounding(dtype)(0)  # type: ignore[no-any-return]  # numbers
        case "one":
            return rounding(dtype)(1)  # type: ignore[no-any-return]  # numbers
        case "least":
            return -math.inf if dtype.is_float else dtype.bounds[0]
        case "greatest":
            return math.inf if dtype.is_float else dtype.bounds[1]
        case None:
            raise CompilerBug(f"A reduction by {combiner} has no unit.")


@lru_cache(maxsize=64)
def combine(combiner: str, dtype: DType) -> Function:
    """One step of a reduction."""
    if combiner in ("all", "any"):
        return operator.and_ if combiner == "all" else operator.or_
    return binary(COMBINERS[combiner], dtype)


def _to_float(source: DType, target: DType, narrow: Unary) -> Unary:
    """Integers are rounded as arrays are: to narrow floats via f32."""
    exact = 1 << (24 if target.is_narrow else 53)

    def convert(x: int) -> float:
        if -exact <= x <= exact:
            return narrow(float(x))  # type: ignore[no-any-return]  # a float
        return float(np.asarray(x, source.numpy).astype(target.numpy))

    return convert


def _by_numpy(row: ScalarRow, dtype: DType) -> Function:
    """A function of numpy at the dtype itself, so that it rounds as arrays do."""
    narrow, function = rounding(DType(row.gives) if row.gives else dtype), row.array
    detour = dtype.row.by_way_of_f32 and not row.is_direct
    kind = (f32 if detour else dtype).numpy.type
    if dtype.is_float:
        return lambda *args: narrow(function(*[kind(arg) for arg in args]))
    whole = float if row.gives else int
    return lambda *args: narrow(whole(function(*[kind(arg) for arg in args])))
