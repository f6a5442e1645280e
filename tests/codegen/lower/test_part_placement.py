"""What joins tensors has their memory: every element is there when it is read, and written once."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from attrs import frozen
from hypothesis import given, settings, strategies as st

from plica.codegen.llvm.processor import find_target
from plica.codegen.lower.part_placement import placed, steps_below
from plica.codegen.memory_plan import WorkspacePlan
from plica.codegen.program import Copy, Launch, Program
from plica.core.name import Name
from plica.ir.graph.expression import Expr, Project, Tuple, Var, const
from plica.ir.type.term import tensor
from plica.pipeline import build, compile, lower
from plica.pipeline.compiled import Lowered
from plica.rewrite.fuse import fuse
from tests.rewrite.fuse.graph import module_of, op

Array = np.ndarray[Any, np.dtype[Any]]
X: Final = Var(Name("x"), tensor((1, 4, 3, 2), "f32"))
Y: Final = Var(Name("y"), tensor((1, 2, 3, 2), "f32"))
GIVEN: Final = {
    each: np.arange(12 * size, dtype=np.float32).reshape(1, 2 * size, 3, 2) % 7 - 3
    for each, size in ((X, 2), (Y, 1))
}


@frozen(eq=False)
class Made:
    """A tensor as a term and as numbers, which are small integers: every order of sums is exact."""

    term: Expr
    value: Array


def weighted(of: Made, channels: int) -> Made:
    """A convolution, which no other kernel computes."""
    count = of.value.shape[1]
    weight = (np.arange(channels * count, dtype=np.float32) % 3 - 1).reshape(channels, count, 1, 1)
    found = np.einsum("oi,nihw->nohw", weight[:, :, 0, 0], of.value)
    term = op("clip", op("nn.conv", of.term, const(weight)), -64.0, 64.0)
    return Made(term, np.clip(found, -64, 64))


def relu(of: Made) -> Made:
    return Made(op("nn.relu", of.term), np.maximum(of.value, 0))


def joined(*parts: Made, axis: int = 1) -> Made:
    terms = tuple([each.term for each in parts])
    return Made(op("concat", terms, axis=axis), np.concatenate([p.value for p in parts], axis))


def cut(of: Made, start: int, stop: int) -> Made:
    return Made(op("slice", of.term, (start,), (stop,), axes=(1,)), of.value[:, start:stop])


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Made, ...]:
    """Outputs of a graph of convolutions, joins, cuts and elementwise operators."""
    pool = [Made(each, value) for each, value in GIVEN.items()]
    for _ in range(draw(st.integers(3, 12))):
        one = draw(st.sampled_from(pool[-6:]))
        channels = one.value.shape[1]
        match draw(
            st.sampled_from(["conv", "conv", "relu", "join", "join", "join", "cut", "split"])
        ):
            case "conv":
                pool.append(weighted(one, draw(st.integers(1, 5))))
            case "relu":
                pool.append(relu(one))
            case "join":
                others = draw(st.lists(st.sampled_from(pool), min_size=1, max_size=4))
                pool.append(joined(one, *others))
            case "cut" if channels > 1:
                start = draw(st.integers(0, channels - 1))
                pool.append(cut(one, start, draw(st.integers(start + 1, channels))))
            case _ if channels % 2 == 0:
                pair = op("split", one.term, 2, axis=1)
                halves = np.split(one.value, 2, axis=1)
                pool += [Made(Project(pair, at), half) for at, half in enumerate(halves)]
            case _:
                pool.append(relu(one))
    last = draw(st.lists(st.sampled_from(pool[2:]), min_size=1, max_size=3))
    return (pool[-1], *last)


def lowered(outputs: tuple[Made, ...]) -> Lowered:
    return lower(module_of(Tuple(tuple([each.term for each in outputs])), X, Y))


def check_memory(program: Program, plan: WorkspacePlan) -> None:
    """Every byte that a step reads was written for it, and nothing was written over it since."""
    arena = np.full((plan.size, 2), -1, np.int64)  # whose byte lies there: slot, and place in it
    written = {
        number: np.zeros(slot.bytes, bool)
        for number, slot in enumerate(program.slots)
        if slot.within is None
    }
    for step in program.regions[program.entry]:
        assert isinstance(step, Launch | Copy)
        args = (step.source, step.target) if isinstance(step, Copy) else step.args
        inputs = 1 if isinstance(step, Copy) else program.kernels[step.kernel].inputs
        reads, writes = args[:inputs], args[inputs:]
        for number in reads:
            slot, holder = program.slots[number], program.holder(number)
            span = np.arange(slot.offset, slot.offset + slot.bytes)
            if slot.space in ("output", "temporary"):
                assert written[holder][span].all()
            if slot.space == "temporary":
                there = arena[plan.where[number] : plan.where[number] + slot.bytes]
                assert (there[:, 0] == holder).all()
                assert (there[:, 1] == span).all()
        for number in writes:
            slot, holder = program.slots[number], program.holder(number)
            span = np.arange(slot.offset, slot.offset + slot.bytes)
            assert not written[holder][span].any()
            written[holder][span] = True
            if slot.space == "temporary":
                there = arena[plan.where[number] : plan.where[number] + slot.bytes]
                there[:, 0], there[:, 1] = holder, span
    for number, each in enumerate(program.slots):
        assert each.space != "output" or written[program.holder(number)].all()


@given(graphs())
def test_memory_holds_what_is_read(outputs: tuple[Made, ...]) -> None:
    of = lowered(outputs)
    assert isinstance(of.plan, WorkspacePlan)
    check_memory(of.program, of.plan)


@given(graphs())
def test_what_is_fused_stays_so(outputs: tuple[Made, ...]) -> None:
    once = fuse(module_of(Tuple(tuple([each.term for each in outputs])), X, Y))
    assert fuse(once) is once


def test_a_part_that_was_fused_is_still_written_in_place() -> None:
    x, y = (Made(each, value) for each, value in GIVEN.items())
    whole = joined(
        weighted(x, 3), relu(y)
    )  # the convolution is a fused function by the second time
    once = fuse(module_of(weighted(whole, 1).term, X, Y))
    assert fuse(once) is once


@settings(max_examples=8)
@given(graphs())
def test_results_are_those_of_numpy(outputs: tuple[Made, ...]) -> None:
    exe = build(lowered(outputs), find_target("cpu"))
    found = exe(GIVEN[X], GIVEN[Y])
    for one, other in zip(found, outputs, strict=True):
        np.testing.assert_array_equal(one, other.value)


def run(*outputs: Made) -> tuple[Program, tuple[str, ...]]:
    """The program of a graph, compiled as usual, whose results are right, and what it says."""
    body = Tuple(tuple([each.term for each in outputs]))
    found = compile(module_of(body, X, Y))(GIVEN[X], GIVEN[Y])
    for one, other in zip(found, outputs, strict=True):
        np.testing.assert_array_equal(one, other.value)
    of = lowered(outputs)
    assert isinstance(of.plan, WorkspacePlan)
    check_memory(of.program, of.plan)
    return of.program, of.program.joined


def sources(program: Program) -> list[str]:
    steps = program.regions[0]
    return [each.source if isinstance(each, Launch) else "copy" for each in steps]


def test_a_concat_of_convolutions_takes_no_step() -> None:
    x, y = (Made(each, value) for each, value in GIVEN.items())
    program, said = run(relu(weighted(joined(relu(weighted(x, 3)), relu(weighted(y, 2))), 2)))
    assert [each.split(" + ")[0] for each in sources(program)] == ["nn.conv"] * 3
    assert said == ("concat of (1, 5, 3, 2): 2 of 2 parts are written in place",)


def test_joins_of_the_same_parts_share_memory() -> None:
    x = Made(X, GIVEN[X])
    features = [weighted(x, 2), weighted(x, 3)]
    for size in (2, 1, 2):  # each layer reads all before it
        features.append(weighted(joined(*features), size))
    program, said = run(weighted(joined(*features), 1))
    assert sources(program) == ["nn.conv + clip"] * 6
    assert sum("lies in a longer one" in each for each in said) == 3


def test_a_join_that_is_a_part_of_another_lies_in_it() -> None:
    x = Made(X, GIVEN[X])
    first = joined(weighted(x, 2), weighted(x, 3))
    second = joined(weighted(first, 1), first)
    program, said = run(weighted(second, 2))
    assert sources(program) == ["nn.conv + clip"] * 4
    assert len(said) == 2


def test_what_cannot_be_written_in_place_is_copied_and_said() -> None:
    x, y = (Made(each, value) for each, value in GIVEN.items())
    result = weighted(x, 6)
    program, said = run(
        weighted(joined(weighted(y, 5), y), 1), weighted(joined(result, y), 1), result
    )
    assert "copy" in sources(program)
    assert any("part 1 is given: it is copied" in each for each in said)
    assert any("part 0 is a result of the program" in each for each in said)


def test_ranges_are_read_where_they_are() -> None:
    x = Made(X, GIVEN[X])
    whole = weighted(x, 6)
    program, _ = run(weighted(cut(whole, 2, 5), 1), weighted(cut(x, 1, 3), 2), weighted(whole, 1))
    assert sources(program) == ["nn.conv + clip"] * 4


def test_other_axes_are_joined_by_a_kernel() -> None:
    x = Made(X, GIVEN[X])
    program, said = run(weighted(joined(weighted(x, 2), weighted(x, 2), axis=3), 1))
    assert any("concat" in each for each in sources(program))
    assert said == ()


def test_what_is_read_element_by_element_is_no_memory() -> None:
    x = Made(X, GIVEN[X])
    program, said = run(relu(joined(weighted(x, 2), weighted(x, 3))))
    assert [each.split(" + ")[0] for each in sources(program)][:2] == ["nn.conv"] * 2
    assert len(sources(program)) == 3
    assert said == ()


def test_a_larger_workspace_is_not_taken() -> None:
    x = Made(X, GIVEN[X])
    early = weighted(x, 2)
    deep = weighted(weighted(weighted(early, 40), 40), 30)
    program, said = run(weighted(joined(early, deep), 1), weighted(weighted(early, 41), 1))
    assert any("would need its memory too soon" in each for each in said)
    assert "copy" in sources(program)


def test_a_join_of_nothing_has_no_parts() -> None:
    x = Var(Name("x"), tensor((0, 2), "f32"))
    inner = op("concat", (op("exp", x), op("sin", x)), axis=0)
    assert not placed(steps_below(inner), op("nn.relu", inner)).joins
