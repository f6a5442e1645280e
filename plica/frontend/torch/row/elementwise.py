"""Rows of elementwise operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from plica.frontend.torch.node import TorchNode
from plica.frontend.torch.row.word import (
    Row,
    both,
    casted,
    computation,
    constant,
    operand,
    operands,
    opmath,
    where_defined,
)
from plica.frontend.word import dtype, like, whole_power
from plica.ir.graph.expression import Expr
from plica.ir.graph.operator import Operator
from plica.ir.op import comparison as compare
from plica.ir.op import elementwise as ew
from plica.ir.op.activation import hard_tanh, relu6, sigmoid
from plica.ir.op.create import full_like
from plica.ir.op.index import where
from plica.ir.type.dtype import bool_, i64

Binary = Callable[[Expr, Expr], Expr]


# --- one operand ---------------------------------------------------------------------------------


def _floating(record: Callable[[Expr], Expr]) -> Row:
    """A function of floats; integers are converted first."""

    def row(node: TorchNode) -> Expr:
        (x,) = operands(node, "self", kind="INT_TO_FLOAT")
        return casted(record(x), node.dtype())

    return row


def _keeping(record: Callable[[Expr], Expr], whole: bool = False) -> Row:
    """A function that keeps the type; with `whole`, integers are as they are."""

    def row(node: TorchNode) -> Expr:
        x = node.x()
        if whole and not dtype(x).is_float:
            return x
        if dtype(x).name == "bool":
            node.unsupported(f"{node.kind} of bools is not supported.")
        return casted(record(casted(x, opmath(dtype(x)))), node.dtype())

    return row


def _sign(node: TorchNode) -> Expr:
    """Torch gives nan the sign 0, and bools are their own."""
    x = node.x()
    if dtype(x).name == "bool":
        return x
    x = casted(x, opmath(dtype(x)))
    found = where(ew.isnan(x), like(0, x), ew.sign(x)) if dtype(x).is_float else ew.sign(x)
    return casted(found, node.dtype())


def _asking(record: Operator, otherwise: bool) -> Row:
    """A question about floats, and the answer for everything else."""

    def row(node: TorchNode) -> Expr:
        x = node.x()
        return record(x) if dtype(x).is_float else full_like(x, value=otherwise, dtype=bool_)

    return row


def _signbit(node: TorchNode) -> Expr:
    x = node.x()
    if dtype(x).is_float:
        return ew.signbit(x)
    if dtype(x).name == "bool":
        return full_like(x, value=False, dtype=bool_)
    return compare.less(x, like(0, x))


def _bitwise_not(node: TorchNode) -> Expr:
    x = node.x()
    return compare.logical_not(x) if dtype(x).name == "bool" else compare.bitwise_not(x)


def _round(node: TorchNode) -> Expr:
    x = node.x()
    if node.integer("decimals"):
        node.unsupported("Rounding to decimals is not supported.", "decimals=0")
    return ew.round_(x) if dtype(x).is_float else x


# --- two operands --------------------------------------------------------------------------------


def _plain(record: Binary, kind: str = "DEFAULT") -> Row:
    def row(node: TorchNode) -> Expr:
        x, y = operands(node, "self", "other", kind=kind)
        return casted(record(x, y), node.dtype())

    return row


def _scaled(record: Binary, logical: Binary | None) -> Row:
    """`self + alpha * other`, and the like."""

    def row(node: TorchNode) -> Expr:
        x, y = operands(node, "self", "other")
        alpha = node.number("alpha")
        if dtype(x).name == "bool":
            if logical is None or alpha != 1:
                node.unsupported(f"{node.kind} of bools is not supported.")
            return logical(x, y)
        if alpha != 1:
            y = ew.multiply(y, constant(node, alpha, dtype(y)))
        return casted(record(x, y), node.dtype())

    return row


def _mul(node: TorchNode) -> Expr:
    x, y = operands(node, "self", "other")
    made = compare.logical_and(x, y) if dtype(x).name == "bool" else ew.multiply(x, y)
    return casted(made, node.dtype())


def _rsub(node: TorchNode) -> Expr:
    x, y = operands(node, "self", "other")
    alpha = node.number("alpha")
    x = x if alpha == 1 else ew.multiply(x, constant(node, alpha, dtype(x)))
    return casted(ew.subtract(y, x), node.dtype())


def _div(node: TorchNode) -> Expr:
    x, y = operands(node, "self", "other", kind="INT_TO_FLOAT")
    return casted(ew.divide(x, y), node.dtype())


def _div_mode(node: TorchNode) -> Expr:
    if not node.has("rounding_mode"):
        return _div(node)
    mode = node.text("rounding_mode")
    x, y = operands(node, "self", "other")
    if mode == "floor":
        return casted(ew.floor_divide(x, y), node.dtype())
    if not dtype(x).is_float:
        return casted(ew.trunc_divide(x, y), node.dtype())
    return ew.trunc(
        casted(ew.divide(x, y), node.dtype())
    )  # the quotient is rounded before it is cut


def _pow(base: str, exponent: str) -> Row:
    def row(node: TorchNode) -> Expr:
        of = computation(node, (base, exponent))
        x = operand(node, base, of)
        times = node.argument(exponent)
        if isinstance(times, bool | int | float) and of.is_float:
            short = {2.0: ew.square, 0.5: ew.sqrt, -0.5: ew.rsqrt, -1.0: ew.reciprocal}.get(
                float(times)
            )
            if short is not None:
                return casted(short(x), node.dtype())
            if times == 3:
                return casted(ew.multiply(ew.multiply(x, x), x), node.dtype())
        y = operand(node, exponent, of)
        return casted(ew.power(x, y) if of.is_float else whole_power(x, y), node.dtype())

    return row


def _compare(record: Operator) -> Row:
    def row(node: TorchNode) -> Expr:
        of = computation(node, ("self", "other"))
        x, y = (operand(node, name, of) for name in ("self", "other"))
        if of.name == "bool" and record not in (compare.equal, compare.not_equal):
            x, y = casted(x, i64), casted(y, i64)
        return record(x, y)

    return row


def _logical(record: Operator) -> Row:
    return lambda node: record(casted(node.x(), bool_), casted(node.x("other"), bool_))


def _bitwise(record: Operator, logical: Operator) -> Row:
    def row(node: TorchNode) -> Expr:
        x, y = operands(node, "self", "other")
        return logical(x, y) if dtype(x).name == "bool" else record(x, y)

    return row


def _shift(record: Operator) -> Row:
    def row(node: TorchNode) -> Expr:
        x, y = operands(node, "self", "other")
        if not dtype(x).is_integer:
            node.unsupported(f"{node.kind} of {dtype(x)} is not supported.", "integers")
        return record(x, y)

    return row


def _hypot(node: TorchNode) -> Expr:
    return casted(hypotenuse(*operands(node, "self", "other")), node.dtype())


def hypotenuse(one: Expr, other: Expr) -> Expr:
    """The root of a sum of squares, which neither overflows nor vanishes before its root."""
    x, y = ew.absolute(one), ew.absolute(other)
    large, small = ew.maximum(x, y), ew.minimum(x, y)
    ratio = ew.divide(small, large)
    root = ew.multiply(large, ew.sqrt(ew.add(ew.multiply(ratio, ratio), like(1, ratio))))
    # 0 / 0 and inf / inf are no ratios; an infinite side counts for more than nan.
    whole = where(compare.equal(large, like(0, large)), large, root)
    endless = like(math.inf, large)
    return where(
        compare.logical_or(compare.equal(x, endless), compare.equal(y, endless)), endless, whole
    )


def _extreme(record: Operator, logical: Operator) -> Row:
    def row(node: TorchNode) -> Expr:
        x, y = operands(node, "self", "other")
        made = logical(x, y) if dtype(x).name == "bool" else record(x, y)
        return casted(made, node.dtype())

    return row


def _clamp(low: str = "min", high: str = "max") -> Row:
    return lambda node: _bounded(node, low, high)


def _bounded(node: TorchNode, low: str, high: str) -> Expr:
    """What is within bounds as it is, at them too: there the gradient is that of x."""
    present = [name for name in (low, high) if node.has(name)]
    of = computation(node, ("self", *present))
    x = operand(node, "self", of)
    bounds = [node.argument(name) if name in present else None for name in (low, high)]
    if of.is_float and all(each is None or _is_finite(each) for each in bounds):
        held = [each if each is None else float(of.numpy.type(each)) for each in bounds]
        return casted(ew.clip(x, min=held[0], max=held[1]), node.dtype())
    for name, record in ((low, compare.greater_equal), (high, compare.less_equal)):
        if name in present:
            bound = operand(node, name, of)
            inside = record(x, bound)  # not so of a bound that is nan, which then is the result
            kept = compare.logical_or(inside, ew.isnan(x)) if of.is_float else inside
            x = where(kept, x, bound)
    return casted(x, node.dtype())


def _is_finite(bound: object) -> bool:
    return isinstance(bound, int | float) and math.isfinite(bound)


def _hard_tanh(node: TorchNode) -> Expr:
    """A clamp whose gradient is 0 at its usual bounds."""
    found = {(-1.0, 1.0): hard_tanh, (0.0, 6.0): relu6}
    bounds = node.argument("min_val"), node.argument("max_val")
    record = found.get(bounds) if dtype(node.x()).is_float else None
    return _bounded(node, "min_val", "max_val") if record is None else record(node.x())


def _sinc(x: Expr) -> Expr:
    turn = ew.multiply(x, like(math.pi, x))
    is_zero = compare.equal(x, like(0, x))
    return where_defined(is_zero, turn, lambda t: ew.divide(ew.sin(t), t), like(1, x))


def _times_log(record: Operator, least: float) -> Row:
    """`self * log(other)`, which is 0 where `self` is, unless `other` is nan."""

    def row(node: TorchNode) -> Expr:
        x, y = operands(node, "self", "other", kind="INT_TO_FLOAT")
        endless = compare.equal(y, like(math.inf, y))
        pole = compare.logical_or(compare.less_equal(y, like(least, y)), endless)
        lost = compare.logical_and(compare.equal(x, like(0, x)), pole)
        return casted(ew.multiply(x, record(where(lost, like(least + 1, y), y))), node.dtype())

    return row


def _where(node: TorchNode) -> Expr:
    x, y = operands(node, "self", "other")
    return casted(where(casted(node.x("condition"), bool_), x, y), node.dtype())


def _masked_fill(node: TorchNode) -> Expr:
    x = node.x()
    value = casted(operand(node, "value", dtype(x)), dtype(x))
    return where(node.x("mask"), value, x)


def _addc(join: Operator) -> Row:
    """`self + value * join(tensor1, tensor2)`."""

    def row(node: TorchNode) -> Expr:
        x, a, b = operands(node, "self", "tensor1", "tensor2")
        part = join(a, b)
        value = node.number("value")
        part = part if value == 1 else ew.multiply(constant(node, value, dtype(x)), part)
        return casted(ew.add(x, part), node.dtype())

    return row


def _lerp(node: TorchNode) -> Expr:
    x, end, weight = operands(node, "self", "end", "weight")
    apart = ew.subtract(end, x)
    near = ew.add(x, ew.multiply(weight, apart))
    far = ew.subtract(end, ew.multiply(apart, ew.subtract(like(1, weight), weight)))
    return casted(
        where(compare.less(ew.absolute(weight), like(0.5, weight)), near, far), node.dtype()
    )


def _logit(node: TorchNode) -> Expr:
    eps = node.argument("eps")

    def value(x: Expr) -> Expr:
        if eps is not None:
            x = ew.minimum(ew.maximum(x, like(eps, x)), like(1 - eps, x))
        return ew.log(ew.divide(x, ew.subtract(like(1, x), x)))

    (x,) = operands(node, "self", kind="INT_TO_FLOAT")
    return casted(value(x), node.dtype())


def _nan_to_num(node: TorchNode) -> Expr:
    x = node.x()
    if not dtype(x).is_float:
        node.unsupported("nan_to_num of integers is not supported.", "floats", str(dtype(x)))
    largest = dtype(x).greatest
    wanted = {"nan": 0.0, "posinf": largest, "neginf": -largest}
    nan, up, down = (
        wanted[name] if not node.has(name) else float(node.number(name)) for name in wanted
    )
    made = where(ew.isnan(x), like(nan, x), x)
    made = where(compare.equal(x, like(math.inf, x)), like(up, x), made)
    return where(compare.equal(x, like(-math.inf, x)), like(down, x), made)


# fmt: off
TABLE: Final[dict[str, Row]] = {
    # functions of floats
    "acos.default":         _floating(ew.arccos),
    "acosh.default":        _floating(ew.arccosh),
    "asin.default":         _floating(ew.arcsin),
    "asinh.default":        _floating(ew.arcsinh),
    "atan.default":         _floating(ew.arctan),
    "atanh.default":        _floating(ew.arctanh),
    "cos.default":          _floating(ew.cos),
    "cosh.default":         _floating(ew.cosh),
    "erf.default":          _floating(ew.erf),
    "exp.default":          _floating(ew.exp),
    "exp2.default":         _floating(ew.exp2),
    "expm1.default":        _floating(ew.expm1),
    "log.default":          _floating(ew.log),
    "log10.default":        _floating(ew.log10),
    "log1p.default":        _floating(ew.log1p),
    "log2.default":         _floating(ew.log2),
    "reciprocal.default":   _floating(ew.reciprocal),
    "rsqrt.default":        _floating(ew.rsqrt),
    "sigmoid.default":      _floating(sigmoid),
    "sin.default":          _floating(ew.sin),
    "sinh.default":         _floating(ew.sinh),
    "sqrt.default":         _floating(ew.sqrt),
    "tan.default":          _floating(ew.tan),
    "tanh.default":         _floating(ew.tanh),
    "logit.default":        _logit,
    # functions that keep the type
    "abs.default":          _keeping(ew.absolute),
    "ceil.default":         _keeping(ew.ceil, whole=True),
    "floor.default":        _keeping(ew.floor, whole=True),
    "neg.default":          _keeping(ew.negative),
    "round.default":        _keeping(ew.round_, whole=True),
    "round.decimals":       _round,
    "sign.default":         _sign,
    "square.default":       _keeping(ew.square),
    "trunc.default":        _keeping(ew.trunc, whole=True),
    "bitwise_not.default":  _bitwise_not,
    "nan_to_num.default":   _nan_to_num,
    # questions
    "isinf.default":        _asking(ew.isinf, False),
    "isnan.default":        _asking(ew.isnan, False),
    "isfinite.default":     _asking(ew.isfinite, True),
    "signbit.default":      _signbit,
    "logical_not.default":  lambda node: compare.logical_not(casted(node.x(), bool_)),
    # arithmetic
    **both("add",           _scaled(ew.add, compare.logical_or)),
    **both("sub",           _scaled(ew.subtract, None)),
    **both("rsub",          _rsub),
    **both("mul",           _mul),
    **both("div",           _div),
    "div.Tensor_mode":      _div_mode,
    "div.Scalar_mode":      _div_mode,
    "floor_divide.default": _plain(ew.floor_divide),
    **both("remainder",     _plain(ew.mod)),
    **both("fmod",          _plain(ew.fmod)),
    "pow.Tensor_Tensor":    _pow("self", "exponent"),
    "pow.Tensor_Scalar":    _pow("self", "exponent"),
    "pow.Scalar":           _pow("self", "exponent"),
    "atan2.default":        _plain(ew.arctan2, "INT_TO_FLOAT"),
    "hypot.default":        _hypot,
    "sinc.default":         _floating(_sinc),
    "xlogy.Tensor":         _times_log(ew.log, 0.0),
    "xlogy.Scalar_Self":    _times_log(ew.log, 0.0),
    "xlogy.Scalar_Other":   _times_log(ew.log, 0.0),
    "special_xlog1py.default":      _times_log(ew.log1p, -1.0),
    "special_xlog1py.self_scalar":  _times_log(ew.log1p, -1.0),
    "special_xlog1py.other_scalar": _times_log(ew.log1p, -1.0),
    "copysign.Tensor":      _plain(ew.copysign, "INT_TO_FLOAT"),
    "maximum.default":      _extreme(ew.maximum, compare.logical_or),
    "minimum.default":      _extreme(ew.minimum, compare.logical_and),
    "fmax.default":         _extreme(ew.fmax, compare.logical_or),
    "fmin.default":         _extreme(ew.fmin, compare.logical_and),
    "addcmul.default":      _addc(ew.multiply),
    "addcdiv.default":      _addc(ew.divide),
    "lerp.Scalar":          _lerp,
    "lerp.Tensor":          _lerp,
    # comparisons and choices
    **both("eq",            _compare(compare.equal)),
    **both("ne",            _compare(compare.not_equal)),
    **both("lt",            _compare(compare.less)),
    **both("le",            _compare(compare.less_equal)),
    **both("gt",            _compare(compare.greater)),
    **both("ge",            _compare(compare.greater_equal)),
    "clamp.default":        _clamp(),
    "clamp.Tensor":         _clamp(),
    "clamp_min.default":    _clamp(high=""),
    "clamp_max.default":    _clamp(low=""),
    "hardtanh.default":     _hard_tanh,
    "where.self":           _where,
    "masked_fill.Scalar":   _masked_fill,
    "masked_fill.Tensor":   _masked_fill,
    # bits
    "logical_and.default":  _logical(compare.logical_and),
    "logical_or.default":   _logical(compare.logical_or),
    "logical_xor.default":  _logical(compare.logical_xor),
    **both("bitwise_and",   _bitwise(compare.bitwise_and, compare.logical_and)),
    **both("bitwise_or",    _bitwise(compare.bitwise_or, compare.logical_or)),
    **both("bitwise_xor",   _bitwise(compare.bitwise_xor, compare.logical_xor)),
    **both("__lshift__",    _shift(compare.left_shift)),
    **both("__rshift__",    _shift(compare.right_shift)),
    "bitwise_left_shift.Tensor":         _shift(compare.left_shift),
    "bitwise_left_shift.Tensor_Scalar":  _shift(compare.left_shift),
    "bitwise_right_shift.Tensor":        _shift(compare.right_shift),
    "bitwise_right_shift.Tensor_Scalar": _shift(compare.right_shift),
}
# fmt: on
