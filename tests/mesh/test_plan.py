"""Plans: replayed, they give programs that mean what the module means; refusals say why."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from benchmarks.mesh_decoder import DecoderSize, decoder
from plica import op
from plica.core import Malformed
from plica.ir.interpret.interpreter import interpret
from plica.mesh import (
    Mesh,
    MeshPlan,
    Topology,
    automatic_plan,
    bisect,
    diff,
    picture,
    plan_digest,
    replay,
    simulate,
)
from plica.mesh.auto import classes
from plica.mesh.fuzz import judged, mesh_case
from plica.mesh.program import flat_program
from plica.op import nn
from plica.rewrite.fuzz.driver import Skipped
from plica.rewrite.fuzz.gradient.case import differentiable
from plica.runtime.error import InputError, UnsupportedError
from tests.conftest import Golden
from tests.mesh.network import MESH, inputs, module_of, perceptron, var

MEGATRON = MeshPlan.from_text("split x 0 on data; split w1 1 on model")


def test_one_split_of_a_weight_gives_megatron(golden: Golden) -> None:
    sharded = replay(MEGATRON, perceptron(last=False), MESH)
    assert sharded.cost.exchanges == 1  # one all-reduce, after the second product
    golden(f"{sharded.module}\n{picture(sharded)}\n")


@pytest.mark.parametrize(
    "plan",
    ["", "split x 0 on data", "split w1 1 on model", "split x 0 on data; split w1 1 on model",
     "split result.0 1 on model", "split x 1 on data; split w2 1 on data",
     "replicate matmul.0 on model; split w1 1 on model", "split b* 0 on model"],
)  # fmt: skip
def test_a_plan_keeps_the_meaning(plan: str) -> None:
    module = perceptron()
    expected = interpret(module, *inputs())
    found = simulate(replay(MeshPlan.from_text(plan), module, MESH), *inputs())
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@settings(max_examples=8)
@given(st.integers(0, 1 << 20))
def test_random_plans_keep_the_meaning_of_random_programs(number: int) -> None:
    case = mesh_case(1, number, differentiable())
    if not isinstance(case, Skipped):
        assert judged(case) is None


def test_a_constant_is_no_term_of_a_sum() -> None:
    x = var("x", 4, 6)
    module = module_of(x, gives=op.sum(x, axis=1, keepdims=True) / 6.0 + 0.5)
    sharded = replay(MeshPlan.from_text("split x 1 on data"), module, Mesh.parse("data=2"))
    given_ = np.arange(24, dtype=np.float32).reshape(4, 6)
    np.testing.assert_allclose(simulate(sharded, given_), interpret(module, given_))


def test_replaying_gives_the_same_digest() -> None:
    module = perceptron()
    one, two = (plan_digest(replay(MEGATRON, module, MESH)) for _ in range(2))
    assert one == two
    assert one != plan_digest(replay(MEGATRON.prefix(1), module, MESH))
    assert one != plan_digest(replay(MEGATRON, module, Mesh.parse("model=4,data=2")))


def test_texts_round_trip() -> None:
    plan = MeshPlan.from_text("split a.* 0 on data  # rows\nreplicate b on model; split c 2 on x")
    assert MeshPlan.from_text(str(plan)) == MeshPlan.from_json(plan.to_json()) == plan
    assert diff(plan, plan.prefix(1)).count("\n- ") == 2


def test_bisection_names_the_first_bad_step() -> None:
    plan = MeshPlan.from_text("split x 0 on data; split w1 1 on model; split b2 0 on model")
    asked = []

    def is_bad(prefix: MeshPlan) -> bool:
        asked.append(len(prefix.steps))
        return "w1" in str(prefix)

    assert bisect(plan, is_bad) == 1
    assert bisect(plan.prefix(1), is_bad) is None
    assert len(set(asked)) <= 4


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ("split z 0 on data", "no value 'z'"),
        ("split x 0 on rows", "no axis 'rows'"),
        ("split x 7 on data", "no dim 7"),
        ("split x x on data", "no step of a plan"),
        ("split b2 0 on model; split odd 0 on model", "do not divide 7"),
    ],
)
def test_steps_that_cannot_be_are_refused(plan: str, said: str) -> None:
    x, odd = var("x", 8, 16), var("odd", 7)
    module = module_of(x, odd, var("b2", 16), gives=nn.relu(x) + op.sum(odd))
    with pytest.raises(InputError, match=said):
        replay(MeshPlan.from_text(plan), module, MESH)


@pytest.mark.parametrize("text", ["", "[]", '{"steps": [1]}', '{"steps": [], "plica-plan": 2}'])
def test_what_is_no_plan_in_json_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        MeshPlan.from_json(text)


def test_strict_refuses_what_needs_a_dim_in_full() -> None:
    x = var("x", 8, 4)
    module = module_of(x, gives=op.cumsum(nn.relu(x), axis=0))
    plan = MeshPlan.from_text("split x 0 on data")
    with pytest.raises(InputError, match=r"cumsum\.0 needs dim 0 of nn\.relu\.0 in full"):
        replay(plan, module, MESH, strict=True)
    array = np.arange(32, dtype=np.float32).reshape(8, 4)
    found = simulate(replay(plan, module, MESH), array)
    np.testing.assert_array_equal(found, interpret(module, array))


def test_open_sizes_are_refused() -> None:
    import plica

    module = plica.from_text(
        "@plica.function\ndef f(x: Tensor[('n', 2), f32]) -> Tensor[('n', 2), f32]:\n"
        "    return op.exp(x)\n"
    )
    with pytest.raises(UnsupportedError, match="no fixed shape"):
        replay(MeshPlan(), module, MESH)


def test_wrong_inputs_are_refused() -> None:
    sharded = replay(MEGATRON, perceptron(), MESH)
    with pytest.raises(InputError, match="has 5 inputs"):
        simulate(sharded, inputs()[0])
    with pytest.raises(InputError, match="input b2"):
        simulate(sharded, *inputs()[:4], np.zeros(3, np.float32))


SMALL = DecoderSize(layers=3, width=16, heads=4, shared=2, hidden=32, words=24)


def test_equal_layers_get_equal_plans_and_send_no_more_than_megatron() -> None:
    module = decoder(SMALL, 1, 8)
    mesh = Mesh.parse("model=2")
    names = flat_program(module).names
    groups = [tuple(names[v] for v in group) for group in classes(flat_program(module))]
    assert tuple(f"layer{n}_up" for n in range(3)) in groups
    fast = Topology.from_json('{"links": [{"bandwidth": 1e12, "latency": 1e-9}],'
                              ' "flops": 1e9, "memory": 1e12}')  # fmt: skip
    plan = automatic_plan(module, mesh, fast)
    sharded = replay(plan, module, mesh)
    for role in ("q", "up", "down", "o"):
        assert len({sharded.layouts[names.index(f"layer{n}_{role}")] for n in range(3)}) == 1
    all_reduce = 2 * (1 * 8 * 16 * 4) / 2  # of batch x length x width in f32, on two devices
    assert 0 < sum(sharded.cost.sent) <= 2 * 3 * all_reduce
    words = [np.arange(8).reshape(1, 8)]
    random = np.random.default_rng(1)
    weights = [random.standard_normal(s).astype(np.float32) / 4 for s in SMALL.weights().values()]
    found = simulate(sharded, *words, *weights)
    np.testing.assert_allclose(found, interpret(module, *words, *weights), rtol=1e-4, atol=1e-4)


def test_a_topology_that_is_none_is_refused() -> None:
    for text in ("", "{}", '{"links": [{"bandwidth": -1, "latency": 0}], "flops": 1, "memory": 1}'):
        with pytest.raises(InputError, match="no topology"):
            Topology.from_json(text)
