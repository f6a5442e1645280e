"""Rows of elementwise operators and activations."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Final

import numpy as np

from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.word import (
    Made,
    Row,
    along,
    axis_in,
    direct,
    dtype,
    into_storage,
    like,
    rank,
    shape,
    to,
)
from plica.frontend.onnx.storage import dtype_of
from plica.frontend.onnx.value import TensorValue
from plica.ir.graph.expression import Expr, const
from plica.ir.graph.operator import Operator
from plica.ir.op import activation, comparison, elementwise
from plica.ir.op.namespace import op
from plica.ir.type import DType, bool_, i64, known
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.frontend.word import same_bits, whole_power


# Their inputs or meaning differ from those of the record that has their name.
_SPECIAL: Final = (
    "Div", "Mod", "Pow", "Max", "Min", "Shape", "Size", "Where", "IsInf", "Selu", "Swish",
    "MatMul", "Identity", "Dropout",
)  # fmt: skip


_ALIGNED: Final = frozenset(["Add", "Sub", "Mul", "And", "Or", "Xor", "Equal", "Greater", "Less"])


def _directly() -> dict[str, Row]:
    """Operators whose record says the ONNX name, with the same inputs and nothing to set."""
    found: dict[str, Row] = {}
    files = (activation, comparison, elementwise)
    for record in [var for file in files for var in vars(file).values()]:
        if isinstance(record, Operator) and not record.attributes and not record.variadic:
            found |= {each: direct(record) for each in record.onnx if each not in _SPECIAL}
    return found


def _aligned(row: Row) -> Row:
    """Before version 7, the second side is broadcast only where asked, from an axis on."""

    def old(node: OnnxNode) -> Made:
        if node.opset >= 7:
            return row(node)
        asked, axis = node.flag("broadcast"), node.integer("axis", -1)
        x, y = node.x(0), node.x(1)
        if not asked and shape(x) != shape(y):
            node.malformed("The shapes differ, and broadcast is 0.", str(node.type(0)), "another")
        if asked and axis >= 0 and rank(y):
            tail = rank(x) - axis - rank(y)
            if tail < 0:
                node.malformed("There are too few axes.", str(node.type(0)), str(node.type(1)))
            node.inputs = (node.inputs[0], TensorValue(op.reshape(y, (*shape(y), *(1,) * tail))))
        return row(node)

    return old


def _alpha(record: Operator, default: float) -> Row:
    return lambda node: record(node.x(), alpha=node.real("alpha", default))


def _many(record: Operator) -> Row:
    return lambda node: reduce(record, node.all())


def _div(node: OnnxNode) -> Expr:
    x, y = node.x(0), node.x(1)
    return x / y if dtype(x).is_float else op.trunc_divide(x, y)


def _mod(node: OnnxNode) -> Expr:
    x, y = node.x(0), node.x(1)
    if node.flag("fmod"):
        return op.fmod(x, y)
    if dtype(x).is_float and node.opset < 28:
        node.malformed("Mod of floats needs fmod=1.", "fmod=1", "fmod=0")
    return x % y


def _pow(node: OnnxNode) -> Expr:
    x, y = node.x(0), node.x(1)
    of = dtype(x)
    if dtype(y) is of:
        return x**y if of.is_float else whole_power(x, y)
    if of.is_float:
        # The exponent must not lose bits: an i64 or f64 one may not fit the base's type.
        return to(op.cast(x, "f64") ** op.cast(y, "f64"), of)
    if dtype(y).is_float:
        return to(op.cast(x, "f64") ** op.cast(y, "f64"), of)
    return to(whole_power(to(x, i64), to(y, i64)), of)


def _is_inf(node: OnnxNode) -> Expr:
    x = node.x()
    up, down = node.flag("detect_positive", True), node.flag("detect_negative", True)
    expr = op.isinf(x)
    if up and down:
        return expr
    if not up and not down:
        return op.logical_and(expr, op.logical_not(expr))
    side = x > like(0, x) if up else x < like(0, x)
    return op.logical_and(expr, side)


def _clip(node: OnnxNode) -> Expr:
    x = node.x()
    if node.opset < 11:
        low = const(np.float32(node.real("min", float(np.finfo(np.float32).min))))
        high = const(np.float32(node.real("max", float(np.finfo(np.float32).max))))
        return op.minimum(op.maximum(x, to(low, dtype(x))), to(high, dtype(x)))
    bounds = [node.maybe(1), node.maybe(2)]
    if dtype(x).is_float:  # what is left out is the greatest number there is: no infinity is left
        ends = (like(-dtype(x).greatest, x), like(dtype(x).greatest, x))
        bounds = [end if bound is None else bound for bound, end in zip(bounds, ends, strict=True)]
    for record, bound in zip((op.maximum, op.minimum), bounds, strict=True):
        x = x if bound is None else record(x, bound)
    return x


def _prelu(node: OnnxNode) -> Expr:
    x, slope = node.x(0), node.x(1)
    if node.opset < 7 and rank(slope) == 1 and rank(x) > 1:
        slope = along(slope, 1, rank(x))  # one for each channel
    if rank(slope) > rank(x):
        node.malformed("The slope has more axes than x.", str(node.type(0)), str(node.type(1)))
    return op.where(x < like(0, x), x * slope, x)


def _selu(node: OnnxNode) -> Expr:
    alpha = node.real("alpha", 1.67326319217681884765625)
    gamma = node.real("gamma", 1.05070102214813232421875)
    x = node.x()
    if (np.float32(alpha), np.float32(gamma)) == (
        np.float32(1.67326319217681884765625),
        np.float32(1.05070102214813232421875),
    ):
        return op.nn.selu(x)
    return op.nn.elu(x, alpha=alpha) * like(gamma, x)


def _swish(node: OnnxNode) -> Expr:
    x, alpha = node.x(), node.real("alpha", 1.0)
    return op.nn.silu(x) if alpha == 1.0 else x * op.nn.sigmoid(x * like(alpha, x))


def _shrink(node: OnnxNode) -> Expr:
    x, lambd, bias = node.x(), node.real("lambd", 0.5), node.real("bias", 0.0)
    of = dtype(x)
    if not of.is_float and (lambd != int(lambd) or bias != int(bias)):
        node.unsupported("Shrink of integers takes whole bounds.", "whole numbers", str(lambd))
    below = op.where(x < like(-lambd, x), x + like(bias, x), like(0, x))
    return op.where(x > like(lambd, x), x - like(bias, x), below)


def _bit_shift(node: OnnxNode) -> Expr:
    direction = node.text("direction", "")
    if direction not in ("LEFT", "RIGHT"):
        node.malformed("BitShift goes LEFT or RIGHT.", "LEFT or RIGHT", repr(direction))
    shift = op.left_shift if direction == "LEFT" else op.right_shift
    return shift(node.x(0), node.x(1))


def _mean(node: OnnxNode) -> Expr:
    items = node.all()
    total = reduce(op.add, items)
    return total / like(len(items), total)


def _cast(node: OnnxNode) -> Expr:
    wanted = dtype_of(node.integer("to"), node.place)
    return _casted(node, node.x(), wanted)


def _casted(node: OnnxNode, x: Expr, wanted: DType) -> Expr:
    node.ignore("saturate", "round_mode")  # they speak of 8-bit floats only
    if wanted is bool_ and dtype(x).is_float:
        return op.logical_not(op.equal(x, like(0, x)))  # every number but 0 is true, and nan is
    return into_storage(node, x, wanted) if wanted.is_storage else op.cast(x, wanted)


def _bit_cast(node: OnnxNode) -> Expr:
    x, wanted = node.x(), dtype_of(node.integer("to"), node.place)
    own = dtype(x)
    if wanted.bytes != own.bytes:
        expected = f"a type of {own.bytes} bytes"
        node.malformed("BitCast keeps the size of elements.", expected, str(wanted))
    if own is wanted:
        return x
    if wanted is bool_ or own.is_storage or wanted.is_storage:
        node.unsupported("The bits of this type are not looked at.", "numbers", str(wanted))
    return same_bits(x, wanted)


def _hard_sigmoid(node: OnnxNode) -> Expr:
    alpha, beta = node.real("alpha", 0.2), node.real("beta", 0.5)
    return op.nn.hard_sigmoid(node.x(), alpha=alpha, beta=beta)


def _gelu(node: OnnxNode) -> Expr:
    return op.nn.gelu(node.x(), approximate=node.text("approximate", "none"))


def _softmax(finish: Callable[[Expr, int], Expr]) -> Row:
    def row(node: OnnxNode) -> Expr:
        x = node.x()
        if node.opset >= 13:
            return finish(x, axis_in(node, node.integer("axis", -1), rank(x)))
        # Before version 13 the axes from `axis` on count as one.
        axis = node.integer("axis", 1)
        at = axis + rank(x) if axis < 0 else axis
        if not 0 <= at <= rank(x):
            node.malformed("There is no such axis.", f"0 to {rank(x)}", str(axis))
        return op.reshape(finish(op.nn.flatten(x, axis=at), 1), node.shape(0))

    return row


def _hardmax(x: Expr, at: int) -> Expr:
    if known(shape(x)[at]):
        return op.one_hot(op.argmax(x, axis=at), depth=shape(x)[at], axis=at, dtype=dtype(x))
    # There may be nothing along the axis, of which argmax has no place.
    top = op.supremum(x, axis=(at,), keepdims=True)
    hit, place = op.equal(x, top), op.iota_like(x, axis=at)
    if dtype(x).is_float:
        hit = op.logical_or(hit, op.isnan(x))  # then it is the greatest
    beyond = like(np.iinfo(np.int64).max, place)
    first = op.infimum(op.where(hit, place, beyond), axis=(at,), keepdims=True)
    return to(op.equal(place, first), dtype(x))


# fmt: off
TABLE: Final[dict[str, Row]] = {
    **_directly(),
    **{name: _aligned(row) for name, row in _directly().items() if name in _ALIGNED},
    "Identity":        lambda node: node.need(0),
    "Div":             _aligned(_div),
    "Mod":             _mod,
    "Pow":             _aligned(_pow),
    "Max":             _many(op.maximum),
    "Min":             _many(op.minimum),
    "Sum":             _many(op.add),
    "Mean":            _mean,
    "IsInf":           _is_inf,
    "Clip":            _clip,
    "PRelu":           _prelu,
    "Selu":            _selu,
    "Elu":             _alpha(op.nn.elu, 1.0),
    "Celu":            _alpha(op.nn.celu, 1.0),
    "LeakyRelu":       _alpha(op.nn.leaky_relu, 0.01),
    "ThresholdedRelu": _alpha(op.nn.thresholded_relu, 1.0),
    "HardSigmoid":     _hard_sigmoid,
    "Gelu":            _gelu,
    "Swish":           _swish,
    "Shrink":          _shrink,
    "BitCast":         _bit_cast,
    "BitShift":        _bit_shift,
    "Cast":            _cast,
    "CastLike":        lambda node: _casted(node, node.x(0), dtype(node.x(1))),
    "Where":           lambda node: op.where(node.x(0), node.x(1), node.x(2)),
    "Softmax":         _softmax(lambda x, axis: op.nn.softmax(x, axis=axis)),
    "LogSoftmax":      _softmax(lambda x, axis: op.nn.log_softmax(x, axis=axis)),
    "Hardmax":         _softmax(_hardmax),
}
# fmt: on
