"""Kernels as text: every statement and operator, deterministic, linear."""

from __future__ import annotations

from hypothesis import given

from plica.ir.loop.scalar import (
    BINARY,
    And,
    Cast,
    Intrinsic,
    Le,
    Lit,
    Lt,
    Not,
    Or,
    Reduce,
    Scalar,
    Select,
)
from plica.ir.loop.statement import Alloc, Branch, For, Kernel, Seq, Stmt, Store
from plica.ir.loop.tensor import axis, buffer
from plica.ir.text.show import show_kernel
from plica.ir.type.dtype import bool_, f16, f32, i32, i64
from tests.conftest import Golden
from tests.strategies import kernels


def test_every_statement_and_operator(golden: Golden) -> None:
    x, y, t = buffer("x", (4,), i32), buffer("y", (), f32), buffer("t", (2, 2), f16)
    out, i, k = buffer("i", (4,), i32), axis("i"), axis("k")
    a, b = x[i], Lit(3, i32)
    inside = Or(And(Lt(i, Lit(2, i64)), Not(Le(i, Lit(1, i64)))), Lit(True, bool_))
    total = Reduce("sum", (k,), (Lit(4, i64),), x[k])
    stores = [Store(out, (i,), kind(a, b)) for kind in BINARY if kind.__name__ != "Div"]
    last: list[Stmt] = [
        Store(y, (), Intrinsic("exp", (y[()] / Lit(-2.5, f32),)) * Lit(float("inf"), f32)),
        Store(out, (i,), Select(inside, total, Cast(y[()], i32))),
        Store(out, (i,), (a - (b - a)) * (a + b) - -b),
        Alloc(t, Store(t, (Lit(0, i64), Lit(1, i64)), Lit(0.1, f16))),
        Branch(inside, Seq(()), For(k, Lit(2, i64), "parallel", Store(out, (k,), b))),
    ]
    body = For(i, Lit(4, i64), "serial", Seq((*stores, *last)))
    golden(show_kernel(Kernel((), (x, y, out), 2, body), "everything"))


def test_a_kernel_that_does_nothing() -> None:
    assert show_kernel(Kernel((), (), 0, Seq(()))) == "@plica.kernel\ndef kernel():\n    pass"


@given(kernels())
def test_equal_kernels_have_equal_text(kernel: Kernel) -> None:
    assert show_kernel(kernel) == show_kernel(kernel)


def test_deep_and_shared_terms_are_named() -> None:
    x = buffer("x", (2,), f32)
    value: Scalar = x[0]
    for _ in range(60):
        value = value + value
    for _ in range(2_000):
        value = value * 2
    text = show_kernel(Kernel((), (x,), 1, Store(x, (Lit(0, i64),), value)))
    assert len(text) < 20_000
    assert "_0 = x[0] + x[0] + (x[0] + x[0])" in text
    assert "_1 = _0 + _0" in text
