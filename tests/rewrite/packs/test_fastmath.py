from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from plica.core.name import Name
from plica.ir.contract import reassociates
from plica.ir.graph.expression import Expr, Var
from plica.ir.interpret.interpreter import interpret
from plica.ir.type.term import tensor
from plica.rewrite.pack import rewrite
from plica.rewrite.packs import OWN, find_pack
from plica.rewrite.packs.fastmath import FASTMATH
from tests.rewrite.packs.layers import call, of, operators

POINTS = 4001
X = Var(Name("x"), tensor((POINTS,), "f32"))

# fmt: off
MEASURED: dict[str, tuple[str, dict[str, Any], float, float, str, float]] = {
    # rule               operator          attributes                from  to   of         at most
    "fast-exp":         ("exp",            {},                       -87,  88, "value",    2.5e-5),
    "fast-tanh":        ("tanh",           {},                       -12,  12, "value",    4e-7),
    "fast-erf":         ("erf",            {},                        -6,   6, "value",    3.5e-6),
    "fast-sigmoid":     ("nn.sigmoid",     {},                       -30,  30, "greatest", 2e-7),
    "fast-silu":        ("nn.silu",        {},                       -30,  30, "greatest", 2e-7),
    "fast-gelu":        ("nn.gelu",        {},                        -8,   8, "x",        2e-6),
    "fast-gelu-tanh":   ("nn.gelu",        {"approximate": "tanh"},   -8,   8, "x",        5e-7),
    "fast-softmax":     ("nn.softmax",     {},                       -40,  40, "value",    5e-5),
    "fast-log-softmax": ("nn.log_softmax", {},                       -40,  40, "greatest", 5e-5),
}
# fmt: on


def values(body: Expr, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = interpret(of(body, X), x).astype(np.float64)
    return found


@pytest.mark.parametrize("rule", FASTMATH.rules, ids=lambda rule: rule.name)
def test_the_stated_error_is_the_measured_one(rule: Any) -> None:
    name, attributes, low, high, scale, most = MEASURED[rule.name]
    x = np.linspace(low, high, POINTS, dtype=np.float32)
    after = rule.at(call(name, X, **attributes))
    left, right = values(call(name, X, **attributes), x), values(after, x)
    size = {"value": np.abs(left), "greatest": np.abs(left).max(), "x": np.abs(x)}[scale]
    assert np.all(np.abs(left - right) <= most * size)
    assert most <= rule.contract.rel


def test_ends_and_what_is_no_number() -> None:
    x = np.zeros(POINTS, np.float32)
    x[:4] = np.inf, -np.inf, np.nan, -200.0
    for name, ends in {"exp": (np.inf, 0.0), "tanh": (1.0, -1.0), "erf": (1.0, -1.0)}.items():
        after, _ = rewrite(call(name, X), FASTMATH)
        assert isinstance(after, Expr)
        assert operators(after)[name] == 0
        found = values(after, x)
        assert np.allclose(found[:2], ends, atol=1e-37)
        assert np.isnan(found[2])
        assert np.isclose(found[3], ends[1], atol=1e-37)


def test_it_is_off_unless_asked_for() -> None:
    assert reassociates < FASTMATH.contract
    names = {rule.name for rule in FASTMATH}
    for name in set(OWN) - {"fastmath"}:
        assert not names & {rule.name for rule in find_pack(name)}
