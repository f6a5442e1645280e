"""Origins: every kernel knows its nodes, and no node is lost."""

from __future__ import annotations

import pytest

from plica.codegen.program import launches
from plica.core.digest import digest
from plica.pipeline import lower
from plica.report.origin import origins
from plica.report.stage import counted, stages
from tests.report.model import compiled_small, read_small, studied


@pytest.mark.parametrize("name", ["dqn", "transformer"])
def test_every_kernel_has_nodes_and_every_node_a_kernel(name: str) -> None:
    made = compiled_small(name)
    found = origins(made.lowered, made.nodes)
    assert len(found) == len(launches(made.lowered.program))
    assert all(each.nodes and each.operators for each in found)
    named = {node for each in found for node in each.nodes}
    # What only shows a tensor with another shape takes no kernel.
    every = {node for names in made.nodes.values() for node in names}
    lost = {node.split("_")[0] for node in every - named}
    assert lost <= {"Flatten", "Reshape", "Transpose"}


def test_kernels_alike_are_told_apart() -> None:
    made = compiled_small("transformer")
    found = origins(made.lowered, made.nodes)
    products = [each.nodes for each in found if any("MatMul" in node for node in each.nodes)]
    once = [node for nodes in products for node in nodes if node.startswith("MatMul")]
    assert len(once) == len(set(once))


def test_the_rules_on_the_way_are_named() -> None:
    read = read_small("dqn")
    lowered = lower(read.module)
    assert all(not each.rules or all(each.rules) for each in origins(lowered, read.nodes))


def test_stages_begin_with_the_model_and_end_with_what_was_compiled() -> None:
    made = compiled_small("transformer")
    found = stages(made.lowered.derivation)
    assert found[0].name == "as read"
    assert digest(found[-1].module) == digest(made.lowered.final)
    assert [each.name for each in found][-1] == "fuse"
    used = sum(count for each in found for _, count in each.rules)
    assert used == sum(not step.rule.is_pass for step in made.lowered.derivation.steps)


def test_a_fused_group_counts_once() -> None:
    study = studied("dqn")
    last = dict(counted(study.stages[-1].module))
    launched = sum(count for name, count in last.items() if name not in ("reshape", "nn.flatten"))
    assert launched == len(study.rows)
