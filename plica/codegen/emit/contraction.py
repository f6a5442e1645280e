"""Contraction: which terms are one instruction, or a few that ask less than each for itself.

Products are rounded together with the sum they are added to (fma); a float that is rounded, shifted
and clamped becomes a small integer directly (`nearest_integer`), and a float again if requested. In
a loop with the note `small` every integer conversion does (`small_parts`).

An accumulation is: a running sum of products of two different factors.  Nothing else is, whatever
a contract allows.  `a * b - c * d` rounded once on one side only is not zero where both products
are equal, and a variance below zero has no root: nan where the definition says 0 is outside every
tolerance.  For the same reason squares are rounded before they are summed, so that the mean of
equal squares is that square.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, y, total = (buffer(name, (4,), f32) for name in ("x", "y", "total"))
>>> i = axis("i")
>>> accumulations(total, total[0] + x[i] * y[i]) == {total[0] + x[i] * y[i]}
True
>>> accumulations(total, x[i] + x[i] * y[i]), accumulations(total, total[0] + x[i] * x[i])
(frozenset(), frozenset())
"""

from __future__ import annotations

from math import floor
from typing import Final, Literal

from attrs import evolve, frozen

from plica.ir.loop import scalar as sc
from plica.ir.type import f32, f64, i32

SMALL: Final = "small"  # the note of a loop in which rounded integers are below 2^22 in magnitude


def accumulations(buffer: sc.Buffer, value: sc.Scalar) -> frozenset[sc.Scalar]:
    """The sums in a stored value that add a product to the stored element."""
    scalars: set[sc.Scalar] = set()
    at = value
    while isinstance(at, sc.Add) and sc.dtype_of(at) in (f32, f64):
        left_runs = not isinstance(at.left, sc.Mul)
        so_far, added = (at.left, at.right) if left_runs else (at.right, at.left)
        if is_product(added):
            scalars.add(at)
        at = so_far
    # A sum whose first term is not the stored element is no accumulation.
    return frozenset(scalars) if isinstance(at, sc.Load) and at.buffer is buffer else frozenset()


def products(buffer: sc.Buffer, value: sc.Scalar) -> frozenset[sc.Scalar]:
    """The products that a stored value adds to its element."""
    sums = [each for each in accumulations(buffer, value) if isinstance(each, sc.Add)]
    return frozenset([add.left if isinstance(add.left, sc.Mul) else add.right for add in sums])


def factors(
    node: sc.Scalar, contracted: frozenset[sc.Scalar]
) -> tuple[sc.Scalar, sc.Scalar, sc.Scalar] | None:
    """The factors and the other side of a sum that is rounded once."""
    if node not in contracted or not isinstance(node, sc.Add):
        return None
    product, so_far = (
        (node.left, node.right) if isinstance(node.left, sc.Mul) else (node.right, node.left)
    )
    assert isinstance(product, sc.Mul)
    return product.left, product.right, so_far


def summed_factors(node: sc.Reduce) -> tuple[sc.Scalar, sc.Scalar] | None:
    """The factors whose products a reduction adds, each rounded with its sum."""
    body = node.body
    if node.combiner == "sum" and isinstance(body, sc.Mul) and is_product(body):
        return body.left, body.right
    return None


def is_product(node: sc.Scalar) -> bool:
    """Whether a term is a product of floats, and no square."""
    return (
        isinstance(node, sc.Mul) and node.left is not node.right and sc.dtype_of(node) in (f32, f64)
    )


MAX_EXACT_BITS: Final = 16  # integers up to this many bits are exact floats, and so are their sums


@frozen(eq=False)
class NearestInteger:
    """A float that is rounded, shifted by a zero point, and clamped to an 8- or 16-bit integer:
    `cast(min(max(round(value) + zero, low), high))`; or only clamped."""

    value: sc.Scalar
    zero: int
    low: int
    high: int
    rounds: bool
    """Whether the value is rounded to the nearest; else it is cut off towards zero."""
    restored: int | None = None
    """The offset added before converting back to float; None if it stays an integer."""


