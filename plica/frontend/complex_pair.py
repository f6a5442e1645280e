"""Complex numbers as pairs of tensors, and their transforms, for every front end that has them."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from plica.frontend.fourier import Refuses, transformed
from plica.frontend.word import dtype, like, shape
from plica.ir.graph.expression import Expr
from plica.ir.loop.scalar import index
from plica.ir.op.namespace import op
from plica.ir.type import product


class Complex(NamedTuple):
    """A tensor of complex numbers: two tensors of one type; the second may be left out for 0."""

    real: Expr
    imag: Expr | None

    def both(self) -> tuple[Expr, Expr]:
        """The parts, each a tensor."""
        if self.imag is not None:
            return self.real, self.imag
        return self.real, op.full(shape=shape(self.real), value=0, dtype=dtype(self.real))


def sum_of(a: Expr | None, b: Expr | None, minus: bool = False) -> Expr | None:
    """A sum or difference in which missing operands are 0."""
    if b is None:
        return a
    if a is None:
        return -b if minus else b
    return a - b if minus else a + b


def product_of(a: Expr | None, b: Expr | None) -> Expr | None:
    """A product in which missing operands are 0."""
    return None if a is None or b is None else a * b


def paired(real: Expr | None, imag: Expr | None) -> Complex:
    """A pair of parts, broadcast to one shape."""
    assert real is not None
    if imag is not None and shape(imag) != shape(real):
        whole = shape(real + imag)
        nothing = op.full(shape=whole, value=0, dtype=dtype(real))
        real, imag = real + nothing, imag + nothing
    return Complex(real, imag)


def multiply(x: Complex, y: Complex) -> Complex:
    """The product."""
    (a, b), (c, d) = x, y
    real = sum_of(product_of(a, c), product_of(b, d), minus=True)
    return paired(real, sum_of(product_of(a, d), product_of(b, c)))


def divide(x: Complex, y: Complex) -> Complex:
    """A quotient by the larger part of the divisor first, so that nothing overflows."""
    (a, b), (c, d) = x, y
    if d is None:
        return paired(a / c, None if b is None else b / c)
    b = like(0, a) if b is None else b
    wide = op.absolute(c) >= op.absolute(d)
    large, small = op.where(wide, c, d), op.where(wide, d, c)
    zero = op.equal(large, like(0, large))
    # Nothing is divided by 0 but the parts at the end.
    divisor = op.where(zero, like(1, large), large)
    ratio = small / divisor
    below = op.where(zero, like(0, large), divisor + small * ratio)
    real = op.where(wide, a + b * ratio, a * ratio + b)
    imag = op.where(wide, b - a * ratio, b * ratio - a)
    return paired(real / below, imag / below)


def exponential(x: Complex) -> Complex:
    """e to the power of x."""
    real, imag = x.both()
    size = op.exp(real)
    return Complex(size * op.cos(imag), size * op.sin(imag))


def hypotenuse(one: Expr, other: Expr) -> Expr:
    """The root of a sum of squares, which neither overflows nor vanishes before its root."""
    x, y = op.absolute(one), op.absolute(other)
    large, small = op.maximum(x, y), op.minimum(x, y)
    ratio = small / large
    root = large * op.sqrt(ratio * ratio + like(1, ratio))
    # 0 / 0 and inf / inf are no ratios; an infinite side counts for more than nan.
    whole = op.where(op.equal(large, like(0, large)), large, root)
    endless = like(math.inf, large)
    return op.where(op.logical_or(op.equal(x, endless), op.equal(y, endless)), endless, whole)


Way = Literal["forwards", "backwards", "real"]
"""Forwards, backwards, or backwards from half a spectrum to real numbers."""


def transformed_along(
    node: Refuses, x: Complex, axis: int, *, bins: int, length: int, way: Way
) -> Complex:
    """Fourier transforms of a length along an axis."""
    sizes = shape(x.real)
    before, behind = product(sizes[:axis]), product(sizes[axis + 1 :])
    given = x.both() if way == "real" or x.imag is not None else (x.real,)
    flat = [op.reshape(each, (before, 1, sizes[axis], behind)) for each in given]
    parts = flat[0] if len(flat) == 1 else op.reshape(
        op.stack((flat[0], flat[1]), axis=1), (before, 2, sizes[axis], behind)
    )  # fmt: skip
    expr = transformed(node, parts, index(length), index(bins),
                       inverse=way != "forwards", halved=way == "real")  # fmt: skip
    wanted = (*sizes[:axis], bins, *sizes[axis + 1 :])
    exprs = [
        op.reshape(op.slice(expr, (at,), (at + 1,), None, (1,)), wanted)
        for at in range(1 if way == "real" else 2)
    ]
    return Complex(exprs[0], exprs[1] if len(exprs) == 2 else None)
