"""Numbers: what each operation of a scalar term does to single numbers.

Integers are Python's, wrapped to their dtype; floats are Python's, rounded to theirs; bools are
Python's.  The laws stand in `plica.ir.scalar`; `plica.ir.evaluate` has the same meaning on whole
arrays, and a property test holds the two against each other.

>>> from plica.ir.dtype import i8
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

from plica.core.diagnostic import CompilerBug
from plica.ir.dtype import DType, bool_, f32, f64
from plica.ir.scalar import (
    Add,
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
    Number,
    Pow,
    Scalar,
    ShiftLeft,
    ShiftRight,
    Sub,
)

# Any: a number is a bool, an int or a float as its dtype says, and Python adds them all alike.
Unary: TypeAlias = Callable[[Any], Any]
Function: TypeAlias = Callable[..., Any]


@lru_cache(maxsize=1024)
def binary(kind: type[Scalar], dtype: DType) -> Function:
    """The meaning of a two-sided operation whose left side has the dtype."""
    if kind in _COMPARE:
        return _COMPARE[kind]
    if dtype is bool_:
        return _found(_BOOL, kind, dtype)
    exact = _found(_FLOAT if dtype.is_float else _INTEGER, kind, dtype)
    if dtype is f64 or kind in (Min, Max):
        return exact
    if dtype.is_float and kind in (Pow, FloorDiv, FloorMod):
        return _by_numpy(_NUMPY_BINARY[kind], dtype)
    if kind in (ShiftLeft, ShiftRight):
        bits, narrow = dtype.bits, rounding(dtype)
        return lambda a, b: narrow(exact(a, b, bits))
    narrow = rounding(dtype)
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
    if name in ("isnan", "isinf"):
        return math.isnan if name == "isnan" else math.isinf
    if not dtype.is_float:
        narrow = rounding(dtype)
        if name == "abs":
            return lambda x: narrow(abs(x))
        if name == "sign":
            return lambda x: (x > 0) - (x < 0)
        raise CompilerBug(f"The intrinsic {name} has no meaning for {dtype}.")
    if name == "rsqrt":
        root, divide = intrinsic("sqrt", dtype), binary(Div, dtype)
        return lambda x: divide(1.0, root(x))
    if name == "erf":
        narrow = rounding(dtype)
        return lambda x: narrow(math.erf(x))
    if name in _NUMPY_NAMES:
        return _by_numpy(getattr(np, _NUMPY_NAMES[name]), dtype)
    raise CompilerBug(f"The intrinsic {name} has no meaning for {dtype}.")


def identity(combiner: str, dtype: DType) -> Number:
    """What a reduction over nothing gives."""
    match combiner:
        case "sum":
            return rounding(dtype)(0)  # type: ignore[no-any-return]  # numbers
        case "prod":
            return rounding(dtype)(1)  # type: ignore[no-any-return]  # numbers
        case "all":
            return True
        case "any":
            return False
        case "max":
            return -math.inf if dtype.is_float else dtype.bounds[0]
        case _:
            return math.inf if dtype.is_float else dtype.bounds[1]


@lru_cache(maxsize=64)
def combine(combiner: str, dtype: DType) -> Function:
    """One step of a reduction."""
    if combiner in ("all", "any"):
        return operator.and_ if combiner == "all" else operator.or_
    return binary({"sum": Add, "prod": Mul, "max": Max, "min": Min}[combiner], dtype)


def _found(table: dict[type[Scalar], Function], kind: type[Scalar], dtype: DType) -> Function:
    if kind not in table:
        raise CompilerBug(f"{kind.__name__} has no meaning for {dtype}.")
    return table[kind]


def _divide(a: float, b: float) -> float:
    if b:
        return a / b
    if a == 0 or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def _least(a: Any, b: Any) -> Any:
    if a == b:  # -0.0 is the lesser zero
        return a if math.copysign(1.0, a) < 0 else b
    return a if math.isnan(a) or a < b else b


def _greatest(a: Any, b: Any) -> Any:
    if a == b:  # 0.0 is the greater zero
        return b if math.copysign(1.0, a) < 0 else a
    return a if math.isnan(a) or a > b else b


def _power(a: int, b: int) -> int:
    return int(pow(a, b, 1 << 64)) if b >= 0 else 0  # a multiple of every dtype's span


def _shift_left(a: int, b: int, bits: int) -> int:
    return a << b if 0 <= b < bits else 0


def _shift_right(a: int, b: int, bits: int) -> int:
    return a >> (b if 0 <= b < bits else bits)


def _to_float(source: DType, target: DType, narrow: Unary) -> Unary:
    """An integer rounded as arrays are: narrow floats come by way of f32."""
    exact = 1 << (24 if target.is_narrow else 53)

    def convert(x: int) -> float:
        if -exact <= x <= exact:
            return narrow(float(x))  # type: ignore[no-any-return]  # a float
        return float(np.asarray(x, source.numpy).astype(target.numpy))

    return convert


def _by_numpy(function: Any, dtype: DType) -> Function:
    """A function of numpy at the dtype itself, so that it rounds as arrays do."""
    kind, narrow = (f32 if dtype.row.by_way_of_f32 else dtype).numpy.type, rounding(dtype)
    return lambda *args: narrow(function(*[kind(each) for each in args]))


_COMPARE: Final[dict[type[Scalar], Function]] = {
    Eq: operator.eq,
    Ne: operator.ne,
    Lt: operator.lt,
    Le: operator.le,
}
_BOOL: Final[dict[type[Scalar], Function]] = {
    Add: operator.or_,
    Mul: operator.and_,
    Min: operator.and_,
    Max: operator.or_,
    BitAnd: operator.and_,
    BitOr: operator.or_,
    BitXor: operator.xor,
}
_INTEGER: Final[dict[type[Scalar], Function]] = {
    Add: operator.add,
    Sub: operator.sub,
    Mul: operator.mul,
    FloorDiv: lambda a, b: a // b if b else 0,
    FloorMod: lambda a, b: a % b if b else 0,
    Min: min,
    Max: max,
    Pow: _power,
    BitAnd: operator.and_,
    BitOr: operator.or_,
    BitXor: operator.xor,
    ShiftLeft: _shift_left,
    ShiftRight: _shift_right,
}
_NUMPY_BINARY: Final[dict[type[Scalar], Any]] = {
    Pow: lambda a, b: np.power([a], [b])[0],  # of single numbers numpy takes roots of -inf
    FloorDiv: np.floor_divide,
    FloorMod: np.mod,
}
_FLOAT: Final[dict[type[Scalar], Function]] = {
    Add: operator.add,
    Sub: operator.sub,
    Mul: operator.mul,
    Div: _divide,
    Min: _least,
    Max: _greatest,
    **{kind: _by_numpy(function, f64) for kind, function in _NUMPY_BINARY.items()},
}
_NUMPY_NAMES: Final = {
    **{
        name: name
        for name in (
            "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos", "tan",
            "sinh", "cosh", "tanh", "floor", "ceil", "trunc", "abs", "sign", "fmod", "copysign",
        )
    },
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
    "atan2": "arctan2",
    "round": "rint",
}  # fmt: skip
