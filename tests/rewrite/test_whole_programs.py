"""Layouts, devices and composites on whole generated programs: they keep the laws of all passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import given, settings, strategies as st

from plica.core.digest import digest
from plica.ir.graph.module import Module
from plica.ir.type.infer import infer
from plica.rewrite import either, holes
from plica.rewrite.device_placement import place
from plica.rewrite.dominate import dominates
from plica.rewrite.layout.convert import convert_layout
from plica.rewrite.partition import inline_composites, partition
from tests.conftest import PROFILE
from tests.rewrite.graph.law import keeps_laws
from tests.strategies import modules

EXAMPLES: Final = {"ci": 4, "dev": 40, "deep": 2_000}[PROFILE]
x, y = holes("x y")
REGION: Final = dominates(either(x + y, -x), either(x * y, x - y), either(x + y, x * y))
PASSES: Final[dict[str, Callable[[Module], Module]]] = {
    "layout": lambda module: convert_layout(module, {"nn.conv": "NHWC", "nn.max_pool": "CHWN"}),
    "blocks": lambda module: convert_layout(module, {"nn.conv": "NCHW2c"}),
    "device": place,
    "composite": lambda module: partition(module, either(x + y, x * y), "pair"),
    "region": lambda module: partition(module, REGION, "region"),
}


@pytest.mark.parametrize("name", sorted(PASSES))
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_the_laws_of_passes(name: str, data: st.DataObject) -> None:
    keeps_laws(PASSES[name], data)


@settings(max_examples=EXAMPLES)
@given(modules())
def test_composites_are_written_out_again(module: Module) -> None:
    before = infer(module)
    after = partition(before, either(x + y, x * y), "pair")
    assert digest(inline_composites(after)) == digest(before)
