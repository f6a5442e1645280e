"""Scale folding: per-channel constants move into the weights of an adjacent layer.

A layer is linear in its data, so a factor per channel before or after it, and a summand per channel
before it, are a change of its weights.  They are constants, so folding computes them once.

    before:  nn.relu((nn.conv(x, w) + b) * s)
    after:   nn.relu(nn.conv(x, w * s') + b * s)         (s' is s along the outputs of w)

Note [Relu and scales]: `relu(y) * s` is `relu(y * s)` only for s > 0. A negative scale would
exchange what relu keeps and what it clips; a zero would make NaN of an infinity that relu had
clipped. Integers wrap around, which changes signs too, so this is for floats.

Note [Padding and shifts]: zeros around `x + b` are not zeros around `x`, so a summand moves through
a convolution without padding only. A scale must be finite, because it multiplies the padding.

Sums of integers are multiplied by what one number and a constant per channel give, once each.

Measure: each rule moves a constant towards the weights, merges two, or removes a product of many
elements.

>>> [rule.name for rule in SCALE][:3]
['conv-scale', 'conv-relu-scale', 'conv-scaled-data']
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, Final, Literal, TypeAlias

import attrs
import numpy as np

from plica.core import Term
from plica.ir.contract import reassociates
from plica.ir.graph import Apply, Expr, Module, Operator
from plica.ir.graph.operator import Values
from plica.ir.loop.scalar import index
from plica.ir.op.activation import leaky_relu, relu
from plica.ir.op.convolution import conv, conv_transpose as transposed
from plica.ir.op.elementwise import cast, multiply, reciprocal
from plica.ir.op.linear import batch_matmul, dense, matmul
from plica.ir.op.reduction import sum_
from plica.ir.op.relation import FLOAT, NUMBER, Shape
from plica.ir.op.shape import reshape
from plica.ir.op.window import sides
from plica.ir.passes import Pass
from plica.ir.type import DType, TensorType, infer, known, same_dim, type_of
from plica.ir.type.dtype import COMPUTED
from plica.rewrite.closed import are_finite, closed, is_closed, value_of, varying
from plica.rewrite.graph.dataflow import to_dataflow
from plica.rewrite.graph.fold import fold_constants
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.pack import Pack, pack, rewrite
from plica.rewrite.packs.inference import INFERENCE
from plica.rewrite.packs.word import FirstFilled
from plica.rewrite.pattern import TermFunction, either, hole, holes
from plica.rewrite.rule import Guard, Rule

Axis: TypeAlias = Callable[[Values], int]
Total: TypeAlias = Callable[[Expr, int], Expr]  # (scaled weight, rank of the data)
End: TypeAlias = Literal["inputs", "outputs"]
ENDS: Final[tuple[End, ...]] = ("inputs", "outputs")


@attrs.frozen
class LinearLayer:
    """A linear operator: which axes of its weight belong to the channels of its ends.

    `inputs` and `outputs` pair an axis of the data (of the result) with one of the weight; `total`
    sums a weight over the inputs that a constant shift multiplies, or returns None if the shift is
    not per channel.
    """

    slug: str
    record: Operator
    data: int  # which argument; the other is the weight
    ranks: tuple[int, ...]  # of the weight
    inputs: tuple[Axis, Axis]
    outputs: tuple[Axis, Axis]
    total: Total | None = None

    def on(self, data: Any, weight: Any, settings: Mapping[str, Any] | None = None) -> Any:
        """The operator on data and a weight, by default with holes for its attributes."""
        args = (data, weight) if self.data == 0 else (weight, data)
        return self.record(*args, **(self.holes if settings is None else settings))

    @property
    def holes(self) -> dict[str, Any]:
        """A hole for each attribute."""
        return {attribute.name: hole(attribute.name) for attribute in self.record.attributes}

    def found(self, m: PatternMatch) -> Expr:
        """The operator as it was matched."""
        expr: Expr = self.on(m.x, m.w, self.settings(m))
        return expr

    def settings(self, found: PatternMatch) -> dict[str, Any]:
        """The attributes of the operator as it was found."""
        return {name: found[name] for name in self.holes}

    def pattern(self, data: Any, dtypes: Collection[DType] = NUMBER) -> Any:
        """The operator with a weight that is a constant, whatever its attributes."""
        return self.on(data, closed("w", rank=self.ranks, dtypes=dtypes))

    def scaled_weight(self, end: End, weight: Any, factor: Any) -> Any:
        """On a right side: a weight times a factor for each channel of one end of the layer."""
        return CHANNEL_SCALES[self.slug, end](weight, factor, *self.holes.values())


def at(number: int) -> Axis:
    """The same axis whatever the attributes."""
    return lambda values: number


def turned(attribute: str, plain: int) -> Axis:
    """An axis that changes places with its neighbour where the attribute says so."""
    return lambda values: -3 - plain if values[attribute] else plain


def window_sum(weight: Expr, rank: int) -> Expr:
    """The convolution of ones, as a tensor of channels."""
    whole = sum_(weight, axis=tuple(range(1, rank)))
    return reshape(whole, (shape_of(whole)[0], *(index(1) for _ in range(2, rank))))


def row_sum(weight: Expr, rank: int) -> Expr:
    """The dense layer applied to ones."""
    return sum_(weight, axis=(1,))


def column_sum(weight: Expr, rank: int) -> Expr:
    """The matrix product with ones."""
    return sum_(weight, axis=(-2,), keepdims=rank > 1)


outer, inner, last, row = map(at, (0, 1, -1, -2))
turned_x, turned_y = turned("transpose_x", -1), turned("transpose_y", -1)
turned_rows = turned("transpose_y", -2)

LAYERS: Final = (
    #     name              operator  data, weight      channels before, after
    LinearLayer("conv", conv, 0, (3, 4, 5), (inner, inner), (inner, outer), window_sum),
    LinearLayer("conv-transpose", transposed, 0, (3, 4, 5), (inner, outer), (inner, inner)),
    LinearLayer("dense", dense, 0, (2,), (last, last), (last, row), row_sum),
    LinearLayer("matmul", matmul, 0, (2, 3, 4), (last, row), (last, last), column_sum),
    LinearLayer("matmul-left", matmul, 1, (2, 3, 4), (row, last), (row, row)),
    LinearLayer("batch-matmul", batch_matmul, 0, (3,), (turned_x, turned_rows), (last, turned_y)),
)


def channel_scale(layer: LinearLayer, end: End) -> TermFunction:
    """The function of right sides that scales a weight by its channels."""
    _, axis = layer.inputs if end == "inputs" else layer.outputs

    def compute(weight: Expr, factor: Expr, *given: Any) -> Expr:
        values = dict(zip(layer.holes, given, strict=True))
        return scaled(weight, axis(values), factor, values.get("groups", 1))

    return TermFunction(f"scaled_{end}_of_{layer.slug}", compute)


def shift_total(layer: LinearLayer) -> TermFunction:
    """The function of right sides that is the layer of a shift of its data: of a scaled weight."""

    def compute(weight: Expr, data: Expr) -> Expr:
        assert layer.total is not None
        return layer.total(weight, len(shape_of(data)))

    return TermFunction(f"total_of_{layer.slug}", compute)


CHANNEL_SCALES: Final = {
    (layer.slug, end): channel_scale(layer, end) for layer in LAYERS for end in ENDS
}
SHIFT_TOTALS: Final = {layer.slug: shift_total(layer) for layer in LAYERS if layer.total}

(alpha,) = holes("alpha")
x: Any = varying("x", dtypes=NUMBER)
s, a, b = (closed(name, dtypes=NUMBER) for name in "sab")
divisor = closed("divisor", dtypes=FLOAT)
n: Any = varying("n", dtypes=tuple(dtype for dtype in COMPUTED if dtype.is_integer))
one: Any = varying("one", dtypes=FLOAT, rank=0)
(into,) = holes("into")
whole: Any = cast(n, dtype=into)


def shape_of(value: Expr) -> Shape:
    """The shape of a tensor expression."""
    of = type_of(value)
    assert isinstance(of, TensorType)
    return of.shape


def lies_along(constant: Expr, axis: int, whole: Expr) -> bool:
    """Whether a constant differs along one axis of `whole` only, and does not make it bigger."""
    shape, sizes = shape_of(constant), shape_of(whole)
    if len(shape) > len(sizes) or not -len(sizes) <= axis < len(sizes):
        return False
    axis %= len(sizes)
    first = len(sizes) - len(shape)
    return all(
        known(size) == 1 or (first + n == axis and same_dim(size, sizes[axis]))
        for n, size in enumerate(shape)
    )


def scaled(weight: Expr, axis: int, factor: Expr, groups: int) -> Expr:
    """A weight times a factor along one of its axes.

    In a grouped convolution the second axis of the weight counts within a group, and the group
    follows from the first axis.
    """
    shape = shape_of(weight)
    axis %= len(shape)
    single = all(known(size) == 1 for size in shape_of(factor))
    if groups == 1 or axis != 1 or single:
        size = index(1) if single else shape[axis]
        return multiply(
            weight, shaped(factor, [size if n == axis else 1 for n in range(len(shape))])
        )
    whole, own, *rest = shape
    apart = reshape(weight, (groups, whole // groups, own, *rest))
    return reshape(multiply(apart, shaped(factor, [groups, 1, own, *(1 for _ in rest)])), shape)


def shaped(value: Expr, shape: list[Any]) -> Expr:
    """A tensor in another shape; itself where it has it."""
    expr = reshape(value, tuple(shape))
    return value if shape_of(expr) == shape_of(value) else expr


def is_positive(factor: object) -> bool:
    """Whether a value is a constant, finite and above zero; see Note [Relu and scales]."""
    value = value_of(factor) if isinstance(factor, Expr) and is_closed(factor) else None
    if value is None:
        return False
    wide = value.astype(np.float64)
    return bool((np.isfinite(wide) & (wide > 0)).all())


positive: Any = hole("s", dtypes=FLOAT, when=is_positive)


@attrs.frozen
class ScalesOutputs:
    """A guard: finite factors along the channels of a layer's result, which a summand keeps as
    large as it is."""

    layer: LinearLayer

    def __call__(self, m: PatternMatch) -> bool:
        whole = self.layer.found(m)
        added = m.filling.get("a", m.filling.get("b"))
        return (
            lies_along(m.s, self.layer.outputs[0](self.layer.settings(m)), whole)
            and (added is None or shape_of(whole + added) == shape_of(whole))
            and are_finite(m.w, m.s)
            and (added is None or are_finite(added, m.s))
        )


@attrs.frozen
class ScalesInputs:
    """A guard: finite factors along the channels of a layer's data."""

    layer: LinearLayer

    def __call__(self, m: PatternMatch) -> bool:
        axis = self.layer.inputs[0](self.layer.settings(m))
        return lies_along(m.s, axis, m.x) and are_finite(m.w, m.s)


