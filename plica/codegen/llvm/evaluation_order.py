"""Recipes: what of writing some terms does not depend on where they are written, worked out once.

The copies of an unrolled loop write the same terms again and again, for other values of the same
variables.  A recipe is the order of their parts, and how the intervals of indices are found.  A sum
of a product is one part where both are rounded once (`plica.codegen.emit.contraction`).

>>> from plica.core.name import Name
>>> x = ScalarVar(Name("x"), f32)
>>> y = ScalarVar(Name("y"), f32)
>>> added = x + x * y
>>> parts(added, frozenset({added})) == (x, y, x), parts(added, frozenset()) == (x, x * y)
(True, True)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import frozen

from plica.analysis.constant_bound import Bounds, bounds
from plica.codegen.emit.contraction import factors
from plica.codegen.emit.scalar import Order, operands
from plica.codegen.llvm.dialect import literal
from plica.codegen.llvm.lane import LaneValue, constant
from plica.ir.loop import scalar as sc
from plica.ir.loop.scalar import ScalarVar
from plica.ir.type.dtype import f32, i64

__all__ = ["EvaluationOrder", "ScalarVar", "f32", "of_literal", "parts", "recipe"]


@frozen(eq=False)
class EvaluationOrder:
    """The parts of some terms in order, and how their intervals are found."""

    order: Order[LaneValue]
    bounds: Bounds


def parts(node: sc.Scalar, contracted: frozenset[sc.Scalar]) -> tuple[sc.Scalar, ...]:
    """The terms whose values an operation takes; three where it multiplies and adds at once."""
    product = factors(node, contracted)
    return operands(node) if product is None else product


def of_literal(node: sc.Lit) -> LaneValue:
    """The value of a literal."""
    if node.dtype is i64:
        return constant(int(node.value))
    return LaneValue(literal(node.value, node.dtype))


def recipe(roots: Sequence[sc.Scalar], order: Order[LaneValue]) -> EvaluationOrder:
    """The recipe of some terms, whose parts are in order."""
    return EvaluationOrder(order, bounds(_asked(roots, order.numbers)))


def _asked(roots: Sequence[sc.Scalar], nodes: Iterable[sc.Scalar]) -> list[sc.Scalar]:
    """The terms whose intervals matter: indices, and what is compared or divided."""
    found = [root for root in roots if sc.dtype_of(root) is i64]
    for node in nodes:
        if isinstance(node, sc.Load):
            found += node.indices
        elif isinstance(node, (*sc.COMPARISON, sc.FloorDiv, sc.FloorMod)):
            found += [kid for kid in operands(node) if sc.dtype_of(kid).is_integer]
    return found
