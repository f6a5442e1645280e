"""Rows of complex numbers, which are pairs of their parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from attrs import evolve, frozen

from plica.frontend.fourier import has_transform
from plica.frontend.stablehlo.literal import COMPLEX, array
from plica.frontend.stablehlo.node import HloNode, sizes
from plica.frontend.stablehlo.row.reduction import Rows
from plica.frontend.stablehlo.row.shape import cut
from plica.frontend.stablehlo.syntax import MlirToken
from plica.frontend.word import like, rank
from plica.ir.graph.expression import Expr, const
from plica.ir.op.namespace import op
from plica.ir.type.dtype import DType

PARTWISE: Final = (
    "broadcast_in_dim", "reshape", "transpose", "slice", "pad", "concatenate", "reverse",
    "dynamic_slice", "dynamic_update_slice", "gather", "select", "optimization_barrier", "add",
    "subtract", "negate", "convert",
)  # fmt: skip
"""Operations on each part separately."""


@frozen
class HloComplex:
    """The real and the imaginary part."""

    real: Expr
    imaginary: Expr


def is_complex(node: HloNode) -> bool:
    """Whether an operation has to do with complex numbers."""
    return any(isinstance(operand, HloComplex) for operand in node.operands) or any(
        mlir_type.element in COMPLEX for mlir_type in node.op.types
    )


def on_parts(node: HloNode, row: Callable[[HloNode], Any]) -> HloComplex:
    """A row on the real parts, and on the imaginary ones."""
    of = {"complex<f32>": "f32", "complex<f64>": "f64"}
    types = tuple(
        [evolve(mlir, element=of.get(mlir.element, mlir.element)) for mlir in node.op.types]
    )
    plain = evolve(node.op, types=types)

    def part(name: str) -> Any:
        given = tuple([getattr(e, name) if isinstance(e, HloComplex) else e for e in node.operands])
        if name == "imaginary":  # what is real has no other part; indices and choices are for both
            keeps = ("select", "gather", "dynamic_slice", "dynamic_update_slice")
            given = tuple([
                e if isinstance(o, HloComplex) or node.op.name.partition(".")[2] in keeps
                else zeros(e) for e, o in zip(given, node.operands, strict=True)
            ])  # fmt: skip
        found = row(evolve(node, op=plain, operands=given))
        return found[0] if isinstance(found, list) else found

    return HloComplex(part("real"), part("imaginary"))


def zeros(x: Expr) -> Expr:
    """Zeros of the shape of x."""
    return op.broadcast_to(like(0, x), sizes(x))


def _constant(node: HloNode) -> HloComplex:
    value = node.attribute("value")
    if isinstance(value, MlirToken):
        value = array(value.text, node.type(), node.op.line)
    if not isinstance(value, np.ndarray):
        node.refused("The value is no dense constant.", "dense<…>", str(value))
    of = DType("f32" if value.dtype == np.float32 else "f64")
    return HloComplex(const(np.array(value[..., 0]), of), const(np.array(value[..., 1]), of))


def _complex(node: HloNode) -> HloComplex:
    return HloComplex(*node.operands)


def _multiply(node: HloNode) -> HloComplex:
    x, y = node.operands
    return HloComplex(
        x.real * y.real - x.imaginary * y.imaginary, x.real * y.imaginary + x.imaginary * y.real
    )


def _divide(node: HloNode) -> HloComplex:
    """By the conjugate, both scaled by the larger part so that no square overflows."""
    x, y = node.operands
    scale = op.maximum(op.absolute(y.real), op.absolute(y.imaginary))
    c, d = y.real / scale, y.imaginary / scale
    size = (c * c + d * d) * scale
    return HloComplex((x.real * c + x.imaginary * d) / size, (x.imaginary * c - x.real * d) / size)


def _size(node: HloNode) -> Expr:
    a, b = op.absolute(node.operands[0].real), op.absolute(node.operands[0].imaginary)
    most = op.maximum(a, b)
    ratio = op.minimum(a, b) / op.where(most > like(0, most), most, like(1, most))
    return most * op.sqrt(like(1, most) + ratio * ratio)


def _exponential(node: HloNode) -> HloComplex:
    x = node.operands[0]
    size = op.exp(x.real)
    return HloComplex(size * op.cos(x.imaginary), size * op.sin(x.imaginary))


def _part(name: str) -> Rows:
    def row(node: HloNode) -> Expr:
        x = node.operands[0]
        if isinstance(x, HloComplex):
            return getattr(x, name)  # type: ignore[no-any-return]  # a term
        return x if name == "real" else zeros(x)

    return row


def _fft(node: HloNode) -> Any:
    """Transforms along the last axes, one after the other."""
    kind = node.word("type", "fft_type", default=(node.attribute("flags") or [""])[0])
    lengths = node.numbers("length", "fft_length")
    x = node.operands[0]
    if not all(map(has_transform, lengths)):
        node.refused("The length cannot be taken apart.", "small factors", str(lengths))
    parts: tuple[Expr, ...] = (x,) if kind == "RFFT" else (x.real, x.imaginary)
    last = rank(parts[0]) - 1
    if kind == "IRFFT":
        return _halved_inverse(parts, lengths)
    axes = [last - at for at in range(len(lengths))]
    for axis in axes:
        half = kind == "RFFT" and axis == last
        parts = _transformed(parts, axis, sizes(parts[0])[axis], half, kind == "IFFT")
    return HloComplex(*parts)


def _halved_inverse(parts: tuple[Expr, ...], lengths: list[int]) -> Expr:
    """The real signal of half a spectrum, the other half of which is its mirror image."""
    last = rank(parts[0]) - 1
    for at in range(1, len(lengths)):
        parts = _transformed(parts, last - at, sizes(parts[0])[last - at], False, True)
    count = lengths[-1]
    whole = sizes(parts[0])
    inner = (count - 1) // 2
    low, high = [0] * (last + 1), list(whole)
    low[last], high[last] = 1, 1 + inner
    mirror = [op.flip(cut(part, low, high), axis=(last,)) for part in parts]
    both = (
        op.concat((parts[0], mirror[0]), axis=last),
        op.concat((parts[1], -mirror[1]), axis=last),
    )
    return _transformed(both, last, count, False, True)[0]


def _transformed(
    parts: tuple[Expr, ...], axis: int, length: int, half: bool, inverse: bool
) -> tuple[Expr, ...]:
    """One axis: moved before the columns, with the parts before it."""
    stacked = op.stack(tuple([op.moveaxis(part, source=axis, destination=-1) for part in parts]),
                       axis=-2)  # fmt: skip
    bins = length // 2 + 1 if half else length
    expr = op.dft(op.expand_dims(stacked, axis=(-1,)), length=length, bins=bins, inverse=inverse)
    expr = op.squeeze(expr, axis=(-1,))
    shape = sizes(expr)
    low = [0] * (len(shape) - 2)
    outs = [cut(expr, [*low, at, 0], [*shape[:-2], at + 1, shape[-1]]) for at in range(2)]
    outs = [op.moveaxis(op.squeeze(out, axis=(-2,)), source=-1, destination=axis) for out in outs]
    return tuple(outs)


COMPLEX_ROWS: Final[dict[str, Callable[[HloNode], Any]]] = {
    "constant": _constant, "complex": _complex, "multiply": _multiply, "divide": _divide,
    "abs": _size, "exponential": _exponential, "real": _part("real"), "imag": _part("imaginary"),
    "fft": _fft,
}  # fmt: skip
"""Rows of operations whose operands or results are complex."""

TABLE: Final[dict[str, Rows]] = {
    name: COMPLEX_ROWS[name] for name in ("complex", "real", "imag", "fft")
}
