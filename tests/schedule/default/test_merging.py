"""Merged runs: the order of a stable sort, whatever is made of places where they are found."""

from __future__ import annotations

import numpy as np
import pytest

import plica
from plica import op
from plica.core.name import Name
from plica.ir.graph.expression import Expr, Project, Var
from plica.ir.loop.scalar import Lt, Select
from plica.ir.loop.stage import ExternStage, stage
from plica.ir.loop.stages import stages
from plica.ir.loop.tensor import buffer
from plica.ir.op.order import merged_place
from plica.ir.type.dtype import f32, i64
from plica.ir.type.term import tensor
from plica.schedule.default.machine import Machine
from plica.schedule.default.merging import merging_form
from tests.ir.reference.order import argsort
from tests.rewrite.packs.layers import of

MACHINE = Machine(512, 32)


@pytest.mark.parametrize(
    ("rows", "size", "kept", "descending"),
    [(1, 257, 257, False), (3, 200, 150, True), (1, 992, 991, True)],
)
def test_no_place_is_searched_for_by_itself(
    rows: int, size: int, kept: int, descending: bool
) -> None:
    """Where runs fill no pair, and where the first of all are taken alone."""
    x = Var(Name("x"), tensor((rows, size), "f32"))
    body: Expr = Project(op.topk(x, k=kept, largest=descending), 1)
    made = plica.compile(of(body, x), cache=False, threads=1)
    random = np.random.default_rng(size)
    given = random.integers(-40, 40, (rows, size)).astype(np.float32)
    for wild in (np.nan, np.inf, -np.inf):
        given[random.random(given.shape) < 0.05] = wild
    assert np.array_equal(made(given), argsort(given, -1, descending)[:, :kept])
    kernels = made.source("kernel").split("@plica.kernel")
    merging = [each for each in kernels if "merge_runs" in each]
    assert merging
    assert all("both" in each for each in merging)


def test_what_is_read_at_a_place_is_read_where_the_place_is_found() -> None:
    x, held = buffer("x", (3, 100), f32), buffer("held", (3, 100), i64)
    fused = stage("y", (3, 90), lambda r, k: held[r, merged_place(x, (r, k), 16, False)])
    found = merging_form(stages((x, held), (fused,)), MACHINE)
    assert found is not None
    assert isinstance(found.stages[0], ExternStage)


def test_other_stages_have_other_forms() -> None:
    x, held = buffer("x", (3, 100), f32), buffer("held", (3, 100), i64)
    plain = stage("y", (3, 100), lambda r, k: held[r, k])
    longer = stage("y", (3, 120), lambda r, k: held[r, merged_place(x, (r, k), 16, False)])
    other = stage("y", (2, 100), lambda r, k: held[r, merged_place(x, (r, k), 16, False)])
    for each in (plain, longer, other):
        assert merging_form(stages((x, held), (each,)), MACHINE) is None


def test_a_number_beside_rows_is_no_row() -> None:
    """A stage that reads a scalar is asked for its rows as any other."""
    x, n = buffer("x", (4, 8), f32), buffer("n", (), i64)
    beside = stage("y", (4, 8), lambda i, j: Select(Lt(n[()], j), x[i, j], x[i, j] + x[i, j]))
    assert merging_form(stages((n, x), (beside,)), Machine(128, 32)) is None
