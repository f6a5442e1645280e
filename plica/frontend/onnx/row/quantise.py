"""Rows of quantised operators: integers that stand for numbers by a scale and a zero point.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Var
>>> from plica.ir.op.activation import relu
>>> from plica.ir.op.elementwise import subtract
>>> from plica.ir.type.term import tensor
>>> x = Var(Name("x"), tensor((4,), "f32"))
>>> never_negative(relu(x)), never_negative(x), never_negative(subtract(relu(x), relu(x)))
(True, False, False)
"""

from __future__ import annotations

from typing import Final

from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row import word
from plica.frontend.onnx.row.window import convolved
from plica.frontend.onnx.storage import dtype_of
from plica.ir.graph.expression import Apply, Const, Expr, attr, const
from plica.ir.op.namespace import op
from plica.ir.type import DType, f32, i32, known, u8
from plica.rewrite.closed import value_of


def beside(node: OnnxNode, what: Expr, x: Expr, axis: int) -> Expr:
    """A scale or a zero point as it broadcasts against x: one, one for each place of an axis,
    or one for each block of an axis."""
    if word.is_one(what):
        return word.as_scalar(what)
    if word.rank(what) == 1:
        return word.along(what, word.axis_in(node, axis, word.rank(x)), word.rank(x))
    block = node.integer("block_size", 0)
    at = word.axis_in(node, axis, word.rank(x))
    parts, whole = known(word.shape(what)[at]), known(word.shape(x)[at])
    if block < 1 or word.rank(what) != word.rank(x) or parts is None or whole != parts * block:
        found = f"{word.shape(what)} for {word.shape(x)} in blocks of {block}"
        node.unsupported("Scales must be one for each place or block of an axis.", None, found)
    return op.repeat(what, repeats=block, axis=at)


def quantised(x: Expr, scale: Expr, zero: Expr | None, into: DType) -> Expr:
    """The integers nearest to x / scale + zero."""
    moved = op.round(x / scale)
    if zero is not None:
        moved = moved + word.to(zero, word.dtype(moved))
    low, high = into.bounds
    return op.cast(op.clip(moved, min=float(low), max=float(high)), into)


def restored(x: Expr, scale: Expr, zero: Expr | None) -> Expr:
    """The numbers that integers stand for."""
    if zero is None:
        return word.to(x, word.dtype(scale)) * scale
    if word.dtype(x).is_float:
        return (word.to(x, word.dtype(scale)) - word.to(zero, word.dtype(scale))) * scale
    return word.to(word.to(x, i32) - word.to(zero, i32), word.dtype(scale)) * scale


def _quantise(node: OnnxNode) -> Expr:
    x, scale, zero = node.x(0), node.x(1), node.maybe(2)
    into = u8 if zero is None else word.dtype(zero)
    if node.integer("output_dtype", 0):
        into = dtype_of(node.integer("output_dtype", 0), node.place)
    if node.integer("precision", 0) not in (0, 1):
        node.unsupported("QuantizeLinear divides in f32.", "precision 0 or 1")
    axis = node.integer("axis", 1)
    node.ignore("block_size")
    if not into.is_integer and not into.is_storage:
        node.unsupported("QuantizeLinear gives integers or 8-bit floats.", None, str(into))
    wide = word.to(x, f32)
    step = beside(node, word.to(scale, f32), x, axis)
    if into.is_float:
        moved = wide / step
        if zero is not None:
            moved = moved + word.to(beside(node, zero, x, axis), f32)
        return word.into_storage(node, moved, into)
    node.ignore("saturate")
    return quantised(wide, step, None if zero is None else beside(node, zero, x, axis), into)


def _dequantise(node: OnnxNode) -> Expr:
    x, scale, zero = node.x(0), node.x(1), node.maybe(2)
    axis = node.integer("axis", 1)
    node.ignore("block_size")
    said = node.integer("output_dtype", 0)
    wanted = dtype_of(said, node.place) if said else word.dtype(scale)
    step = beside(node, word.to(scale, f32), x, axis)
    return word.to(restored(x, step, None if zero is None else beside(node, zero, x, axis)), wanted)


def dynamic(x: Expr) -> tuple[Expr, Expr, Expr]:
    """Quantised bytes of x, with the scale and zero point of its range."""
    zero, one = word.like(0.0, x), word.like(1.0, x)
    if any(known(size) == 0 for size in word.shape(x)):
        return op.full(shape=word.shape(x), value=0, dtype=u8), one, const(0, u8)
    sure = all(known(size) for size in word.shape(x))  # otherwise there may be nothing, which is 0
    least, greatest = (op.min, op.max) if sure else (op.infimum, op.supremum)
    # Of nan both extremes are nan, so that the scale tells of it alone.
    low = zero if never_negative(x) else op.minimum(least(x), zero)
    high = op.maximum(greatest(x), zero)
    scale = (high - low) / word.like(255.0, x)
    # Any scale says that all are 0; onnxruntime's is 1.
    scale = op.where(op.equal(scale, zero), one, scale)
    point = op.clip(op.round(zero - low / scale), min=0.0, max=255.0)
    y = op.clip(op.round(x / scale) + point, min=0.0, max=255.0)
    return op.cast(y, u8), scale, op.cast(point, u8)


