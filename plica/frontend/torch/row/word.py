"""Words that rows are written with: how torch brings operands to one type.

Torch computes 16-bit floats in f32 and rounds once at the end; in type promotion Python numbers
have lower priority than tensors. Both are taken from torch itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from plica.frontend.measured import amount
from plica.frontend.torch.dtype import dtype_of
from plica.frontend.torch.node import Made, TorchNode
from plica.frontend.word import dtype, like
from plica.ir.graph.expression import Expr, const
from plica.ir.loop.scalar import Scalar
from plica.ir.op.namespace import op
from plica.ir.type.dtype import DType

Row: TypeAlias = Callable[[TorchNode], Made]


def casted(x: Expr, wanted: DType) -> Expr:
    """x in a dtype, as torch converts: every number but 0 is true, and nan is."""
    if dtype(x) is wanted:
        return x
    if wanted.name == "bool":
        return op.not_equal(x, like(0, x))
    return op.cast(x, wanted)


def constant(node: TorchNode, value: Any, of: DType) -> Expr:  # Any: a number of Python
    """A number as a scalar tensor, if representable; sizes are numbers, and values computed from
    sizes are tensors already."""
    if isinstance(value, Scalar):
        return casted(amount(value), of)
    if isinstance(value, Expr):
        return casted(value, of)
    if not isinstance(value, bool | int | float):
        message = f"{node.kind} takes a number that is only known when the program runs."
        node.unsupported(message, "a number", type(value).__name__)
    whole = of.is_integer or of.name == "bool"
    if whole and (value != int(value) or not of.bounds[0] <= value <= of.bounds[1]):
        node.unsupported(f"{node.kind} takes a number that its type cannot hold.", str(of),
                         str(value))  # fmt: skip
    return const(np.asarray(value).astype(of.numpy), of)


def computation(node: TorchNode, names: Sequence[str], kind: str = "DEFAULT") -> DType:
    """The type in which torch computes on these arguments."""
    from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

    metas = [node.meta(name) for name in names if node.meta(name) is not None]
    inner, _ = elementwise_dtypes(
        *metas, type_promotion_kind=getattr(ELEMENTWISE_TYPE_PROMOTION_KIND, kind)
    )
    if (found := dtype_of(inner)) is None:
        node.unsupported(f"{node.kind} computes in a type that Plica does not have.", None,
                         str(inner))  # fmt: skip
    return found


def operand(node: TorchNode, name: str, of: DType) -> Expr:
    """An argument, a tensor or a number, in a type."""
    return constant(node, node.argument(name), of)


def operands(node: TorchNode, *names: str, kind: str = "DEFAULT") -> list[Expr]:
    """Arguments in the type in which torch computes on them."""
    of = computation(node, names, kind)
    return [operand(node, name, of) for name in names]


def opmath(of: DType) -> DType:
    """The type in which torch computes on numbers of a type."""
    return DType("f32") if of.is_narrow else of


def where_defined(pole: Expr, x: Expr, function: Callable[[Expr], Expr], instead: Expr) -> Expr:
    """`function(x)`, and `instead` at poles, with a zero gradient there.

    A `where` around the function alone would leave 0 times an infinite slope in the gradient.
    """
    return op.where(pole, instead, function(op.where(pole, like(1, x), x)))


def root_of_sum(total: Expr, root: Callable[[Expr], Expr]) -> Expr:
    """The root of a sum of magnitudes, with the gradient 0 where all of them are 0, as in torch."""
    return where_defined(op.equal(total, like(0, total)), total, root, total)


def both(name: str, row: Row) -> dict[str, Row]:
    """A row for an operator on two tensors and for the one on a tensor and a number."""
    return {f"{name}.Tensor": row, f"{name}.Scalar": row}
