"""Operators that reshape tensors, or read shapes.

A size or an axis is a number, a term over dims, or a value that is measured when the model runs.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

import numpy as np

from plica.frontend.measured import MINUS, ONE, ZERO, Piece, amount, matched, reshaped
from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.word import Made, Row, as_scalar, dtype, like, rank, shape
from plica.frontend.onnx.storage import MOST_AXES
from plica.frontend.onnx.value import TensorValue
from plica.ir.graph.expression import Expr, const
from plica.ir.loop.scalar import Min, Scalar, index
from plica.ir.op.namespace import op
from plica.ir.op.relation import Shape
from plica.ir.type import f32, i64, known, normal_dim, product, quotient, same_dim
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):  # few models compute sizes
    from plica.frontend.onnx.row.axis import are_axes, named_axes, numbered, remaining_sizes
    from plica.frontend.onnx.run_time import (
        common_shape,
        demanded,
        expandable,
        is_late,
        listed,
        numbers_of,
        pieces,
        size_from,
        spread,
    )


def _reshape(node: OnnxNode) -> Expr:
    """0 is the size of x there, -1 is inferred."""
    x, given, keep_zero = node.x(0), pieces(node, 1), node.flag("allowzero")
    sizes: list[Piece] = []
    for at, each in enumerate(given):
        copies = isinstance(each, int) and each == 0 and not keep_zero
        if copies and at >= rank(x):
            node.malformed("Reshape copies a size that is not there.", str(rank(x)), str(at))
        sizes.append(shape(x)[at] if copies else each)
    late = is_late(sizes)
    if not late:
        rest = [each if isinstance(each, Scalar) else index(each) for each in sizes
                if isinstance(each, int | Scalar) and each != -1]  # fmt: skip
        # An empty tensor has any number of elements along -1; the standard asks that it be said.
        if all(known(size) is not None for size in (*shape(x), *rest)):
            return op.reshape(x, tuple(sizes))
        left = None if known(product(rest)) == 0 else quotient(product(shape(x)), product(rest))
        wanted = [left if each == -1 else index(each) if isinstance(each, int) else each
                  for each in sizes]  # fmt: skip
        row_major = is_row_major(shape(x), tuple(e for e in wanted if isinstance(e, Scalar)))
        if None not in wanted and (keep_zero or row_major):
            return op.reshape(x, tuple(sizes)) if len(rest) < len(sizes) else reshaped(x, rest)
        if keep_zero and len(rest) < len(sizes):  # 0 and -1 together have no meaning
            x = op.match_shape(x, shape(x), least=(product(rest) - 1,))
    if not keep_zero:
        sizes = [_copied(each, at, shape(x)) for at, each in enumerate(sizes)]
    terms = [each if isinstance(each, Scalar) else index(each) for each in sizes
             if isinstance(each, int | Scalar) and each != -1]  # fmt: skip
    if len(terms) == len(sizes):
        return reshaped(x, terms)
    parts = [op.where(op.equal(e, MINUS), ONE, e) for e in sizes if isinstance(e, Expr)]
    parts += [amount(product(terms))] if terms or not parts else []
    over = amount(product(shape(x))) // op.maximum(reduce(op.multiply, parts), ONE)
    return reshaped(x, [
        size_from(node, over if each == -1 else op.where(op.equal(each, MINUS), over, each)
                  if isinstance(each, Expr) else each, at if late else "")
        for at, each in enumerate(sizes)
    ])  # fmt: skip


def _copied(size: Piece, at: int, old: Shape) -> Piece:
    """A size of Reshape, which is the old one if it is 0 at run time."""
    if isinstance(size, int) or at >= len(old):
        return size
    if isinstance(size, Expr):
        return op.where(op.equal(size, ZERO), amount(old[at]), size)
    if quotient(old[at], size) is not None:
        return size  # a divisor of the old size is 0 only where that is
    return normal_dim(size + (1 - Min(size, index(1))) * old[at])


def is_row_major(old: Shape, new: Shape) -> bool:
    """Whether a reshape only splits axes and merges neighbours.

    >>> from plica.ir.type.dim import dim_var
    >>> n, m = dim_var("n"), dim_var("m")
    >>> is_row_major((n * m, index(8)), (n, m, index(8))), is_row_major((n, m), (m, n))
    (True, False)
    """
    a, b = ([scalar for scalar in side if known(scalar) != 1] for side in (old, new))
    while a and b:
        if same_dim(a[-1], b[-1]):
            a, b = a[:-1], b[:-1]
        elif (part := quotient(a[-1], b[-1])) is not None:
            a, b = [*a[:-1], part], b[:-1]
        elif (part := quotient(b[-1], a[-1])) is not None:
            a, b = a[:-1], [*b[:-1], part]
        else:
            return False
    return not a and not b


def _axes(node: OnnxNode) -> tuple[int, ...] | None:
    """The axes of a node, or None if absent or only known at run time."""
    given = listed(node, "axes", 1, 13)
    numbers = None if given is None else numbers_of(given)
    return None if numbers is None else tuple(numbers)


def _late_axes(node: OnnxNode, x: Expr, more: int) -> tuple[Expr, int, list[Expr]]:
    """x, how many axes are named, and which: values when the model runs, which are axes of a
    tensor of a given number of axes more than x if `more` is 1."""
    axes, count = node.x(1), len(pieces(node, 1))
    named = named_axes(axes, rank(x) + more * count)
    return demanded(node, x, are_axes(named, const(count, i64)), "axis"), count, named


def _is_late(node: OnnxNode) -> bool:
    given = listed(node, "axes", 1, 13)
    return given is not None and numbers_of(given) is None


def _is_one(node: OnnxNode, size: Scalar) -> bool:
    """Whether a size is 1 in the calls that the model is being read for."""
    if (number := known(size)) is not None:
        return number == 1
    if (said := node.decided(op.equal(amount(size), const(1, i64)))) is None:
        node.unsupported("Squeeze without axes needs known sizes.", "axes", str(node.type()))
    return said


def _squeeze(node: OnnxNode) -> Expr:
    if _is_late(node):
        x, count, gone = _late_axes(node, node.x(), 0)
        sizes = remaining_sizes(x, gone, rank(x) - count)
        return reshaped(x, [node.measured(expr, at) for at, expr in enumerate(sizes)])
    if (axes := _axes(node)) is None:
        axes = tuple([at for at, size in enumerate(node.shape()) if _is_one(node, size)])
        if not axes:
            return node.x()
    # That an open size is 1 is seen when the model runs.
    gone_ = {axis % node.rank() for axis in axes if -node.rank() <= axis < node.rank()}
    wanted = [
        index(1) if at in gone_ and known(size) is None else size
        for at, size in enumerate(node.shape())
    ]
    return op.squeeze(matched(node.x(), wanted), axis=axes)


def _unsqueeze(node: OnnxNode) -> Expr:
    if _is_late(node):
        x, _, new = _late_axes(node, node.x(), 1)
        sizes: list[Scalar] = []
        for number, (is_new, before) in enumerate(zip(new, numbered(new), strict=True)):
            size: Expr = ONE
            for at, own in enumerate(shape(x)):
                size = op.where(op.equal(before, const(at, i64)), amount(own), size)
            sizes.append(node.measured(op.where(is_new, ONE, size), number))
        return reshaped(x, sizes)
    if (axes := _axes(node)) is None:
        node.malformed("Unsqueeze has no axes.", "axes", "none")
    if len(axes) + rank(node.x()) > MOST_AXES:
        count = len(axes) + rank(node.x())
        node.unsupported("Unsqueeze makes too many axes.", f"at most {MOST_AXES}", str(count))
    return op.expand_dims(node.x(), axis=axes) if axes else node.x()


def _expand(node: OnnxNode) -> Expr:
    x, wanted = node.x(0), pieces(node, 1)
    sizes = [size_from(node, each, at) for at, each in enumerate(wanted)]
    if any((known(size) or 0) < 0 for size in sizes):
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


def _shape(node: OnnxNode) -> Expr:
    count = node.rank()
    start, stop = node.integer("start", 0), node.integer("end", count)
    cut = slice(*(max(0, at + count) if at < 0 else at for at in (start, stop)))
    expr: Expr = op.shape_of(node.x())
    return op.slice(expr, (cut.start,), (cut.stop,)) if start or stop != count else expr


def _dropout(node: OnnxNode) -> Made:
    x = node.x()
    node.ignore("seed", "ratio")
    if node.opset < 7 and not node.flag("is_test"):
        node.unsupported("Dropout in training draws random numbers.", "is_test=1")
    ratio, training = node.value(1), node.value(2)
    if training is not None:
        x = _without_loss(node, x, ratio, training)
    if len(node.proto.output) < 2 or not node.proto.output[1]:
        return op.copy(x)
    return [op.copy(x), op.full_like(x, value=True, dtype="bool" if node.opset >= 10 else dtype(x))]


def _without_loss(
    node: OnnxNode, x: Expr, ratio: TensorValue | None, training: TensorValue
) -> Expr:
    """x, where nothing of it is lost: in inference, or by a ratio of 0."""
    told = training.numbers()
    if told is not None and not node.scalar(2):
        return x
    share = np.asarray(0.5) if ratio is None else ratio.numbers()
    if share is not None and not share.any():
        return x
    if told is not None and share is not None:
        node.unsupported("Dropout in training draws random numbers.", "inference")
    least = const(0.5, f32) if ratio is None else as_scalar(ratio.expr)
    keeps = op.logical_or(op.logical_not(as_scalar(training.expr)), op.equal(least, like(0, least)))
    return demanded(node, x, keeps, "random")


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "Reshape":       _reshape,
    "Transpose":     lambda node: op.transpose(node.x(), node.integers("perm")),
    "Flatten":       lambda node: op.nn.flatten(node.x(), axis=node.integer("axis", 1)),
    "Squeeze":       _squeeze,
    "Unsqueeze":     _unsqueeze,
    "Expand":        _expand,
    "Shape":         _shape,
    "Size":          lambda node: op.size(node.x()),
    "Dropout":       _dropout,
}
# fmt: on
