"""Sequence: what runs, where, and into which memory."""

from __future__ import annotations

import numpy as np
import pytest

from plica.codegen.llvm.fold import fold
from plica.codegen.program import Choose, Copy, Force, Launch, Program, place
from plica.codegen.target import Target
from plica.core.name import Name
from plica.ir.graph import Apply, Expr, Function, If, Tuple, Var, const
from plica.ir.infer import infer
from plica.ir.module import module
from plica.ir.op import find
from plica.ir.type import tensor
from plica.pipeline import build, compile, find_target, lower
from plica.runtime.error import UnsupportedError
from tests.conftest import Golden

X = Var(Name("x"), tensor((3,), "f32"))
C, D = (Var(Name(each), tensor((), "bool")) for each in "cd")
VALUES = np.array([1, 2, 3], np.float32)


def apply(name: str, *args: Expr) -> Expr:
    record = find(name)
    assert record is not None
    return Apply(name, args, record.bind(args, {})[1])


def program_of(body: Expr, *params: Var) -> Program:
    main = Var(Name("main"), None)
    return lower(infer(module({main: Function((), (), params, None, body)}, main))).program


def result_of(body: Expr, params: tuple[Var, ...], *args: object) -> object:
    main = Var(Name("main"), None)
    lowered = lower(infer(module({main: Function((), (), params, None, body)}, main)))
    return build(lowered, find_target("cpu"))(*args)


def kinds(program: Program, region: int = 0) -> list[str]:
    return [
        step.source if isinstance(step, Launch) else type(step).__name__
        for step in program.regions[region]
    ]


def test_equal_kernels_are_one() -> None:
    y = Var(Name("y"), tensor((3,), "f32"))
    of = program_of(Tuple(((X + y) * (y + X), X * y)), X, y)
    assert kinds(of) == ["add", "add", "multiply", "multiply"]
    assert of.names == ("add", "multiply")


def test_the_last_step_writes_the_output() -> None:
    of = program_of((X + 1.0) * 2.0, X)
    last = of.regions[0][-1]
    assert isinstance(last, Launch)
    assert of.slots[last.args[-1]].space == "output"
    assert [slot.space for slot in of.slots].count("temporary") == 1


def test_what_is_given_or_wanted_twice_is_copied() -> None:
    number = const([7.0, 8.0, 9.0], "f32")
    total = X + 1.0
    of = program_of(Tuple((X, number, total, total)), X)
    assert kinds(of) == ["add", "Copy", "Copy", "Copy"]
    found = result_of(Tuple((X, number, total, total)), (X,), VALUES)
    assert isinstance(found, tuple)
    assert [each.tolist() for each in found] == [[1, 2, 3], [7, 8, 9], [2, 3, 4], [2, 3, 4]]
    assert found[2] is not found[3]


def test_a_branch_runs_what_only_it_needs() -> None:
    of = program_of(If(C, apply("exp", X), apply("log", X)), X, C)
    (step,) = of.regions[0]
    assert isinstance(step, Choose)
    assert kinds(of, step.then) == ["exp"]
    assert kinds(of, step.orelse) == ["log"]


def test_what_both_branches_need_runs_before() -> None:
    shared = apply("exp", X)
    of = program_of(If(C, shared + 1.0, shared * 2.0), X, C)
    assert kinds(of) == ["exp", "Choose"]
    assert of.thunks == ()


def test_what_some_branches_need_is_forced_at_most_once() -> None:
    shared = apply("exp", X)
    body = Tuple((If(C, shared + 1.0, X), If(D, shared * 2.0, X)))
    of = program_of(body, X, C, D)
    assert kinds(of) == ["Choose", "Choose"]
    assert len(of.thunks) == 1
    assert kinds(of, of.thunks[0]) == ["exp"]
    forced = [step for steps in of.regions for step in steps if isinstance(step, Force)]
    assert forced == [Force(0), Force(0)]
    for c in (True, False):
        for d in (True, False):
            found = result_of(body, (X, C, D), VALUES, c, d)
            assert isinstance(found, tuple)
            np.testing.assert_allclose(found[0], np.exp(VALUES) + 1 if c else VALUES, rtol=1e-6)
            np.testing.assert_allclose(found[1], np.exp(VALUES) * 2 if d else VALUES, rtol=1e-6)


def test_nested_branches_and_several_results() -> None:
    inner = If(D, Tuple((X, X + 1.0)), Tuple((X + 2.0, X)))
    body = If(C, inner, Tuple((X * 2.0, X * 3.0)))
    expected = {
        (True, True): ([1, 2, 3], [2, 3, 4]),
        (True, False): ([3, 4, 5], [1, 2, 3]),
        (False, True): ([2, 4, 6], [3, 6, 9]),
        (False, False): ([2, 4, 6], [3, 6, 9]),
    }
    for (c, d), lists in expected.items():
        found = result_of(body, (X, C, D), VALUES, c, d)
        assert isinstance(found, tuple)
        assert tuple(each.tolist() for each in found) == lists


def test_sixty_choices_over_one_another_stay_sixty() -> None:
    body: Expr = X
    for _ in range(60):
        body = If(C, body + 1.0, body * 2.0)
    of = program_of(body, X, C)
    assert sum(map(len, of.regions)) == 180
    found = result_of(body, (X, C), VALUES, True)
    assert isinstance(found, np.ndarray)
    assert found.tolist() == [61, 62, 63]


def test_a_thousand_choices_inside_one_another() -> None:
    body: Expr = X
    for number in range(1_000):
        test = apply("less", apply("sum", X), const(float(number), "f32"))
        body = If(test, X + float(number), body)
    of = program_of(body, X)
    assert sum(isinstance(step, Choose) for steps in of.regions for step in steps) == 1_000
    text = fold(of, place(of), find_target("cpu"))
    assert len(text) < 3_000_000


def test_unused_results_are_not_computed() -> None:
    record = find("split")
    assert record is not None
    parts = record(X, 3)
    from plica.ir.graph import Project

    of = program_of(Project(parts, 1) + 1.0, X)
    assert kinds(of) == ["split", "add"]


def test_offsets_are_aligned_and_apart() -> None:
    plan = place(program_of((X + 1.0) * 2.0 - 3.0, X))
    assert [offset for _, offset in plan.offsets] == [0, 64]
    assert plan.size == 128


def test_text(golden: Golden) -> None:
    """The LLVM text of a small program does not depend on the machine it is made on."""
    target = Target("cpu", "x86_64-unknown-linux-gnu", "x86-64")
    at = Var(Name("at"), tensor((2,), "i64"))
    record = find("take")
    assert record is not None
    of = program_of(Tuple((If(C, X + 1.0, X), record(X, at))), X, C, at)
    assert any(isinstance(step, Copy) for steps in of.regions for step in steps)
    golden(fold(of, place(of), target), "fold")


def test_a_tensor_no_memory_can_hold_is_refused() -> None:
    zeros, total = find("zeros"), find("sum")
    assert zeros is not None
    assert total is not None
    main = Var(Name("main"), None)
    huge = zeros(shape=(10**7, 10**6, 10**6), dtype="f32")
    for body in (huge, total(huge)):
        with pytest.raises(UnsupportedError) as caught:
            compile(module({main: Function((), (), (), None, body)}, main))
        assert caught.value.code == "too-large"
