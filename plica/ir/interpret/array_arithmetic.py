"""Arithmetic on arrays: what each operation of a scalar term does to numpy arrays.

Operations are defined by their row of `plica.ir.loop.scalar_table`. Every function is total:
elements behind a false guard may hold anything. Integers convert to narrow floats, and f64 to those
of ml_dtypes, via f32, as ml_dtypes does.

>>> import numpy as np
>>> cast(np.float32([300.0, np.nan, -1.5]), i8)
array([127,   0,  -1], dtype=int8)
>>> binary(Pow)(np.int8([7, -7]), np.int8([-1, 2]))
array([ 0, 49], dtype=int8)

Callers silence numpy's warnings about overflow and invalid values.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from plica.core import CompilerBug
from plica.ir.interpret.number import identity as unit
from plica.ir.loop.scalar import ROW_OF, Pow, Scalar
from plica.ir.loop.scalar_row import Function
from plica.ir.loop.scalar_table import ROWS
from plica.ir.type import DType, bool_, dtype, i8

__all__ = ["Array", "Function", "Pow", "binary", "cast", "constant", "i8", "identity", "intrinsic"]

# Any: numpy's type parameters would say nothing here, the element type is a dtype of ours.
Array: TypeAlias = "np.ndarray[Any, Any]"


def constant(value: bool | int | float, dtype: DType) -> Any:
    """A number as an array of rank 0."""
    return np.asarray(value, dtype.numpy)


def identity(combiner: str, dtype: DType) -> Any:
    """The result of a reduction over no elements."""
    return constant(unit(combiner, dtype), dtype)


def cast(value: Any, target: DType) -> Any:
    """Elements in another dtype."""
    array = np.asarray(value)
    if array.dtype == target.numpy:
        return array
    if target is bool_:
        return array != 0
    source = dtype(array.dtype)
    if source.bits < 8 and source is not bool_:
        to = np.float32 if source.is_float else np.int8
        array = array.astype(to)  # ml_dtypes does not convert them to one another
    if source.is_float and target.is_float and target.row.special == "none":
        array = np.where(np.isnan(array), np.nan, array)  # of either sign: they become -0
    if target.is_float or not source.is_float:
        return array.astype(target.numpy)
    low, high = target.bounds
    exact = array.astype(np.float64)
    # The bounds are powers of two, or one less: compared with the power they are exact in f64.
    above, below = exact >= float(high + 1), exact < float(low)
    inside = np.where(above | below | np.isnan(exact), 0.0, exact).astype(target.numpy)
    inside = np.where(above, constant(high, target), inside)
    return np.where(below, constant(low, target), inside)


def binary(kind: type[Scalar]) -> Function:
    """The meaning of an operation on one or two arrays."""
    if kind not in ROW_OF:
        raise CompilerBug(f"{kind.__name__} has no meaning on arrays.")
    return ROW_OF[kind].array


def intrinsic(name: str, dtype: DType) -> Function:
    """A function of the library on arrays of a dtype."""
    if (row := ROWS.get(name)) is None:
        raise CompilerBug(f"The intrinsic {name} has no meaning on arrays.")
    through = dtype.row.by_way_of_f32 and not row.is_direct
    return _through_f32(row.array, dtype) if through else row.array


def _through_f32(function: Function, dtype: DType) -> Function:
    def rounded(*args: Any) -> Any:
        return function(*[np.asarray(arg, np.float32) for arg in args]).astype(dtype.numpy)

    return rounded
