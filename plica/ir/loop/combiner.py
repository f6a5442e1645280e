"""Combiners: the identity of a reduction, and how it joins two values.

Built-in combiners are names (`Combiner` in `plica.ir.loop.scalar`) with a table of meanings. Others
are `Combine` terms, over several values at once if needed, such as a maximum and its index. Loops
may be reordered because combiners are commutative monoids: `plica.ir.interpret.combine` tests the
laws on many values.

>>> from plica.ir.type.dtype import i32
>>> least, join = MEANING["max"]
>>> least(i32), join(sc.Lit(1, i32), sc.Lit(2, i32))
(Lit(-2147483648, DType('i32')), Max(Lit(1, DType('i32')), Lit(2, DType('i32'))))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from attrs import frozen

from plica.core import Term, ill_formed, substitute
from plica.ir.loop import scalar as sc
from plica.ir.type.dtype import DType, bool_

WRITTEN = "ir.combiner"  # the path that its terms are written down under


@frozen(eq=False)
class Combine(Term):
    """From `starts`, the values `old` are joined with `new` ones by `joins`, all at once."""

    binds = (("old", ("joins",)), ("new", ("joins",)))
    starts: tuple[sc.Scalar, ...]
    old: tuple[sc.ScalarVar, ...]
    new: tuple[sc.ScalarVar, ...]
    joins: tuple[sc.Scalar, ...]

    @staticmethod
    def normal(
        starts: tuple[sc.Scalar, ...],
        old: tuple[sc.ScalarVar, ...],
        new: tuple[sc.ScalarVar, ...],
        joins: tuple[sc.Scalar, ...],
    ) -> tuple[tuple[Term, ...], ...]:
        dtypes = [[sc.dtype_of(each) for each in part] for part in (starts, old, new, joins)]
        if not dtypes[0] or any(dtype != dtypes[0] for dtype in dtypes):
            raise ill_formed("A combiner has as many starts, joins and values, of equal dtypes.")
        return starts, old, new, joins

    def joined(self, old: Sequence[sc.Scalar], new: Sequence[sc.Scalar]) -> tuple[sc.Scalar, ...]:
        """The combined values."""
        values = dict(zip((*self.old, *self.new), (*old, *new), strict=True))
        return tuple([substitute(join, values) for join in self.joins])


def _least(of: DType) -> sc.Scalar:
    return sc.Lit(float("-inf") if of.is_float else of.bounds[0], of)


def _greatest(of: DType) -> sc.Scalar:
    return sc.Lit(float("inf") if of.is_float else of.bounds[1], of)


MEANING: Final[
    dict[
        sc.Combiner,
        tuple[Callable[[DType], sc.Scalar], Callable[[sc.Scalar, sc.Scalar], sc.Scalar]],
    ]
] = {
    "sum": (lambda of: sc.Lit(0, of), sc.Add),
    "prod": (lambda of: sc.Lit(1, of), sc.Mul),
    "max": (_least, sc.Max),
    "min": (_greatest, sc.Min),
    "all": (lambda _: sc.Lit(True, bool_), sc.And),
    "any": (lambda _: sc.Lit(False, bool_), sc.Or),
}
"""Each word's identity at a dtype, and how it joins two values."""
