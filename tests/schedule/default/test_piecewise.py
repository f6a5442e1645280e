"""Joined tensors mean what they did, and each part is copied by loops of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import plica
from plica import op
from plica.codegen.lower.passes import lower
from plica.core.fold import post_order
from plica.core.name import Name
from plica.ir.graph.expression import Expr, Function, Var
from plica.ir.graph.module import Module, module
from plica.ir.loop.scalar import Select
from plica.ir.loop.stage import Each
from plica.ir.loop.stages import Stages
from plica.ir.type.infer import infer
from plica.ir.type.term import tensor
from plica.rewrite.fuse.to_stages import to_stages
from plica.schedule.default import Machine, default_schedule, formed
from plica.schedule.default.piecewise import pieces_of, piecewise_form, piecewise_schedule
from plica.schedule.form import Facts
from tests.schedule.begun import begun

Array = np.ndarray[Any, Any]
FEW = settings(max_examples=max(4, settings().max_examples // 3))
WIDE = Machine(512, 32)


def variables(shapes: Sequence[tuple[int, ...]], of: str = "f32") -> list[Var]:
    return [Var(Name("x", at), tensor(shape, of)) for at, shape in enumerate(shapes)]


def whole(params: list[Var], body: Expr) -> Module:
    main = Var(Name("main"), None)
    return module({main: Function((), (), tuple(params), None, body)}, main)


@FEW
@given(st.data())
def test_joined_tensors_mean_the_same(data: st.DataObject) -> None:
    draw = data.draw
    axis, row = draw(st.integers(0, 2)), draw(st.integers(1, 70))
    rest = draw(st.integers(8, 20))
    lengths = draw(st.lists(st.integers(1, 40), min_size=2, max_size=5))
    shapes = [tuple(np.roll((n, rest, row), axis).tolist()) for n in lengths]
    xs = variables(shapes)
    body = op.concat(tuple(xs), axis=axis)
    body = op.nn.relu(body) if draw(st.booleans()) else body
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape, np.float32) for shape in shapes]
    made = plica.compile(whole(xs, body), cache=False, threads=draw(st.sampled_from((1, 2))))
    np.testing.assert_array_equal(made(*arrays), plica.interpret(whole(xs, body), *arrays))


PADS: tuple[Literal["constant", "edge", "reflect", "symmetric", "wrap"], ...] = (
    "constant", "edge", "reflect", "symmetric", "wrap",
)  # fmt: skip


@FEW
@given(st.data())
def test_pads_and_repeats_mean_the_same(data: st.DataObject) -> None:
    draw = data.draw
    shape = tuple(draw(st.lists(st.integers(1, 30), min_size=1, max_size=3)))
    x = Var(Name("x"), tensor((*shape, 40), "f32"))
    around = [(draw(st.integers(0, 5)), draw(st.integers(0, 5))) for _ in (*shape, 40)]
    kind, repeats = draw(st.sampled_from(PADS)), draw(st.integers(0, 4)) == 0
    if repeats:
        body = op.tile(x, tuple([draw(st.integers(1, 3)) for _ in around]))
    else:
        body = op.pad(x, tuple(around), mode=kind)
    values = np.random.default_rng(1).standard_normal((*shape, 40)).astype(np.float32)
    made = plica.compile(whole([x], body), cache=False, threads=draw(st.sampled_from((1, 2))))
    np.testing.assert_array_equal(made(values), plica.interpret(whole([x], body), values))
    if not repeats:
        np.testing.assert_array_equal(made(values), np.pad(values, around, mode=kind))


def of_parts(xs: list[Var], body: Expr) -> Stages:
    return to_stages(infer(whole(xs, body)).main_function()).stages


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("row", [5, 16, 40])
def test_no_part_asks_where_it_is(row: int, cores: int) -> None:
    machine = Machine(512, 32, cores=cores)
    xs = variables([(8, 300, row), (24, 300, row), (16, 300, row)])
    of = of_parts(xs, op.concat(tuple(xs), axis=0))
    (only,) = of.stages
    assert isinstance(only, Each)
    assert pieces_of(only) == {0: (8, 24, 16)}
    form = formed(of, Facts((False,) * 3), machine)
    assert form is not None
    made = default_schedule(begun(form.stages, (False,) * 3), machine)
    assert isinstance(made, tuple)
    assert not any(isinstance(node, Select) for node in post_order(lower(made[1]).body))


def test_what_is_not_joined_has_another_form() -> None:
    xs = variables([(64, 64), (64, 64)])
    for body in (
        xs[0] + xs[1],
        op.concat((op.transpose(xs[0], (1, 0)), xs[1]), axis=0),
        op.sum(op.concat((xs[0], xs[1]), axis=0), axis=1),
    ):
        assert piecewise_form(of_parts(xs, body), Machine(512, 32)) is None
    few = variables([(4, 8), (4, 8)])
    assert piecewise_form(of_parts(few, op.concat(tuple(few), axis=0)), Machine(512, 32)) is None


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(3, 301), (64, 40)])
def test_what_is_true_is_joined_as_numbers_are(shape: tuple[int, int], axis: int) -> None:
    """Moved as it lies, and where it is found while it is joined."""
    xs = variables([shape, shape])
    joined = op.concat((op.less(xs[0], xs[1]), op.equal(xs[0], xs[1])), axis=axis)
    flags = variables([shape, shape], "bool")
    x, y = np.random.default_rng(0).integers(0, 3, (2, *shape)).astype(np.float32)
    for of, arrays in (
        (whole(xs, joined), (x, y)),
        (whole(flags, op.concat(tuple(flags), axis=axis)), (x < y, x == y)),
    ):
        made = plica.compile(of, cache=False, threads=1)
        assert np.array_equal(made(*arrays), np.concatenate((x < y, x == y), axis))
        assert " else " not in made.source("kernel")


def test_other_kernels_have_other_schedules() -> None:
    xs = variables([(1, 8, 20, 20)])
    form = formed(of_parts(xs, op.nn.max_pool(xs[0], kernel=3)), Facts((False,)), WIDE)
    assert form is not None
    assert piecewise_schedule(begun(form.stages, (False,)), WIDE) is None


def test_many_tensors_are_joined_part_by_part() -> None:
    """However many there are, none of the parts asks where it is."""
    params = variables([(1, 8, 9, 9)] * 40)
    of = whole(params, op.nn.relu(op.concat(tuple(params), axis=1)))
    compiled = plica.compile(of, cache=False, threads=1)
    arrays = [np.full((1, 8, 9, 9), at - 20, np.float32) for at in range(40)]
    np.testing.assert_array_equal(compiled(*arrays), np.maximum(np.concatenate(arrays, axis=1), 0))
    assert " else " not in compiled.source("kernel")
