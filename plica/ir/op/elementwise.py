"""Elementwise arithmetic: each element of the result depends on the operands' elements at the same
index.

Integers wrap around, division of integers by zero gives 0, floats follow IEEE 754 as numpy does;
`plica.ir.loop.scalar` has the laws.  Binary operators broadcast, and both sides have one dtype.

>>> from plica.ir.type.term import tensor
>>> str(divide.relation({}, tensor((2, 1), "f32"), tensor((3,), "f32")).dtype)
'f32'
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any, Final, Unpack

from plica.ir.graph.expression import Const, Expr
from plica.ir.graph.operator import FLAT, Flat, Operator, Values
from plica.ir.loop import scalar as sc
from plica.ir.loop.scalar_row import ScalarRow
from plica.ir.loop.scalar_table import CODED_FLOATS, ROWS
from plica.ir.loop.tensor import Compute, compute
from plica.ir.op import record
from plica.ir.op.attribute import attribute, dtype, number, optional
from plica.ir.op.cotangent import equal, where, word
from plica.ir.op.relation import ANY, FLOAT, INTEGER, NUMBER, literal, refuse
from plica.ir.type import DType, TensorType, bool_, f32, f64
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.ir.op.division import floor_quotient, modulo, trunc_modulo, trunc_quotient


def call(name: str, *args: sc.Scalar) -> sc.Scalar:
    """An intrinsic applied."""
    return sc.Intrinsic(name, args)


def slope_of(row: ScalarRow) -> record.Derivative | Flat | None:
    """The derivative of a scalar operator's row, written in operators of graphs."""
    derivative = row.derivative
    if derivative is None or isinstance(derivative, str):
        return None if derivative is None else FLAT

    def slope(*args: Expr) -> Expr | tuple[Expr | None, ...]:
        found: Expr | tuple[Expr | None, ...] = derivative(_graph, *args)
        return found

    return slope


def _graph(name: str, *args: Any) -> Expr:  # Any: expressions and numbers
    """An operator of graphs by name."""
    return word(name)(*args)


def unary(
    name: str,
    value: Callable[[sc.Scalar], sc.Scalar] | str,
    doc: str,
    *,
    admits: Collection[DType] = FLOAT,
    result: DType | None = None,
    slope: record.Derivative | Flat | None = None,
    **named: Unpack[record.Named],
) -> Operator:
    """Register an operator of one argument: a scalar function, or the name of an intrinsic."""

    def intrinsic(x: sc.Scalar) -> sc.Scalar:
        return sc.Intrinsic(str(value), (x,))

    function = intrinsic if isinstance(value, str) else value
    if slope is None and isinstance(value, str):
        slope = slope_of(ROWS[value])
    return record.pointwise(
        name, ("x",), function, doc, result=result, admits=admits, slope=slope, **named
    )


def binary(
    name: str,
    value: Callable[[sc.Scalar, sc.Scalar], sc.Scalar],
    doc: str,
    *,
    admits: Collection[DType] = NUMBER,
    result: DType | None = None,
    slope: record.Derivative | Flat | None = None,
    **named: Unpack[record.Named],
) -> Operator:
    """Register an operator of two arguments that broadcast; a class has the slope of its row."""
    if slope is None and isinstance(value, type):
        slope = slope_of(ROWS[value.__name__])
    return record.pointwise(
        name, ("x", "y"), value, doc, result=result, admits=admits, slope=slope, **named
    )


def negated(x: sc.Scalar) -> sc.Scalar:
    """`-x`; for floats as a difference from -0.0, which maps 0.0 to -0.0."""
    return sc.Sub(sc.like(-0.0 if sc.dtype_of(x).is_float else 0, x), x)


def absolute_value(x: sc.Scalar) -> sc.Scalar:
    """`|x|`; the minimum integer maps to itself."""
    return x if sc.dtype_of(x).kind == "uint" else call("abs", x)


def signum(x: sc.Scalar) -> sc.Scalar:
    """-1, 0 or 1; NaN is propagated."""
    if sc.dtype_of(x).kind == "uint":
        return sc.Select(sc.Eq(x, sc.like(0, x)), sc.like(0, x), sc.like(1, x))
    return call("sign", x)


# Of a slope the arguments are d, the cotangent of the result; y (or z), the result; and the
# operator's own.

# --- one argument --------------------------------------------------------------------------------

