"""Sizes that must agree: inputs of a node whose open sizes cannot be shown to be one.

Operators that broadcast take sizes that are the same or 1, which is seen when the model runs;
products, joins and vectors over an axis take sizes that are the same, which is asserted.  Indices
may be shorter than what they index along the axes that they leave alone: the rest is cut off.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.value import TensorValue
from plica.ir.loop.scalar import Scalar
from plica.ir.op.relation import Shape
from plica.ir.type.dim import known, same_dim
from plica.runtime.late import late

if TYPE_CHECKING:
    from plica.frontend.onnx.run_time import common_shape, matched, prefix, spread
else:
    common_shape = late("plica.frontend.onnx.run_time:common_shape")
    matched = late("plica.frontend.onnx.run_time:matched")
    prefix = late("plica.frontend.onnx.run_time:prefix")
    spread = late("plica.frontend.onnx.run_time:spread")

BROADCAST: Final = frozenset(
    {
        "Add", "Sub", "Mul", "Div", "Pow", "Mod", "Max", "Min", "Sum", "Mean", "Where", "Equal",
        "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Xor", "BitShift",
        "BitwiseAnd", "BitwiseOr", "BitwiseXor",
    }
)  # fmt: skip


ASSERTED: Final = frozenset({"MatMul", "Concat"})

LOSSES: Final = frozenset({"SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"})
"""Those whose second input is a class for each place of the first."""

VECTORS: Final = {
    "BatchNormalization": 7,
    "InstanceNormalization": 6,
    "GroupNormalization": 21,
    "ReverseSequence": 10,
}
"""Those whose inputs after the first are vectors over one axis of it, from which version on."""


HANDLED: Final = BROADCAST | ASSERTED | LOSSES | VECTORS.keys() | {"GatherElements"}


def agree(node: OnnxNode) -> None:
    """Give a node inputs of sizes that agree, where that takes a look at the sizes of a call."""
    if node.proto.op_type not in HANDLED:
        return
    values = [each for each in node.inputs if each is not None]
    if len(values) < 2 or len(values) < len(node.inputs):
        return
    shapes = [each.type.shape for each in values]
    kind = node.proto.op_type
    if kind in BROADCAST and node.opset >= 7:
        if _differ(shapes):
            whole = common_shape(node, shapes)
            node.inputs = tuple([_spread(node, each, whole) for each in values])
    elif kind == "MatMul" and min(map(len, shapes)) > 1:
        left, right = shapes
        inner = left[-1]
        sides = (values[0], _matched(values[1], (*right[:-2], inner, right[-1])))
        outer = [each[:-2] for each in shapes]
        if all(outer) and _differ(outer):
            whole = common_shape(node, outer)
            sides = (_spread(node, sides[0], (*whole, *left[-2:])),
                     _spread(node, sides[1], (*whole, inner, right[-1])))  # fmt: skip
        node.inputs = sides
    elif kind in LOSSES and len(shapes[1]) == len(shapes[0]) - 1 > 0:
        target = _matched(values[1], (shapes[0][0], *shapes[0][2:]))
        node.inputs = (values[0], target, *values[2:])
    elif kind == "GatherElements" and len({len(each) for each in shapes}) == 1:
        axis = node.integer("axis", 0) % max(len(shapes[0]), 1)
        node.inputs = (_cut(values[0], shapes[1], axis), values[1])
    elif kind in VECTORS and node.opset >= VECTORS[kind]:
        axis = node.integer("batch_axis", 1) if kind == "ReverseSequence" else 1
        if len(shapes[0]) > axis >= 0 and all(len(each) == 1 for each in shapes[1:]):
            node.inputs = _over_axis(values, axis)
    elif kind == "Concat" and len({len(each) for each in shapes}) == 1:
        axis = node.integer("axis", 1) % max(len(shapes[0]), 1)
        node.inputs = tuple([
            _matched(each, (*shapes[0][:axis], each.type.shape[axis], *shapes[0][axis + 1 :]))
            for each in values
        ])  # fmt: skip


def _cut(x: TensorValue, sizes: Shape, but: int) -> TensorValue:
    """The first places of x along all axes but one, where there may be more than are indexed."""
    cut = x.expr
    for axis, (mine, wanted) in enumerate(zip(x.type.shape, sizes, strict=True)):
        if axis != but and _is_unsure(mine, wanted):
            cut = prefix(cut, wanted, axis)
    return x if cut is x.expr else TensorValue(cut)


def _over_axis(values: Sequence[TensorValue], axis: int) -> tuple[TensorValue, ...]:
    """A value and vectors over one axis of it, all of one size: a number where there is one."""
    whole = values[0].type.shape
    sizes = [whole[axis], *(each.type.shape[0] for each in values[1:])]
    size = next((each for each in sizes if known(each) is not None), sizes[0])
    return (
        _matched(values[0], (*whole[:axis], size, *whole[axis + 1 :])),
        *(_matched(each, (size,)) for each in values[1:]),
    )


def _differ(shapes: Sequence[Shape]) -> bool:
    """Whether two sizes on one axis may agree, which does not follow from what they are."""
    width = max(map(len, shapes))
    for at in range(1, width + 1):
        sizes = [each[-at] for each in shapes if len(each) >= at and known(each[-at]) != 1]
        if any(_is_unsure(sizes[0], each) for each in sizes[1:]):
            return True
    return False


def _is_unsure(a: Scalar, b: Scalar) -> bool:
    return (known(a) is None or known(b) is None) and not same_dim(a, b)


def _spread(node: OnnxNode, value: TensorValue, whole: Shape) -> TensorValue:
    own = len(value.type.shape)
    sizes = whole[len(whole) - own :]
    wanted = [b if known(a) != 1 else a for a, b in zip(value.type.shape, sizes, strict=True)]
    if all(map(same_dim, value.type.shape, wanted)):
        return value
    return TensorValue(spread(node, value.expr, wanted))


def _matched(value: TensorValue, sizes: Shape) -> TensorValue:
    """A value of which it is asserted that it has a shape; numbers that differ are left alone."""
    own = value.type.shape
    if not any(_is_unsure(a, b) for a, b in zip(own, sizes, strict=True)):
        return value
    wanted = [b if _is_unsure(a, b) else a for a, b in zip(own, sizes, strict=True)]
    return TensorValue(matched(value.expr, wanted))
