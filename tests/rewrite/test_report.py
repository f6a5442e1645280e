"""Counterexamples as tests: each printed text stands by itself and fails while the rule is wrong."""

from __future__ import annotations

from typing import Any

import pytest

import plica
from plica import op
from plica.ir.graph.expression import Let
from plica.ir.loop.scalar import Max, Min, index
from plica.rewrite import (
    Rule,
    approx,
    hole,
    holes,
    index_constants,
    index_holes,
    reassociates,
    signless_zero,
)
from plica.rewrite.check.verdict import Refuted
from plica.rewrite.make import tabled

x, y, w = holes("x y w")
f: Any = hole("f", dtypes="f32")
b: Any = hole("b", dtypes="bf16")
n: Any = hole("n", dtypes=("i8",))
i, j = index_holes("i j")
(c,) = index_constants("c")


def fails(m: Any) -> Any:
    raise ValueError("never\nat all")


# fmt: off
BAD: tuple[Rule, ...] = (
    tabled("add-zero",             f + 0,                          f),
    tabled("zeros of/one sign",    f * 0,                          f - f),
    tabled("nan-lost",             op.where(f > y, f, y),          op.maximum(f, y)),
    tabled("narrow",               b + 0,                          b),
    tabled("wraps",                (n * 2) // 2,                   n),
    tabled("exp-of-sum",           op.exp(f + y),                  op.exp(f) * op.exp(y)),
    tabled("relu-gone",            op.nn.relu(f),                  f,                     float=signless_zero),
    tabled("root",                 op.sqrt(f * f),                 f,                     float=reassociates),
    tabled("rough",                op.exp(f),                      1 + f,                 float=approx(0.01)),
    tabled("ill-typed",            op.transpose(x @ y),            op.transpose(x) @ op.transpose(y)),
    tabled("another-type",         op.sum(f, axis=0),              f),
    tabled("pair",                 op.concat((f, y), axis=0),      op.concat((y, f), axis=0)),
    tabled("escapes",              Let(w, f, y),                   lambda m: m.y),
    tabled("no-term",              op.negative(-f),                lambda m: 3),
    tabled("fails",                op.negative(-f),                fails),
    tabled("1 div (index)",        (i // 4) * 4,                   i),
    tabled("min-max",              Max(Min(i, j), index(3)),       Min(Max(i, index(3)), j)),
    tabled("less",                 (i + 1) < j,                    i <= j),
    tabled("computed",             (i + c) // 2,                   lambda m: m.i // 2 + m.c),
)
# fmt: on
# ruff: noqa: E501


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
def test_the_printed_test_fails(bad: Rule) -> None:
    verdict = plica.check(bad, examples=200)
    assert isinstance(verdict, Refuted), verdict
    space: dict[str, Any] = {}
    exec(compile(verdict.counterexample.pytest, "counterexample", "exec"), space)
    (test,) = [value for key, value in space.items() if key.startswith("test_")]
    with pytest.raises((AssertionError, plica.PlicaError)):
        test()
