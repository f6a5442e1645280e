"""Extremes: what is least or greatest has one meaning, bit for bit, zeros and nan included."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest

from plica.core.name import Name
from plica.ir.graph.expression import Expr, Function, Tuple, Var
from plica.ir.graph.module import Module, module
from plica.ir.interpret.interpreter import interpret
from plica.ir.op import find
from plica.ir.type.dtype import DType, bf16, f16, f32, f64
from plica.ir.type.term import tensor
from plica.pipeline import compile

FLOATS = [f16, bf16, f32, f64]
EDGES = (0.0, -0.0, math.nan, 1.0, -1.0, math.inf, -math.inf)
PAIRS = tuple(product(EDGES, EDGES))


def apply(name: str, *args: Expr, **attrs: Any) -> Expr:
    record = find(name)
    assert record is not None
    return record(*args, **attrs)


def model(body: Expr, *params: Var) -> Module:
    main = Var(Name("main"), None)
    return module({main: Function((), (), params, None, body)}, main)


def order(value: float) -> tuple[float, float]:
    return value, math.copysign(1.0, value)


def lawful(greatest: bool, a: float, b: float) -> float:
    """The law, written down once more."""
    if math.isnan(a) or math.isnan(b):
        return math.nan
    return (max if greatest else min)(a, b, key=order)


def ignoring(greatest: bool, a: float, b: float) -> float:
    if math.isnan(a) or math.isnan(b):
        return b if math.isnan(a) else a
    return lawful(greatest, a, b)


def same(found: Any, wanted: Any) -> bool:
    """Whether arrays are equal to the sign of a zero; one nan is as good as another."""
    nan = np.isnan(wanted)
    signs = nan | (np.signbit(found) == np.signbit(wanted))
    return bool((np.isnan(found) == nan).all() and signs.all() and (nan | (found == wanted)).all())


@pytest.mark.parametrize("repeats", [1, 5])
@pytest.mark.parametrize("of", FLOATS, ids=str)
def test_pairs(of: DType, repeats: int) -> None:
    pairs = PAIRS * repeats
    x, y = (Var(Name(name), tensor((len(pairs),), of)) for name in "xy")
    rows = Var(Name("rows"), tensor((len(pairs), 2), of))
    columns = Var(Name("columns"), tensor((2, len(pairs)), of))
    made: list[Expr] = []
    wanted: list[list[float]] = []
    for greatest, word in ((True, "max"), (False, "min")):
        made += [
            apply(f"{word}imum", x, y),
            apply(word, rows, axis=(1,)),
            apply(word, columns, axis=(0,)),
            apply(f"f{word}", x, y),
        ]
        wanted += [[lawful(greatest, a, b) for a, b in pairs]] * 3
        wanted += [[ignoring(greatest, a, b) for a, b in pairs]]
    for low, high in ((0.0, 1.0), (-0.0, 0.0), (-1.0, -0.0)):
        made.append(apply("clip", x, min=low, max=high))
        wanted.append([lawful(False, lawful(True, a, low), high) for a, _ in pairs])
    made.append(apply("nn.relu", x))
    wanted.append([lawful(True, a, 0.0) for a, _ in pairs])
    whole = model(Tuple(tuple(made)), x, y, rows, columns)
    both = np.array(pairs, of.numpy)
    args = (both[:, 0], both[:, 1], both, np.ascontiguousarray(both.T))
    for found in (interpret(whole, *args), compile(whole, contract="exact")(*args)):
        for number, (ours, meant) in enumerate(zip(found, wanted, strict=True)):
            assert same(ours, np.array(meant, of.numpy)), number


@pytest.mark.parametrize("of", FLOATS, ids=str)
def test_one_zero_of_the_other_sign_decides(of: DType) -> None:
    x = Var(Name("x"), tensor((101,), of))
    whole = model(Tuple((apply("max", x), apply("min", x))), x)
    exe = compile(whole, contract="exact")
    for place in (0, 1, 50, 99, 100):
        for zero in (0.0, -0.0):
            array = np.full(101, -zero, of.numpy)
            array[place] = zero
            for found in (interpret(whole, array), exe(array)):
                assert [bool(np.signbit(each)) for each in found] == [False, True]
