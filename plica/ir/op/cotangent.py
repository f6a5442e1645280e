"""Words of gradients: the terms that pullbacks of many operators are made of.

A pullback refers to operators of other files, some of which need its own; `word` looks them up at
run time, when all are loaded.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Var
>>> from plica.ir.type.term import tensor
>>> d = Var(Name("d"), tensor((2, 3), "f32"))
>>> unbroadcast(d, tensor((2, 3), "f32"), tensor((3,), "f32")).op
'sum'
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from plica.core import CompilerBug
from plica.ir.graph.expression import Expr
from plica.ir.graph.operator import find
from plica.ir.loop.scalar import Scalar, index
from plica.ir.type import TensorType, known


def word(name: str) -> Callable[..., Expr]:
    """An operator by its name, found when it is used."""

    # Any: an operator's arguments.
    def applied(*args: Any, **attributes: Any) -> Expr:
        if (record := find(name)) is None:
            raise CompilerBug(f"A gradient uses the operator {name}, which does not exist.")
        return record(*args, **attributes)

    return applied


broadcast_to: Final = word("broadcast_to")
equal: Final = word("equal")
logical_xor: Final = word("logical_xor")
pad: Final = word("pad")
reshape: Final = word("reshape")
slice_: Final = word("slice")
sum_: Final = word("sum")
transpose: Final = word("transpose")
where: Final = word("where")
zeros: Final = word("zeros")


def unbroadcast(value: Expr, whole: TensorType, to: TensorType) -> Expr:
    """A cotangent of the shape `whole`, summed over the axes along which `to` was repeated."""
    extra = len(whole.shape) - len(to.shape)
    pairs = zip(whole.shape[extra:], to.shape, strict=True)
    stretched = [at for at, (a, b) in enumerate(pairs, extra) if known(b) == 1 and known(a) != 1]
    axes = (*range(extra), *stretched)
    if not axes:
        return value
    total = sum_(value, axis=axes)
    return reshape(total, to.shape) if stretched else total


def spread_back(value: Expr, shape: Sequence[Scalar], axes: Sequence[int]) -> Expr:
    """A value without some axes, with or without ones in their place, repeated along them."""
    kept = tuple(index(1) if at in axes else size for at, size in enumerate(shape))
    return broadcast_to(reshape(value, kept), tuple(shape))
