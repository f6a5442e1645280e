"""Rows that are read at the same places go together, and hold what they would hold alone."""

from __future__ import annotations

import numpy as np
import pytest

import plica
from plica import op
from plica.core.name import Name
from plica.ir.graph.expression import Expr, Var
from plica.ir.loop.statement import Store
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import f32, i64
from plica.ir.type.term import tensor
from plica.schedule.default.elementwise import MAX_ROWS_TOGETHER, shared_rows
from plica.schedule.default.machine import MIN_ELEMENTS, Machine
from tests.rewrite.packs.layers import of

MACHINE = Machine(512, 32)


def mixed(rows: int, length: int, count: int) -> tuple[Expr, list[Var]]:
    """Two elements of each row, at places and by weights that all rows have."""
    x = Var(Name("x"), tensor((rows, length), "f32"))
    places = [Var(Name(each), tensor((count,), "i64")) for each in ("a", "b")]
    weights = [Var(Name(each), tensor((count,), "f32")) for each in ("v", "w")]
    first, second = (op.take(x, each, axis=1, mode="clip") for each in places)
    return first * weights[0] + second * weights[1], [x, *places, *weights]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rows", [2, 12, 17, 39])
def test_gathered_rows_are_those_of_numpy(rows: int, threads: int) -> None:
    random = np.random.default_rng(rows)
    body, given = mixed(rows, 40, 301)
    made = plica.compile(of(body, *given), cache=False, threads=threads)
    assert ("unrolled" in made.source("kernel")) == (rows != 17)  # which no number but it shares
    x = random.standard_normal((rows, 40)).astype(np.float32)
    places = random.integers(0, 40, (2, 301))
    weights = random.standard_normal((2, 301)).astype(np.float32)
    meant = x[:, places[0]] * weights[0] + x[:, places[1]] * weights[1]
    np.testing.assert_allclose(made(x, *places, *weights), meant, rtol=1e-5, atol=1e-6)


def test_what_is_no_such_row_stays() -> None:
    c, p = axis("c"), axis("p")
    x, at, own, w = (
        buffer("x", (12, 100), f32),
        buffer("at", (50,), i64),
        buffer("own", (12, 50), i64),
        buffer("w", (50,), f32),
    )
    out = buffer("y", (12, 50), f32)

    def together(store: Store) -> int | None:
        found = shared_rows(store, MACHINE)
        return None if found is None else found.together

    assert together(Store(out, (c, p), x[c, at[p]] * w[p])) == 12
    assert together(Store(out, (c, p), x[c, p] * w[p])) is None
    assert together(Store(out, (c, p), x[c, own[c, p]] * w[p])) is None  # places of its own
    assert together(Store(out, (c, p), x[c, at[p]])) is None  # one place to look up
    few = buffer("few", (2, MIN_ELEMENTS // 4), f32)
    assert together(Store(few, (c, p), x[c, at[p]] * w[p])) is None
    many = buffer("many", (5 * MAX_ROWS_TOGETHER, 50), f32)
    assert together(Store(many, (c, p), x[c, at[p]] * w[p])) == MAX_ROWS_TOGETHER
    long = buffer("long", (12, MACHINE.cache(2)), f32)
    assert together(Store(out, (c, p), long[c, at[p]] * w[p])) is None  # no cache holds two