# fmt: off
# ruff: noqa: E501  # a record is one line
exp               = unary("exp", "exp", "e to the power x.", onnx=("Exp",))
exp2              = unary("exp2", "exp2", "2 to the power x.")
expm1             = unary("expm1", "expm1", "exp(x) - 1, accurate near 0.")
log               = unary("log", "log", "The natural logarithm.", onnx=("Log",))
log2              = unary("log2", "log2", "The logarithm to base 2.")
log10             = unary("log10", "log10", "The logarithm to base 10.")
log1p             = unary("log1p", "log1p", "log(1 + x), accurate near 0.")
sqrt              = unary("sqrt", "sqrt", "The square root.", onnx=("Sqrt",))
rsqrt             = unary("rsqrt", "rsqrt", "1 / sqrt(x).")
sin               = unary("sin", "sin", "The sine.", onnx=("Sin",))
cos: Operator     = unary("cos", "cos", "The cosine.", onnx=("Cos",))
tan               = unary("tan", "tan", "The tangent.", onnx=("Tan",))
arcsin            = unary("arcsin", "asin", "The inverse sine.", onnx=("Asin",), aliases=("asin",))
arccos            = unary("arccos", "acos", "The inverse cosine.", onnx=("Acos",), aliases=("acos",))
arctan            = unary("arctan", "atan", "The inverse tangent.", onnx=("Atan",), aliases=("atan",))
sinh              = unary("sinh", "sinh", "The hyperbolic sine.", onnx=("Sinh",))
cosh: Operator    = unary("cosh", "cosh", "The hyperbolic cosine.", onnx=("Cosh",))
tanh              = unary("tanh", "tanh", "The hyperbolic tangent.", onnx=("Tanh",), aliases=("nn.tanh",))
arcsinh           = unary("arcsinh", "asinh", "The inverse hyperbolic sine.", onnx=("Asinh",), aliases=("asinh",))
arccosh           = unary("arccosh", "acosh", "The inverse hyperbolic cosine.", onnx=("Acosh",), aliases=("acosh",))
arctanh           = unary("arctanh", "atanh", "The inverse hyperbolic tangent.", onnx=("Atanh",), aliases=("atanh",))
erf               = unary("erf", "erf", "The error function.", onnx=("Erf",))
floor             = unary("floor", "floor", "The largest integer not above x.", onnx=("Floor",))
ceil              = unary("ceil", "ceil", "The smallest integer not below x.", onnx=("Ceil",))
round_            = unary("round", "round", "Round to the nearest integer, ties to even.", onnx=("Round",), aliases=("rint",))
trunc             = unary("trunc", "trunc", "Round x towards zero.", aliases=("fix",))
absolute          = unary("absolute", absolute_value, "|x|; the smallest integer stays unchanged.", admits=NUMBER, onnx=("Abs",), aliases=("abs",), slope=slope_of(ROWS["abs"]))
sign: Operator    = unary("sign", signum, "-1, 0 or 1; nan stays nan.", admits=NUMBER, onnx=("Sign",), slope=FLAT)
negative          = unary("negative", negated, "-x.", admits=NUMBER, onnx=("Neg",), aliases=("neg",), slope=lambda d, y, x: -d)
square: Operator  = unary("square", lambda x: sc.Mul(x, x), "x * x.", admits=NUMBER, slope=lambda d, y, x: d * x * 2)
reciprocal        = unary("reciprocal", lambda x: sc.Div(sc.like(1, x), x), "1 / x.", onnx=("Reciprocal",), slope=lambda d, y, x: -(d * square(y)))
degrees: Operator = unary("degrees", record.widened(lambda x: sc.Mul(x, sc.like(180 / math.pi, x))), "Convert radians to degrees.", aliases=("rad2deg",), slope=lambda d, y, x: degrees(d))
radians: Operator = unary("radians", record.widened(lambda x: sc.Mul(x, sc.like(math.pi / 180, x))), "Convert degrees to radians.", aliases=("deg2rad",), slope=lambda d, y, x: radians(d))
copy              = unary("copy", lambda x: x, "x.", admits=ANY, onnx=("Identity",), slope=lambda d, y, x: d)
isnan             = unary("isnan", "isnan", "Whether x is nan.", result=bool_, onnx=("IsNaN",))
isinf             = unary("isinf", "isinf", "Whether x is infinite.", result=bool_, onnx=("IsInf",))
isfinite          = unary("isfinite", lambda x: sc.Not(sc.Or(call("isnan", x), call("isinf", x))), "Whether x is neither infinite nor nan.", result=bool_)
signbit           = unary("signbit", lambda x: sc.Lt(call("copysign", sc.like(1, x), x), sc.like(0, x)), "Whether the sign bit of x is set; true for -0.0.", result=bool_)
# fmt: on