def nearest_integer(node: sc.Scalar) -> NearestInteger | None:
    """The quantisation, or direct dequantisation, that a node computes, or None."""
    if not isinstance(node, sc.Cast):
        return None
    if node.dtype is f32:
        return _restored_integer(node.value)
    if not node.dtype.is_integer or node.dtype.bits > MAX_EXACT_BITS:
        return None
    if (bounds := held_within(node)) is None:
        return None
    value, low, high = bounds
    if low > high or sc.dtype_of(value) is not f32:
        return None
    moved, zero = value, 0
    match value:
        case sc.Add(inside, sc.Lit(number)) | sc.Add(sc.Lit(number), inside):
            if number == floor(number) and abs(number) < 1 << MAX_EXACT_BITS:
                moved, zero = inside, int(number)
        case _:
            pass
    match moved:
        case sc.Intrinsic("round", (inside,)):
            return NearestInteger(inside, zero, low, high, rounds=True)
        case _:
            return NearestInteger(value, 0, low, high, rounds=False)


def held_within(node: sc.Cast) -> tuple[sc.Scalar, int, int] | None:
    """The operand of an integer conversion, and the integral bounds it is clamped to."""
    low: float
    high: float
    low, high = node.dtype.bounds
    value: sc.Scalar = node.value
    for kind in (sc.Min, sc.Max):
        if not isinstance(value, kind):
            return None
        inside, bound = (value.left, value.right)
        if isinstance(inside, sc.Lit):
            inside, bound = bound, inside
        if not isinstance(bound, sc.Lit) or bound.value != floor(bound.value):
            return None
        low, high = (
            (low, min(high, bound.value)) if kind is sc.Min else (max(low, bound.value), high)
        )
        value = inside
    return value, int(low), int(high)


def _restored_integer(of: sc.Scalar) -> NearestInteger | None:
    """The operand of a conversion back to float: a nearest integer, or `i32(integer) + number`."""
    added = 0
    match of:
        case sc.Add(sc.Cast() as inside, sc.Lit(int(number))) | sc.Add(
            sc.Lit(int(number)), sc.Cast() as inside
        ):
            of, added = inside, number
        case sc.Sub(sc.Cast() as inside, sc.Lit(int(number))):
            of, added = inside, -number
        case _:
            pass
    if isinstance(of, sc.Cast) and of.dtype is i32:
        of = of.value
    elif added:
        return None  # a sum of small integers wraps around
    if not isinstance(of, sc.Cast) or of.dtype is f32 or abs(added) >= 1 << MAX_EXACT_BITS:
        return None
    integer = nearest_integer(of)
    return evolve(integer, restored=added) if integer is not None and integer.rounds else None


def small_integer(node: sc.Scalar) -> sc.Scalar | None:
    """The float that a loop with the note `small` makes an integer; None for another term."""
    match node:
        case sc.Cast(sc.Cast(sc.Intrinsic("round", (value,)), inner), outer) if (
            inner is i32 and outer.is_integer and outer.bits <= MAX_EXACT_BITS
        ):
            return value
        case _:
            return None


def bounded(node: sc.Scalar) -> tuple[Literal["max", "min"], sc.Scalar, sc.Scalar] | None:
    """A value clamped on one side to a constant, with NaN mapped to the bound; None for other
    terms."""
    match node:
        case sc.Select(sc.Lt(a, b), c, d) if b is c and a is d:
            return "max", b, a
        case sc.Select(sc.Lt(a, b), c, d) if a is c and b is d:
            return "min", a, b
        case _:
            return None


def small_parts(node: sc.Scalar) -> tuple[sc.Scalar, ...] | None:
    """The operand terms of such an operation, or None for ordinary ones."""
    if (value := small_integer(node)) is not None:
        return (value,)
    return None if (found := bounded(node)) is None else found[1:]
