"""Contractions and windows of open tensors: folds over a domain that the operator knows.

At a place of the result an operator such as a convolution combines, over some domain, a product of
elements of its operands: at which places, and which of them lie in padding, depends on the place,
on the attributes and on the shapes of all operands.  Nothing else is known of those, but that a
channel of the result (of the data) is the same channel of the weight: `CHANNELS`.

    matmul(x, y)[i] = Σ k: x[place of 0 at i, k] * y[place of 1 at i, k]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from plica.ir.graph.operator import Operator, find
from plica.ir.loop.scalar import Combiner, Lit, Mul, Scalar, Select, dtype_of
from plica.ir.op.record import as_dtype
from plica.ir.op.relation import FLOAT, NUMBER, wide
from plica.ir.type import DType, bool_
from plica.rewrite.packs.scale import CHANNEL_SCALES, LAYERS, SHIFT_TOTALS, End, LinearLayer
from plica.rewrite.pattern import Derived, Hole, TermFunction
from plica.rewrite.prove.open_shape import (
    SCALAR,
    BoundIndex,
    Contracted,
    MappedIndex,
    MappedShape,
    OpenIndex,
    OpenShape,
    PermutedIndex,
    ProjectedIndex,
    unpermuted,
)
from plica.rewrite.prove.open_tensor import IllTypedRule, OpenFold, OpenTensor, Unprovable
from plica.rewrite.prove.reduction import folded
from plica.rewrite.prove.rule_facts import RuleFacts


@attrs.frozen
class _Domain:
    """How elements are combined, and the conditions under which those of each operand are read."""

    combiner: Combiner
    conditions: tuple[tuple[str, ...], ...]


RANKS: Final[dict[str, tuple[int | None, ...]]] = {
    "nn.dense": (None, 2), "nn.batch_matmul": (3, 3),
}  # fmt: skip
"""Ranks that operands must have."""
TWO: Final = (1, 0)
_PADDED: Final = ("padding",)
DOMAINS: Final = {
    "matmul": _Domain("sum", ((), ())),
    "nn.batch_matmul": _Domain("sum", ((), ())),
    "nn.dense": _Domain("sum", ((), ())),
    "nn.conv": _Domain("sum", (_PADDED, ())),
    "nn.conv_transpose": _Domain("sum", (("padding", "stride"), ("stride",))),
    "nn.max_pool": _Domain("max", (_PADDED,)),
}
CHANNELS: Final[dict[TermFunction, tuple[LinearLayer, End]]] = {
    CHANNEL_SCALES[layer.slug, end]: (layer, end)
    for layer in LAYERS for end in ("inputs", "outputs")
}  # fmt: skip
TOTALS: Final = {SHIFT_TOTALS[layer.slug]: layer for layer in LAYERS if layer.slug in SHIFT_TOTALS}


def contracted(
    reading: RuleFacts, record: Operator, given: dict[str, Any], args: list[OpenTensor]
) -> OpenTensor:
    """A contraction or a window of tensors of one dtype."""
    dtype, domain = args[0].dtype, DOMAINS[record.name]
    if any(tensor.dtype is not dtype for tensor in args) or dtype not in NUMBER:
        raise IllTypedRule(f"{record.name} of {', '.join(str(tensor.dtype) for tensor in args)}")
    for arg, rank in zip(args, RANKS.get(record.name, ()), strict=False):
        if rank is not None:
            reading.legal(("rank", rank, unpermuted(arg.shape)), f"{record.name} of another rank")
    over, orders = standard(reading, record.name, given, [tensor.shape for tensor in args])
    if over.operator != record.name:
        reading.use(f"{record.name} is {over.operator}")
    turned = [_transposed(reading, arg, order) for arg, order in zip(args, orders, strict=True)]
    if (swapped := _product_of_transposes(reading, over)) is not None:
        over, turned = swapped, [_transposed(reading, tensor, TWO) for tensor in turned[::-1]]
    reading.legal(("contracted", over), f"{record.name} of other shapes")

    def at(index: OpenIndex) -> Scalar:
        place = BoundIndex(index, (over,), over.result)
        body: Scalar | None = None
        for number, arg in enumerate(turned):
            factor = as_dtype(_element(reading, arg, number, place), summed_in(domain, dtype))
            body = factor if body is None else Mul(body, factor)
        assert body is not None
        return as_dtype(_fold(reading, domain.combiner, place, body), dtype)

    open_tensor = OpenTensor(dtype, over.result, at)
    return open_tensor if swapped is None else _transposed(reading, open_tensor, TWO)


def _product_of_transposes(reading: RuleFacts, over: Contracted) -> Contracted | None:
    """The product of transposes that a product of two matrices is a transpose of, where that one
    stands for both."""
    shapes = over.shapes
    matrices = all(reading.is_known(("rank", 2, unpermuted(shape))) for shape in shapes)
    if over.operator != "matmul" or not matrices:
        return None
    turned = tuple(reading.facts.permuted(shape, TWO) for shape in shapes[::-1])
    reading.seen |= {
        ("rank", 2, Contracted("matmul", (), each).result) for each in (shapes, turned)
    }
    if repr(shapes) <= repr(turned):
        return None
    reading.use("a product of transposes is a transpose of the product")
    return Contracted("matmul", (), turned)


def standard(
    reading: RuleFacts, operator: str, given: Mapping[str, Any], shapes: Sequence[OpenShape]
) -> tuple[Contracted, tuple[tuple[int, ...] | None, ...]]:
    """What an operator contracts, and how its operands are transposed before: products of matrices
    are `matmul`, by their definitions."""
    orders: list[tuple[int, ...] | None] = [None] * len(shapes)
    values = dict(given)
    if operator == "nn.dense":
        operator, orders[1] = "matmul", TWO
    elif operator == "nn.batch_matmul":
        for number, name in enumerate(("transpose_x", "transpose_y")):
            if values[name] is True:
                orders[number], values[name] = (0, 2, 1), False
        if list(values.values()) == [False, False]:
            operator, values = "matmul", {}
    turned = (
        shape if order is None else reading.facts.permuted(shape, order)
        for shape, order in zip(shapes, orders, strict=True)
    )  # fmt: skip
    return Contracted(operator, in_order(values), tuple(turned)), tuple(orders)


def _transposed(reading: RuleFacts, of: OpenTensor, order: tuple[int, ...] | None) -> OpenTensor:
    if order is None:
        return of
    permute = reading.facts.permute
    shape = reading.facts.permuted(of.shape, order)
    return OpenTensor(of.dtype, shape, lambda index: of.at(permute(index, order, of.shape)))


def einsum(reading: RuleFacts, given: Mapping[str, Any], args: list[OpenTensor]) -> OpenTensor:
    """A sum of products in index notation: a transpose, or a product of two matrices."""
    equation = given["equation"].replace(" ", "")
    left, _, result = equation.partition("->")
    parts = left.split(",")
    for arg, letters in zip(args, parts, strict=True):
        reading.legal(("rank", len(letters), unpermuted(arg.shape)), "einsum of another rank")
    if len(parts) == 1 and len(result) == len({*result}) and {*result} == {*left}:
        order = tuple(map(left.index, result))
        if reading.assumes:
            reading.facts.learn_rank(args[0].shape, order)
        return _transposed(reading, args[0], order)
    if [*map(len, (*parts, result))] == [2, 2, 2] and len({*left}) == 4 and len({*result}) == 2:
        row, column = result
        inner = next(letter for letter in parts[0] if letter != row)
        wanted = (row + inner, inner + column)
        if all({*part} == {*each} for part, each in zip(parts, wanted, strict=True)):
            turned = [
                arg if part == each else _transposed(reading, arg, TWO)
                for arg, part, each in zip(args, parts, wanted, strict=True)
            ]
            record = find("matmul")
            assert record is not None
            return contracted(reading, record, {}, turned)
    raise Unprovable(f"einsum {equation!r} is not modelled")


def in_order(attributes: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Attributes by name."""
    return tuple(sorted(attributes.items(), key=lambda each: each[0]))


