"""Winograd: 3x3 convolutions with the weight in the transformed domain.

An m x m output tile takes (m + 2)² products instead of 9 m²:

    out = A (sum over channels of (B x Bᵀ) * (G w Gᵀ)) Aᵀ

`nn.winograd_weight` is `G w Gᵀ` for every pair of channels, computed once, and `nn.conv_winograd`
consumes it. Its meaning is the convolution itself: w is recovered as `E (G w Gᵀ) Eᵀ` with E G = 1.
The transforms A and B are chosen by the schedule and affect rounding; a non-finite input may affect
its whole output tile.

>>> from operator import mul
>>> of = TILES[4]
>>> whole = [[sum(map(mul, row, column)) for column in zip(*of.weight)] for row in of.back]
>>> whole == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
True
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from fractions import Fraction
from typing import Any, Final, TypeAlias

import attrs

from plica.ir.graph.expression import Expr, const
from plica.ir.graph.operator import Mismatch, Through, Values
from plica.ir.loop.scalar import Add, Buffer, Eq, Lit, Mul, Scalar, Select, dtype_of, index
from plica.ir.loop.tensor import Compute
from plica.ir.op.attribute import attribute
from plica.ir.op.convolution import conv
from plica.ir.op.linear import einsum, sum_of_products
from plica.ir.op.pad import guarded
from plica.ir.op.record import as_dtype, composite, primitive, tensor_of
from plica.ir.op.relation import rank_is, refuse, same, shown, wide
from plica.ir.op.shape import reshape, transpose
from plica.ir.op.window import PADDING, Window, sides
from plica.ir.type import TensorType, f32, f64, known
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):  # needed where weights are at hand
    from plica.ir.graph.weight_array import Array, ColumnwiseArray
    from plica.ir.graph.winograd_weight import transformed

Matrix: TypeAlias = tuple[tuple[Fraction, ...], ...]


@attrs.frozen
class WinogradMatrices:
    """The matrices of one size of tile: results from products, products from data, from weights."""

    size: int
    result: Matrix  # A
    data: Matrix  # B
    weight: Matrix  # G
    back: Matrix  # E, with E G = 1

    @property
    def span(self) -> int:
        """How many places of the data a tile is made from, along one axis."""
        return self.size + 2


def matrix(text: str) -> Matrix:
    """A matrix from its text.

    >>> matrix("1 1/2; 0 -1")
    ((Fraction(1, 1), Fraction(1, 2)), (Fraction(0, 1), Fraction(-1, 1)))
    """
    return tuple(tuple(Fraction(each) for each in row.split()) for row in text.split(";"))


TILES: Final[dict[int, WinogradMatrices]] = {
    2: WinogradMatrices(
        2,
        result=matrix("1 1 1 0; 0 1 -1 -1"),
        data=matrix("1 0 -1 0; 0 1 1 0; 0 -1 1 0; 0 1 0 -1"),
        weight=matrix("1 0 0; 1/2 1/2 1/2; 1/2 -1/2 1/2; 0 0 1"),
        back=matrix("1 0 0 0; 0 1 -1 0; 0 0 0 1"),
    ),
    4: WinogradMatrices(
        4,
        result=matrix("1 1 1 1 1 0; 0 1 -1 2 -2 0; 0 1 1 4 4 0; 0 1 -1 8 -8 1"),
        data=matrix(
            "4 0 -5 0 1 0; 0 -4 -4 1 1 0; 0 4 -4 -1 1 0;0 -2 -1 2 1 0; 0 2 -1 -2 1 0; 0 4 0 -5 0 1"
        ),
        weight=matrix(
            "1/4 0 0; -1/6 -1/6 -1/6; -1/6 1/6 -1/6; 1/24 1/12 1/6; 1/24 -1/12 1/6; 0 0 1"
        ),
        back=matrix("4 0 0 0 0 0; 0 -3 3 0 0 0; 0 0 0 0 0 1"),
    ),
}
"""The supported tile sizes."""


def _tile(value: Any) -> Any:
    if type(value) is int and value in TILES:
        return value
    expected = f"one of {', '.join(map(str, TILES))}"
    return Mismatch("bad-attribute", f"A tile must be {expected}.", expected, repr(value))


_TILE: Final = attribute("tile", _tile)


def combined(row: Sequence[Fraction], values: Sequence[Scalar]) -> Scalar:
    """The sum of numbers times values, without those that are zero."""
    whole: Scalar | None = None
    for factor, value in zip(row, values, strict=True):
        if factor:
            term = value if factor == 1 else Mul(Lit(float(factor), dtype_of(value)), value)
            whole = term if whole is None else Add(whole, term)
    assert whole is not None
    return whole


def chosen(at: Scalar, cases: Sequence[Scalar]) -> Scalar:
    """The case whose number an index is."""
    whole = cases[-1]
    for number in range(len(cases) - 2, -1, -1):
        whole = Select(Eq(at, index(number)), cases[number], whole)
    return whole


def recovered(
    of: WinogradMatrices, weight: Buffer, place: tuple[Scalar, ...], k: Scalar, m: Scalar
) -> Scalar:
    """The element of the weight itself at `k, m`, from the transformed one."""

    def at(a: int, b: int) -> Scalar:
        return as_dtype(weight[(index(a * of.span + b), *place)], wide(weight.dtype))

    def row(a: int) -> Scalar:
        every = [at(a, b) if any(line[b] for line in of.back) else None for b in range(of.span)]
        return chosen(m, [_sum(line, every) for line in of.back])

    rows = [row(a) if any(line[a] for line in of.back) else None for a in range(of.span)]
    return chosen(k, [_sum(line, rows) for line in of.back])


def _sum(row: Sequence[Fraction], values: Sequence[Scalar | None]) -> Scalar:
    pairs = [(f, v) for f, v in zip(row, values, strict=True) if f and v is not None]
    return combined([f for f, _ in pairs], [v for _, v in pairs])


def _conv_rule(attrs: Values, x: TensorType, weight: TensorType) -> TensorType:
    name, of = "nn.conv_winograd", TILES[attrs["tile"]]
    rank_is(name, "the data (n, c, h, w)", x, 4)
    rank_is(name, "the transformed weight", weight, 3)
    same(name, "the channels and the weight's", x.shape[1], weight.shape[1])
    same(name, "the products of a tile and the weight's", index(of.span**2), weight.shape[0])
    sizes = [
        window.count(name, size, index(3))
        for window, size in zip(_windows(attrs), x.shape[2:], strict=True)
    ]
    return TensorType((x.shape[0], weight.shape[2], *sizes), x.dtype)


def _windows(attrs: Values) -> list[Window]:
    return [Window(1, 1, *side) for side in sides("nn.conv_winograd", attrs["padding"], 2)]


def _conv_body(attrs: Values, out: TensorType, x: Buffer, weight: Buffer) -> Compute:
    sliding, of = _windows(attrs), TILES[attrs["tile"]]

    def factors(i: Sequence[Scalar], inner: Sequence[Scalar]) -> Sequence[Scalar]:
        n, o, *at = i
        c, *window = inner
        places = [w.place(a, b) for w, a, b in zip(sliding, at, window, strict=True)]
        checks = [
            check
            for window, place, size in zip(sliding, places, x.shape[2:], strict=True)
            for check in window.inside(place, size)
        ]
        value = guarded(checks, x[(n, c, *places)], Lit(0, x.dtype))
        return value, recovered(of, weight, (c, o), window[0], window[1])

    extents = (weight.shape[1], index(3), index(3))
    return sum_of_products((x, weight), out.shape, extents, factors)


def _plainly(attrs: Values, x: Expr, weight: Expr) -> Expr:
    """The convolution with the weight itself."""
    of, (_, channels, outputs) = TILES[attrs["tile"]], tensor_of(weight).shape
    table = const([[float(each) for each in row] for row in of.back], tensor_of(weight).dtype)
    square = reshape(weight, (of.span, of.span, channels, outputs))
    half = einsum((table, square), "ka,abco->kbco")
    return conv(x, einsum((half, table), "kbco,lb->ockl"), padding=attrs["padding"])


conv_winograd = primitive(
    "nn.conv_winograd", ("x", "weight"), _conv_rule, _conv_body,
    "Winograd convolution of (n, c, h, w) with a weight transformed by `nn.winograd_weight`.",
    attributes=(_TILE, PADDING), admits=(f32, f64), gradient=Through(_plainly),
)  # fmt: skip


def _weight_rule(attrs: Values, weight: TensorType) -> TensorType:
    name = "nn.winograd_weight"
    rank_is(name, "the weight (out, c, 3, 3)", weight, 4)
    if [known(size) for size in weight.shape[2:]] != [3, 3]:
        message = f"{name} is for windows of 3 by 3."
        refuse("shape-conflict", message, "(out, c, 3, 3)", shown(weight.shape))
    outputs, channels = weight.shape[:2]
    return TensorType((index(TILES[attrs["tile"]].span ** 2), channels, outputs), weight.dtype)


def _weight_build(attrs: Values, weight: Expr) -> Expr:
    of, (outputs, channels, _, _) = TILES[attrs["tile"]], tensor_of(weight).shape
    table = const([[float(each) for each in row] for row in of.weight], tensor_of(weight).dtype)
    flat = transpose(weight, (2, 3, 1, 0))  # once, and then every step goes along its rows
    half = einsum((flat, table), "klco,bl->kbco")
    return reshape(einsum((table, half), "ak,kbco->abco"), (of.span**2, channels, outputs))


def _weight_columns(origin: Hashable, attrs: Values, weight: Array) -> ColumnwiseArray:
    return transformed(origin, weight, TILES[attrs["tile"]].weight)


winograd_weight = composite(
    "nn.winograd_weight", ("weight",), _weight_rule, _weight_build,
    "Transform a weight (out, c, 3, 3) for `nn.conv_winograd`: (products of a tile, c, out).",
    attributes=(_TILE,), admits=(f32, f64), columns=_weight_columns,
)  # fmt: skip
