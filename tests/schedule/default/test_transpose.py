"""Transposes by squares mean what they did, whatever is left at the ends."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import plica
from plica import op
from plica.core.digest import digest
from plica.core.name import Name
from plica.ir.graph.expression import Expr, Var
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.stages import kernel_of
from plica.ir.type.infer import infer
from plica.ir.type.term import tensor
from plica.rewrite.fuse.to_stages import to_stages
from plica.runtime.element import ELEMENTS
from plica.schedule import Trace, replay
from plica.schedule.collapse import collapsed
from plica.schedule.default import Machine, formed
from plica.schedule.default.choose import template_schedule
from plica.schedule.form import Facts
from plica.schedule.replay import kernel_of as replayed
from tests.schedule.default.test_contraction import Array, whole

FEW = settings(max_examples=max(4, settings().max_examples // 4))
WIDE = Machine(512, 32)


def has_form(value: Expr, *params: Var) -> bool:
    of = to_stages(infer(whole(list(params), value)).main_function()).stages
    found = formed(of, Facts((False,) * len(of.inputs)), WIDE)
    return found is not None and found.form == "transpose-tiles"


def compare(value: Expr, x: Var, shape: tuple[int, ...]) -> None:
    values: Array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    module = whole([x], value)
    for threads in (1, 2):
        exe = plica.compile(module, threads=threads, cache=False)
        np.testing.assert_array_equal(exe(values), plica.interpret(module, values))


@FEW
@given(st.integers(1, 70), st.integers(1, 70))
def test_matrices(rows: int, columns: int) -> None:
    x = Var(Name("x"), tensor((rows, columns), "f32"))
    value = op.transpose(x, axes=(1, 0)) + 1.0
    compare(value, x, (rows, columns))


@pytest.mark.parametrize(
    ("shape", "axes", "turns"),
    [
        ((2, 20, 33), (0, 2, 1), True),
        ((20, 3, 33), (2, 1, 0), True),
        ((2, 18, 3, 20), (0, 2, 3, 1), True),
        ((20, 3, 33), (1, 0, 2), False),
        ((20, 7), (1, 0), True),
        ((7, 20), (1, 0), False),
        ((11, 5), (1, 0), True),
        ((20, 4), (1, 0), False),
    ],
)
def test_axes(shape: tuple[int, ...], axes: tuple[int, ...], turns: bool) -> None:
    x = Var(Name("x"), tensor(shape, "f32"))
    value = op.transpose(x, axes=axes)
    assert has_form(value, x) == turns
    compare(value, x, shape)


@pytest.mark.parametrize("shape", [(40, 83), (337, 100), (3, 50, 61)])
@pytest.mark.parametrize("machine", [WIDE, Machine(256, 16), Machine(128, 32, (64, 128), 2)])
def test_the_trace_is_replayed_from_its_text(shape: tuple[int, ...], machine: Machine) -> None:
    x = Var(Name("x"), tensor(shape, "f32"))
    axes = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
    of = to_stages(infer(whole([x], op.transpose(x, axes=axes))).main_function()).stages
    kernel = kernel_of(of)
    made = template_schedule(kernel, machine)
    assert isinstance(made, tuple), made
    template, trace, scheduled = made
    assert template == "transpose-tiles"
    again = replayed(replay(Trace.from_json(trace.to_json()), kernel), None)[2]
    assert digest(again) == digest(scheduled)
    values: Array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    np.testing.assert_array_equal(run_kernel(again, [values])[0], values.transpose(axes))


@pytest.mark.parametrize("size", [(37,), (50, 1), (50, 37)], ids=str)
def test_more_is_done_where_elements_are_stored(size: tuple[int, ...]) -> None:
    x, y = Var(Name("x"), tensor((37, 50), "f32")), Var(Name("y"), tensor(size, "f32"))
    value = op.maximum(op.transpose(x, axes=(1, 0)) * 2.0 + y, 3.0)
    of = collapsed(to_stages(infer(whole([x, y], value)).main_function()).stages, True)
    found = formed(of, Facts((False,) * len(of.inputs)), WIDE)
    assert found is not None
    made = template_schedule(kernel_of(found.stages), WIDE)
    assert isinstance(made, tuple)
    assert (found.form, made[0]) == ("transpose-tiles", "transpose-tiles")
    rows: Array = np.arange(37 * 50, dtype=np.float32).reshape(37, 50) / 100
    beside: Array = np.arange(np.prod(size), dtype=np.float32).reshape(size)
    exe = plica.compile(whole([x, y], value), threads=1, cache=False)
    np.testing.assert_array_equal(exe(rows, beside), np.maximum(rows.T * 2 + beside, 3))


def test_squares_do_not_reach_past_what_is_read() -> None:
    x = Var(Name("x"), tensor((40, 33), "f32"))
    value = op.pad(op.transpose(x, axes=(1, 0)), ((0, 0), (0, 4)))
    assert not has_form(value, x)
    compare(value, x, (40, 33))


def test_many_squares_are_shared() -> None:
    x = Var(Name("x"), tensor((256, 272), "f32"))
    compare(op.transpose(x, axes=(1, 0)), x, (256, 272))


@pytest.mark.parametrize("dtype", ["f64", "i64", "u8", "i8", "f16"])
def test_elements_of_all_sizes_are_turned(dtype: str) -> None:
    x = Var(Name("x"), tensor((70, 83), dtype))
    value = op.transpose(x, axes=(1, 0))
    assert has_form(value, x)
    values = np.random.default_rng(3).integers(0, 99, (70, 83)).astype(ELEMENTS[dtype].numpy)
    module = whole([x], value)
    exe = plica.compile(module, threads=1, cache=False)
    np.testing.assert_array_equal(exe(values), values.T)


@FEW
@given(st.integers(16, 70), st.integers(4, 40), st.sampled_from([(1, 2, 0), (2, 1, 0)]))
def test_lines_of_the_result_are_written_at_once(
    rows: int, columns: int, axes: tuple[int, int, int]
) -> None:
    far = Machine(128, 24, (64, 128))  # what is read is near nowhere
    shape = (rows, 3, columns)
    x = Var(Name("x"), tensor(shape, "f32"))
    of = to_stages(infer(whole([x], op.transpose(x, axes=axes))).main_function()).stages
    found = formed(of, Facts((False,)), far)
    assert found is not None
    values: Array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    given_kernel = kernel_of(found.stages)
    np.testing.assert_array_equal(run_kernel(given_kernel, [values])[0], values.transpose(axes))


@pytest.mark.parametrize("machine", [Machine(256, 16), Machine(128, 32)])
def test_shorter_vectors_have_smaller_tiles(machine: Machine) -> None:
    x = Var(Name("x"), tensor((21, 30), "f32"))
    of = to_stages(infer(whole([x], op.transpose(x, axes=(1, 0)))).main_function()).stages
    found = formed(of, Facts((False,)), machine)
    assert found is not None
    assert found.form == "transpose-tiles"
    values: Array = np.arange(630, dtype=np.float32).reshape(21, 30)
    np.testing.assert_array_equal(run_kernel(kernel_of(found.stages), [values])[0], values.T)
