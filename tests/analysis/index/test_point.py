"""Values at many points are those of the direct meaning, and never wrap."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from plica.analysis.index import EMPTY
from plica.analysis.index.point import Values, atoms, value as exact, values
from plica.core.diagnostic import CompilerBug
from plica.ir.loop.scalar import Lit, Scalar
from plica.ir.type.dtype import i64
from tests.analysis.index.box import VARIABLES, X, Y, conditions, points, terms, value


@given(terms(4), conditions(3))
def test_agrees(term: Scalar, condition: Scalar) -> None:
    box = list(points(EMPTY, size=2))
    arrays: dict[Scalar, Values] = {
        each: np.array([point[each] for point in box]) for each in VARIABLES
    }
    assert values(term, arrays).tolist() == [value(term, point) for point in box]
    assert values(condition, arrays).astype(int).tolist() == [value(condition, p) for p in box]


def test_nothing_wraps() -> None:
    huge = Lit(2**62, i64)
    assert exact(X * huge * huge // huge, {X: 5}) == 5 * 2**62
    assert values(X * 2, {X: np.array([2**62])}).tolist() == [2**63]


def test_every_atom_needs_a_value() -> None:
    assert atoms(X + Y * 2 - X) == (X, Y)
    with pytest.raises(CompilerBug, match="No value"):
        values(X + Y, {X: np.array([1])})
