"""Loops that native code runs: what they mean, and when the host has to run them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import plica
from plica.runtime.error import EvaluationError
from plica.runtime.open_executable import OpenExecutable
from plica.runtime.port import LINE
from plica.runtime.staged.executable import StagedExecutable
from plica.runtime.staged.loop_code import _packed
from plica.runtime.staged.native_run import NativeRun
from plica.runtime.staged.plan_frame import PlanFrame

Array = np.ndarray[Any, Any]

CARRIED = plica.from_text(
    """
@plica.function(dims="n")
def main(x: Tensor[("n", 3), f32], many: i64) -> ALL:
    first = op.full(shape=(3,), value=1.0)
    def loop(i: i64, a: VECTOR, b: VECTOR, c: VECTOR, rows: ROWS) -> ALL:
        if i < many:
            new = a + b * 0.5
            here = op.reshape(op.iota(shape=("n",)) == i, shape=("n", 1))
            return loop(i + 1, b, new, new, op.where(here, op.expand_dims(new, axis=(0,)), rows))
        else:
            return (i, a, b, c, rows)
    return loop(i64(0), first, first, first, x)
""".replace("ALL", "tuple[i64, VECTOR, VECTOR, VECTOR, ROWS]")
    .replace("VECTOR", "Tensor[(3,), f32]")
    .replace("ROWS", "Tensor[('n', 3), f32]")
)
CHOSEN = plica.from_text("""
@plica.function(dims="n")
def main(x: Tensor[("n",), f32], many: i64) -> tuple[i64, Tensor[("n",), f32]]:
    def outer(i: i64, a: Tensor[("n",), f32]) -> tuple[i64, Tensor[("n",), f32]]:
        if i < many:
            def inner(j: i64, b: Tensor[("n",), f32]) -> tuple[i64, Tensor[("n",), f32]]:
                if j < i:
                    return inner(j + 1, b * 0.5 + x)
                else:
                    return (j, b)
            return outer(i + 1, inner(i64(0), a)[1])
        else:
            return (i, a)
    return outer(i64(0), x)
""")
SUMMED = plica.from_text("""
@plica.function(dims="n")
def main(x: Tensor[("n",), f32], many: i64) -> tuple[i64, f32, Tensor[("n",), f32]]:
    start = x * 2.0
    def loop(i: i64, a: f32, sums: Tensor[("n",), f32]) -> tuple[i64, f32, Tensor[("n",), f32]]:
        if i < many:
            new = a + op.take(x, i)
            return loop(i + 1, new, op.where(op.iota(shape=("n",)) == i, new, sums))
        else:
            return (i, a, sums)
    return loop(i64(0), f32(0.0), start)
""")


TWICE = plica.from_text(
    """
@plica.function(dims="n")
def main(x: ROW, many: i64) -> tuple[ROW, ROW, ROW]:
    early = op.cumsum(x, axis=0)
    def first(i: i64, a: ROW, b: ROW) -> tuple[i64, ROW, ROW]:
        if i < many:
            return first(i + 1, b + early, a * 0.5)
        else:
            return (i, a, b)
    one = first(i64(0), x, early)
    middle = op.cumsum(one[1] - one[2], axis=0)
    def second(j: i64, c: ROW, d: ROW) -> tuple[i64, ROW, ROW]:
        if j < many:
            return second(j + 2, d, op.where(d < middle, c + x, c - middle))
        else:
            return (j, c * 2.0, x)
    two = second(i64(0), middle, one[1])
    return (two[1], two[2], op.cumsum(two[1] + one[2], axis=0))
""".replace("ROW", "Tensor[('n',), f32]")
)

AGAIN = plica.from_text(
    """
@plica.function(dims="n")
def main(x: ROW, many: i64) -> tuple[ROW, ROW]:
    def go(i: i64, a: ROW) -> ROW:
        if i < many:
            return go(i + 1, a * 0.5 + x)
        else:
            return a
    return (go(many - 1, go(i64(0), x)) + go(i64(1), x), go(i64(-1), x))
