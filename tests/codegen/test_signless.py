"""Extremes where the sign of a zero does not matter: nan is kept, and so is every value."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest

import plica
from plica import op
from plica.core.name import Name
from plica.ir.graph.expression import Expr, Function, Tuple, Var
from plica.ir.graph.module import Module, module
from plica.ir.type.dtype import DType, bf16, f16, f32, f64
from plica.ir.type.term import tensor

EDGES = (0.0, -0.0, math.nan, 1.0, -1.0, math.inf, -math.inf)
PAIRS = tuple(product(EDGES, EDGES)) * 3


def model(body: Expr, *params: Var) -> Module:
    main = Var(Name("main"), None)
    return module({main: Function((), (), params, None, body)}, main)


def equal(found: Any, wanted: Any) -> bool:
    """Whether arrays are equal but for the signs of zeros."""
    nan = np.isnan(wanted)
    return bool((np.isnan(found) == nan).all() and (nan | (found == wanted)).all())


@pytest.mark.parametrize("contract", ["signless_zero", "approx(0.0001)"])
@pytest.mark.parametrize("of", [f16, bf16, f32, f64], ids=str)
def test_values_and_nan_are_kept(of: DType, contract: str) -> None:
    x, y = (Var(Name(name), tensor((len(PAIRS),), of)) for name in "xy")
    rows = Var(Name("rows"), tensor((len(PAIRS), 2), of))
    made = [op.maximum(x, y), op.minimum(x, y), op.max(rows, axis=(1,)), op.min(rows, axis=(1,))]
    made += [op.nn.relu(x), op.clip(x, min=-1.0, max=0.0)]
    whole = model(Tuple(tuple(made)), x, y, rows)
    both = np.array(PAIRS).astype(of.numpy)
    given = (both[:, 0].copy(), both[:, 1].copy(), both)
    with np.errstate(all="ignore"):
        wanted = plica.interpret(whole, *given)
    found = plica.compile(whole, contract=contract, cache=False)(*given)
    for one, two in zip(found, wanted, strict=True):
        assert equal(one, two)


def code(contract: str) -> str:
    x = Var(Name("x"), tensor((64,), f32))
    return plica.compile(model(op.nn.relu(x), x), contract=contract, cache=False).source("llvm")


def test_only_a_contract_that_allows_it_says_so() -> None:
    assert "nsz" not in code("exact")
    assert "nsz" in code("signless_zero")
    assert "nsz" in code("fused")
