"""Dim unification: inputs of a node whose open sizes must be one and cannot be shown to be.

Operators that broadcast take sizes that are the same or 1, which is seen when the model runs;
products, joins and vectors over an axis take sizes that are the same, which is asserted.  Indices
may be shorter than what they index along the axes that they leave alone: the rest is cut off.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from plica.frontend.measured import matched, prefix
from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.run_time import common_shape, spread
from plica.frontend.onnx.value import TensorValue
from plica.ir.loop.scalar import Scalar, index
from plica.ir.op.relation import Shape
from plica.ir.type.dim import known, normal_dim, same_dim

BROADCAST: Final = frozenset(
    {
        "Add", "Sub", "Mul", "Div", "Pow", "Mod", "Max", "Min", "Sum", "Mean", "Where", "Equal",
        "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Xor", "BitShift",
        "BitwiseAnd", "BitwiseOr", "BitwiseXor",
    }
)  # fmt: skip


ASSERTED: Final = frozenset(
    {
        "MatMul",
        "Gemm",
        "Concat",
        "Conv",
        "ConvTranspose",
        "ScatterND",
        "ScatterElements",
        "LayerNormalization",
    }
)

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


def unify_dims(node: OnnxNode) -> None:
    """Give a node inputs of unified sizes, where that takes a look at the sizes of a call."""
    if node.proto.op_type not in HANDLED:
        return
    values = [each for each in node.inputs if each is not None]
    if len(values) < 2 or len(values) < len(node.inputs):
        return
    shapes = [each.type.shape for each in values]
    kind = node.proto.op_type
    if kind in LETTERED:
        LETTERED[kind](node, values, shapes)
        return
    if kind in BROADCAST and node.opset >= 7:
        if _differ(shapes):
            whole = common_shape(node, shapes)
            node.inputs = tuple([_spread(node, each, whole) for each in values])
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


# --- letters: axes of a node's inputs that are of one size ----------------------------------------


def _unified(
    values: Sequence[TensorValue], letters: Sequence[Sequence[object]]
) -> list[TensorValue]:
    """Values whose axes of one letter are asserted to be of one size: a number where there is one.

    A letter that is None says nothing, and one that is a size is that size.
    """
    sizes: dict[object, Scalar] = {}
    for value, own in zip(values, letters, strict=True):
        for letter, size in zip(own, value.type.shape, strict=True):
            if isinstance(letter, Scalar):
                sizes[letter] = letter
            elif known(sizes.setdefault(letter, size)) is None:
                sizes[letter] = size if known(size) is not None else sizes[letter]
    return [
        _matched(value, tuple([
            size if letter is None else sizes[letter]
            for letter, size in zip(own, value.type.shape, strict=True)
        ]))
        for value, own in zip(values, letters, strict=True)
    ]  # fmt: skip


def _product(node: OnnxNode, values: list[TensorValue], shapes: list[Shape]) -> None:
    if not all(shapes):
        return
    axes: list[list[object]] = [[None] * len(each) for each in shapes]
    axes[0][-1] = axes[1][-2 if len(shapes[1]) > 1 else -1] = "k"
    sides = _unified(values, axes)
    outer = [each[:-2] for each in shapes]
    if all(outer) and _differ(outer):
        whole = common_shape(node, outer)
        sides = [_spread(node, each, (*whole, *each.type.shape[-2:])) for each in sides]
    node.inputs = tuple(sides)


def _general_product(node: OnnxNode, values: list[TensorValue], shapes: list[Shape]) -> None:
    if [len(each) for each in shapes[:2]] != [2, 2]:
        return
    axes = ["km" if node.flag("transA") else "mk", "nk" if node.flag("transB") else "kn"]
    sides = _unified(values[:2], axes)
    rows, columns = axes[0].index("m"), axes[1].index("n")
    whole = (sides[0].type.shape[rows], sides[1].type.shape[columns])
    for each in values[2:]:
        fits = len(each.type.shape) <= 2 and _differ([each.type.shape, whole])
        sides.append(_spread(node, each, whole) if fits else each)
    node.inputs = tuple(sides)


def _convolution(node: OnnxNode, values: list[TensorValue], shapes: list[Shape]) -> None:
    x, weight, *bias = shapes
    groups = node.integer("group", 1)
    if len(x) < 3 or len(weight) != len(x) or any(len(each) != 1 for each in bias) or groups < 1:
        return
    transposed = node.proto.op_type == "ConvTranspose"
    taken, given = (weight[0], weight[1]) if transposed else (weight[1], weight[0])
    rest: list[object] = [None] * (len(x) - 2)
    # What goes in is channels, or channels of a group times groups; a number is taken from either.
    inside = taken if transposed else normal_dim(taken * groups)
    known_x = known(x[1])
    if known(inside) is None and known_x is not None and (transposed or known_x % groups == 0):
        taken = x[1] if transposed else index(known_x // groups)
    outside = normal_dim(given * groups) if transposed else given
    own: list[object] = [taken, None] if transposed else [None, taken]
    axes: list[list[object]] = [[None, inside, *rest], [*own, *rest]]
    axes += [[outside] for _ in bias]
    node.inputs = tuple(_unified(values, axes))


def _scatter(node: OnnxNode, values: list[TensorValue], shapes: list[Shape]) -> None:
    x, places, updates = shapes if len(shapes) == 3 else ((), (), ())
    depth = known(places[-1]) if places else None
    if depth is None or depth > len(x) or len(updates) != len(places) - 1 + len(x) - depth:
        return
    target = (*places[:-1], *x[depth:])
    node.inputs = (*values[:2], _unified(values[2:], [target])[0])


def _scatter_elements(node: OnnxNode, values: list[TensorValue], shapes: list[Shape]) -> None:
    if len(shapes) == 3 and len(shapes[1]) == len(shapes[2]):
        node.inputs = (*values[:2], _unified(values[2:], [shapes[1]])[0])


def _layer(node: OnnxNode, values: list[TensorValue], shapes: list[Shape]) -> None:
    fits = all(len(each) <= len(shapes[0]) for each in shapes[1:])
    if fits and _differ(shapes):
        node.inputs = (values[0], *(_spread(node, each, shapes[0]) for each in values[1:]))


LETTERED: Final = {
    "MatMul": _product,
    "Gemm": _general_product,
    "Conv": _convolution,
    "ConvTranspose": _convolution,
    "ScatterND": _scatter,
    "ScatterElements": _scatter_elements,
    "LayerNormalization": _layer,
}


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