@attrs.frozen
class ShiftsInputs:
    """A guard: summands along the channels of a layer's data, which is not padded."""

    layer: LinearLayer

    def __call__(self, m: PatternMatch) -> bool:
        layer, values = self.layer, self.layer.settings(m)
        if not lies_along(m.b, layer.inputs[0](values), m.x):
            return False
        padding = sides(layer.slug, values.get("padding", 0), len(shape_of(m.w)) - 2)
        if any(before or after for before, after in padding):
            return False
        scale, total = CHANNEL_SCALES[layer.slug, "inputs"], SHIFT_TOTALS[layer.slug]
        weight = scale.compute(m.w, m.b, *values.values())
        return are_finite(total.compute(weight, m.x))


def around(layer: LinearLayer) -> Iterator[Rule]:
    """The rules of one layer."""
    slides = any(attribute.name == "groups" for attribute in layer.record.attributes)
    # A vector on the right leaves a product without the axis before the last.
    ranks = layer.ranks if slides else (2, 3, 4, 5) if layer.data == 1 else None
    data, floats = (varying("x", dtypes=dtypes, rank=ranks) for dtypes in (NUMBER, FLOAT))
    w = hole("w")

    def times(left: Any) -> Any:
        return either(left * s, s * left)

    def named(name: str, left: Any, right: Any, when: Guard) -> Rule:
        return rule(f"{layer.slug}-{name}", left, right, when=when, float=reassociates)

    def plain(found: Any) -> Any:
        return either(found, found + a, a + found)

    found, inner = layer.pattern(data), plain(layer.pattern(floats, FLOAT))
    bends = either(relu(inner), leaky_relu(inner, alpha))
    moved = layer.on(data, layer.scaled_weight("outputs", w, s))
    sums = (moved + a * s, moved - b * s, moved)
    bent = (*(leaky_relu(each, alpha) for each in sums), *map(relu, sums))
    outputs = ScalesOutputs(layer)
    yield named("scale", times(either(plain(found), found - b)), FirstFilled(sums), outputs)
    yield named("relu-scale", either(bends * positive, positive * bends), FirstFilled(bent),
                outputs)  # fmt: skip
    weight = layer.scaled_weight("inputs", w, s)
    yield named("scaled-data", layer.pattern(times(data)), layer.on(data, weight),
                ScalesInputs(layer))  # fmt: skip
    if layer.total is not None:
        total = SHIFT_TOTALS[layer.slug](layer.scaled_weight("inputs", w, b), data)
        yield named("shifted-data", layer.pattern(either(data + b, b + data)),
                    layer.on(data, w) + total, ShiftsInputs(layer))  # fmt: skip


