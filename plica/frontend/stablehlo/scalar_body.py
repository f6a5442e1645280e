"""Bodies of reductions, scatters and sorts: a function of scalars, applied to whole tensors.

A body is read once, over variables of rank 0.  Terms are hash-consed, so a body is recognised by
identity with the term that Plica's operator would be; any other is applied elementwise to tensors,
which stand for its variables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from attrs import frozen

from plica.core.binding import substitute
from plica.core.fold import post_order
from plica.core.name import Name
from plica.frontend.stablehlo.node import HloNode, dtype_of
from plica.frontend.stablehlo.syntax import MlirRegion
from plica.frontend.word import dtype, shape
from plica.ir.graph.expression import Apply, Const, Expr, Var
from plica.ir.graph.operator import find
from plica.ir.op.namespace import op
from plica.ir.type.term import TensorType

Binary = Callable[[Expr, Expr], Expr]

MONOIDS: Final = ("add", "multiply", "maximum", "minimum", "logical_and", "logical_or")
"""Operators with their own reductions."""

ELEMENTWISE: Final = ("where", "cast", "bits_of", "bits_as")
"""Operators that are elementwise besides those that are declared to be."""


@frozen
class ScalarBody:
    """The variables of a body, and its results."""

    arguments: tuple[Var, ...]
    results: tuple[Expr, ...]

    @property
    def monoid(self) -> str | None:
        """The operator that the body is on its two arguments; None if it is none of `MONOIDS`."""
        if len(self.results) != 1 or len(self.arguments) != 2:
            return None
        (result,), (a, b) = self.results, self.arguments
        for name in MONOIDS:
            if name.startswith("logical") != (dtype(a).name == "bool"):
                continue
            if result is getattr(op, name)(a, b) or result is getattr(op, name)(b, a):
                return name
        return None

    def on(self, *tensors: Expr) -> tuple[Expr, ...]:
        """The results where tensors stand for the arguments."""
        values = dict(zip(self.arguments, tensors, strict=True))
        form = max([shape(tensor) for tensor in tensors], key=len)
        return tuple([_spread(substitute(result, values), form) for result in self.results])

    def selects(self, which: int) -> bool:
        """Whether the only result is an argument as it was."""
        return self.results == (self.arguments[which],)


def scalar_body(node: HloNode, region: MlirRegion | None = None) -> ScalarBody:
    """The body of an operation; only elementwise bodies are supported."""
    of = node.op.regions[0] if region is None else region
    arguments = tuple([
        Var(Name(f"scalar_{at}", node.serial), TensorType((), dtype_of(node.op, mlir_type)))
        for at, (_, mlir_type) in enumerate(of.arguments)
    ])  # fmt: skip
    results = tuple(node.inside(of, arguments))
    for each in post_order(*results):
        if isinstance(each, Expr) and not isinstance(each, Var | Const):
            record = find(each.op) if isinstance(each, Apply) else None
            known = record is not None and (record.pointwise or record.name in ELEMENTWISE)
            if not known or shape(each):
                node.unsupported("The body is not a function of scalars.", "elementwise operations")
    return ScalarBody(arguments, results)


def _spread(x: Expr, form: Sequence[object]) -> Expr:
    """A result that depends on no argument, for every place."""
    return x if len(shape(x)) == len(form) else op.broadcast_to(x, tuple(form))