def summed_in(domain: _Domain, dtype: DType) -> DType:
    """The dtype in which elements are combined."""
    return wide(dtype) if domain.combiner == "sum" else dtype


def _fold(reading: RuleFacts, combiner: Combiner, place: BoundIndex, body: Scalar) -> Scalar:
    is_free = combiner == "max" or reading.reorders or not dtype_of(body).is_float
    order = None if is_free else place.of
    return folded(reading, OpenFold(combiner, place, place.gone, SCALAR, order, False, body))


def _over(place: BoundIndex) -> Contracted:
    (over,) = place.gone
    assert isinstance(over, Contracted)
    return over


def _operand_place(number: int, place: BoundIndex) -> OpenIndex:
    over = _over(place)
    return MappedIndex(place, f"operand {number}", over, over.shapes[number])


def _element(reading: RuleFacts, of: OpenTensor, number: int, place: BoundIndex) -> Scalar:
    """What is combined of an operand: an element, or what changes nothing outside of it."""
    over, value = _over(place), of.at(_operand_place(number, place))
    domain = DOMAINS[over.operator]
    for condition in domain.conditions[number]:
        if reading.is_known(("no " + condition, over.operator, over.attributes)):
            continue
        inside = reading.atom((condition, place), bool_, condition)
        value = Select(inside, value, _neutral(domain.combiner, of.dtype))
    return value


