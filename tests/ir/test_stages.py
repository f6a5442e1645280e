"""Stages: names never enter, what is read off them, what they print as."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from plica.core.binding import free_vars, substitute
from plica.core.diagnostic import CompilerBug
from plica.core.digest import digest
from plica.core.fold import map_bottom_up
from plica.core.name import Name
from plica.core.term import Term, children, rebuild
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.reduction import exposed
from plica.ir.loop.scalar import Buffer, Lit, Load, Lt, Scalar, Select, index
from plica.ir.loop.stage import (
    Each,
    ExternStage,
    Scatter,
    Stage,
    epilogue_of,
    placeholder,
    recurrence,
    stage,
)
from plica.ir.loop.stages import (
    Names,
    Stages,
    compute_of,
    evaluate_all,
    evaluate_stages,
    kernel_of,
    loads,
    pairs,
    reductions,
    stages,
    stages_of,
    with_element,
)
from plica.ir.loop.statement import Store
from plica.ir.loop.tensor import axis, buffer, compute, reduce
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import f32
from plica.schedule.generate.stages import KINDS, StagesCase
from tests.conftest import Golden

EVERY = st.one_of([KINDS[kind]() for kind in ("product", "window", "chain", "concat", "quantised")])


def renamed(of: Stages, prefix: str) -> Stages:
    """The same stages under other names, of everything that is bound."""
    names: dict[Buffer, Buffer] = {}
    for number, old in enumerate((*of.inputs, *of.made)):
        names[old] = Buffer(Name(prefix, number), old.shape, old.dtype)

    def new(node: Term) -> Term:
        return Load(names[node.buffer], node.indices) if isinstance(node, Load) else node

    made: list[Stage] = []
    for each in of.stages:
        assert isinstance(each, Each)
        own = {var: axis(prefix, 90 + at) for at, var in enumerate(each.axes)}
        value = substitute(map_bottom_up(new, each.value), dict(own))
        assert isinstance(value, Scalar)
        made.append(Each(names[each.out], tuple(own.values()), value))
    outputs = [names[wanted] for wanted in of.outputs]
    return stages([names[read] for read in of.inputs], made, outputs)


@given(EVERY, st.sampled_from(("q", "out", "i")))
def test_names_never_enter_the_digest(of: StagesCase, prefix: str) -> None:
    other = renamed(of.stages, prefix)
    assert digest(other) == digest(of.stages)
    assert not free_vars(of.stages)
    assert rebuild(of.stages, children(of.stages)) is of.stages


@given(EVERY)
def test_blocks_mean_what_the_stages_do(of: StagesCase) -> None:
    with np.errstate(all="ignore"):
        wanted = evaluate_stages(of.stages, of.arrays)
        found = run_kernel(kernel_of(of.stages), of.arrays)[-1]
    np.testing.assert_allclose(found, wanted, of.near, of.near)


def test_what_differs_has_another_digest() -> None:
    x, y = placeholder("x", (4,), f32), placeholder("y", (4,), f32)
    both = stage("z", (4,), lambda i: x[i] - y[i])
    twice = stage("t", (4,), lambda i: both[i] * 2)
    found = [
        stages((x, y), (both,)),
        stages((y, x), (both,)),  # the order of inputs
        stages((x, y), (both, twice)),
        stages((x, y), (both, twice), (both.out, twice.out)),  # what is memory of the launch
        stages((x, y), (stage("z", (3,), lambda i: x[i] - y[i]),)),
    ]
    assert len({digest(each) for each in found}) == len(found)


# --- pairs ----------------------------------------------------------------------------------------

X = placeholder("x", (4, 1, 6, 5), f32)
TOTAL = stage("total", (4, 1, 6), lambda i, u, j: reduce("sum", (5,), lambda k: X[i, u, j, k]))


def after(shape: tuple[int, ...], body: Any) -> Each:
    return stage("y", shape, body)


# fmt: off
EPILOGUES: dict[str, tuple[Each, bool]] = {
    "in place":            (after((4, 1, 6), lambda i, u, j: TOTAL[i, u, j] * 2), True),
    "turned":              (after((6, 4, 1), lambda j, i, u: TOTAL[i, u, j] * 2), True),
    "no unit":             (after((4, 6), lambda i, j: TOTAL[i, 0, j]), True),
    "another unit":        (after((1, 6, 1, 4), lambda a, j, b, i: TOTAL[i, 0, j]), True),
    "read once in a sum":  (after((4, 1, 6), lambda i, u, j: TOTAL[i, u, j] + X[i, u, j, 0]), True),
    "moved":               (after((4, 1, 6), lambda i, u, j: TOTAL[3 - i, u, j]), False),
    "of a part":           (after((3, 1, 6), lambda i, u, j: TOTAL[i, u, j]), False),
    "spread":              (after((4, 2, 6), lambda i, u, j: TOTAL[i, 0, j]), False),
    "at two places":       (after((4, 1, 6), lambda i, u, j: (
                               TOTAL[i, u, j] + TOTAL[0, u, j])), False),
    "along a diagonal":    (after((4, 1), lambda i, u: TOTAL[i, u, i]), False),
    "reduces again":       (after((4, 1, 6), lambda i, u, j: reduce(
                               "sum", (2,), lambda k: TOTAL[i, u, j] * k)), False),
    "read nowhere":        (after((4, 1, 6), lambda i, u, j: X[i, u, j, 0]), False),
}
# fmt: on


@pytest.mark.parametrize("name", EPILOGUES)
def test_epilogues_read_an_element_at_its_own_place(name: str) -> None:
    last, is_one = EPILOGUES[name]
    assert epilogue_of(TOTAL, last) == is_one
    of = stages((X,), (TOTAL, last))
    assert pairs(of) == ([(TOTAL, last)] if is_one else [(TOTAL, None), (last, None)])
    values = np.arange(120, dtype=np.float32).reshape(4, 1, 6, 5)
    np.testing.assert_array_equal(
        run_kernel(kernel_of(of), [values])[-1], evaluate_stages(of, [values])
    )


def test_what_others_read_or_the_launch_keeps_has_no_epilogue() -> None:
    twice = stage("t", (4, 1, 6), lambda i, u, j: TOTAL[i, u, j] * 2)
    last = stage("y", (4, 1, 6), lambda i, u, j: twice[i, u, j] + TOTAL[i, u, j])
    assert [epilogue for _, epilogue in pairs(stages((X,), (TOTAL, twice, last)))] == [None] * 3
    kept = stages((X,), (TOTAL, twice), (TOTAL.out, twice.out))
    assert [epilogue for _, epilogue in pairs(kept)] == [None, None]
    assert pairs(stages((X,), (TOTAL,))) == [(TOTAL, None)]


def test_statements_come_in_no_pairs() -> None:
    out = placeholder("y", (1,), f32)
    of = stages((), (ExternStage((out,), Store(out, (index(0),), Lit(1, f32))),))
    with pytest.raises(CompilerBug, match="in pairs"):
        pairs(of)
    with pytest.raises(CompilerBug, match="as kernels only"):
        evaluate_stages(of, [])


# --- reading --------------------------------------------------------------------------------------


def test_what_is_read_is_told_once() -> None:
    body = TOTAL.value
    assert len(reductions(body)) == 1
    assert [load.buffer for load in loads(body + body)] == [X]
    assert exposed(Select(Lt(index(0), axis("i")), body, body * 2)) == []
    assert exposed(body * 2 + body) == list(reductions(body))


def test_an_element_may_be_put_for_what_is_read() -> None:
    value = Load(TOTAL.out, (index(0), index(0), index(1))) * 2
    assert with_element(value, TOTAL.out, X[0, 0, 1, 2]) is X[0, 0, 1, 2] * 2
    assert with_element(value, X, X[0, 0, 0, 0]) is value
    assert with_element(value, None, X[0, 0, 0, 0]) is value


def test_a_tensor_expression_is_one_stage_and_back() -> None:
    x = placeholder("out", (4, 3), f32)
    of = compute((x,), (4,), lambda i: reduce("sum", (3,), lambda k: x[i, k]))
    (only,) = stages_of(of).stages
    assert isinstance(only, Each)
    assert digest(compute_of(only)) == digest(of)
    assert only.out.name == Name("out", 1)  # a name of its own


def test_dims_are_those_of_shapes_then_those_of_terms() -> None:
    n, m, limit = (dim_var(each) for each in ("n", "m", "limit"))
    x = placeholder("x", (n, m), f32)
    cut = stage("y", (n, m), lambda i, j: Select(Lt(i, limit), x[i, j], x[0, j]))
    of = stages((x,), (cut,))
    assert of.dims == (n, m, limit)
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = evaluate_stages(of, [values], {n: 2, m: 3, limit: 1})
    assert found.tolist() == [[0, 1, 2], [0, 1, 2]]


def test_an_input_may_be_given_in_another_shape() -> None:
    of = stages((X,), (TOTAL,))
    values = np.arange(120, dtype=np.float32)
    every = evaluate_all(of, [values])
    assert set(every) == {X, TOTAL.out}
    np.testing.assert_array_equal(every[TOTAL.out], values.reshape(4, 1, 6, 5).sum(-1))


def test_names_are_new() -> None:
    of = stages((X,), (TOTAL, EPILOGUES["in place"][0]))
    assert str(Names(of).name("total")) == "total_1"
    assert str(Names(of).name("y")) == "y"  # whoever writes stages anew makes another result
    assert str(Names(of, anew=of.made).name("total")) == "total"
    names = Names(of)
    assert len({names.var("x") for _ in range(3)} | {names.var("i")}) == 4


def test_what_is_asked_for_by_name() -> None:
    of = stages((X,), (TOTAL, EPILOGUES["in place"][0]))
    assert of.find("total") is TOTAL
    assert of.find("x") is None
    assert of.result is of.made[-1]
    assert of.scratch == ()


def test_text(golden: Golden) -> None:
    x, n = placeholder("x", (4, 3), f32), dim_var("n")
    total = stage("total", (4,), lambda i: reduce("sum", (3,), lambda k: x[i, k]))
    guarded = stage("y", (6, n), lambda i, j: Select(Lt(i, index(4)), total[i] * x[i, 0], total[0]))
    shared = stage("z", (4,), lambda i: (total[i] * x[i, 1]) * (total[i] * x[i, 1]))
    sums = recurrence("s", (5,), lambda t: x[t % 4, 0], lambda s, t: s[t - 1] + x[t % 4, 1])
    scalar = stage("one", (), lambda: x[0, 0] + 1)
    out, at, k = buffer("put", (7,), f32), axis("i"), axis("k")
    inside, sizes = Lt(k, index(3)), (index(4),)
    put = Scatter(out, (at,), x[0, 1], (k,), sizes, inside, (k * 2,), out[k] + x[k, 0])
    more = Scatter(out, (at,), None, (k,), sizes, inside, (k,), total[k])
    every = (total, guarded, shared, sums, scalar, put, more)
    golden(f"{stages((x,), every)}\n", "stages")
