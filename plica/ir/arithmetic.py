"""Arithmetic on arrays: what each operation of a scalar term does to numpy arrays.

The laws stand in `plica.ir.scalar`; where numpy's own function obeys them it is used as it is.
Every function is total: elements that no one may look at (behind a guard) can hold anything.
Integers convert to the narrow floats, and f64 to those of ml_dtypes, by way of f32, as they do it.

>>> import numpy as np
>>> cast(np.float32([300.0, np.nan, -1.5]), i8)
array([127,   0,  -1], dtype=int8)
>>> binary(Pow)(np.int8([7, -7]), np.int8([-1, 2]))
array([ 0, 49], dtype=int8)

Callers silence numpy's warnings about overflow and invalid values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np

from plica.core.diagnostic import CompilerBug
from plica.ir.dtype import DType, bool_, dtype, i8
from plica.ir.scalar import (
    Add,
    And,
    BitAnd,
    BitOr,
    BitXor,
    Div,
    Eq,
    FloorDiv,
    FloorMod,
    Le,
    Lt,
    Max,
    Min,
    Mul,
    Ne,
    Not,
    Or,
    Pow,
    Scalar,
    ShiftLeft,
    ShiftRight,
    Sub,
)

__all__ = ["Array", "Function", "binary", "cast", "constant", "i8", "identity", "intrinsic"]

# Any: numpy's type parameters would say nothing here, the element type is a dtype of ours.
Array: TypeAlias = "np.ndarray[Any, Any]"
Function: TypeAlias = Callable[..., Any]


def constant(value: bool | int | float, dtype: DType) -> Any:
    """A number as an array of rank 0."""
    return np.asarray(value, dtype.numpy)


def identity(combiner: str, dtype: DType) -> Any:
    """What a reduction over nothing gives."""
    match combiner:
        case "sum" | "any":
            return constant(0, dtype)
        case "prod" | "all":
            return constant(1, dtype)
        case "max":
            return constant(-math.inf if dtype.is_float else dtype.bounds[0], dtype)
        case _:
            return constant(math.inf if dtype.is_float else dtype.bounds[1], dtype)


def cast(value: Any, target: DType) -> Any:
    """Elements in another dtype."""
    array = np.asarray(value)
    if array.dtype == target.numpy:
        return array
    if target is bool_:
        return array != 0
    source = dtype(array.dtype)
    if source.bits < 8 and source is not bool_:
        array = array.astype(np.int8)  # ml_dtypes does not convert them to one another
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
    if kind not in _OPERATIONS:
        raise CompilerBug(f"{kind.__name__} has no meaning on arrays.")
    return _OPERATIONS[kind]


def intrinsic(name: str, dtype: DType) -> Function:
    """A function of the library on arrays of a dtype."""
    if name not in _INTRINSICS:
        raise CompilerBug(f"The intrinsic {name} has no meaning on arrays.")
    function = _INTRINSICS[name]
    through = dtype.row.by_way_of_f32 and name not in _DIRECT
    return _through_f32(function, dtype) if through else function


def _through_f32(function: Function, dtype: DType) -> Function:
    def rounded(*args: Any) -> Any:
        return function(*[np.asarray(each, np.float32) for each in args]).astype(dtype.numpy)

    return rounded


def _power(x: Any, y: Any) -> Any:
    if np.asarray(x).dtype.kind in "iu":
        # Numpy refuses negative powers of integers; ours are 0.
        return np.where(y < 0, np.zeros_like(x), np.power(x, np.maximum(y, np.zeros_like(y))))
    # Where one exponent serves many elements, or there is only one, numpy takes roots of
    # -inf and -0.0 instead of powers; laid out in full it does not.
    bases, exponents = np.broadcast_arrays(x, y)
    return np.power(bases.reshape(-1), exponents.flatten()).reshape(bases.shape)


def _least(x: Any, y: Any) -> Any:
    found = np.minimum(x, y)
    zeros = _both_zero(x, y, found)
    return found if zeros is None else np.where(zeros, np.negative(-x - y), found)


def _greatest(x: Any, y: Any) -> Any:
    found = np.maximum(x, y)
    zeros = _both_zero(x, y, found)
    return found if zeros is None else np.where(zeros, x + y, found)


def _both_zero(x: Any, y: Any, like: Any) -> Any:
    """Where two floats are zeros, None if nowhere: numpy gives the sign of either."""
    if like.dtype.kind in "biu":
        return None
    zeros = np.logical_not(np.logical_or(x, y))
    return zeros if zeros.any() else None


_erf_one: Final = np.frompyfunc(math.erf, 1, 1)


def _erf(x: Any) -> Any:
    array = np.asarray(x)
    return np.asarray(_erf_one(array.astype(np.float64)), np.float64).astype(array.dtype)


def _rsqrt(x: Any) -> Any:
    root = np.sqrt(x)
    return np.divide(np.ones_like(root), root)


_OPERATIONS: Final[dict[type[Scalar], Function]] = {
    Add: np.add,
    Sub: np.subtract,
    Mul: np.multiply,
    Div: np.divide,
    FloorDiv: np.floor_divide,
    FloorMod: np.remainder,
    Min: _least,
    Max: _greatest,
    Pow: _power,
    BitAnd: np.bitwise_and,
    BitOr: np.bitwise_or,
    BitXor: np.bitwise_xor,
    ShiftLeft: np.left_shift,
    ShiftRight: np.right_shift,
    Eq: np.equal,
    Ne: np.not_equal,
    Lt: np.less,
    Le: np.less_equal,
    And: np.logical_and,
    Or: np.logical_or,
    Not: np.logical_not,
}

_INTRINSICS: Final[dict[str, Function]] = {
    **{
        name: getattr(np, name)
        for name in (
            "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos", "tan",
            "sinh", "cosh", "tanh", "floor", "ceil", "trunc", "abs", "sign", "isnan", "isinf",
            "fmod", "copysign",
        )
    },
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "atan2": np.arctan2,
    "round": np.rint,
    "rsqrt": _rsqrt,
    "erf": _erf,
}  # fmt: skip

_DIRECT: Final = frozenset({"isnan", "isinf", "abs", "erf", "rsqrt"})
"""Intrinsics that need no detour by f32 where others take it."""