def _neutral(combiner: Combiner, dtype: DType) -> Lit:
    """What stands for an element in the padding."""
    if combiner == "sum":
        return Lit(0, dtype)
    return Lit(float("-inf") if dtype in FLOAT else dtype.bounds[0], dtype)


# --- channels ------------------------------------------------------------------------------------


def scaled_by_channels(reading: RuleFacts, node: Derived) -> OpenTensor:
    """A weight times a factor for each channel, as the layer reads it.

    The guard says that the factor lies along the channels, so that it may be read at the place of
    the result, or of the data, as well.
    """
    (layer, end), (part, factor, *given) = CHANNELS[node.function], node.args
    weight, by = reading.memo[part], reading.memo[factor]
    if not isinstance(factor, Hole) or not reading.is_known(("along", end, factor.name, layer)):
        raise Unprovable(f"a factor that may not lie along the {end} of {layer.record.name}")
    attributes = dict(zip(layer.holes, given, strict=True))
    if weight.dtype is not by.dtype:
        raise Unprovable(f"a weight of {weight.dtype} times a factor of {by.dtype}")

    def at(index: OpenIndex) -> Scalar:
        read = index.index if isinstance(index, PermutedIndex) else index
        match read:
            case MappedIndex(BoundIndex() as place, _, Contracted() as over, _):
                shapes = [over.shapes[layer.data], weight.shape][:: -1 if layer.data else 1]
                wanted, orders = standard(reading, layer.record.name, attributes, shapes)
                own, order = _operand_place(1 - layer.data, place), orders[1 - layer.data]
                if order is not None:
                    own = reading.facts.permute(own, order, weight.shape)
                if wanted is over and orders[layer.data] is None and own is index:
                    reading.use(f"channels of {layer.record.name}")
                    return Mul(weight.at(index), by.at(_channel(reading, layer, end, place, by)))
        raise Unprovable(f"a scaled weight that {layer.record.name} does not read")

    return OpenTensor(weight.dtype, weight.shape, at)


def _channel(
    reading: RuleFacts, layer: LinearLayer, end: End, place: BoundIndex, by: OpenTensor
) -> OpenIndex:
    """The place of a factor at a place of a layer's domain."""
    project = reading.facts.project
    if end == "outputs":
        return project(place.index, place.of, by.shape)
    return project(_operand_place(layer.data, place), _over(place).shapes[layer.data], by.shape)


def total_of_shift(reading: RuleFacts, node: Derived) -> OpenTensor:
    """The layer of nothing but the summands of its data's channels, which broadcasts to it.

    Read at a place of the layer it is the sum of the scaled weight over the same domain.
    """
    layer, (part, data) = TOTALS[node.function], node.args
    weight, of = reading.memo[part], reading.memo[data]
    scaled = part.args[2:] if isinstance(part, Derived) and part.function in CHANNELS else None
    if scaled is None or CHANNELS[part.function] != (layer, "inputs"):
        raise Unprovable(f"the total of a weight that is not scaled by the inputs of {layer.slug}")
    attributes = dict(zip(layer.holes, scaled, strict=True))
    shapes = (of.shape, weight.shape)
    over, orders = standard(reading, layer.record.name, attributes, shapes)
    turned = _transposed(reading, weight, orders[1])
    if not reading.is_known(("no padding", over.operator, over.attributes)):
        raise Unprovable("padding is not shifted")
    shape = MappedShape(node.function.name, over, SCALAR)
    reading.facts.learn_below(shape, over.result)

    def at(index: OpenIndex) -> Scalar:
        match index:
            case ProjectedIndex(outer, source, target) if source is over.result:
                assert target is shape
                place = BoundIndex(outer, (over,), over.result)
                body = as_dtype(_element(reading, turned, 1, place), wide(weight.dtype))
                return as_dtype(_fold(reading, "sum", place, body), weight.dtype)
        raise Unprovable(f"a total that is not added to its {layer.record.name}")

    return OpenTensor(weight.dtype, shape, at)