def _moved(node: OnnxNode, at: int, zero_at: int, rows: bool = False) -> Expr:
    """An input less its zero point, in i32."""
    x, zero = word.to(node.x(at), i32), node.maybe(zero_at)
    if zero is None:
        return x
    zero = word.to(zero, i32)
    if word.is_one(zero):
        return x - word.as_scalar(zero)
    if word.rank(zero) == 1:
        return x - word.along(zero, word.rank(x) - (2 if rows else 1), word.rank(x))
    return x - zero


def _matmul_integer(node: OnnxNode) -> Expr:
    return op.matmul(_moved(node, 0, 2, rows=True), _moved(node, 1, 3))


def _weight(node: OnnxNode, at: int, zero_at: int) -> Expr:
    weight, zero = word.to(node.x(at), i32), node.maybe(zero_at)
    if zero is None:
        return weight
    zero = word.to(zero, i32)
    return weight - (
        word.as_scalar(zero) if word.is_one(zero) else word.along(zero, 0, word.rank(weight))
    )


def _qlinear_matmul(node: OnnxNode) -> Expr:
    """a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero."""
    product = op.matmul(_moved(node, 0, 2, rows=True), _moved(node, 3, 5))
    a, b, y = (word.to(node.x(at), f32) for at in (1, 4, 6))
    a = (
        word.as_scalar(a)
        if word.is_one(a)
        else (op.reshape(a, (*word.shape(a), 1)) if word.rank(a) == 1 else a)
    )
    b = word.as_scalar(b) if word.is_one(b) else b
    if not word.is_one(y) or not word.is_one(node.x(7)):
        node.unsupported("QLinearMatMul gives numbers of one scale.", "one", str(node.type(6)))
    factor = a * b / word.as_scalar(y)
    return _requantised(word.to(product, f32) * factor, node.x(7))


def _qlinear_conv(node: OnnxNode) -> Expr:
    """x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias."""
    sums = convolved(node, _moved(node, 0, 2), _weight(node, 3, 5), 3)
    if (bias := node.maybe(8)) is not None:
        sums = sums + word.along(bias, 1, word.rank(sums))
    x, w, y = (word.to(node.x(at), f32) for at in (1, 4, 6))
    if not word.is_one(x) or not word.is_one(y) or not word.is_one(node.x(7)):
        node.unsupported("QLinearConv has one scale for images.", "one", str(node.type(1)))
    w = word.as_scalar(w) if word.is_one(w) else word.along(w, 1, word.rank(sums))
    factor = word.as_scalar(x) * w / word.as_scalar(y)
    return _requantised(word.to(sums, f32) * factor, node.x(7))


def _requantised(x: Expr, zero: Expr) -> Expr:
    into = word.dtype(zero)
    return quantised(x, const(1.0, f32), word.as_scalar(zero), into)


# fmt: off
TABLE: Final[dict[str, word.Row]] = {
    "QuantizeLinear":        _quantise,
    "DequantizeLinear":      _dequantise,
    "DynamicQuantizeLinear": lambda node: list(dynamic(node.x())),
    "MatMulInteger":         _matmul_integer,
    "ConvInteger":           lambda node: convolved(node, _moved(node, 0, 2), _weight(node, 1, 3)),
    "QLinearMatMul":         _qlinear_matmul,
    "QLinearConv":           _qlinear_conv,
}
# fmt: on


FAR: Final = 8  # as many operators back are looked at

ALWAYS: Final = frozenset({
    "absolute", "exp", "exp2", "nn.hard_sigmoid", "nn.relu", "nn.relu6", "nn.sigmoid", "nn.softmax",
    "nn.softplus", "sqrt", "square",
})  # fmt: skip
"""What gives no negative number."""

WITH_ALL: Final = frozenset({
    "add", "broadcast_to", "concat", "expand_dims", "mean", "minimum", "multiply", "nn.avg_pool",
    "nn.flatten", "nn.global_avg_pool", "reshape", "slice", "squeeze", "sum", "transpose",
})  # fmt: skip
"""Operators without negative results for non-negative arguments: moves, sums, averages and
products. The maximum of an empty set is minus infinity, so it is excluded."""


def never_negative(of: Expr, far: int = FAR) -> bool:
    """Whether it is known that no element is below zero."""
    if isinstance(of, Const):
        value = value_of(of)
        return value is not None and not (value < 0).any()
    if not isinstance(of, Apply) or not far:
        return False
    if of.op == "clip":
        low, high = attr(of, "min"), attr(of, "max")
        return low is not None and low >= 0 and (high is None or high >= 0)
    if of.op == "maximum":
        return any(never_negative(arg, far - 1) for arg in of.args)
    return of.op in ALWAYS or (
        of.op in WITH_ALL and all(never_negative(arg, far - 1) for arg in of.args)
    )