""".replace("ROW", "Tensor[('n',), f32]")
)


def compiled(of: plica.Module) -> StagedExecutable:
    exe = plica.compile(of, threads=1, effort="fast")
    assert isinstance(exe, StagedExecutable)
    return exe


EXES = {each: compiled(each) for each in (CARRIED, CHOSEN, TWICE, AGAIN)}


@given(st.sampled_from([*EXES]), st.integers(0, 5), st.integers(-1, 6))
@settings(max_examples=min(60, settings().max_examples))
def test_a_loop_is_what_the_interpreter_says(of: plica.Module, n: int, many: int) -> None:
    x = np.random.default_rng(n).random((n, 3) if of is CARRIED else (n,)).astype(np.float32)
    before = x.copy()
    found, wanted = EXES[of](x, np.int64(many)), plica.interpret(of, x, np.int64(many))
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(x, before)  # what is written over is the loop's own
    assert len({each.ctypes.data for each in found if each.nbytes}) == len(
        [each for each in found if each.nbytes]
    )


def test_the_host_runs_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = []
    plain = PlanFrame.move

    def noted(frame: PlanFrame, sources: Any, targets: Any) -> None:
        moved.append(sources)
        plain(frame, sources, targets)

    monkeypatch.setattr(PlanFrame, "move", noted)
    EXES[CARRIED](np.zeros((4, 3), np.float32), np.int64(500))
    EXES[CHOSEN](np.zeros(4, np.float32), np.int64(9))
    assert not moved


def test_a_loop_that_is_called_again_keeps_what_it_gave() -> None:
    x = np.arange(5, dtype=np.float32)
    found, wanted = (f(x, np.int64(3)) for f in (EXES[AGAIN], partial(plica.interpret, AGAIN)))
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_what_is_before_and_behind_loops_is_run_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    plain = NativeRun._run

    def noted(run: NativeRun, *given: Any) -> None:
        calls.append(run)
        plain(run, *given)

    def no(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(NativeRun, "_run", noted)
    monkeypatch.setattr(OpenExecutable, "run_sized", no)
    for n in (3, 5, 3):  # memory of other sizes is taken again
        x = np.random.default_rng(n).random(n).astype(np.float32)
        for a, b in zip(
            EXES[TWICE](x, np.int64(3)), plica.interpret(TWICE, x, np.int64(3)), strict=True
        ):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    assert len(calls) == 3


def test_loops_stay_native_where_what_is_around_them_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exe = compiled(TWICE)
    x = np.random.default_rng(4).random(4).astype(np.float32)
    wanted = exe(x, np.int64(3))
    plain, ran = NativeRun._code, []

    def alone(run: NativeRun, frame: PlanFrame) -> Any:
        if len(run._block.steps) > 1:
            return None
        ran.append(run)
        return plain(run, frame)

    monkeypatch.setattr(NativeRun, "_code", alone)
    for a, b in zip(exe(x, np.int64(3)), wanted, strict=True):
        np.testing.assert_array_equal(a, b)
    assert len(ran) == 2


@given(st.lists(st.tuples(st.integers(0, 900), st.integers(0, 6), st.integers(0, 4)), max_size=12))
def test_registers_that_are_used_at_once_lie_apart(of: list[tuple[int, int, int]]) -> None:
    sizes = {at: size for at, (size, _, _) in enumerate(of)}
    used = {at: (first, first + long) for at, (_, first, long) in enumerate(of)}
    places, end = _packed(sizes, used)
    assert sorted(at for at, _ in places) == [*sizes]
    assert end <= sum(-(-size // LINE) * LINE for size in sizes.values())
    for a, here in places:
        assert here % LINE == 0
        assert here + sizes[a] <= end
        for b, there in places:
            together = used[a][0] <= used[b][1] and used[b][0] <= used[a][1]
            apart = here + sizes[a] <= there or there + sizes[b] <= here
            assert a == b or not together or apart


def test_the_host_runs_what_the_driver_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(7).random((4, 3)).astype(np.float32)
    calls = [(EXES[CARRIED], rows), (compiled(SUMMED), rows[:, 0].copy())]
    wanted = [exe(x, np.int64(4)) for exe, x in calls]
    monkeypatch.setattr(NativeRun, "_code", lambda self, frame: None)
    for (exe, x), expected in zip(calls, wanted, strict=True):
        before = x.copy()
        for a, b in zip(exe(x, np.int64(4)), expected, strict=True):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(x, before)


def test_rows_are_written_in_place_and_what_fails_in_a_turn_is_said() -> None:
    exe = compiled(SUMMED)
    assert [each.donated for each in exe.segments if each.donated] == [((2, 2),)]
    x = np.ones(4, np.float32)
    for many in (4, 2, 0):
        found = exe(x, np.int64(many))
        assert found[1] == many
        np.testing.assert_array_equal(found[2], [*range(1, many + 1), *[2.0] * (4 - many)])
    with pytest.raises(EvaluationError, match="take"):
        exe(x, np.int64(5))
    assert exe(x, np.int64(2))[1] == 2.0


def test_calls_at_once_have_memory_of_their_own() -> None:
    inputs = [np.full((3, 3), float(at), np.float32) for at in range(16)]
    wanted = [EXES[CARRIED](x, np.int64(2)) for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda x: EXES[CARRIED](x, np.int64(2)), inputs))
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a[4], b[4])


def test_it_is_saved_and_loaded_with_its_driver(tmp_path: Path) -> None:
    EXES[CARRIED].save(tmp_path / "loop.plica")
    again = plica.load(tmp_path / "loop.plica")
    x = np.ones((5, 3), np.float32)
    for a, b in zip(again(x, np.int64(3)), EXES[CARRIED](x, np.int64(3)), strict=True):
        np.testing.assert_array_equal(a, b)
