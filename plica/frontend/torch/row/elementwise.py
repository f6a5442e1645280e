"""Rows of elementwise operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from plica.frontend.complex_pair import hypotenuse
from plica.frontend.special_function import SPECIAL
from plica.frontend.torch.node import TorchNode
from plica.frontend.torch.row import word
from plica.frontend.word import dtype, like, to, whole_power
from plica.ir.graph.expression import Expr
from plica.ir.graph.operator import Operator
from plica.ir.op.namespace import op
from plica.ir.type.dtype import bool_, f64, i64

Binary = Callable[[Expr, Expr], Expr]


# --- one operand ---------------------------------------------------------------------------------


def _floating(record: Callable[[Expr], Expr]) -> word.Row:
    """A function of floats; integers are converted first."""

    def row(node: TorchNode) -> Expr:
        (x,) = word.operands(node, "self", kind="INT_TO_FLOAT")
        return word.casted(record(x), node.dtype())

    return row


def _in_f64(function: Callable[[Expr], Expr]) -> word.Row:
    """A function that is computed in f64 whatever the type."""
    return _floating(lambda x: function(to(x, f64)))


def _keeping(record: Callable[[Expr], Expr], whole: bool = False) -> word.Row:
    """A function that preserves the type; with `whole`, integers are unchanged."""

    def row(node: TorchNode) -> Expr:
        x = node.x()
        if whole and not dtype(x).is_float:
            return x
        if dtype(x).name == "bool":
            node.unsupported(f"{node.kind} of bools is not supported.")
        return word.casted(record(word.casted(x, word.opmath(dtype(x)))), node.dtype())

    return row


def _square(node: TorchNode) -> Expr:
    """Torch counts in bools: their squares are integers."""
    x = node.x()
    of = node.dtype() if dtype(x).name == "bool" else word.opmath(dtype(x))
    return word.casted(op.square(word.casted(x, of)), node.dtype())


def _sign(node: TorchNode) -> Expr:
    """Torch gives nan the sign 0, and bools are their own."""
    x = node.x()
    if dtype(x).name == "bool":
        return x
    x = word.casted(x, word.opmath(dtype(x)))
    expr = op.where(op.isnan(x), like(0, x), op.sign(x)) if dtype(x).is_float else op.sign(x)
    return word.casted(expr, node.dtype())


def _asking(record: Operator, otherwise: bool) -> word.Row:
    """A question about floats, and the answer for everything else."""

    def row(node: TorchNode) -> Expr:
        x = node.x()
        return record(x) if dtype(x).is_float else op.full_like(x, value=otherwise, dtype=bool_)

    return row


def _signbit(node: TorchNode) -> Expr:
    x = node.x()
    if dtype(x).is_float:
        return op.signbit(x)
    if dtype(x).name == "bool":
        return op.full_like(x, value=False, dtype=bool_)
    return x < like(0, x)


def _bitwise_not(node: TorchNode) -> Expr:
    x = node.x()
    return op.logical_not(x) if dtype(x).name == "bool" else op.bitwise_not(x)


def _round(node: TorchNode) -> Expr:
    x = node.x()
    if node.integer("decimals"):
        node.unsupported("Rounding to decimals is not supported.", "decimals=0")
    return op.round(x) if dtype(x).is_float else x


# --- two operands --------------------------------------------------------------------------------


def _plain(record: Binary, kind: str = "DEFAULT") -> word.Row:
    def row(node: TorchNode) -> Expr:
        x, y = word.operands(node, "self", "other", kind=kind)
        return word.casted(record(x, y), node.dtype())

    return row


def _remainder(x: Expr, y: Expr) -> Expr:
    """Torch gives a remainder of 0 the sign of the dividend, numpy that of the divisor."""
    if not dtype(x).is_float:
        return op.mod(x, y)
    left, zero = op.fmod(x, y), like(0.0, x)
    crosses = op.not_equal(op.less(y, like(0.0, y)), op.less(left, zero))
    return op.where(op.logical_and(op.not_equal(left, zero), crosses), left + y, left)


def _scaled(record: Binary, logical: Binary | None) -> word.Row:
    """`self + alpha * other`, and similar."""

    def row(node: TorchNode) -> Expr:
        x, y = word.operands(node, "self", "other")
        alpha = node.number("alpha")
        if dtype(x).name == "bool":
            if logical is None or alpha != 1:
                node.unsupported(f"{node.kind} of bools is not supported.")
            return logical(x, y)
        if alpha != 1:
            y = y * word.constant(node, alpha, dtype(y))
        return word.casted(record(x, y), node.dtype())

    return row


def _mul(node: TorchNode) -> Expr:
    x, y = word.operands(node, "self", "other")
    expr = op.logical_and(x, y) if dtype(x).name == "bool" else x * y
    return word.casted(expr, node.dtype())


def _div(node: TorchNode) -> Expr:
    x, y = word.operands(node, "self", "other", kind="INT_TO_FLOAT")
    return word.casted(x / y, node.dtype())


def _div_mode(node: TorchNode) -> Expr:
    if not node.has("rounding_mode"):
        return _div(node)
    mode = node.text("rounding_mode")
    x, y = word.operands(node, "self", "other")
    if mode == "floor":
        return word.casted(x // y, node.dtype())
    if not dtype(x).is_float:
        return word.casted(op.trunc_divide(x, y), node.dtype())
    return op.trunc(word.casted(x / y, node.dtype()))  # the quotient is rounded before it is cut


def _pow(base: str, exponent: str) -> word.Row:
    def row(node: TorchNode) -> Expr:
        of = word.computation(node, (base, exponent))
        x = word.operand(node, base, of)
        times = node.argument(exponent)
        if isinstance(times, bool | int | float) and of.is_float:
            short = {2.0: op.square, 0.5: op.sqrt, -0.5: op.rsqrt, -1.0: op.reciprocal}.get(
                float(times)
            )
            if short is not None:
                return word.casted(short(x), node.dtype())
            if times == 3:
                return word.casted(x * x * x, node.dtype())
        y = word.operand(node, exponent, of)
        return word.casted(x**y if of.is_float else whole_power(x, y), node.dtype())

    return row


def _compare(record: Operator) -> word.Row:
    def row(node: TorchNode) -> Expr:
        of = word.computation(node, ("self", "other"))
        x, y = (word.operand(node, name, of) for name in ("self", "other"))
        if of.name == "bool" and record not in (op.equal, op.not_equal):
            x, y = word.casted(x, i64), word.casted(y, i64)
        return record(x, y)

    return row


def _logical(record: Operator) -> word.Row:
    return lambda node: record(word.casted(node.x(), bool_), word.casted(node.x("other"), bool_))


def _bitwise(record: Operator, logical: Operator) -> word.Row:
    def row(node: TorchNode) -> Expr:
        x, y = word.operands(node, "self", "other")
        return logical(x, y) if dtype(x).name == "bool" else record(x, y)

    return row


def _shift(record: Operator) -> word.Row:
    def row(node: TorchNode) -> Expr:
        x, y = word.operands(node, "self", "other")
        if not dtype(x).is_integer:
            node.unsupported(f"{node.kind} of {dtype(x)} is not supported.", "integers")
        return record(x, y)

    return row


def _extreme(record: Operator, logical: Operator) -> word.Row:
    def row(node: TorchNode) -> Expr:
        x, y = word.operands(node, "self", "other")
        expr = logical(x, y) if dtype(x).name == "bool" else record(x, y)
        return word.casted(expr, node.dtype())

    return row


def _bounded(node: TorchNode, low: str, high: str) -> Expr:
    """A clamped value, with the gradient of x at the bounds, too."""
    present = [name for name in (low, high) if node.has(name)]
    of = word.computation(node, ("self", *present))
    x = word.operand(node, "self", of)
    bounds = [node.argument(name) if name in present else None for name in (low, high)]
    numbers = [bound for bound in bounds if isinstance(bound, int | float) and math.isfinite(bound)]
    if of.is_float and len(numbers) == len(present):
        held = [bound if bound is None else float(of.numpy.type(bound)) for bound in bounds]
        return word.casted(op.clip(x, min=held[0], max=held[1]), node.dtype())
    for name, record in ((low, op.greater_equal), (high, op.less_equal)):
        if name in present:
            bound = word.operand(node, name, of)
            inside = record(x, bound)  # not so of a bound that is nan, which then is the result
            kept = op.logical_or(inside, op.isnan(x)) if of.is_float else inside
            x = op.where(kept, x, bound)
    return word.casted(x, node.dtype())


def _hard_tanh(node: TorchNode) -> Expr:
    """A clamp whose gradient is 0 at its usual bounds."""
    found = {(-1.0, 1.0): op.nn.hard_tanh, (0.0, 6.0): op.nn.relu6}
    bounds = node.argument("min_val"), node.argument("max_val")
    record = found.get(bounds) if dtype(node.x()).is_float else None
    return _bounded(node, "min_val", "max_val") if record is None else record(node.x())


def _sinc(x: Expr) -> Expr:
    turn = x * like(math.pi, x)
    is_zero = op.equal(x, like(0, x))
    return word.where_defined(is_zero, turn, lambda t: op.sin(t) / t, like(1, x))


def _times_log(record: Operator, least: float) -> word.Row:
    """`self * log(other)`, which is 0 where `self` is, unless `other` is nan."""

    def row(node: TorchNode) -> Expr:
        x, y = word.operands(node, "self", "other", kind="INT_TO_FLOAT")
        endless = op.equal(y, like(math.inf, y))
        pole = op.logical_or(y <= like(least, y), endless)
        lost = op.logical_and(op.equal(x, like(0, x)), pole)
        return word.casted(x * record(op.where(lost, like(least + 1, y), y)), node.dtype())

    return row


def _where(node: TorchNode) -> Expr:
    x, y = word.operands(node, "self", "other")
    return word.casted(op.where(word.casted(node.x("condition"), bool_), x, y), node.dtype())


def _addcmul(node: TorchNode) -> Expr:
    """`self + value * tensor1 * tensor2`."""
    x, a, b = word.operands(node, "self", "tensor1", "tensor2")
    value, product = node.number("value"), a * b
    product = product if value == 1 else word.constant(node, value, dtype(x)) * product
    return word.casted(x + product, node.dtype())


def _lerp(node: TorchNode) -> Expr:
    x, end, weight = word.operands(node, "self", "end", "weight")
    apart = end - x
    near = x + weight * apart
    far = end - apart * (like(1, weight) - weight)
    return word.casted(op.where(op.absolute(weight) < like(0.5, weight), near, far), node.dtype())


# fmt: off
TABLE: Final[dict[str, word.Row]] = {
    # functions of floats
    **{
        f"{name}.default": _floating(getattr(op, name))
        for name in (
            "cos", "cosh", "erf", "exp", "exp2", "expm1", "log", "log10", "log1p", "log2",
            "reciprocal", "rsqrt", "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh",
        )
    },
    **{
        f"a{name}.default": _floating(getattr(op, f"arc{name}"))
        for name in ("cos", "cosh", "sin", "sinh", "tan", "tanh")
    },
    "sinc.default":         _floating(_sinc),
    **{f"{name}.default": _in_f64(function) for name, function in SPECIAL.items()},
    # functions that keep the type
    "abs.default":          _keeping(op.absolute),
    "ceil.default":         _keeping(op.ceil, whole=True),
    "floor.default":        _keeping(op.floor, whole=True),
    "neg.default":          _keeping(op.negative),
    "round.default":        _keeping(op.round, whole=True),
    "round.decimals":       _round,
    "sign.default":         _sign,
    "square.default":       _square,
    "trunc.default":        _keeping(op.trunc, whole=True),
    "bitwise_not.default":  _bitwise_not,
    # questions
    "isinf.default":        _asking(op.isinf, False),
    "isnan.default":        _asking(op.isnan, False),
    "isfinite.default":     _asking(op.isfinite, True),
    "signbit.default":      _signbit,
    "logical_not.default":  lambda node: op.logical_not(word.casted(node.x(), bool_)),
    # arithmetic
    **word.both("add",           _scaled(op.add, op.logical_or)),
    **word.both("sub",           _scaled(op.subtract, None)),
    **word.both("mul",           _mul),
    **word.both("div",           _div),
    "div.Tensor_mode":      _div_mode,
    "div.Scalar_mode":      _div_mode,
    **word.both("remainder",     _plain(_remainder)),
    **word.both("fmod",          _plain(op.fmod)),
    "pow.Tensor_Tensor":    _pow("self", "exponent"),
    "pow.Tensor_Scalar":    _pow("self", "exponent"),
    "pow.Scalar":           _pow("self", "exponent"),
    "atan2.default":        _plain(op.arctan2, "INT_TO_FLOAT"),
    "hypot.default":        _plain(hypotenuse),
    "xlogy.Tensor":         _times_log(op.log, 0.0),
    "xlogy.Scalar_Self":    _times_log(op.log, 0.0),
    "xlogy.Scalar_Other":   _times_log(op.log, 0.0),
    "special_xlog1py.default":      _times_log(op.log1p, -1.0),
    "special_xlog1py.self_scalar":  _times_log(op.log1p, -1.0),
    "special_xlog1py.other_scalar": _times_log(op.log1p, -1.0),
    "copysign.Tensor":      _plain(op.copysign, "INT_TO_FLOAT"),
    "maximum.default":      _extreme(op.maximum, op.logical_or),
    "minimum.default":      _extreme(op.minimum, op.logical_and),
    "fmax.default":         _extreme(op.fmax, op.logical_or),
    "fmin.default":         _extreme(op.fmin, op.logical_and),
    "addcmul.default":      _addcmul,
    "lerp.Scalar":          _lerp,
    # comparisons and choices
    **word.both("eq",            _compare(op.equal)),
    **word.both("ne",            _compare(op.not_equal)),
    **word.both("lt",            _compare(op.less)),
    **word.both("le",            _compare(op.less_equal)),
    **word.both("gt",            _compare(op.greater)),
    **word.both("ge",            _compare(op.greater_equal)),
    "clamp.default":        lambda node: _bounded(node, "min", "max"),
    "clamp.Tensor":         lambda node: _bounded(node, "min", "max"),
    "hardtanh.default":     _hard_tanh,
    "where.self":           _where,
    # bits
    "logical_and.default":  _logical(op.logical_and),
    "logical_or.default":   _logical(op.logical_or),
    "logical_xor.default":  _logical(op.logical_xor),
    **word.both("bitwise_and",   _bitwise(op.bitwise_and, op.logical_and)),
    **word.both("bitwise_or",    _bitwise(op.bitwise_or, op.logical_or)),
    **word.both("bitwise_xor",   _bitwise(op.bitwise_xor, op.logical_xor)),
    **word.both("__lshift__",    _shift(op.left_shift)),
    **word.both("__rshift__",    _shift(op.right_shift)),
    "bitwise_left_shift.Tensor":         _shift(op.left_shift),
    "bitwise_left_shift.Tensor_Scalar":  _shift(op.left_shift),
    "bitwise_right_shift.Tensor":        _shift(op.right_shift),
    "bitwise_right_shift.Tensor_Scalar": _shift(op.right_shift),
}
# fmt: on
