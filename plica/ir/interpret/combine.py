"""Declaring a combiner: its laws are tried on many values, by the meaning of tensor expressions.

>>> from plica.ir.type.dtype import i32
>>> combine((i32,), (0,), lambda old, new: (old[0] + new[0],)).joins
(Add(ScalarVar(...), ScalarVar(...)),)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from plica.core import IllTyped, Name
from plica.ir.interpret.array_arithmetic import Array
from plica.ir.interpret.evaluate import evaluate
from plica.ir.loop import scalar as sc
from plica.ir.loop.combiner import Combine
from plica.ir.loop.tensor import buffer, compute
from plica.ir.type import DType, bool_

TRIALS: Final = 512  # on how many triples of values the laws of a combiner are tried


def combine(
    dtypes: Sequence[DType],
    starts: Sequence[sc.Like],
    join: Callable[[tuple[sc.ScalarVar, ...], tuple[sc.ScalarVar, ...]], Sequence[sc.Scalar]],
) -> Combine:
    """A combiner of one or several values; one that breaks a law is refused."""
    old = tuple([sc.ScalarVar(Name("old", at), each) for at, each in enumerate(dtypes)])
    new = tuple([sc.ScalarVar(Name("new", at), each) for at, each in enumerate(dtypes)])
    first = [
        start if isinstance(start, sc.Scalar) else sc.Lit(start, dtype)
        for start, dtype in zip(starts, dtypes, strict=True)
    ]
    made = Combine(tuple(first), old, new, tuple(join(old, new)))
    _try(made, dtypes)
    return made


def _try(of: Combine, dtypes: Sequence[DType]) -> None:
    """Refuse a combiner whose laws fail on some values."""
    source = np.random.default_rng(0)
    names = [
        [buffer(f"{letter}{at}", (TRIALS,), dtype) for at, dtype in enumerate(dtypes)]
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
                shown = ", ".join(str(array[at]) for array in arrays)
                message = f"A combiner breaks a law: {law}."
                raise IllTyped.of("bad-combiner", message, found=f"values {shown}")


def _samples(dtype: DType, source: np.random.Generator) -> Array:
    """Small whole numbers, so that sums of floats are exact."""
    low, high = (0, 2) if dtype is bool_ else (0, 8) if dtype.kind == "uint" else (-8, 8)
    return source.integers(low, high, TRIALS).astype(dtype.numpy)
