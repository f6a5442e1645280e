"""Comparing: planted mistakes are found, in rules and in kernels, and named with their nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from plica.bench.peer import difference
from plica.bench.sample import sample
from plica.cli.model import here
from plica.codegen.backend import AnyTarget
from plica.op import nn
from plica.pipeline import Lowered
from plica.report import compiled
from plica.report.compare import Run, built, compare
from plica.rewrite import holes, pack, rule
from tests.report.model import compiled_small, read_small

(x,) = holes("x")
WRONG = pack("wrong", rule("relu-is-nothing", nn.relu(x), x), version="1")


@pytest.mark.parametrize("name", ["mlp", "transformer"])
def test_a_model_compiled_rightly_agrees(name: str) -> None:
    made = compiled_small(name)
    arrays = sample(made.executable.inputs)
    found = compare(made, arrays, 1e-4)
    assert found.agrees
    assert len(found.kernels) == len(made.executable.artefact.launches)
    assert max(each.difference for each in found.kernels) < 1e-5


def test_a_wrong_rule_is_found_with_the_node_it_was_used_at() -> None:
    made = compiled("mlp", read_small("mlp"), here(), packs=(WRONG,))
    found = compare(made, sample(made.executable.inputs), 1e-4)
    assert not found.agrees
    assert found.step is not None
    assert found.step.rule == "relu-is-nothing"
    assert found.step.nodes[0].startswith("Relu")
    assert found.kernel is None  # the code computes what the wrong module means


def test_a_wrong_kernel_is_found_with_its_nodes() -> None:
    made = compiled_small("mlp")
    arrays = sample(made.executable.inputs)

    def broken(lowered: Lowered, target: AnyTarget) -> Run:
        right = built(lowered, target)

        def run(*given: object) -> Any:
            found = right(*given)
            if not isinstance(found, tuple):
                return found
            return tuple(each + (at >= 1) for at, each in enumerate(found))

        return run

    found = compare(made, arrays, 1e-4, make=broken)
    assert found.step is None
    assert found.kernel is not None
    assert found.kernel.number == 1
    assert any(node.startswith("Gemm") for node in found.kernel.nodes)
    assert not found.agrees


def test_what_is_not_finite_must_be_the_same() -> None:
    inf, nan = np.inf, np.nan
    assert difference([np.array([1.0, nan, inf])], [np.array([1.0, nan, inf])]) == 0
    assert difference([np.array([1.0, nan])], [np.array([1.0, 2.0])]) == inf
    assert difference([np.array([1.0, inf])], [np.array([1.0, -inf])]) == inf
    assert difference([np.array([1.0, 2.0])], [np.array([1.0, nan])]) == inf
