"""Words that the rows of every frontend are written with.

>>> from plica.ir.graph.expression import const
>>> like(2, const([1.0], "f32")).dtype
DType('f32')
"""

from __future__ import annotations

from typing import Final

import numpy as np

from plica.core.diagnostic import IllTyped
from plica.ir.graph.expression import Const, Expr, const
from plica.ir.loop.scalar import index
from plica.ir.op.namespace import op
from plica.ir.op.record import tensor_of
from plica.ir.op.relation import Shape
from plica.ir.type import DType, f32, i64, known
from plica.runtime.error import Diagnostic, Place

BEYOND: Final = 1 << 63  # the first number that is no size: sizes are integers of 64 bits


def like(value: bool | int | float, x: Expr) -> Const:
    """A number of the dtype of x."""
    return const(np.asarray(value).astype(dtype(x).numpy), dtype(x))


def dtype(x: Expr) -> DType:
    """The element type of x."""
    return tensor_of(x).dtype


def shape(x: Expr) -> Shape:
    """The shape of x."""
    return tensor_of(x).shape


def rank(x: Expr) -> int:
    """The number of axes of x."""
    return len(tensor_of(x).shape)


def to(x: Expr, wanted: DType) -> Expr:
    """x in a dtype; nothing where it has it."""
    return x if dtype(x) is wanted else op.cast(x, wanted)


def in_f32(x: Expr) -> Expr:
    """Narrow floats as f32."""
    return op.cast(x, f32) if dtype(x).is_narrow else x


def along(vector: Expr, axis: int, of: int) -> Expr:
    """A vector as a tensor of rank `of` that broadcasts along an axis."""
    if rank(vector) != 1 or not 0 <= axis < of:
        message = "A vector is needed, with an element for each place of an axis."
        raise IllTyped.of("shape-conflict", message, None, "rank 1", str(tensor_of(vector)))
    (size,) = shape(vector)
    return op.reshape(vector, tuple(size if at == axis else index(1) for at in range(of)))


def as_scalar(x: Expr) -> Expr:
    """A tensor of one element as one of rank 0."""
    return x if rank(x) == 0 else op.reshape(x, ())


def select(x: Expr, at: int, axis: int = 0) -> Expr:
    """One index of x along an axis, without that axis."""
    rest = (*shape(x)[:axis], *shape(x)[axis + 1 :])
    return op.reshape(op.slice(x, (at,), (at + 1,), None, (axis,)), rest)


def standardised(x: Expr, axes: tuple[int, ...], epsilon: float) -> tuple[Expr, Expr, Expr]:
    """x with mean 0 and variance 1, its mean, and the inverse of its deviation."""
    middle = op.mean(x, axis=axes, keepdims=True)
    away = x - middle
    spread = op.mean(op.square(away), axis=axes, keepdims=True)
    inverse = op.rsqrt(spread + like(epsilon, spread))
    return away * inverse, middle, inverse


def whole_power(x: Expr, y: Expr) -> Expr:
    """A power of integers; a negative one is 0 but for 1 and -1, which the parity of y decides."""
    if dtype(x).kind == "uint" or (isinstance(y, Const) and (y.numpy() >= 0).all()):
        return x**y
    is_unit = op.logical_or(op.equal(x, like(1, x)), op.equal(x, like(-1, x)))
    return x ** op.where(is_unit, y % like(2, y), y)


def same_bits(x: Expr, wanted: DType) -> Expr:
    """The numbers that the bits of x are in another dtype of the same width."""
    code = _code(x) if dtype(x).is_float else x
    return op.bits_as(code, dtype=wanted) if wanted.is_float else to(code, wanted)


def _code(x: Expr) -> Expr:
    """The bits of floats as integers; those of 16 bits are found among those of f32."""
    if not dtype(x).is_narrow:
        return op.bits_of(x)
    bits = to(op.bits_of(to(x, f32)), i64)
    high = op.right_shift(bits, like(16, bits))
    if dtype(x).name == "bf16":
        return high
    size = op.bitwise_and(bits, like(0x7FFFFFFF, bits))
    code = op.right_shift(size, like(13, size)) - like(112 << 10, size)  # with the bias of f16
    subnormal = op.cast(op.absolute(to(x, f32)) * like(2.0**24, const(0, f32)), i64)
    endless = op.bitwise_or(op.bitwise_and(code, like(0x3FF, code)), like(0x7C00, code))
    code = op.where(size < like(0x38800000, size), subnormal, code)
    code = op.where(like(0x47800000, size) <= size, endless, code)
    return op.bitwise_or(code, op.bitwise_and(high, like(0x8000, high)))


def is_one(x: Expr) -> bool:
    """Whether x has exactly one element."""
    return all(known(size) == 1 for size in shape(x))


def size_fault(name: str, size: object) -> Diagnostic | None:
    """The diagnostic of a dim's size, or None."""
    place = Place(node=str(name))
    if isinstance(size, bool) or not isinstance(size, int | np.integer):
        message = f"The size of the dim {name!r} is no whole number."
        return Diagnostic(
            "input-type", message, place, "an int", f"{size!r} ({type(size).__name__})"
        )
    if not 0 <= size < BEYOND:
        message = f"The size of the dim {name!r} is {'below 0' if size < 0 else 'too large'}."
        return Diagnostic("input-shape", message, place, f"0 or more, below {BEYOND}", str(size))
    return None
