"""Patterns of several outputs: against all groups by brute force, cycles, sole users, refusals."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import plica
from plica import op
from plica.core.diagnostic import RuleRefused
from plica.ir.graph.check import check
from plica.ir.graph.expression import Expr, Tuple
from plica.ir.graph.module import Module
from plica.rewrite import dominates, holes, match, outputs, pack, rewrite, rewrite_outputs, rule
from plica.rewrite.check.verdict import Refuted, Tested
from plica.rewrite.derivation import at
from plica.rewrite.graph.walk import expressions, operands
from plica.rewrite.output_groups import output_groups
from tests.rewrite.graph.law import X

x, y, z = holes("x y z")
relu, exp, tanh = op.nn.relu, op.exp, op.tanh
H = relu(x)
TWINS = outputs(exp(H), tanh(H))
SOLE = outputs(exp(H), tanh(H), sole=H)


@st.composite
def graphs(draw: st.DrawFn) -> Expr:
    nodes: list[Expr] = [X]
    for _ in range(draw(st.integers(2, 12))):
        record: Any = draw(st.sampled_from([relu, exp, tanh, op.add]))
        args = [draw(st.sampled_from(nodes[-5:])) for _ in range(2 if record is op.add else 1)]
        nodes.append(record(*args))
    return Tuple(tuple(nodes[-3:]))


@given(graphs())
def test_groups_are_those_of_the_definition(root: Expr) -> None:
    nodes = expressions(root)
    wanted, alone = set(), set()
    for one, other in itertools.permutations(nodes, 2):
        if match(TWINS, Tuple((one, other))) is None:
            continue
        if one in expressions(*operands(other)) or other in expressions(*operands(one)):
            continue
        wanted.add((one, other))
        (shared,) = operands(one)
        if all(user in (one, other) for user in nodes if shared in operands(user)):
            alone.add((one, other))
    assert set(output_groups(TWINS, root)) == wanted
    assert set(output_groups(SOLE, root)) == alone


def joined(m: Any) -> Any:
    """Two products of one input as one product, cut apart."""
    a, b = m.shape("y"), m.shape("z")
    if len(m.shape("x")) != 2 or len(a) != 2 or len(b) != 2:
        return None
    return op.split(m.x @ op.concat((m.y, m.z), axis=1), (a[1],), axis=1)


JOIN = rule("two-products", outputs(x @ y, x @ z), joined)


def program(body: str) -> Any:
    shapes = "v: Tensor[(3, 4), f32], p: Tensor[(4, 4), f32], q: Tensor[(4, 4), f32]"
    return plica.from_text(f"@plica.function\ndef main({shapes}):\n{body}")


ARGS = [np.random.default_rng(0).standard_normal(s).astype("f4") for s in ((3, 4), (4, 4), (4, 4))]


def test_rules_of_several_outputs_are_checked() -> None:
    assert isinstance(plica.check(JOIN, examples=20), Tested)
    swapped = rule("swapped", outputs(exp(x), tanh(x)), (tanh(x), exp(x)))
    assert isinstance(plica.check(swapped, examples=20), Refuted)


def test_layers_one_behind_another_are_joined_in_one_rewriting() -> None:
    module = program("    h = v @ p\n    k = v @ q\n    return (h @ p) + (h @ q) + k\n")
    made, derivation = rewrite(module, pack("join", JOIN, version="1"))
    assert isinstance(made, Module)
    check(made)
    assert str(made).count("@ _0") == 2
    assert len(derivation.steps) == 4
    assert at(derivation, 4) is made
    assert np.allclose(plica.interpret(made, *ARGS), plica.interpret(module, *ARGS))
    compiled = plica.compile(module, packs=[pack("join", JOIN, version="1")])
    assert np.allclose(compiled(*ARGS), plica.interpret(module, *ARGS), atol=1e-4)
    assert "two-products" in str(compiled.derivation)


def test_groups_that_would_depend_on_each_other_are_not_both_joined() -> None:
    # a1 is computed from b1 and b2 from a2: one of the pairs may be joined, not both.
    body = "    b1 = v @ p\n    a2 = v @ q\n    r = op.nn.relu(b1)\n    s = op.exp(a2)\n"
    module = program(body + "    return (r @ p) + (s @ p) + (r @ q) + (s @ q)\n")
    same = rule("same-weight", outputs(x @ z, y @ z), lambda m: op.split(
        op.concat((m.x, m.y), axis=0) @ m.z, (m.shape("x")[0],), axis=0)
        if len(m.shape("x")) == len(m.shape("y")) == len(m.shape("z")) == 2 else None)  # fmt: skip
    for rules in ((JOIN, same), (same, JOIN), (same,)):
        made, _ = rewrite_outputs(module, rules)
        check(made)
        assert np.allclose(plica.interpret(made, *ARGS), plica.interpret(module, *ARGS), atol=1e-4)


def test_terms_under_different_lets_are_not_joined() -> None:
    module = program(
        "    r = op.exp(v)\n    s = op.tanh(r @ p)\n    return (r @ q) + (s @ p) + s + r\n"
    )
    made, _ = rewrite_outputs(module, [JOIN])
    check(made)
    assert np.allclose(plica.interpret(made, *ARGS), plica.interpret(module, *ARGS), atol=1e-4)


def test_terms_of_different_branches_are_not_joined() -> None:
    module = program("    if op.sum(v) > 0.0:\n        return v @ p\n    return v @ q\n")
    assert rewrite_outputs(module, [JOIN])[1].steps == ()
    both = program("    if op.sum(v) > 0.0:\n        return (v @ p) + (v @ q)\n    return v @ p\n")
    assert rewrite_outputs(both, [JOIN])[1].steps == ()  # v @ p is needed without v @ q, too
    inside = program("    if op.sum(v) > 0.0:\n        return (v @ p) + (v @ q)\n    return v\n")
    made, derivation = rewrite_outputs(inside, [JOIN])
    check(made)
    assert len(derivation.steps) == 2


def test_a_shared_residual_is_in_one_group_only() -> None:
    """Three users of one value are one pair and a single; each is joined once."""
    module = program("    return (v @ p) + (v @ q) + (v @ op.transpose(p, (1, 0)))\n")
    made, derivation = rewrite_outputs(module, [JOIN])
    assert len(derivation.steps) == 4  # the pair, then what it became and the third
    assert str(made).count(" @ ") == 1
    assert np.allclose(plica.interpret(made, *ARGS), plica.interpret(module, *ARGS), atol=1e-4)


def test_one_output_may_stay_and_the_other_be_made_of_it() -> None:
    keep = rule("reuse", outputs(exp(x), exp(-x)), (exp(x), 1 / exp(x)), float="approx(1e-5)")
    module = program("    return op.exp(v) + op.exp(-v)\n")
    made, derivation = rewrite(module, [keep])
    assert str(made).count("op.exp(") == 1
    assert len(derivation.steps) == 1


ONE = rule("one", relu(relu(x)), relu(x))

# fmt: off
REFUSED: list[tuple[str, Any]] = [
    ("two patterns or more",       lambda: outputs(exp(x))),
    ("two patterns or more",       lambda: outputs(exp(x), y)),
    ("shares no argument",         lambda: outputs(exp(x), exp(y))),
    ("must be a part",             lambda: outputs(exp(x), tanh(x), sole=relu(x))),
    ("must be a part",             lambda: outputs(exp(x), tanh(x), sole=exp(x))),
    ("cannot have one type",       lambda: rule("n", outputs(exp(x), tanh(x)), exp(x))),
    ("asks who uses a term",       lambda: rewrite(exp(X), [rule("n", TWINS, (tanh(H), exp(H)))])),
    ("is one term",                lambda: rewrite_outputs(program("    return v\n"), [ONE])),
    ("holds what it replaces",     lambda: rewrite_outputs(
        program("    return op.exp(v) + op.tanh(v)\n"),
        [rule("n", outputs(exp(x), tanh(x)), lambda m: (exp(m.x) * 1.0, tanh(m.x)))])),
    ("does not come to an end",    lambda: rewrite_outputs(
        program("    return op.exp(v) + op.tanh(v)\n"),
        [rule("n", outputs(exp(x), tanh(x)), lambda m: (exp(m.x * 1.0), tanh(m.x * 1.0)))])),
]
# fmt: on


@pytest.mark.parametrize(("words", "make"), REFUSED, ids=[words for words, _ in REFUSED])
def test_what_can_be_no_rule_of_several_outputs_is_refused(words: str, make: Any) -> None:
    with pytest.raises(RuleRefused, match=words):
        make()


def test_regions_and_several_outputs_work_in_one_pack() -> None:
    late = rule("relu-once", dominates(exp(x), relu(y), relu(z)), lambda m: relu(m.parent))
    module = program("    k = op.nn.relu(op.nn.relu(op.exp(v)))\n    return (k @ p) + (k @ q)\n")
    made, derivation = rewrite(module, pack("both", late, JOIN, version="1"))
    assert {step.rule.name for step in derivation.steps} == {"relu-once", "two-products"}
    assert isinstance(made, Module)
    assert np.allclose(plica.interpret(made, *ARGS), plica.interpret(module, *ARGS), atol=1e-4)
