"""Rows of complex numbers, which are pairs of their parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from attrs import evolve

from plica.frontend.complex_pair import (
    Complex,
    Way,
    divide,
    exponential,
    hypotenuse,
    multiply,
    transformed_along,
)
from plica.frontend.stablehlo.literal import COMPLEX, array
from plica.frontend.stablehlo.node import HloNode, sizes
from plica.frontend.stablehlo.row.reduction import Rows
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


def is_complex(node: HloNode) -> bool:
    """Whether an operation has to do with complex numbers."""
    return any(isinstance(operand, Complex) for operand in node.operands) or any(
        mlir_type.element in COMPLEX for mlir_type in node.op.types
    )


def on_parts(node: HloNode, row: Callable[[HloNode], Any]) -> Complex:
    """A row on the real parts, and on the imaginary ones."""
    of = {"complex<f32>": "f32", "complex<f64>": "f64"}
    types = tuple(
        [evolve(mlir, element=of.get(mlir.element, mlir.element)) for mlir in node.op.types]
    )
    plain = evolve(node.op, types=types)

    def part(name: str) -> Any:
        given = tuple([getattr(e, name) if isinstance(e, Complex) else e for e in node.operands])
        if name == "imag":  # what is real has no other part; indices and choices are for both
            keeps = ("select", "gather", "dynamic_slice", "dynamic_update_slice")
            given = tuple([
                e if isinstance(o, Complex) or node.op.name.partition(".")[2] in keeps
                else zeros(e) for e, o in zip(given, node.operands, strict=True)
            ])  # fmt: skip
        found = row(evolve(node, op=plain, operands=given))
        return found[0] if isinstance(found, list) else found

    return Complex(part("real"), part("imag"))


def zeros(x: Expr) -> Expr:
    """Zeros of the shape of x."""
    return op.broadcast_to(like(0, x), sizes(x))


def _constant(node: HloNode) -> Complex:
    value = node.attribute("value")
    if isinstance(value, MlirToken):
        value = array(value.text, node.type(), node.op.line)
    if not isinstance(value, np.ndarray):
        node.unsupported("The value is no dense constant.", "dense<…>", str(value))
    of = DType("f32" if value.dtype == np.float32 else "f64")
    return Complex(const(np.array(value[..., 0]), of), const(np.array(value[..., 1]), of))


def _complex(node: HloNode) -> Complex:
    return Complex(*node.operands)


def _part(name: str) -> Rows:
    def row(node: HloNode) -> Expr:
        x = node.operands[0]
        if isinstance(x, Complex):
            return getattr(x, name)  # type: ignore[no-any-return]  # a term
        return x if name == "real" else zeros(x)

    return row


def _fft(node: HloNode) -> Any:
    """Transforms along the last axes, one after the other."""
    kind = node.word("type", "fft_type", default=(node.attribute("flags") or [""])[0])
    *others, length = node.numbers("length", "fft_length")
    x = Complex(node.x, None) if kind == "RFFT" else node.operands[0]
    way: Way = "forwards" if kind in ("FFT", "RFFT") else "backwards"
    last = rank(x.real) - 1
    if kind != "IRFFT":
        bins = length // 2 + 1 if kind == "RFFT" else length
        x = transformed_along(node, x, last, bins=bins, length=length, way=way)
    for axis, other in enumerate(others, last - len(others)):
        x = transformed_along(node, x, axis, bins=other, length=other, way=way)
    if kind != "IRFFT":
        return x
    return transformed_along(node, x, last, bins=length, length=length, way="real").real


COMPLEX_ROWS: Final[dict[str, Callable[[HloNode], Any]]] = {
    "constant": _constant, "complex": _complex, "fft": _fft,
    "multiply": lambda node: multiply(*node.operands),
    "divide": lambda node: divide(*node.operands),
    "exponential": lambda node: exponential(*node.operands),
    "abs": lambda node: hypotenuse(*node.operands[0].both()),
    "real": _part("real"), "imag": _part("imag"),
}  # fmt: skip
"""Rows of operations whose operands or results are complex."""

TABLE: Final[dict[str, Rows]] = {
    name: COMPLEX_ROWS[name] for name in ("complex", "real", "imag", "fft")
}
