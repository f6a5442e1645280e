"""`compile(packs=…, contract=…)`: what is asked for is used, or refused with the way to ask."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import plica
from plica import op
from plica.rewrite import approx, exact, holes, pack, rule
from plica.rewrite.fuzz.difference import unlike

(x,) = holes("x")
ROUGH = pack("rough", rule("tanh-near", op.tanh(x), x, float=approx(0.5)), version="1")
MODULE = plica.from_text("""
@plica.function
def main(a: Tensor[(3,), f32]):
    return op.tanh(a)
""")


def test_a_pack_that_could_do_nothing_is_refused() -> None:
    with pytest.raises(plica.UnsupportedError) as refused:
        plica.compile(MODULE, packs=[ROUGH])
    text = str(refused.value)
    assert "No rule of the pack rough is within the contract approx(0.0001)" in text
    assert "contract='approx(0.5)'" in text


@pytest.mark.parametrize("contract", ["approx(0.5)", approx(0.6)])
def test_with_its_contract_it_is_used(contract: Any) -> None:
    data = np.array([0.125, -1.0, 2.0], np.float32)
    made = plica.compile(MODULE, packs=[ROUGH], contract=contract)
    assert unlike(made(data), data, exact) is None


@pytest.mark.parametrize("given", [3, None])
def test_what_is_no_pack_is_refused(given: Any) -> None:
    with pytest.raises(plica.UnsupportedError, match="no rule pack"):
        plica.compile(MODULE, packs=[given])


def test_an_unknown_contract_is_refused() -> None:
    with pytest.raises(plica.UnsupportedError, match="Unknown float contract"):
        plica.compile(MODULE, contract="roughly")
