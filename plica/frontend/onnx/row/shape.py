"""Rows of operators that give elements another shape, or ask for one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.word import Made, Row, dtype, rank, shape
from plica.frontend.onnx.storage import MOST_AXES
from plica.frontend.onnx.value import TensorValue, as_objects, of_terms
from plica.ir.graph.expression import Expr, const
from plica.ir.loop.scalar import Scalar, index
from plica.ir.op.namespace import op
from plica.ir.op.relation import Shape
from plica.ir.type.dim import known, product
from plica.ir.type.dtype import i64
from plica.runtime.late import late

if TYPE_CHECKING:
    from plica.frontend.measured import amount, matched
    from plica.frontend.onnx.row.shape_by_value import (
        reshape_by_dims,
        reshape_by_value,
        squeeze_by_value,
        unsqueeze_by_value,
        without_loss,
    )
    from plica.frontend.onnx.run_time import (
        common_shape,
        expandable,
        is_known,
        pieces,
        size_from,
        spread,
    )
else:
    amount = late("plica.frontend.measured:amount")
    matched = late("plica.frontend.measured:matched")
    reshape_by_dims = late("plica.frontend.onnx.row.shape_by_value:reshape_by_dims")
    reshape_by_value = late("plica.frontend.onnx.row.shape_by_value:reshape_by_value")
    squeeze_by_value = late("plica.frontend.onnx.row.shape_by_value:squeeze_by_value")
    unsqueeze_by_value = late("plica.frontend.onnx.row.shape_by_value:unsqueeze_by_value")
    without_loss = late("plica.frontend.onnx.row.shape_by_value:without_loss")
    common_shape = late("plica.frontend.onnx.run_time:common_shape")
    expandable = late("plica.frontend.onnx.run_time:expandable")
    is_known = late("plica.frontend.onnx.run_time:is_known")
    pieces = late("plica.frontend.onnx.run_time:pieces")
    size_from = late("plica.frontend.onnx.run_time:size_from")
    spread = late("plica.frontend.onnx.run_time:spread")


def _reshape(node: OnnxNode) -> Expr:
    x, given = node.x(0), pieces(node, 1)
    keep_zero = node.flag("allowzero")
    if not all(map(is_known, given)):
        return reshape_by_value(node, x, given, keep_zero)
    wanted = node.vector(1)
    sizes: list[Scalar | int] = []
    for at, each in enumerate(wanted):
        if isinstance(each, int) and each == 0 and not keep_zero:
            if at >= rank(x):
                node.malformed("Reshape copies a size that is not there.", str(rank(x)), str(at))
            sizes.append(shape(x)[at])
        else:
            sizes.append(each)
    # An empty tensor has any number of elements along -1; the standard asks that it be said.
    if any(
        known(size) is None for size in (*shape(x), *[e for e in sizes if isinstance(e, Scalar)])
    ):
        return reshape_by_dims(node, x, sizes, keep_zero)
    return op.reshape(x, tuple(sizes))


def _transpose(node: OnnxNode) -> Expr:
    return op.transpose(node.x(), node.integers("perm"))


def _flatten(node: OnnxNode) -> Expr:
    return op.nn.flatten(node.x(), axis=node.integer("axis", 1))


def _axes(node: OnnxNode) -> tuple[int, ...] | None:
    """Axes: an attribute before version 13, an input since."""
    if node.opset < 13:
        return node.integers("axes")
    return None if node.value(1) is None else tuple(node.whole(1))


def _run_time_axes(node: OnnxNode) -> tuple[Expr, int] | None:
    """Axes that are only known when the model runs, and how many; None where there are no such."""
    if node.opset < 13 or node.value(1) is None or node.need(1).numbers() is not None:
        return None
    return node.x(1), len(pieces(node, 1))


def _is_one(node: OnnxNode, size: Scalar) -> bool:
    """Whether a size is 1 in the calls that the model is being read for."""
    if (number := known(size)) is not None:
        return number == 1
    if (said := node.decided(op.equal(amount(size), const(1, i64)))) is None:
        message = "Squeeze without axes needs known sizes."
        node.unsupported(message, "axes", str(node.type()))
    return said


def _squeeze(node: OnnxNode) -> Expr:
    if (late := _run_time_axes(node)) is not None:
        return squeeze_by_value(node, node.x(), *late)
    if (axes := _axes(node)) is None:
        axes = tuple([at for at, size in enumerate(node.shape()) if _is_one(node, size)])
        if not axes:
            return node.x()
    # That an open size is 1 is seen when the model runs.
    gone = {each % node.rank() for each in axes if -node.rank() <= each < node.rank()}
    sizes = [
        index(1) if at in gone and known(size) is None else size
        for at, size in enumerate(node.shape())
    ]
    return op.squeeze(matched(node.x(), sizes), axis=axes)


def _unsqueeze(node: OnnxNode) -> Expr:
    if (late := _run_time_axes(node)) is not None:
        return unsqueeze_by_value(node, node.x(), *late)
    if (axes := _axes(node)) is None:
        node.malformed("Unsqueeze has no axes.", "axes", "none")
    if len(axes) + rank(node.x()) > MOST_AXES:
        count = len(axes) + rank(node.x())
        node.unsupported("Unsqueeze makes too many axes.", f"at most {MOST_AXES}", str(count))
    return op.expand_dims(node.x(), axis=axes) if axes else node.x()


def _expand(node: OnnxNode) -> Expr:
    x, wanted = node.x(0), pieces(node, 1)
    sizes = [size_from(node, each, at) for at, each in enumerate(wanted)]
    if any((known(each) or 0) < 0 for each in sizes):
        node.malformed("Expand has a negative size.", "0 or more", str(wanted))
    own = list(shape(x))
    width = max(len(own), len(sizes))
    own = [index(1)] * (width - len(own)) + own
    sizes = [index(1)] * (width - len(sizes)) + sizes
    for mine, other in zip(own, sizes, strict=True):
        numbers = known(mine), known(other)
        if None not in numbers and 1 not in numbers and numbers[0] != numbers[1]:
            node.malformed("Expand cannot make this shape.", str(node.type(0)), str(wanted))
    x = expandable(x, sizes)
    whole = common_shape(node, (tuple(own), tuple(sizes)))
    return spread(node, op.reshape(x, tuple(own)) if rank(x) < width else x, whole)


def _shape(node: OnnxNode) -> TensorValue:
    x = node.x()
    sizes: Shape = shape(x)
    expr: Expr = op.shape_of(x)
    if node.opset >= 15:
        start, stop = node.integer("start", 0), node.integer("end", len(sizes))
        cut = slice(*(max(0, at + len(sizes)) if at < 0 else at for at in (start, stop)))
        if start or stop != len(sizes):
            expr = op.slice(expr, (cut.start,), (cut.stop,))
        sizes = sizes[cut]
    return of_terms(as_objects(list(sizes), (len(sizes),)), expr, i64)


def _size(node: OnnxNode) -> TensorValue:
    x = node.x()
    return of_terms(as_objects([product(shape(x))], ()), op.size(x), i64)


def _dropout(node: OnnxNode) -> Made:
    x = node.x()
    node.ignore("seed", "ratio")
    if node.opset < 7 and not node.flag("is_test"):
        node.unsupported("Dropout in training draws random numbers.", "is_test=1")
    if node.opset >= 12:
        ratio, training = node.value(1), node.value(2)
        if training is not None:
            x = without_loss(node, x, ratio, training)
    if len(node.proto.output) < 2 or not node.proto.output[1]:
        return op.copy(x)
    return [op.copy(x), op.full_like(x, value=True, dtype="bool" if node.opset >= 10 else dtype(x))]


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "Reshape":       _reshape,
    "Transpose":     _transpose,
    "Flatten":       _flatten,
    "Squeeze":       _squeeze,
    "Unsqueeze":     _unsqueeze,
    "Expand":        _expand,
    "Shape":         _shape,
    "Size":          _size,
    "Dropout":       _dropout,
}
# fmt: on
