from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from plica.ir.driver import run
from plica.ir.graph.module import Module
from plica.ir.passes import Pass, PassError, Pipeline
from plica.ir.type.infer import infer
from plica.rewrite.graph.catalogue import PASSES, find_pass
from tests.conftest import Golden
from tests.rewrite.graph.law import WHOLE, doubling, let_chain, means_the_same
from tests.strategies import inputs_for, modules

EVERYWHERE = [each for each in PASSES if each.name not in ("monomorphise", "defunctionalize")]


def test_the_catalogue(golden: Golden) -> None:
    golden(str(Pipeline(PASSES)))


def test_a_wrong_name_is_refused() -> None:
    with pytest.raises(PassError, match="to-anf"):
        find_pass("to-anff")


@WHOLE
@given(st.data())
def test_passes_work_in_any_order(data: st.DataObject) -> None:
    module = infer(data.draw(modules()))
    order = data.draw(st.permutations(EVERYWHERE))
    made = run(Pipeline(tuple(order)), module, debug=True)
    means_the_same(module, made, data.draw(inputs_for(module)))


@pytest.fixture(
    scope="module", params=[2_000, pytest.param(20_000, marks=pytest.mark.slow)], ids=str
)
def awkward(request: pytest.FixtureRequest) -> tuple[Module, ...]:
    """Programs that no walk may recurse on, nor unfold."""
    return let_chain(request.param), doubling(60)


@pytest.mark.parametrize("each", PASSES, ids=lambda each: each.name)
def test_a_long_chain_and_many_ways(each: Pass, awkward: tuple[Module, ...]) -> None:
    for module in awkward:
        assert infer(each.run(module)).main is module.main