# --- two arguments -------------------------------------------------------------------------------


def ignoring_nan(combine: Callable[[sc.Scalar, sc.Scalar], sc.Scalar]) -> Callable[..., sc.Scalar]:
    """The other side where one is nan."""

    def value(x: sc.Scalar, y: sc.Scalar) -> sc.Scalar:
        if not sc.dtype_of(x).is_float:
            return combine(x, y)
        return sc.Select(call("isnan", x), y, sc.Select(call("isnan", y), x, combine(x, y)))

    return value


def log_add_exp(x: sc.Scalar, y: sc.Scalar) -> sc.Scalar:
    """log(exp(x) + exp(y)) without overflow."""
    both = sc.Add(x, sc.like(math.log(2), x))
    apart = call("abs", sc.Sub(x, y))
    far = sc.Add(sc.Max(x, y), call("log1p", call("exp", sc.Sub(sc.like(0, x), apart))))
    return sc.Select(sc.Eq(x, y), both, far)  # equal infinities would give inf - inf


def _power_slope(d: Expr, z: Expr, x: Expr, y: Expr) -> tuple[Expr, Expr]:
    if isinstance(y, Const) and y.shape == () and (exponent := float(y.numpy())):
        by_base = d * (x ** (exponent - 1)) * exponent
    else:
        by_base = d * (y * x ** where(equal(y, 0), 1, y - 1))  # 0 where y is, even if x is
    positive = x > 0
    return by_base, d * where(positive, z * log(where(positive, x, 1)), 0)


def _first_of_equals(d: Expr, is_first: Expr, y: Expr) -> tuple[Expr, Expr]:
    """The first of equal operands takes the cotangent, also if the second is NaN."""
    return where(is_first, d, where(isnan(y), d, 0)), where(is_first, 0, where(isnan(y), 0, d))


add = binary("add", sc.Add, "x + y.", onnx=("Add",))
subtract = binary("subtract", sc.Sub, "x - y.", onnx=("Sub",), aliases=("sub",))
multiply = binary("multiply", sc.Mul, "x * y.", onnx=("Mul",), aliases=("mul",))
divide = binary(
    "divide", sc.Div, "x / y of floats.", admits=FLOAT, onnx=("Div",),
    aliases=("div", "true_divide"),
)  # fmt: skip
floor_divide = binary(
    "floor_divide", floor_quotient, "x / y rounded down; integers by zero give 0.", slope=FLAT
)
trunc_divide = binary(
    "trunc_divide", trunc_quotient, "x / y rounded towards zero; integers by zero give 0.",
    slope=FLAT,
)  # fmt: skip
mod = binary(
    "mod", modulo, "The remainder of floor_divide: it has the sign of y.", onnx=("Mod",),
    aliases=("remainder", "floor_mod"), slope=lambda d, z, x, y: (d, -(d * floor_divide(x, y))),
)  # fmt: skip
fmod = binary(
    "fmod", trunc_modulo, "The remainder of trunc_divide: it has the sign of x.",
    aliases=("trunc_mod",), slope=lambda d, z, x, y: (d, -(d * trunc_divide(x, y))),
)  # fmt: skip
power = binary(
    "power", sc.Pow, "x to the power y; a negative power of an integer is 0.", onnx=("Pow",),
    aliases=("pow",), slope=_power_slope,
)  # fmt: skip
maximum = binary("maximum", sc.Max, "Elementwise maximum; nan propagates.", onnx=("Max",))
minimum = binary("minimum", sc.Min, "Elementwise minimum; nan propagates.", onnx=("Min",))
fmax = binary(
    "fmax", ignoring_nan(sc.Max), "Elementwise maximum that ignores nan.",
    slope=lambda d, z, x, y: _first_of_equals(d, x >= y, y),
)  # fmt: skip
fmin = binary(
    "fmin", ignoring_nan(sc.Min), "Elementwise minimum that ignores nan.",
    slope=lambda d, z, x, y: _first_of_equals(d, x <= y, y),
)  # fmt: skip
arctan2 = binary(
    "arctan2", lambda y, x: call("atan2", y, x), "The angle of the point (second, first argument).",
    admits=FLOAT, aliases=("atan2",), slope=slope_of(ROWS["atan2"]),
)  # fmt: skip
copysign = binary(
    "copysign", lambda x, y: call("copysign", x, y), "The magnitude of x with the sign of y.",
    admits=FLOAT, slope=slope_of(ROWS["copysign"]),
)  # fmt: skip
logaddexp = binary(
    "logaddexp", record.widened(log_add_exp), "log(exp(x) + exp(y)) without overflow.", admits=FLOAT,
    slope=lambda d, z, x, y: (d * exp(x - z), d * exp(y - z)),
)  # fmt: skip

