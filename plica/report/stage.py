"""Stages: the module as it was read, and after every pass and every run of rules.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Function, Var
>>> from plica.ir.type.infer import infer
>>> from plica.ir.graph.module import module
>>> from plica.ir.type.term import tensor
>>> x, main = Var(Name("x"), tensor((2,), "f32")), Var(Name("main"), None)
>>> of = infer(module({main: Function((), (), (x,), None, (x + 1.0) * x)}, main))
>>> from plica.pipeline import lower
>>> [(stage.name, stage.operators) for stage in stages(lower(of).derivation)]
[('as read', (('add', 1), ('multiply', 1))), ('fuse', (('fused group', 1),))]
"""

from __future__ import annotations

import itertools
from collections import Counter

from attrs import frozen

from plica.core import post_order
from plica.ir.graph import Apply, Call, Module
from plica.rewrite.derivation import Derivation, at
from plica.rewrite.fuse import is_primitive


@frozen(eq=False)
class ModuleStage:
    """A state of the module: what led to it, the rules that were used and how often."""

    name: str
    module: Module
    rules: tuple[tuple[str, int], ...] = ()

    @property
    def operators(self) -> tuple[tuple[str, int], ...]:
        """How often each operator is applied, the most frequent first; a fused group is one."""
        return counted(self.module)


def stages(derivation: Derivation) -> tuple[ModuleStage, ...]:
    """All states that differ from the one before, from the module as it was read on."""
    module_stages: list[ModuleStage] = []
    source = derivation.source
    assert isinstance(source, Module)
    module_stages.append(ModuleStage("as read", source))
    done = 0
    runs = itertools.groupby(
        derivation.steps, lambda step: step if step.rule.is_pass else None
    )  # rules that follow one another are one stage
    for key, group in runs:
        steps = list(group)
        done += len(steps)
        module = at(derivation, done)
        assert isinstance(module, Module)
        rules: tuple[tuple[str, int], ...] = ()
        if key is not None:
            name = key.rule.name
        else:
            name = "rules"
            rules = tuple(Counter(step.rule.name for step in steps).most_common())
        if key is not None and name == "infer":
            module_stages[-1] = ModuleStage(module_stages[-1].name, module, module_stages[-1].rules)
        else:
            module_stages.append(ModuleStage(name, module, rules))
    return tuple(module_stages)


def counted(module: Module) -> tuple[tuple[str, int], ...]:
    """The number of applications of each operator; operators inside a fused group count as part of
    it."""
    found: Counter[str] = Counter()
    for _, function in module.functions():
        inner = {
            term
            for node in post_order(function.body)
            if isinstance(node, Call) and is_primitive(node.callee)
            for term in post_order(node.callee)
        }
        for node in post_order(function.body):
            if isinstance(node, Call) and is_primitive(node.callee):
                found["fused group"] += 1
            elif isinstance(node, Apply) and node not in inner:
                found[node.op] += 1
    return tuple(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))
