"""Signs: tensors whose elements are never negative, for any input.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Var
>>> from plica.ir.op.activation import relu
>>> from plica.ir.op.elementwise import subtract
>>> from plica.ir.type.term import tensor
>>> x = Var(Name("x"), tensor((4,), "f32"))
>>> never_negative(relu(x)), never_negative(x), never_negative(subtract(relu(x), relu(x)))
(True, False, False)

An element may be nan, and a zero may have either sign.
"""

from __future__ import annotations

from typing import Final

from plica.ir.graph.expression import Apply, Const, Expr, attr
from plica.rewrite.closed import value_of

FAR: Final = 8
"""As many operators back are looked at."""

ALWAYS: Final = frozenset({
    "absolute", "exp", "exp2", "nn.hard_sigmoid", "nn.relu", "nn.relu6", "nn.sigmoid", "nn.softmax",
    "nn.softplus", "sqrt", "square",
})  # fmt: skip
"""What gives no negative number."""

WITH_ALL: Final = frozenset({
    "add", "broadcast_to", "concat", "expand_dims", "mean", "minimum", "multiply", "nn.avg_pool",
    "nn.flatten", "nn.global_avg_pool", "reshape", "slice", "squeeze", "sum", "transpose",
})  # fmt: skip
"""Operators without negative results for non-negative arguments: moves, sums, averages and
products. The maximum of an empty set is minus infinity, so it is excluded."""


def never_negative(of: Expr, far: int = FAR) -> bool:
    """Whether it is known that no element is below zero."""
    if isinstance(of, Const):
        value = value_of(of)
        return value is not None and not (value < 0).any()
    if not isinstance(of, Apply) or not far:
        return False
    if of.op == "clip":
        low, high = attr(of, "min"), attr(of, "max")
        return low is not None and low >= 0 and (high is None or high >= 0)
    if of.op == "maximum":
        return any(never_negative(each, far - 1) for each in of.args)
    return of.op in ALWAYS or (
        of.op in WITH_ALL and all(never_negative(each, far - 1) for each in of.args)
    )
