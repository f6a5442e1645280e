"""Device placement: one device for each value, few copies, the same meaning."""

from __future__ import annotations

import itertools
from typing import Any, Final

import pytest
from hypothesis import given, settings, strategies as st

from plica.core.diagnostic import IllTyped
from plica.core.name import Name
from plica.ir.graph.check import check
from plica.ir.graph.expression import Apply, Expr, If, Project, Tuple, Var
from plica.ir.graph.module import Module
from plica.ir.op.mark import device_copy, on_device
from plica.ir.type.infer import infer, type_of
from plica.ir.type.term import tensor
from plica.rewrite.device_placement import DevicePlacement, apply_placement, place, plan_devices
from plica.rewrite.graph.walk import expressions
from plica.rewrite.min_cut import cheapest
from tests.conftest import PROFILE, Golden
from tests.rewrite.graph.law import X, let_chain, means_the_same, program, text, vector
from tests.rewrite.test_dominate import exp, op, relu, tanh

EXAMPLES: Final = {"ci": 25, "dev": 100, "deep": 2_000}[PROFILE]


@st.composite
def marked(draw: st.DrawFn, devices: tuple[str, ...] = ("gpu", "cpu")) -> Expr:
    """A dataflow graph of few operators, some of them bound to devices."""
    nodes: list[Expr] = [X]
    for _ in range(draw(st.integers(1, 7))):
        record = draw(st.sampled_from((exp, tanh, op("add"), op("multiply"))))
        made = record(*[draw(st.sampled_from(nodes[-3:])) for _ in record.inputs])
        if made not in nodes:
            nodes.append(made)
    bound = {node: draw(st.sampled_from((None, None, *devices))) for node in nodes[1:]}
    memo: dict[Expr, Expr] = {X: X}
    for node in nodes[1:]:
        assert isinstance(node, Apply)
        new: Expr = Apply(node.op, tuple(memo[arg] for arg in node.args), node.attrs)
        device = bound[node]
        memo[node] = new if device is None else on_device(new, device)
    return memo[nodes[-1]] if draw(st.booleans()) else Tuple((memo[nodes[-1]], memo[nodes[-2]]))


def cost(plan: DevicePlacement, chosen: dict[Expr, str]) -> int:
    """How many copies a choice of devices needs, by hand."""
    copies: set[tuple[Expr, str]] = set()
    main = plan.module.main_function()
    for node in expressions(main):
        parts = node.args if isinstance(node, Apply) else ()
        here = chosen.get(node, "cpu")
        copies.update((part, here) for part in parts if part in chosen and chosen[part] != here)
    results = main.body.items if isinstance(main.body, Tuple) else (main.body,)
    for each in results:
        if each is main.body and isinstance(each, Apply) and each.op == "on_device":
            continue
        if chosen.get(each, "cpu") != "cpu":
            copies.add((each, "cpu"))
    return len(copies)


def least(plan: DevicePlacement, devices: tuple[str, ...]) -> int:
    """The fewest copies over all choices."""
    fixed: dict[Expr, str] = {X: "cpu"}
    nodes = [node for node, _ in plan.devices]
    for node in nodes:
        if isinstance(node, Apply) and node.op == "on_device":
            fixed[node] = fixed[node.args[0]] = dict(node.attrs)["device"]
    free = [node for node in nodes if node not in fixed]
    choices = itertools.product(devices, repeat=len(free))
    return min(cost(plan, {**fixed, **dict(zip(free, each, strict=True))}) for each in choices)


@settings(max_examples=EXAMPLES)
@given(marked())
def test_two_devices_take_the_fewest_copies(body: Expr) -> None:
    plan = plan_devices(program(body, ret=type_of(body)))
    assert len(plan.copies) == cost(plan, dict(plan.devices)) == least(plan, ("cpu", "gpu"))


@settings(max_examples=EXAMPLES)
@given(marked(("gpu", "npu")))
def test_three_devices_take_at_most_twice_as_many(body: Expr) -> None:
    plan = plan_devices(program(body, ret=type_of(body)))
    assert len(plan.copies) == cost(plan, dict(plan.devices))
    assert len(plan.copies) <= 2 * least(plan, ("cpu", "gpu", "npu"))


