"""Rows of operators that onnxruntime adds to the standard's (`com.microsoft`)."""

from __future__ import annotations

from typing import Final

from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.recurrent import DYNAMIC_LSTM
from plica.frontend.onnx.row.word import Row, dtype, rank, to
from plica.ir.graph.expression import Expr, const
from plica.ir.op.namespace import op
from plica.ir.type.dtype import f32, u8


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
    made = op.matmul(x, to(op.transpose(whole, (1, 0)), dtype(x)))
    bias = node.maybe(5)
    return made if bias is None else made + bias


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "MatMulNBits":         _matmul_n_bits,
    "DynamicQuantizeLSTM": DYNAMIC_LSTM,
}
# fmt: on