def shifts_join(m: PatternMatch) -> bool:
    """Whether neither the sum of two constants nor their difference overflows."""
    return are_finite(m.a + m.b) and are_finite(m.a - m.b)


def inverts(m: PatternMatch) -> bool:
    """Whether every divisor has an inverse that is neither zero, subnormal nor infinite.

    A single division is kept as written: it costs nothing, and one more rounding of a scale changes
    what is rounded with it (`DynamicQuantizeLinear`) at ties.
    """
    if (value := value_of(m.divisor)) is None or (_is_one_number(m.x) and value.size == 1):
        return False
    with np.errstate(all="ignore"):
        inverse = (1 / value.astype(np.float64)).astype(value.dtype).astype(np.float64)
    least = float(np.finfo(np.float32).tiny) if value.dtype.itemsize > 2 else 2.0**-14
    return bool((np.isfinite(inverse) & (np.abs(inverse) >= least)).all())


def _is_one_number(of: Expr) -> bool:
    """Whether a tensor has one element at every size."""
    typed = type_of(of)
    return isinstance(typed, TensorType) and all(known(size) == 1 for size in typed.shape)


def is_larger(m: PatternMatch) -> bool:
    """Whether an integer tensor has more elements than the factors it is multiplied by, and no
    fewer axes: one product each is spared."""
    shape, sizes = shape_of(m.s), shape_of(m.n)
    if len(shape) > len(sizes):
        return False
    many, few = ([known(size) or 0 for size in scalars] for scalars in (sizes, shape))
    return 0 < prod(few) < prod(many)


