"""Races: what is found is one by the interpreter, and what is small and plain is always found."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from plica.analysis.race import Race, races
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.scalar import Buffer, Lt, Scalar, Select, index
from plica.ir.loop.stage import placeholder, stage
from plica.ir.loop.stages import kernel_of, stages
from plica.ir.loop.statement import Alloc, Branch, For, Kernel, LoopKind, Seq, Stmt, Store
from plica.ir.loop.tensor import axis, buffer, reduce
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import f32
from plica.runtime.error import EvaluationError
from plica.schedule.default import Machine, default_schedule, formed
from plica.schedule.form import Facts

ROOM = 64
T, J = axis("i"), axis("j")
X, Y = buffer("x", (ROOM,), f32), buffer("y", (ROOM,), f32)


def around(body: Stmt, kind: LoopKind = "parallel", count: int = 4) -> Kernel:
    return Kernel((), (X, Y), 1, For(T, index(count), kind, body))


@st.composite
def places(draw: st.DrawFn) -> Scalar:
    """A place of an element: a digit of a sum of both variables."""
    a, b, c = (draw(st.integers(0, 4)) for _ in range(3))
    whole = T * a + J * b + c
    match draw(st.sampled_from(("plain", "quotient", "rest"))):
        case "plain":
            return whole
        case "quotient":
            return whole // draw(st.integers(1, 4))
        case _:
            return whole % draw(st.integers(1, 9))


@given(places(), places(), st.integers(1, 5), st.integers(1, 4), st.booleans())
def test_races_are_those_of_the_interpreter(
    one: Scalar, two: Scalar, outer: int, inner: int, reads: bool
) -> None:
    value = Y[two] if reads else X[two]
    body = For(J, index(inner), "serial", Store(Y, (one,), value * 2))
    kernel = Kernel((), (X, Y), 2, For(T, index(outer), "parallel", body))
    arrays = [np.ones(ROOM, np.float32), np.ones(ROOM, np.float32)]
    found = ""
    try:
        run_kernel(kernel, arrays)
    except EvaluationError as error:
        found = error.code
    assert found in ("", "data-race")
    assert bool(races(kernel)) == (found == "data-race")


def test_a_race_says_where() -> None:
    (found,) = races(around(Store(Y, (T // 2 + 3,), X[T])))
    assert found == Race("i", "y", (0, 1), (3,))
    assert str(found) == "Iterations 0 and 1 of the loop i, which run at once, meet at y[3]."


def test_what_is_not_certain_accuses_nobody() -> None:
    same = Store(Y, (index(0),), X[T])
    assert races(around(same))
    assert not races(around(same, "serial"))
    assert not races(around(same, count=1))
    assert not races(around(Branch(Lt(T, index(1)), same, Seq(()))))
    guarded = Store(Y, (T,), Select(Lt(T, index(0)), Y[0], X[T]))
    assert not races(around(guarded))


def test_a_loop_to_less_than_nothing_meets_nobody() -> None:
    often = dim_var("n")
    body = For(J, often - 9, "serial", Store(Y, (J,), X[T]))
    assert not races(Kernel((often,), (X, Y), 1, For(T, index(4), "parallel", body)))


def test_turns_that_an_iteration_does_not_have_meet_nobody() -> None:
    """Iteration t writes y[1 .. t]: the second alone writes y[1], and the first nothing."""
    body = For(J, T * 1, "serial", Store(Y, (J + 1,), X[0]))
    assert not races(around(body, count=2))
    assert races(around(body, count=3))


def test_blocks_of_threads_share_global_memory() -> None:
    near = Buffer(Y.name, Y.shape, Y.dtype, "shared")
    store = Store(near, (index(0),), X[T])
    assert races(around(Store(Y, (index(0),), X[T]), "blockIdx.x"))
    assert not races(Kernel((), (X,), 1, Alloc(near, For(T, index(4), "blockIdx.x", store))))


@pytest.mark.parametrize("sizes", [(64, 200, 96), (256, 128, 64)])
def test_default_schedules_have_none(sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    x, w = placeholder("x", (m, k), f32), placeholder("w", (k, n), f32)
    body = lambda i, j: reduce("sum", (k,), lambda t: x[i, t] * w[t, j])  # noqa: E731
    machine = Machine(512, 32, cores=4)
    form = formed(stages((x, w), (stage("y", (m, n), body),)), Facts((False, False)), machine)
    assert form is not None
    made = default_schedule(kernel_of(form.stages), machine)
    assert isinstance(made, tuple)
    assert races(made[1]) == ()
