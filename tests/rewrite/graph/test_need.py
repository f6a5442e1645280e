from __future__ import annotations

from hypothesis import given

from plica.core.fold import post_order
from plica.ir.graph.expression import Let
from plica.ir.graph.module import Module
from plica.ir.type.infer import infer
from plica.rewrite.graph.alpha_rename import alpha_renamed
from plica.rewrite.graph.dead import without_unused
from tests.rewrite.graph.law import WHOLE, let_chain, text, wide_lets
from tests.strategies import modules


@WHOLE
@given(modules())
def test_every_let_that_is_left_is_used(module: Module) -> None:
    known = infer(module)
    for _, function in known.functions():
        made = without_unused(alpha_renamed(function, known.names))
        assert without_unused(made) is made
        nodes = set(post_order(made.body))
        for node in nodes:
            if isinstance(node, Let):
                assert any(node.var in each._children for each in nodes if each is not node) or (
                    node.body is node.var
                )


def test_what_only_uses_itself_is_not_used() -> None:
    source = """
@plica.function
def main(x: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
    def loop(y: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
        return loop(y)
    a = loop(x)
    b = a + a
    return x
"""
    function = text(source).main_function()
    assert without_unused(function).body is function.params[0]


def test_what_is_all_used_stays() -> None:
    for module in (let_chain(2_000), wide_lets(1_000)):
        function = module.main_function()
        assert without_unused(function) is function
