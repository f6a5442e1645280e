"""The whole way through the graph pipeline, as one derivation: meaning, provenance, bisection."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from plica.core.fold import post_order
from plica.core.term import Term
from plica.frontend.zoo import mobilenet, resnet
from plica.ir.graph.expression import Apply, Const
from plica.ir.graph.module import Module
from plica.ir.interpret.interpreter import interpret
from plica.ir.type.infer import infer
from plica.pipeline import lower
from plica.rewrite import became, exact, first_bad, holes, pack, rewrite, rule, why
from plica.rewrite.derivation import Derivation, at, provenance
from plica.rewrite.optimise import OPTIMISE, optimise
from plica.rewrite.rule_pass import Setting, packs_of


@pytest.fixture(scope="module")
def network() -> Module:
    return resnet(18, image=32, width=0.125, classes=10)


@pytest.fixture(scope="module")
def compiled(network: Module) -> Derivation:
    return lower(network).derivation


def operators(term: Term) -> Counter[str]:
    return Counter(node.op for node in post_order(term) if isinstance(node, Apply))


def image(seed: int = 0) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.random.default_rng(seed).standard_normal((1, 3, 32, 32)).astype(np.float32)


def test_a_residual_network_becomes_convolutions_with_epilogues(network: Module) -> None:
    after = optimise(network).module
    found = operators(after)
    assert found["nn.conv"] == 20
    assert found["nn.relu"] == 17
    assert not found["nn.batch_norm"]
    assert not found["multiply"]
    expected, got = interpret(network, image()), interpret(after, image())
    assert np.abs(got - expected).max() <= 1e-4 * np.abs(expected).max()


def test_an_exact_compilation_changes_no_bit(network: Module) -> None:
    after = optimise(network, exact)
    assert after.derivation.contract == exact
    assert np.array_equal(interpret(after.module, image()), interpret(network, image()))


def test_optimising_twice_is_optimising_once(network: Module) -> None:
    once = optimise(network).module
    assert optimise(once).module is once


def test_every_final_operator_comes_from_a_source_operator(
    network: Module, compiled: Derivation
) -> None:
    sources = {node for node in post_order(network) if isinstance(node, Apply)}
    final = at(compiled, len(compiled.steps))
    origins = provenance(compiled)
    for node in post_order(final):
        if isinstance(node, Apply):
            assert sources.intersection(origins[node][0]), node


def test_why_and_became(network: Module, compiled: Derivation) -> None:
    convolution = next(
        node for node in post_order(network) if isinstance(node, Apply) and node.op == "nn.conv"
    )
    after = [each for each in became(compiled, convolution) if isinstance(each, Apply)]
    assert "nn.conv" in {each.op for each in after}
    made = next(each for each in after if each.op == "nn.conv")
    reason = why(compiled, made)
    assert convolution in reason.sources
    assert {"nn.batch_norm", "nn.conv"} == {
        each.op for each in reason.sources if isinstance(each, Apply)
    }
    assert "conv-scale" in {each.name for each in reason.rules}


def test_a_planted_wrong_rule_is_named_by_bisection(network: Module) -> None:
    from plica.ir.op import find  # one operator, here only

    (x,) = holes("x")
    pool, largest = find("nn.global_avg_pool"), find("nn.global_max_pool")
    assert pool is not None
    assert largest is not None
    planted = pack("planted", rule("planted", pool(x), -largest(x)), version="0")
    derivation = optimise(network, packs=(planted,)).derivation
    expected = interpret(network, image())
    asked = 0

    def good(term: Term) -> bool:
        nonlocal asked
        asked += 1
        assert isinstance(term, Module)
        got = interpret(infer(term), image())
        return bool(np.abs(got - expected).max() <= 1e-3 * np.abs(expected).max())

    bad = first_bad(derivation, good)
    assert bad is not None
    assert bad.step.rule.name == "planted"
    assert asked <= len(derivation.steps).bit_length() + 1


def test_the_history_of_a_compilation_is_small() -> None:
    derivation = lower(mobilenet(width=0.25, image=64)).derivation
    kept = [derivation.source, *(t for step in derivation.steps for t in (step.before, step.after))]
    final = at(derivation, len(derivation.steps))
    assert bytes_of(kept) <= 3 * bytes_of([final])


def bytes_of(roots: list[Term]) -> int:
    seen: set[Term] = set()
    for root in roots:
        if root not in seen:
            seen.update(post_order(root))
    return sum(200 + (len(node.data) if isinstance(node, Const) else 0) for node in seen)


def test_the_packs_of_a_user_come_first() -> None:
    (x,) = holes("x")
    mine = pack("mine", rule("mine", x + x, x * 2), version="1")
    assert OPTIMISE.names[:2] == ("to-dataflow", "packs")
    assert packs_of(OPTIMISE.find("packs"), Setting(packs=(mine,))) == (mine,)
    assert all(each.why for each in OPTIMISE)


def test_rules_beyond_the_contract_are_left_out(network: Module) -> None:
    (scale,) = packs_of(OPTIMISE.find("scale"), Setting(exact))
    _, derivation = rewrite(network, scale)
    assert not derivation.steps
