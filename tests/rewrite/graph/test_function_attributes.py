"""Attributes of functions survive every pass, unless the pass declares that it drops them."""

from __future__ import annotations

import pytest

import plica
from plica.ir.graph.expression import Function
from plica.ir.graph.module import Module
from plica.ir.passes import Pass
from plica.rewrite.graph import PASSES

SOURCE = """
import plica
from plica import op

@plica.function(attrs={"Compiler": "other", "global_symbol": "layer"})
def layer(x: Tensor[(3,), f32]) -> Tensor[(3,), f32]:
    y = op.exp(x)
    return y + y

@plica.function
def main(x: Tensor[(3,), f32]) -> Tensor[(3,), f32]:
    return layer(layer(x)) * 2.0
"""


def attributes(of: Module) -> set[str]:
    """The attributes that functions of a module have."""
    functions = [each for each in of.values if isinstance(each, Function)]
    return {name for each in functions for name, _ in each.attrs}


@pytest.mark.parametrize("each", PASSES, ids=lambda each: each.name)
def test_they_survive_what_does_not_drop_them(each: Pass) -> None:
    module = plica.from_text(SOURCE)
    for name in each.before:
        module = next(other for other in PASSES if name in other.after)(module)
    kept = attributes(each(module))
    assert kept >= {"Compiler", "global_symbol"} or "attributes" in each.drops


def test_they_are_read_back() -> None:
    module = plica.from_text(SOURCE)
    assert attributes(plica.from_text(str(module))) == {"Compiler", "global_symbol"}


def test_what_is_dropped_is_declared_where_it_happens() -> None:
    dropping = {each.name for each in PASSES if "attributes" in each.drops}
    assert dropping == {"evaluate-partially", "inline"}
