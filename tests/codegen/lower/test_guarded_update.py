"""Guarded updates: folds leave out the identity."""

from __future__ import annotations

import pytest

from plica.codegen.lower.guarded_update import guard_updates
from plica.ir.loop.scalar import Add, Buffer, Load, Lt, Max, Scalar, Select, index, lit
from plica.ir.loop.statement import Alloc, Branch, For, Kernel, Store, seq, statements
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import f32

K = axis("k")


def fold(join: type[Scalar], rest: float, scope: str = "local", *, turned: bool = False) -> Kernel:
    """A fold of x, which takes a number from a place on."""
    x, y = buffer("x", (8,), f32), buffer("y", (1,), f32)
    acc = Buffer(axis("acc").name, (index(1),), f32, scope)
    value = Select(Lt(K, index(5)), x[K], lit(rest, f32))
    sides = (value, acc[0]) if turned else (acc[0], value)
    update = Store(acc, (index(0),), join(*sides))
    end = Store(y, (index(0),), Load(acc, (index(0),)))
    body = seq(
        Store(acc, (index(0),), lit(rest, f32)), For(K, index(8), "unrolled", update), end
    )  # fmt: skip
    return Kernel((), (x, y), 1, Alloc(acc, body))


@pytest.mark.parametrize(
    ("kernel", "guarded"),
    [
        (fold(Add, 0.0), True),
        (fold(Max, float("-inf")), True),
        (fold(Add, 1.0), False),  # not the identity
        (fold(Max, 0.0), False),
        (fold(Add, 0.0, "global"), False),  # what others may read
        (fold(Add, 0.0, turned=True), False),
    ],
)
def test_updates_by_an_identity_are_left_out(kernel: Kernel, guarded: bool) -> None:
    after = guard_updates(kernel)
    assert any(isinstance(each, Branch) for each in statements(after.body)) == guarded
    assert guarded or after is kernel
