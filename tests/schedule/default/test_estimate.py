"""What is told of contractions before a form is chosen."""

from __future__ import annotations

import math

import pytest

from plica.ir.loop.scalar import Le, Lit, Scalar, Select, index
from plica.ir.loop.stage import placeholder, stage
from plica.ir.loop.stages import stages
from plica.ir.loop.tensor import reduce
from plica.ir.type.dtype import f32
from plica.schedule.default.contraction import Contraction, contraction
from plica.schedule.default.estimate import slides
from plica.schedule.default.machine import Machine

MASKED, PLAIN = Machine(vector=512, registers=32), Machine(vector=128, registers=32)


def pool(terms: int, apart: int, before: int) -> Contraction:
    """The greatest of windows along rows, a given number of places of which may lie before a
    row."""
    x = placeholder("x", (16, 1000), f32)

    def term(row: Scalar, at: Scalar) -> Scalar:
        inside = Le(index(0), at)
        return Select(inside, x[row, at], Lit(-math.inf, f32)) if before else x[row, at]

    made = stage(
        "y", (16, (1000 - terms) // apart),
        lambda i, j: reduce("max", (terms,), lambda k: term(i, j * apart + k - before)),
    )  # fmt: skip
    found = contraction(stages((x,), (made,)))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("terms", "apart", "before", "plain", "masked"),
    [
        (3, 2, 0, True, True),
        (3, 2, 1, True, True),
        (4, 3, 0, False, False),
        (4, 3, 1, True, False),  # each would be asked for in each window
        (5, 4, 2, True, False),
        (6, 5, 1, False, False),  # read one by one either way
        (9, 4, 1, False, False),  # several vectors of a row
        (3, 3, 1, False, False),  # nothing in common
    ],
)
def test_lanes_are_places_or_terms(
    terms: int, apart: int, before: int, plain: bool, masked: bool
) -> None:
    of = pool(terms, apart, before)
    assert (slides(of, PLAIN), slides(of, MASKED)) == (plain, masked)
