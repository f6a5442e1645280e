"""The row that undoes a pool: each maximum where it came from, in a result that may be larger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from plica.frontend.measured import Piece, amount, matched, places
from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.pool import pool_window
from plica.frontend.onnx.row.word import Row, along, dtype, like, rank, shape
from plica.frontend.onnx.run_time import lawful, pieces, size_from
from plica.ir.graph.expression import Expr
from plica.ir.op.namespace import op
from plica.ir.type.dim import is_size, known, normal_dim, product, same_dim


def _max_unpool(node: OnnxNode) -> Expr:
    """Each element at its original index in the window's input, and zeros elsewhere, up to the
    requested size."""
    x, at, sizes = node.x(0), node.x(1), node.shape(0)
    window = pool_window(node)
    inner = [
        normal_dim((size - 1) * stride + (kernel - sum(sides)))
        for size, stride, sides, kernel in zip(
            sizes[2:], window.strides, window.padding, window.kernel, strict=True
        )
    ]
    whole = (*sizes[:2], *inner)
    wanted: list[Piece] = list(whole) if node.value(2) is None else pieces(node, 2)
    if node.rank(1) != len(sizes) or len(wanted) != len(whole):
        node.malformed("Each element has a place.", str(node.type(0)), str(node.type(1)))
    for mine, other in zip(sizes, node.shape(1), strict=True):
        if None not in (known(mine), known(other)) and known(mine) != known(other):
            node.malformed("Each element has a place.", str(node.type(0)), str(node.type(1)))
    if any((number := known(size)) is not None and number < 0 for size in inner):
        node.malformed("MaxUnpool makes nothing less than empty.", "0 or more", str(inner))
    least = tuple(size for size in inner if not is_size(size))
    x = op.match_shape(x, sizes, least=least) if least else x
    nothing = op.full(shape=(product(whole),), value=0, dtype=dtype(x))
    flat = op.scatter_elements(
        nothing, *(op.reshape(each, (product(sizes),)) for each in (matched(at, sizes), x))
    )
    return _extended(node, op.reshape(flat, whole), wanted)


def _extended(node: OnnxNode, x: Expr, wanted: Sequence[Piece]) -> Expr:
    """x with zeros behind it, as large as asked, which is no less than it is."""
    for axis, (mine, piece) in enumerate(zip(shape(x), wanted, strict=True)):
        if not isinstance(piece, Expr) and same_dim(mine, size_from(node, piece)):
            continue
        length, size = amount(mine), amount(piece)
        after = node.measured(lawful(size, length <= size, "room"), axis)
        at = places(after)
        if known(mine) == 0:
            sizes = tuple(after if o == axis else s for o, s in enumerate(shape(x)))
            x = op.full(shape=sizes, value=0, dtype=dtype(x))
            continue
        inside = along(at < length, axis, rank(x))
        x = op.where(inside, op.take(x, at, axis=axis, mode="clip"), like(0, x))
    return x


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "MaxUnpool": _max_unpool,
}
# fmt: on
