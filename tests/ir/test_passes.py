"""Passes: pipelines are data, running one is a fold, and the guilty pass is named."""

from __future__ import annotations

from itertools import count

import pytest
from attrs import evolve
from hypothesis import given, strategies as st

from plica.core.diagnostic import CompilerBug
from plica.core.fold import map_bottom_up
from plica.core.name import Name
from plica.core.term import Term
from plica.ir.driver import PassTiming, PrintIR, run
from plica.ir.graph.expression import Apply, Const, Expr, Function, Tuple, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.passes import Pass, PassError, Pipeline, diff, form, forms, function_pass
from plica.ir.type.dtype import f32
from plica.ir.type.infer import infer
from plica.ir.type.term import tensor

MAIN = Var(Name("main"), None)
x = Var(Name("x"), tensor((4,), f32))
START = infer(module({MAIN: Function((), (), (x,), None, (x + 0.0) * 2 + 0.0)}, MAIN))


# The ten-line pass of a user: x + 0 is x.
def drop_zero(node: Term) -> Term:
    match node:
        case Apply("add", (left, Const() as right)) if not right.numpy().any():
            return left
    return node


def without_zeros(function: Function) -> Function:
    made = map_bottom_up(drop_zero, function)
    assert isinstance(made, Function)
    return made


DROP = function_pass("drop-zero", "x + 0 is x.", without_zeros, after=("inferred",))


def appended(number: int) -> Pass:
    """A pass one can recognise: it adds a number to the result."""

    def add(module_: Module) -> Module:
        main = module_.main_function()
        body = Apply("add", (main.body, const(number, f32)))
        return Module(module_.names, (evolve(main, body=body),), module_.main)

    return Pass(f"add-{number}", f"Adds {number}.", add)


def test_a_users_pass_in_ten_lines() -> None:
    made = run(Pipeline((DROP,)), START, debug=True)
    body = made.main_function().body
    assert isinstance(body, Apply)
    assert body.op == "multiply"
    assert run(Pipeline((DROP,)), made) is made


@given(st.lists(st.integers(0, 9), unique=True, max_size=6), st.integers(0, 6), st.integers(0, 6))
def test_composition_is_associative(numbers: list[int], i: int, j: int) -> None:
    whole = Pipeline(tuple(map(appended, numbers)))
    i, j = sorted((i, j))
    a, b, c = (Pipeline(whole.passes[s]) for s in (slice(i), slice(i, j), slice(j, None)))
    assert (a + b) + c == a + (b + c) == whole
    assert run((a + b) + c, START) is run(a + (b + c), START)
    assert run(c, run(b, run(a, START))) is run(whole, START)


def test_a_pipeline_prints_one_line_per_pass() -> None:
    assert str(Pipeline((appended(1), DROP))) == "add-1      Adds 1.\ndrop-zero  x + 0 is x."
    assert str(Pipeline()) == ""


def test_pipelines_differ() -> None:
    old, new = Pipeline((appended(1), DROP)), Pipeline((DROP, appended(2)))
    assert diff(old, old) == ""
    assert diff(old, new).splitlines() == [
        "- add-1      Adds 1.",
        "  drop-zero  x + 0 is x.",
        "+ add-2      Adds 2.",
    ]


def test_pipelines_are_edited() -> None:
    one, two, three = map(appended, (1, 2, 3))
    both = Pipeline((one, two))
    assert both.without("add-1").names == ("add-2",)
    assert both.only("add-1").names == ("add-1",)
    assert both.insert(three).names == ("add-1", "add-2", "add-3")
    assert both.insert(three, before="add-2").names == ("add-1", "add-3", "add-2")
    assert both.insert(three, after="add-1").names == ("add-1", "add-3", "add-2")
    assert both.replace("add-1", three).names == ("add-3", "add-2")
    assert both.until("add-1").names == ("add-1",)
    assert len(both) == 2
    assert both.find("add-1") is one


def test_unknown_names_are_refused_with_a_suggestion() -> None:
    with pytest.raises(PassError) as caught:
        Pipeline((DROP,)).without("drop-zeros")
    assert caught.value.code == "unknown-pass"
    assert caught.value.diagnostics[0].suggestion == "Did you mean 'drop-zero'?"
    with pytest.raises(PassError) as caught:
        Pass("p", "", lambda of: of, before=("infered",))
    assert caught.value.diagnostics[0].suggestion == "Did you mean 'inferred'?"


def test_a_pass_stands_in_a_pipeline_once() -> None:
    with pytest.raises(PassError) as caught:
        Pipeline((DROP, DROP))
    assert caught.value.code == "duplicate-name"


def test_required_passes_must_be_there_and_come_first() -> None:
    needy = evolve(appended(2), requires=("add-1",))
    assert run(Pipeline((appended(1), needy)), START) is not START
    for wrong in (Pipeline((needy,)), Pipeline((needy, appended(1)))):
        with pytest.raises(PassError) as caught:
            run(wrong, START)
        assert caught.value.code == "missing-pass"
    with pytest.raises(PassError, match="is not in the pipeline"):
        run(Pipeline((appended(1), needy)).without("add-1"), START)


def broken(body: Expr) -> Pass:
    def break_it(module_: Module) -> Module:
        main = module_.main_function()
        return Module(module_.names, (evolve(main, body=body),), module_.main)

    return Pass("breaker", "Breaks things.", break_it)


def test_the_guilty_pass_is_named() -> None:
    unbound = broken(Var(Name("y"), tensor((), f32)))
    ill_typed = broken(Apply("add", (x, Tuple(()))))
    other_type = broken(const(1, "i64"))
    for guilty in (unbound, ill_typed, other_type):
        pipeline = Pipeline((appended(1), guilty, appended(2)))
        with pytest.raises(CompilerBug, match="After breaker"):
            run(pipeline, START, debug=True)


def test_a_pass_that_gives_no_module() -> None:
    wrong = Pass("nothing", "", lambda of: None)
    with pytest.raises(CompilerBug, match="nothing"):
        run(Pipeline((wrong,)), START)


def test_declared_forms_are_verified_in_debug_mode() -> None:
    if "small" not in forms():
        form("small", lambda of: len(of.values) == 1)
        form("never", lambda of: False)
    run(Pipeline((evolve(appended(1), before=("small",)),)), START, debug=True)
    with pytest.raises(CompilerBug, match="After add-1"):
        run(Pipeline((evolve(appended(1), after=("never",)),)), START, debug=True)
    with pytest.raises(CompilerBug, match="Before add-1"):
        run(Pipeline((evolve(appended(1), before=("never",)),)), START, debug=True)
    with pytest.raises(ValueError, match="already"):
        form("small", lambda of: True)


def test_instruments_watch_and_change_nothing() -> None:
    ticks = count()
    timing = PassTiming(lambda: float(next(ticks)))
    lines: list[str] = []
    pipeline = Pipeline((DROP, appended(1), Pass("rest", "Does nothing.", lambda of: of)))
    watched = run(pipeline, START, (timing, PrintIR(lines.append)), debug=True)
    assert watched is run(pipeline, START)
    assert [name for name, _ in timing.seconds] == ["drop-zero", "add-1", "rest"]
    assert timing.total == 3.0
    assert str(timing).splitlines()[0] == "   3.0000 s  pipeline"
    assert [line.splitlines()[0] for line in lines] == [
        "# after drop-zero",
        "# after add-1",
        "# rest: nothing changed",
    ]


def test_a_pipeline_is_a_function_of_its_module() -> None:
    pipeline = Pipeline((DROP, appended(1)))
    assert all(run(pipeline, START) is run(pipeline, START) for _ in range(5))