twice = either((whole * one) * s, (one * whole) * s)
shifts = either((x + a) + b, (a + x) + b, b + (x + a), b + (a + x))
inverse = x * reciprocal(divisor)
joins = partial(rule, float=reassociates, when=shifts_join)

_LINEAR: Final = frozenset(layer.record.name for layer in LAYERS)
_CARRIERS: Final = frozenset({"add", "subtract", "multiply", "nn.relu", "nn.leaky_relu"}) | _LINEAR


def dtype_of(value: Expr) -> DType:
    """The dtype of a tensor expression."""
    of = type_of(value)
    assert isinstance(of, TensorType)
    return of.dtype


def is_shared(node: Term, using: Sequence[Term]) -> bool:
    """A value on the way of a scale that several use, but not only as data of layers.

    Scaling it for one of its users would compute it twice.
    """
    if not isinstance(node, Apply) or node.op not in _CARRIERS or is_closed(node):
        return False
    return not all(isinstance(each, Apply) and each.op in _LINEAR for each in using)


_ROUNDED: Final = frozenset({"round", "floor", "ceil", "trunc"})
_EXACT: Final = frozenset(
    {"abs", "broadcast_to", "cast", "clip", "expand_dims", "flip", "negative", "nn.max_pool",
     "nn.relu", "ravel", "reshape", "slice", "squeeze", "tile", "transpose"}
)  # fmt: skip
"""Operators that move or select elements of their argument and round none."""
_DETERMINED: Final = _EXACT | {
    "add", "concat", "divide", "maximum", "minimum", "multiply", "pad", "sqrt", "subtract", "take",
    "where",
}  # fmt: skip
"""Operators whose result IEEE 754 determines to the last bit."""


