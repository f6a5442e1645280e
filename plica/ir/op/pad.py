"""Padding: surrounds a tensor with a constant, or with its own elements.

>>> from plica.ir.type.term import tensor
>>> _, attrs = pad.bind((1.0,), {"pad_width": ((1, 2), (0, 0))})
>>> [size.value for size in pad.relation(dict(attrs), tensor((6, 2), "f32")).shape]
[9, 2]
"""

from __future__ import annotations

from collections.abc import Sequence

from plica.ir.graph.expression import Expr
from plica.ir.graph.operator import Values
from plica.ir.loop.scalar import And, Buffer, FloorMod, Le, Lit, Lt, Max, Min, Scalar, Select, index
from plica.ir.loop.tensor import Compute, compute
from plica.ir.op.attribute import attribute, choice, natural, number, pairs
from plica.ir.op.cotangent import slice_, word
from plica.ir.op.record import plus, primitive, tensor_of
from plica.ir.op.relation import literal, need, refuse
from plica.ir.type import TensorType, known, normal_dim

iota, maximum, minimum = word("iota"), word("maximum"), word("minimum")
scatter_sum = word("scatter_sum")


def _widths(attrs: Values, rank: int) -> tuple[tuple[int, int], ...]:
    given = attrs["pad_width"]
    if isinstance(given, int):
        return ((given, given),) * rank
    if len(given) != rank:
        message = "pad takes one pair (before, after) for each axis."
        refuse("bad-attribute", message, f"{rank} pairs", str(len(given)))
    return tuple(given)


def _pad_rule(attrs: Values, x: TensorType) -> TensorType:
    widths = _widths(attrs, len(x.shape))
    literal("pad", attrs["constant_values"], x.dtype)
    shape = []
    for size, (before, after) in zip(x.shape, widths, strict=True):
        if attrs["mode"] != "constant" and known(size) == 0 and before + after:
            message = "pad has nothing to repeat along an empty axis."
            refuse("shape-conflict", message, "an axis of size 1 or more", str(x))
        if attrs["mode"] != "constant" and before + after:
            need(plus(size, -1))
        shape.append(plus(size, before + after))
    return TensorType(tuple(shape), x.dtype)


def _mirrored(at: Scalar, size: Scalar, mode: str) -> Scalar:
    """The place in an axis that a place outside of it repeats."""
    if mode == "edge":
        return Max(index(0), Min(at, normal_dim(size - 1)))
    if mode == "wrap":
        return FloorMod(at, size)
    # A reflection has a period: there and back, without the ends twice or with them.
    period = size * 2 - 2 if mode == "reflect" else size * 2
    inside = FloorMod(at, normal_dim(period))
    return Min(inside, normal_dim(period if mode == "reflect" else period - 1) - inside)


def _pad_body(attrs: Values, out: TensorType, x: Buffer) -> Compute:
    widths = _widths(attrs, len(x.shape))

    def element(*i: Scalar) -> Scalar:
        inside: list[Scalar] = []
        places = []
        for at, size, (before, after) in zip(i, x.shape, widths, strict=True):
            place = plus(at, -before)
            if attrs["mode"] == "constant":
                inside += [Le(index(0), place)] if before else []
                inside += [Lt(place, size)] if after else []
                places.append(place)
            else:
                places.append(_mirrored(place, size, attrs["mode"]) if before + after else place)
        return guarded(inside, x[tuple(places)], Lit(attrs["constant_values"], x.dtype))

    return compute((x,), out.shape, element)


def guarded(conditions: Sequence[Scalar], value: Scalar, orelse: Scalar) -> Scalar:
    """The value where all conditions hold."""
    if not conditions:
        return value
    whole = conditions[0]
    for condition in conditions[1:]:
        whole = And(whole, condition)
    return Select(whole, value, orelse)


def _pad_width(value: object) -> object:
    return pairs(value) if isinstance(value, list | tuple) else natural(value)


def _pad_pullback(attrs: Values, d: Expr, y: Expr, x: Expr) -> list[Expr | None]:
    of, whole = tensor_of(x), tensor_of(y)
    widths = _widths(attrs, len(of.shape))
    touched = [at for at, width in enumerate(widths) if width != (0, 0)]
    if not touched:
        return [d]
    if attrs["mode"] == "constant":
        starts = tuple(widths[at][0] for at in touched)
        stops = tuple(plus(of.shape[at], widths[at][0]) for at in touched)
        return [slice_(d, starts, stops, axes=tuple(touched))]
    for at in reversed(touched):
        places = _repeated(x, at, widths[at][0], whole.shape[at], attrs["mode"])
        d = scatter_sum(d, places, size=of.shape[at], axis=at)
    return [d]


def _repeated(x: Expr, at: int, before: int, whole: Scalar, mode: str) -> Expr:
    """For each place along a padded axis the one it repeats: `_mirrored` as a tensor."""
    from plica.ir.op.index import extent  # it builds on padding

    size = extent(x, at)
    count = iota((whole,)) - before
    if mode == "edge":
        return maximum(minimum(count, size - 1), 0)
    if mode == "wrap":
        return count % size
    period = size * 2 - 2 if mode == "reflect" else size * 2
    inside = count % maximum(period, 1) if isinstance(period, Expr) else count % max(period, 1)
    return minimum(inside, (period if mode == "reflect" else period - 1) - inside)


pad = primitive(
    "pad", ("x",), _pad_rule, _pad_body,
    "Pad x with a constant, its edge, its reflection or by wrapping.",
    attributes=(
        attribute("pad_width", _pad_width),
        attribute("mode", choice("constant", "edge", "reflect", "symmetric", "wrap"), "constant"),
        attribute("constant_values", number, 0),
    ),
    onnx=("Pad",), aliases=("nn.pad",), gradient=_pad_pullback,
)  # fmt: skip