@given(marked(("gpu", "npu", "cpu")))
def test_the_meaning_stays_and_placing_again_changes_nothing(body: Expr) -> None:
    before = program(body, ret=type_of(body))
    after = place(before)
    assert not check(after)
    assert infer(after) is after
    assert place(after) is after
    assert plan_devices(after).copies == ()
    means_the_same(before, after, (vector(-1, 0.5),))


def copies(module: Module) -> list[tuple[str, str]]:
    nodes = expressions(*[function for _, function in module.functions()])
    found = [dict(n.attrs) for n in nodes if isinstance(n, Apply) and n.op == "device_copy"]
    return [(each["source"], each["target"]) for each in found]


def test_a_value_goes_to_a_device_once() -> None:
    y = exp(X)
    body = on_device(relu(y), "gpu") + on_device(tanh(y), "gpu")
    assert copies(place(program(body))) == [("cpu", "gpu"), ("gpu", "cpu")]


def test_results_of_one_operator_are_together() -> None:
    parts = op("split")(exp(X), 2)
    body = op("concat")((on_device(Project(parts, 0), "gpu"), Project(parts, 1)))
    after = place(program(body))
    plan = plan_devices(after)
    assert {plan.device(n) for n, _ in plan.devices if _is(n, "split")} == {"gpu"}
    means_the_same(program(body), after, (vector(1, 2),))


def _is(node: Expr, name: str) -> bool:
    return isinstance(node, Apply) and node.op == name


def test_parameters_and_results_of_main_may_be_elsewhere() -> None:
    module = program(on_device(exp(on_device(X, "gpu")), "gpu"))
    assert copies(place(module)) == []
    assert plan_devices(module).device(X) == "gpu"


def test_control_flow_is_on_the_default_device() -> None:
    c = Var(Name("c"), tensor((), "bool"))
    chosen = If(c, on_device(exp(X), "gpu"), X)
    before = program(on_device(tanh(chosen), "gpu") + X, (c, X))
    after = place(before)
    assert sorted(copies(after)) == [("cpu", "gpu"), ("cpu", "gpu"), ("gpu", "cpu"), ("gpu", "cpu")]
    for choice in (True, False):
        means_the_same(before, after, (choice, vector(1, 2)))


def test_text(golden: Golden) -> None:
    module = text(
        """
@plica.function
def main(x: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
    y = op.on_device(op.exp(op.tanh(x)), "gpu")
    return op.tanh(y) * 2.0 + x
"""
    )
    golden(str(apply_placement(plan_devices(module))), "place_devices")


@pytest.mark.parametrize(
    "body",
    [
        on_device(on_device(exp(X), "gpu"), "cpu"),
        on_device(exp(X), "gpu") + on_device(exp(X), "cpu"),
        on_device(exp(X), "gpu") + device_copy(exp(X), "cpu", "gpu"),
    ],
)
def test_two_marks_that_disagree_are_refused(body: Expr) -> None:
    with pytest.raises(IllTyped) as error:
        plan_devices(program(body))
    found = error.value.diagnostics[0]
    assert found.code == "device-conflict"
    assert {found.expected, found.found} == {"gpu", "cpu"}


def test_deep_and_shared_terms() -> None:
    assert copies(place(let_chain(2_000))) == []
    body: Expr = X
    for _ in range(2_000):
        body = exp(body)
    body = on_device(body, "gpu")
    for _ in range(60):
        body = body + body
    assert len(copies(place(program(body)))) == 2


@given(st.data())
def test_cuts_against_all_choices(data: st.DataObject) -> None:
    things = list(range(data.draw(st.integers(2, 6))))
    nets = data.draw(
        st.lists(st.lists(st.sampled_from(things), min_size=2, max_size=4), max_size=7)
    )
    pinned: dict[Any, str] = {0: "a", 1: "b"}
    chosen = cheapest(nets, pinned, "a")

    def cut(sides: dict[Any, str]) -> int:
        return sum(len({sides[each] for each in net}) > 1 for net in nets)

    best = min(
        cut({**dict(zip(things, sides, strict=True)), **pinned})
        for sides in itertools.product("ab", repeat=len(things))
    )
    assert cut({each: chosen.get(each, "a") for each in things}) == best