def is_rounded(node: Term, users: Mapping[Term, Sequence[Term]]) -> bool:
    """Whether a determined quotient becomes an integer or a truth value.

    Only powers of 2 have an exact inverse; multiplying by any other inverse differs from the
    quotient in the last bit, which may move it across a tie or a bound. If the dividend comes from
    a reduction, a contraction or a transcendental function, its last bits are unspecified anyway.
    """
    if not isinstance(node, Apply) or node.op != "divide":
        return False
    dividend, divisor_ = node.args
    if _has_inverse(divisor_) or not _is_determined(dividend):
        return False
    stack, seen = [node], {node}
    while stack:
        for each in users.get(stack.pop(), ()):
            if not isinstance(each, Apply) or each in seen:
                continue
            if _rounds(each):
                return True
            if each.op in _EXACT:
                seen.add(each)
                stack.append(each)
    return False


def _is_determined(of: Expr) -> bool:
    """Whether an expression is made of inputs by operators with one possible result."""
    stack, seen = [of], {of}
    while stack:
        if not isinstance(node := stack.pop(), Apply) or is_closed(node):
            continue
        if node.op not in _DETERMINED:
            return False
        new = [arg for arg in node.args if arg not in seen]
        seen |= {*new}
        stack += new
    return True


def _rounds(of: Apply) -> bool:
    """Whether an operator on floats gives integers, truth values or whole numbers."""
    typed = type_of(of)
    return of.op in _ROUNDED or (isinstance(typed, TensorType) and not typed.dtype.is_float)


def _has_inverse(of: Expr) -> bool:
    """Whether all numbers of a constant are powers of 2: it is as well to multiply."""
    value = value_of(of) if is_closed(of) else None
    return value is not None and bool((np.abs(np.frexp(value.astype(np.float64))[0]) == 0.5).all())


# fmt: off
SCALE: Final[Pack] = pack(
    "scale",
    *(around(layer) for layer in LAYERS),
    joins("join-shifts",        shifts,                           x + (a + b)),
    joins("join-unshift-shift", either((x - a) + b, b + (x - a)), x + (b - a)),
    joins("join-shift-unshift", either((x + a) - b, (a + x) - b), x + (a - b)),
    joins("join-unshifts",      (x - a) - b,                      x - (a + b)),
    rule("join-integer-scales", twice, whole * (one * s), float=reassociates, when=is_larger),
    rule("divide-to-multiply", x / divisor, inverse, float=reassociates, when=inverts),
    version="1",
    doc="Constants per channel move into the weights of the layer beside them.",
    whole=is_shared,
    asked=is_rounded,
)
# fmt: on

UNPACK_AND_SCALE: Final = attrs.evolve(INFERENCE + SCALE, whole=SCALE.whole, asked=SCALE.asked)


def fold_scales(module: Module) -> Module:
    """The module with scales in the weights, and the constants that makes computed."""
    done, _ = rewrite(to_dataflow(module), UNPACK_AND_SCALE)
    assert isinstance(done, Module)
    return fold_constants(infer(done))


FOLD_SCALES: Final = Pass(
    "fold-scales",
    "Move constants per channel into the weights beside them.",
    fold_scales,
    contract=UNPACK_AND_SCALE.contract,
)
