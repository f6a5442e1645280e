"""Combiners: what a reduction starts from, and how it joins two values.

The built-in ones are words (`Combiner` in `plica.ir.loop.scalar`) with a table of meanings.
Others are
`Combine` terms, over several values at once where need be, such as the greatest value and where it
stands.  Their laws (the start changes nothing, order and grouping do not matter) are tried on many
values when they are declared: loops may be reordered because they hold.

>>> from plica.ir.type.dtype import i32
>>> least, join = MEANING["max"]
>>> least(i32), join(sc.Lit(1, i32), sc.Lit(2, i32))
(Lit(-2147483648, DType('i32')), Max(Lit(1, DType('i32')), Lit(2, DType('i32'))))
>>> combine((i32,), (0,), lambda old, new: (old[0] + new[0],)).joins
(Add(ScalarVar(...), ScalarVar(...)),)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import frozen

from plica.core.binding import substitute
from plica.core.diagnostic import IllTyped, ill_formed
from plica.core.name import Name
from plica.core.term import Term
from plica.ir.loop import scalar as sc
from plica.ir.loop.tensor import buffer, compute
from plica.ir.type.dtype import DType, bool_
from plica.runtime.error import Diagnostic
from plica.runtime.late import late

if TYPE_CHECKING:
    from plica.ir.interpret.evaluate import evaluate
    from plica.ir.interpret.value import Array
else:
    evaluate = late("plica.ir.interpret.evaluate:evaluate")

WRITTEN = "ir.combiner"  # the path that its terms are written down under

TRIALS: Final = 512
"""On how many triples of values the laws of a combiner are tried."""


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
        if not dtypes[0] or any(each != dtypes[0] for each in dtypes):
            raise ill_formed("A combiner has as many starts, joins and values, of equal dtypes.")
        return starts, old, new, joins

    def joined(self, old: Sequence[sc.Scalar], new: Sequence[sc.Scalar]) -> tuple[sc.Scalar, ...]:
        """What the values become together."""
        values = dict(zip((*self.old, *self.new), (*old, *new), strict=True))
        return tuple([substitute(each, values) for each in self.joins])


def combine(
    dtypes: Sequence[DType],
    starts: Sequence[sc.Like],
    join: Callable[[tuple[sc.ScalarVar, ...], tuple[sc.ScalarVar, ...]], Sequence[sc.Scalar]],
) -> Combine:
    """A combiner of one or several values; one that breaks a law is refused."""
    old = tuple([sc.ScalarVar(Name("old", at), each) for at, each in enumerate(dtypes)])
    new = tuple([sc.ScalarVar(Name("new", at), each) for at, each in enumerate(dtypes)])
    first = [
        each if isinstance(each, sc.Scalar) else sc.Lit(each, dtype)
        for each, dtype in zip(starts, dtypes, strict=True)
    ]
    made = Combine(tuple(first), old, new, tuple(join(old, new)))
    _try(made, dtypes)
    return made


def _try(of: Combine, dtypes: Sequence[DType]) -> None:
    """Refuse a combiner whose laws fail on some values."""
    source = np.random.default_rng(0)
    names = [
        [buffer(f"{letter}{at}", (TRIALS,), each) for at, each in enumerate(dtypes)]
        for letter in "abc"
    ]
    arrays = [_samples(each.dtype, source) for row in names for each in row]

    def values(terms: Callable[[sc.Scalar], Sequence[sc.Scalar]]) -> list[Array]:
        inputs = [each for row in names for each in row]
        count = len(dtypes)
        return [
            evaluate(compute(inputs, (TRIALS,), lambda i, at=at: terms(i)[at]), arrays)
            for at in range(count)
        ]

    def row(at: int, i: sc.Scalar) -> list[sc.Scalar]:
        return [each[i] for each in names[at]]

    laws: tuple[
        tuple[str, Callable[[sc.Scalar], Sequence[sc.Scalar]], Callable[..., object]], ...
    ] = (
        (
            "the start changes nothing",
            lambda i: of.joined(of.starts, row(0, i)),
            lambda i: row(0, i),
        ),
        (
            "order does not matter",
            lambda i: of.joined(row(0, i), row(1, i)),
            lambda i: of.joined(row(1, i), row(0, i)),
        ),
        (
            "grouping does not matter",
            lambda i: of.joined(of.joined(row(0, i), row(1, i)), row(2, i)),
            lambda i: of.joined(row(0, i), of.joined(row(1, i), row(2, i))),
        ),
    )
    for law, left, right in laws:
        for ours, theirs in zip(values(left), values(right), strict=True):  # type: ignore[arg-type]  # each law has its own arity
            if not np.array_equal(ours, theirs):
                at = int(np.argmax(ours != theirs))
                shown = ", ".join(str(each[at]) for each in arrays)
                message = f"A combiner breaks a law: {law}."
                raise IllTyped(Diagnostic("bad-combiner", message, found=f"values {shown}"))


def _samples(dtype: DType, source: np.random.Generator) -> Array:
    """Small whole numbers, so that sums of floats are exact."""
    low, high = (0, 2) if dtype is bool_ else (0, 8) if dtype.kind == "uint" else (-8, 8)
    return source.integers(low, high, TRIALS).astype(dtype.numpy)


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