# --- with attributes -----------------------------------------------------------------------------


def _cast_rule(attrs: Values, x: TensorType) -> TensorType:
    return TensorType(x.shape, attrs["dtype"])


def _cast_body(attrs: Values, out: TensorType, x: sc.Buffer) -> Compute:
    return compute(
        (x,), out.shape, lambda *i: record.as_dtype(record.read(x, i, out.shape), attrs["dtype"])
    )


def _cast_pullback(attrs: Values, d: Expr, y: Expr, x: Expr) -> list[Expr | None]:
    source = record.tensor_of(x).dtype
    return [cast(d, source) if source.is_float and attrs["dtype"].is_float else None]


cast = record.primitive(
    "cast", ("x",), _cast_rule, _cast_body,
    "x in another dtype; floats saturate in integers, and nan gives 0.",
    attributes=(attribute("dtype", dtype),), onnx=("Cast",), aliases=("astype",),
    gradient=_cast_pullback,
)  # fmt: skip


WHOLE_FLOATS: Final = (f32, f64)  # floats that every target has registers for
DECODED: Final = (*CODED_FLOATS, *WHOLE_FLOATS)


def _decoded_rule(attrs: Values, x: TensorType) -> TensorType:
    if (into := attrs["dtype"]) not in DECODED:
        expected = " or ".join(map(str, DECODED))
        refuse("bad-attribute", "bits_as decodes floats of whole bytes.", expected, str(into))
    return TensorType(x.shape, into)


def _decoded_body(attrs: Values, out: TensorType, x: sc.Buffer) -> Compute:
    of = out.dtype if out.dtype in WHOLE_FLOATS else None

    def element(*i: sc.Scalar) -> sc.Scalar:
        code = x[i] if of is None else record.as_dtype(x[i], DType(f"u{of.bits}"))
        return call(f"{out.dtype}_of_bits", code)

    return compute((x,), out.shape, element)


bits_as = record.primitive(
    "bits_as", ("x",), _decoded_rule, _decoded_body,
    "Reinterpret the low bits of integers as floats of a dtype.",
    attributes=(attribute("dtype", dtype),), admits=INTEGER,
)  # fmt: skip


def _encoded_rule(attrs: Values, x: TensorType) -> TensorType:
    if x.dtype not in WHOLE_FLOATS:
        refuse("dtype-conflict", "bits_of is of whole floats.", "f32 or f64", str(x.dtype))
    return TensorType(x.shape, DType(f"u{x.dtype.bits}"))


bits_of = record.primitive(
    "bits_of", ("x",), _encoded_rule,
    lambda attrs, out, x: compute((x,), out.shape, lambda *i: call(f"bits_of_{x.dtype}", x[i])),
    "Reinterpret floats of f32 or f64 as unsigned integers of their width.", admits=FLOAT,
)  # fmt: skip


def _clip_bounds(attrs: Values, x: TensorType) -> None:
    for bound in (attrs["min"], attrs["max"]):
        if bound is not None:
            literal("clip", bound, x.dtype)


def _clipped(attrs: Values, x: sc.Scalar) -> sc.Scalar:
    low, high = attrs["min"], attrs["max"]
    dtype_ = sc.dtype_of(x)
    raised = x if low is None else sc.Max(x, literal("clip", low, dtype_))
    return raised if high is None else sc.Min(raised, literal("clip", high, dtype_))


def _clip_slope(attrs: Values, d: Expr, y: Expr, x: Expr) -> Expr:
    low, high = attrs["min"], attrs["max"]
    kept = d if low is None else where(x >= low, d, 0)
    return kept if high is None else where(x <= high, kept, 0)


clip = record.pointwise(
    "clip", ("x",), _clipped,
    "x within bounds; nan stays nan, and where min is above max the result is max.",
    attributes=(
        attribute("min", optional(number), None),
        attribute("max", optional(number), None),
    ),
    fits=_clip_bounds, admits=NUMBER, onnx=("Clip",), slope=_clip_slope,
)  # fmt: skip
