"""Sequence: what runs, where, and into which memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from plica.analysis.memory import check_plan, least, most
from plica.codegen.llvm.fold import fold
from plica.codegen.llvm.processor import find_target
from plica.codegen.memory_plan import WorkspacePlan, overwritable, workspace_plan
from plica.codegen.program import Choose, Copy, Force, Launch, Program
from plica.codegen.target import Target
from plica.core.name import Name
from plica.ir.graph.expression import Apply, Expr, Function, If, Tuple, Var, const
from plica.ir.graph.module import module
from plica.ir.interpret.interpreter import interpret
from plica.ir.op import find
from plica.ir.type.infer import infer
from plica.ir.type.term import tensor
from plica.pipeline import build, compile, lower, sequenced
from plica.rewrite.history import begun
from plica.runtime.error import UnsupportedError
from tests.conftest import Golden
from tests.strategies import static_modules

X = Var(Name("x"), tensor((3,), "f32"))
C, D = (Var(Name(each), tensor((), "bool")) for each in "cd")
VALUES = np.array([1, 2, 3], np.float32)


def apply(name: str, *args: Expr) -> Expr:
    record = find(name)
    assert record is not None
    return Apply(name, args, record.bind(args, {})[1])


def view(of: Expr, *shape: int) -> Expr:
    record = find("reshape")
    assert record is not None
    return record(of, shape)


def program_of(body: Expr, *params: Var) -> Program:
    main = Var(Name("main"), None)
    whole = infer(module({main: Function((), (), params, None, body)}, main))
    return sequenced(begun(whole)).program


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
    of = program_of(Tuple((X + y, y + X, X * y)), X, y)
    assert kinds(of) == ["add", "add", "multiply"]
    assert of.names == ("add", "multiply")


def test_a_fused_function_is_one_launch() -> None:
    y = Var(Name("y"), tensor((3,), "f32"))
    of = program_of(Tuple(((X + y) * (y + X), X * y)), X, y)
    assert kinds(of) == ["add + add + multiply", "multiply"]


def test_a_view_takes_no_step() -> None:
    square = Var(Name("x"), tensor((2, 3), "f32"))
    flat = view(apply("exp", square), 6)
    of = program_of(flat, square)
    assert kinds(of) == ["exp"]
    assert [slot.shape for slot in of.space("output")] == [(6,)]
    assert kinds(program_of(view(square, 3, 2), square)) == ["Copy"]
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    body = view(view(square, 3, 2) * 2.0, 6)
    found = result_of(body, (square,), values)
    assert isinstance(found, np.ndarray)
    assert found.tolist() == (values * 2).reshape(6).tolist()


def test_the_last_step_writes_the_output() -> None:
    of = program_of(total((X + 1.0) * 2.0) * 2.0 + X, X)
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
    text = fold(of, workspace_plan(of), find_target("cpu"))
    assert len(text) < 3_000_000


def test_unused_results_are_not_computed() -> None:
    record = find("split")
    assert record is not None
    parts = record(X, 3)
    from plica.ir.graph.expression import Project

    of = program_of(Project(parts, 1) + 1.0, X)
    assert kinds(of) == ["split + add"]


def total(of: Expr) -> Expr:
    return apply("sum", of)


def test_offsets_are_aligned_and_apart() -> None:
    """Two sums that one kernel needs together."""
    plan = workspace_plan(program_of(X * total(X) + total(X * X), X))
    assert sorted(offset for _, offset in plan.offsets) == [0, 64]
    assert plan.size == 128
    assert check_plan(plan.memory) == ()


def test_memory_is_used_again() -> None:
    """Ten sums, each of what the one before made: two are needed at a time."""
    body: Expr = X
    for _ in range(10):
        body = total(body) * X
    plan = workspace_plan(program_of(body, X))
    assert len(plan.offsets) == 10
    assert plan.size == 128
    assert check_plan(plan.memory) == ()


def test_a_result_is_written_over_what_dies() -> None:
    """`a` is needed by a sum and by a product; the product is the last, and takes its place."""
    a = apply("exp", X)
    b = a * total(a)
    body = Tuple((b * total(b), total(X)))
    plan = workspace_plan(program_of(body, X))
    assert [each.in_place_of is not None for each in plan.memory.tenants].count(True) == 1
    assert check_plan(plan.memory) == ()
    found = result_of(body, (X,), VALUES)
    assert isinstance(found, tuple)
    e = np.exp(VALUES)
    expected = e * e.sum() * (e * e.sum()).sum()
    np.testing.assert_allclose(found[0], expected, rtol=1e-5)


def test_a_kernel_tells_what_it_may_overwrite() -> None:
    y = Var(Name("y"), tensor((3,), "f32"))
    flipped = apply("flip", X)
    plain, mixed = program_of(X + y, X, y), program_of(X + flipped + y, X, y)
    assert overwritable(plain.kernels[0]) == (0, 1)
    assert overwritable(mixed.kernels[0]) == (1,)
    assert overwritable(program_of(total(X), X).kernels[0]) == ()


def test_what_a_thunk_touches_stays_until_it_may_run_last() -> None:
    """The thunk is forced in either choice: what it reads and writes is kept in between."""
    base = apply("exp", X) * total(X)
    shared = apply("log", base * total(base))
    middle = total(X * 3.0) * X
    body = Tuple((If(C, shared + 1.0, X), middle, If(D, shared * 2.0, X)))
    plan = workspace_plan(program_of(body, X, C, D))
    assert check_plan(plan.memory) == ()
    for c in (True, False):
        for d in (True, False):
            args = (VALUES, np.bool_(c), np.bool_(d))
            main = Var(Name("main"), None)
            of = infer(module({main: Function((), (), (X, C, D), None, body)}, main))
            found, expected = result_of(body, (X, C, D), VALUES, c, d), interpret(of, *args)
            assert isinstance(found, tuple)
            assert isinstance(expected, tuple)
            for ours, meant in zip(found, expected, strict=True):
                np.testing.assert_allclose(ours, meant, rtol=1e-5)


@given(st.data())
def test_plans_are_right(data: st.DataObject) -> None:
    plan = lower(infer(data.draw(static_modules()))).plan
    assert isinstance(plan, WorkspacePlan)
    assert check_plan(plan.memory) == ()
    assert least(plan.memory.tenants) <= plan.memory.size <= most(plan.memory.tenants)


def test_text(golden: Golden) -> None:
    """The LLVM text of a small program does not depend on the machine it is made on."""
    target = Target("cpu", "x86_64-unknown-linux-gnu", "x86-64")
    at = Var(Name("at"), tensor((2,), "i64"))
    record = find("take")
    assert record is not None
    of = program_of(Tuple((If(C, X + 1.0, X), record(X, at))), X, C, at)
    assert any(isinstance(step, Copy) for steps in of.regions for step in steps)
    golden(fold(of, workspace_plan(of), target), "fold")


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
