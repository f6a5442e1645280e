"""Recipes: what of writing some terms does not depend on where they are written, worked out once.

The copies of an unrolled loop write the same terms again and again, for other values of the same
variables.  A recipe is the order of their parts, and how the intervals of indices are found.  A sum
of a product is one part where both may be rounded once.

>>> from plica.core.name import Name
>>> x = ScalarVar(Name("x"), f32)
>>> parts(x * x + x, True) == (x, x, x), parts(x * x + x, False) == (x * x, x)
(True, True)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import frozen

from plica.codegen.emit.order import Order, operands
from plica.codegen.llvm.lane import Value, constant
from plica.codegen.llvm.word import literal
from plica.codegen.lower.bound import Bounds, bounds
from plica.ir.dtype import f32, f64, i64
from plica.ir.scalar import (
    COMPARISON,
    Add,
    FloorDiv,
    FloorMod,
    Lit,
    Load,
    Mul,
    Scalar,
    ScalarVar,
    Sub,
    dtype_of,
)

__all__ = ["Recipe", "ScalarVar", "factors", "of_literal", "parts", "recipe"]


@frozen(eq=False)
class Recipe:
    """The parts of some terms in order, and how their intervals are found."""

    order: Order[Value]
    bounds: Bounds


def factors(node: Scalar, fused: bool) -> tuple[Scalar, Scalar, Scalar] | None:
    """The factors and the other side of a sum or difference that may be rounded once."""
    if not fused or not isinstance(node, Add | Sub) or dtype_of(node) not in (f32, f64):
        return None
    if isinstance(node.right, Mul):
        return node.right.left, node.right.right, node.left
    if isinstance(node.left, Mul):
        return node.left.left, node.left.right, node.right
    return None


def parts(node: Scalar, fused: bool) -> tuple[Scalar, ...]:
    """The terms whose values an operation takes; three where it multiplies and adds at once."""
    product = factors(node, fused)
    return operands(node) if product is None else product


def of_literal(node: Lit) -> Value:
    """The value of a literal."""
    if node.dtype is i64:
        return constant(int(node.value))
    return Value(literal(node.value, node.dtype))


def recipe(roots: Sequence[Scalar], order: Order[Value]) -> Recipe:
    """The recipe of some terms, whose parts are in order."""
    return Recipe(order, bounds(_asked(roots, order.numbers)))


def _asked(roots: Sequence[Scalar], nodes: Iterable[Scalar]) -> list[Scalar]:
    """The terms whose intervals matter: indices, and what is compared or divided."""
    found = [root for root in roots if dtype_of(root) is i64]
    for node in nodes:
        if isinstance(node, Load):
            found += node.indices
        elif isinstance(node, (*COMPARISON, FloorDiv, FloorMod)):
            found += [kid for kid in operands(node) if dtype_of(kid).is_integer]
    return found
