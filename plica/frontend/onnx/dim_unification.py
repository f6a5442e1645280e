"""Dim unification: inputs of a node whose open sizes must be one and cannot be shown to be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from plica.frontend.measured import matched, prefix
from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.value import TensorValue
from plica.ir.loop.scalar import Scalar, index
from plica.ir.op.relation import Shape
from plica.ir.type.dim import known, normal_dim, same_dim
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):  # few models compare sizes when they run
    from plica.frontend.onnx.run_time import common_shape, spread

BROADCAST: Final = frozenset(
    {
        "Add", "Sub", "Mul", "Div", "Pow", "Mod", "Max", "Min", "Sum", "Mean", "Where", "Equal",
        "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Xor", "BitShift",
        "BitwiseAnd", "BitwiseOr", "BitwiseXor",
    }
)  # fmt: skip

Letters: TypeAlias = "Sequence[Sequence[object]]"
"""For each input a letter for each axis: axes of one letter are of one size.  None says nothing,
and a letter that is a size is that size."""


def unify_dims(node: OnnxNode) -> None:
    """Gives a node inputs with unified sizes, if that needs a run-time check."""
    kind = node.proto.op_type
    if kind not in BROADCAST and kind not in LETTERS and kind not in ("GatherElements", LAYER):
        return
    values = [tensor_value for tensor_value in node.inputs if tensor_value is not None]
    if len(values) < 2 or len(values) < len(node.inputs):
        return
    shapes = [value.type.shape for value in values]
    if kind in BROADCAST:
        if node.opset >= 7 and _differ(shapes):
            whole = common_shape(node, shapes)
            node.inputs = tuple([_spread(node, value, whole) for value in values])
    elif kind == "GatherElements":
        if len({len(shape) for shape in shapes}) == 1:
            axis = node.integer("axis", 0) % max(len(shapes[0]), 1)
            node.inputs = (_cut(values[0], shapes[1], axis), values[1])
    elif kind == LAYER:
        if all(len(shape) <= len(shapes[0]) for shape in shapes[1:]) and _differ(shapes):
            node.inputs = (values[0], *(_spread(node, value, shapes[0]) for value in values[1:]))
    elif (letters := LETTERS[kind](node, shapes)) is not None:
        node.inputs = tuple(_broadcast(node, kind, _unified(values, letters), letters))


def _unified(values: Sequence[TensorValue], letters: Letters) -> list[TensorValue]:
    """Values whose axes with one letter have one size: a number if there is one; asserted."""
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


def _broadcast(
    node: OnnxNode, kind: str, values: list[TensorValue], letters: Letters
) -> list[TensorValue]:
    """The axes of products that have no letter are broadcast: batches, and what Gemm adds."""
    shapes = [value.type.shape for value in values]
    if kind == "MatMul" and all(outer := [shape[:-2] for shape in shapes]) and _differ(outer):
        whole = common_shape(node, outer)
        return [_spread(node, value, (*whole, *value.type.shape[-2:])) for value in values]
    if kind == "Gemm":
        sides = [list(letter).index(name) for letter, name in zip(letters[:2], "mn", strict=True)]
        result = (shapes[0][sides[0]], shapes[1][sides[1]])
        fit = [len(of) <= 2 and _differ([of, result]) for of in shapes[2:]]
        rest = zip(values[2:], fit, strict=True)
        return [*values[:2], *(_spread(node, e, result) if fits else e for e, fits in rest)]
    return values


# --- letters of an operator's inputs --------------------------------------------------------------


def _free(shapes: Sequence[Shape]) -> list[list[object]]:
    return [[None] * len(shape) for shape in shapes]


def _product(_: OnnxNode, shapes: list[Shape]) -> Letters | None:
    if not all(shapes):
        return None
    letters = _free(shapes)
    letters[0][-1] = letters[1][-2 if len(shapes[1]) > 1 else -1] = "k"
    return letters


def _general_product(node: OnnxNode, shapes: list[Shape]) -> Letters | None:
    if [len(shape) for shape in shapes[:2]] != [2, 2]:
        return None
    sides = ["km" if node.flag("transA") else "mk", "nk" if node.flag("transB") else "kn"]
    return [*sides, *_free(shapes[2:])]


def _convolution(node: OnnxNode, shapes: list[Shape]) -> Letters | None:
    x, weight, *bias = shapes
    groups = node.integer("group", 1)
    if len(x) < 3 or len(weight) != len(x) or any(len(terms) != 1 for terms in bias) or groups < 1:
        return None
    transposed = node.proto.op_type == "ConvTranspose"
    taken, given = (weight[0], weight[1]) if transposed else (weight[1], weight[0])
    rest: list[object] = [None] * (len(x) - 2)
    # Input channels are the channels of a group times the groups; a static number is taken from
    # either.
    inside = taken if transposed else normal_dim(taken * groups)
    known_x = known(x[1])
    if known(inside) is None and known_x is not None and (transposed or known_x % groups == 0):
        taken = x[1] if transposed else index(known_x // groups)
    outside = normal_dim(given * groups) if transposed else given
    own: list[object] = [taken, None] if transposed else [None, taken]
    return [[None, inside, *rest], [*own, *rest], *([outside] for _ in bias)]


def _scatter(_: OnnxNode, shapes: list[Shape]) -> Letters | None:
    x, places, updates = shapes if len(shapes) == 3 else ((), (), ())
    depth = known(places[-1]) if places else None
    if depth is None or depth > len(x) or len(updates) != len(places) - 1 + len(x) - depth:
        return None
    return [*_free(shapes[:2]), (*places[:-1], *x[depth:])]


def _scatter_elements(_: OnnxNode, shapes: list[Shape]) -> Letters | None:
    fits = len(shapes) == 3 and len(shapes[1]) == len(shapes[2])
    return [*_free(shapes[:2]), shapes[1]] if fits else None


def _loss(_: OnnxNode, shapes: list[Shape]) -> Letters | None:
    """The second input is a class for each place of the first."""
    if not len(shapes[1]) == len(shapes[0]) - 1 > 0:
        return None
    return [*_free(shapes[:1]), (shapes[0][0], *shapes[0][2:]), *_free(shapes[2:])]


def _concat(node: OnnxNode, shapes: list[Shape]) -> Letters | None:
    if len({len(shape) for shape in shapes}) != 1:
        return None
    axis = node.integer("axis", 1) % max(len(shapes[0]), 1)
    return [[None if at == axis else at for at in range(len(shape))] for shape in shapes]


def _vectors(since: int) -> Callable[[OnnxNode, list[Shape]], Letters | None]:
    """Inputs after the first are vectors over one axis of it, from a version on."""

    def letters(node: OnnxNode, shapes: list[Shape]) -> Letters | None:
        axis = node.integer("batch_axis", 1) if node.proto.op_type == "ReverseSequence" else 1
        fits = len(shapes[0]) > axis >= 0 and all(len(shape) == 1 for shape in shapes[1:])
        if node.opset < since or not fits:
            return None
        first = ["v" if at == axis else None for at in range(len(shapes[0]))]
        return [first, *("v" for _ in shapes[1:])]

    return letters


LAYER: Final = "LayerNormalization"

LETTERS: Final[dict[str, Callable[[OnnxNode, list[Shape]], Letters | None]]] = {
    "MatMul": _product,
    "Gemm": _general_product,
    "Conv": _convolution,
    "ConvTranspose": _convolution,
    "Concat": _concat,
    "ScatterND": _scatter,
    "ScatterElements": _scatter_elements,
    "SoftmaxCrossEntropyLoss": _loss,
    "NegativeLogLikelihoodLoss": _loss,
    "BatchNormalization": _vectors(7),
    "InstanceNormalization": _vectors(6),
    "GroupNormalization": _vectors(21),
    "ReverseSequence": _vectors(10),
}


def _cut(x: TensorValue, sizes: Shape, but: int) -> TensorValue:
    """The first places of x along all axes but one, where there may be more than are indexed."""
    cut = x.expr
    for axis, (mine, wanted) in enumerate(zip(x.type.shape, sizes, strict=True)):
        if axis != but and _is_unsure(mine, wanted):
            cut = prefix(cut, wanted, axis)
    return x if cut is x.expr else TensorValue(cut)


def _differ(shapes: Sequence[Shape]) -> bool:
    """Whether two sizes of one axis may agree without being equal terms."""
    width = max(map(len, shapes))
    for at in range(1, width + 1):
        sizes = [shape[-at] for shape in shapes if len(shape) >= at and known(shape[-at]) != 1]
        if any(_is_unsure(sizes[0], size) for size in sizes[1:]):
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
