"""Rows of layers on integers that onnxruntime adds to the standard's (`com.microsoft`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.quantise import TABLE as QUANTISE, dynamic, quantised, restored
from plica.frontend.onnx.row.recurrent import DYNAMIC_LSTM
from plica.frontend.onnx.row.word import Row, along, as_scalar, axis_in, dtype, is_one, rank, to
from plica.ir.graph.expression import Expr, const
from plica.ir.op.namespace import op
from plica.ir.type.dtype import f32, i32, u8


def _read(node: OnnxNode, at: int) -> Expr:
    """The numbers of an input, whose scale and zero point are the next two."""
    scale, zero = node.x(at + 1), node.maybe(at + 2)
    if not is_one(scale) or (zero is not None and not is_one(zero)):
        node.unsupported("A layer on integers has one scale.", "one", str(node.type(at + 1)))
    of_zero = None if zero is None else as_scalar(zero)
    return restored(node.x(at), as_scalar(to(scale, f32)), of_zero)


def _written(node: OnnxNode, made: Expr, at: int, like_at: int = 0) -> Expr:
    """Integers for numbers, by the scale and the zero point at a place."""
    scale, zero = node.x(at), node.maybe(at + 1)
    if not is_one(scale):
        node.unsupported("A layer on integers has one scale.", "one", str(node.type(at)))
    into = dtype(node.x(like_at)) if zero is None else dtype(zero)
    of_zero = None if zero is None else as_scalar(zero)
    return quantised(made, as_scalar(to(scale, f32)), of_zero, into)


def _both(record: Callable[[Expr, Expr], Expr]) -> Row:
    def row(node: OnnxNode) -> Expr:
        return _written(node, record(_read(node, 0), _read(node, 3)), 6)

    return row


def _one(function: Callable[[OnnxNode, Expr], Expr]) -> Row:
    def row(node: OnnxNode) -> Expr:
        return _written(node, function(node, _read(node, 0)), 3)

    return row


def _pooled(node: OnnxNode, x: Expr) -> Expr:
    if node.flag("channels_last"):
        node.unsupported("Channels are the second axis.", "channels_last=0")
    expr: Expr = op.nn.global_avg_pool(x)
    return expr


def _softened(node: OnnxNode, x: Expr) -> Expr:
    node.ignore("opset")
    expr: Expr = op.nn.softmax(x, axis=axis_in(node, node.integer("axis", -1), rank(x)))
    return expr


def _leaky(node: OnnxNode, x: Expr) -> Expr:
    return op.nn.leaky_relu(x, alpha=node.real("alpha", 0.01))


def _joined(node: OnnxNode) -> Expr:
    """The scale and zero point of the result, then each input with its own."""
    count = len(node.inputs)
    if count < 5 or (count - 2) % 3:
        node.malformed("Each input has a scale and a zero point.", "2 + 3 n inputs", str(count))
    parts = tuple([_read(node, at) for at in range(2, count, 3)])
    axis = axis_in(node, node.integer("axis"), rank(parts[0]))
    return _written(node, op.concat(parts, axis=axis), 0, like_at=2)


def _by_columns(node: OnnxNode, what: Expr, x: Expr) -> Expr:
    """One scale or zero point, or one for each column."""
    return as_scalar(what) if is_one(what) else along(what, rank(x) - 1, rank(x))


def _scaled(node: OnnxNode, a: Expr, a_scale: Expr, at: tuple[int, int, int]) -> Expr:
    """The product of integers, which have no zero point any more, as numbers."""
    b, scale, zero = to(node.x(at[0]), i32), to(node.x(at[1]), f32), node.maybe(at[2])
    if zero is not None:
        b = b - _by_columns(node, to(zero, i32), b)
    expr = op.matmul(a, b)
    return to(expr, f32) * (a_scale * _by_columns(node, scale, expr))


def dynamically(x: Expr) -> tuple[Expr, Expr]:
    """What DynamicQuantizeLinear makes of x: integers less their zero point in i32, a scale."""
    whole, scale, zero = dynamic(x)
    return to(whole, i32) - to(zero, i32), scale


def _dynamic_matmul(node: OnnxNode) -> Expr:
    """a, b, b_scale, b_zero, bias: a is quantised here."""
    a, scale = dynamically(node.x(0))
    expr = _scaled(node, a, scale, (1, 2, 3))
    bias = node.maybe(4)
    return expr if bias is None else expr + bias


def _matmul_to_float(node: OnnxNode) -> Expr:
    """a, b, a_scale, b_scale, a_zero, b_zero, bias."""
    a, scale, zero = to(node.x(0), i32), to(node.x(2), f32), node.maybe(4)
    if not is_one(scale) or (zero is not None and not is_one(zero)):
        node.unsupported("The first matrix has one scale.", "one", str(node.type(2)))
    if zero is not None:
        a = a - as_scalar(to(zero, i32))
    expr = _scaled(node, a, as_scalar(scale), (1, 3, 5))
    bias = node.maybe(6)
    return expr if bias is None else expr + bias


def _unpacked(packed: Expr, bits: int) -> Expr:
    """The numbers packed in bytes, as an additional last axis."""
    parts = []
    for first in range(0, 8, bits):
        moved = op.right_shift(packed, const(first, u8)) if first else packed
        parts.append(op.bitwise_and(moved, const((1 << bits) - 1, u8)))
    return op.stack(tuple(parts), axis=rank(packed))


def _matmul_n_bits(node: OnnxNode) -> Expr:
    """a, packed [N, blocks, bytes], scales, zero points, group indices, bias."""
    x, packed, scales, zeros = node.x(0), node.x(1), node.x(2), node.maybe(3)
    depth, columns = node.integer("K"), node.integer("N")
    bits, block = node.integer("bits", 4), node.integer("block_size")
    node.ignore("accuracy_level")
    if bits not in (2, 4, 8):
        node.unsupported("MatMulNBits takes weights of some bits.", "2, 4 or 8", str(bits))
    if node.maybe(4) is not None:
        node.unsupported("MatMulNBits takes the blocks of a column in order.", None, "g_idx")
    blocks = -(-depth // max(block, 1))
    wanted = (columns, blocks, block * bits // 8)
    if block < 1 or block * bits % 8 or node.sizes(1) != wanted or dtype(packed) is not u8:
        found = f"{node.type(1)} in blocks of {block}"
        node.malformed("The weight of MatMulNBits is bytes for each block.", str(wanted), found)
    weight = to(op.reshape(_unpacked(packed, bits), (columns, blocks, block)), f32)
    if zeros is None:
        weight = weight - const(float(1 << bits - 1), f32)
    else:
        if dtype(zeros) is u8:
            row = -(-blocks * bits // 8)
            apart = _unpacked(op.reshape(zeros, (columns, row)), bits)
            every = op.reshape(apart, (columns, row * 8 // bits))
            zeros = op.slice(every, (0,), (blocks,), axes=(1,))
        weight = weight - op.reshape(to(zeros, f32), (columns, blocks, 1))
    weight = weight * op.reshape(to(scales, f32), (columns, blocks, 1))
    whole = op.slice(op.reshape(weight, (columns, blocks * block)), (0,), (depth,), axes=(1,))
    expr = op.matmul(x, to(op.transpose(whole, (1, 0)), dtype(x)))
    bias = node.maybe(5)
    return expr if bias is None else expr + bias


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "QLinearAdd":               _both(op.add),
    "QLinearMul":               _both(op.multiply),
    "QLinearSigmoid":           _one(lambda node, x: op.nn.sigmoid(x)),
    "QLinearLeakyRelu":         _one(_leaky),
    "QLinearGlobalAveragePool": _one(_pooled),
    "QLinearSoftmax":           _one(_softened),
    "QLinearConcat":            _joined,
    "DynamicQuantizeMatMul":    _dynamic_matmul,
    "MatMulIntegerToFloat":     _matmul_to_float,
    "QuantizeLinear":           QUANTISE["QuantizeLinear"],
    "DequantizeLinear":         QUANTISE["DequantizeLinear"],
    "MatMulNBits":         _matmul_n_bits,
    "DynamicQuantizeLSTM": DYNAMIC_LSTM,
}
# fmt: on
