"""Lent buffers: copies may be under way to versions that are not read before the next barrier."""

from __future__ import annotations

import pytest

from plica.codegen.cuda.fold import fold
from plica.codegen.cuda.in_flight_buffer import in_flight_buffers
from plica.core.name import Name
from plica.ir.loop.scalar import Buffer, Scalar, index
from plica.ir.loop.statement import Alloc, Barrier, For, Kernel, Seq, Stmt, Store
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import f32

Q, T, V, U = (axis(name) for name in "qtvu")
X, OUT = buffer("x", (8, 512), f32), buffer("out", (8, 512), f32)
HELD = Buffer(Name("held"), (index(2), index(512)), f32, "shared")


def copy(slice_: Scalar, to: Scalar) -> Stmt:
    store = Store(HELD, (to, T * 4 + V), X[slice_, T * 4 + V])
    return For(V, index(4), "vectorized", store)


def use(slice_: Scalar, version: Scalar) -> Stmt:
    far = HELD[version, (T * 4 + U + 256) % 512]
    return For(U, index(4), "serial", Store(OUT, (slice_, T * 4 + U), far))


def kernel(ahead: int = 1, late: bool = True, waits: bool = True) -> Kernel:
    """Slices copied `ahead` of those that use them; a barrier before the last, if it `waits`."""
    stmts: list[Stmt] = [copy(index(0), index(0))]
    turn = [Barrier("shared"), copy(Q + 1, (Q + ahead) % 2), use(Q, Q % 2)]
    if not late:
        turn = turn[1:]
    stmts.append(For(Q, index(7), "serial", Seq(tuple(turn))))
    if waits:
        stmts.append(Barrier("shared"))
    stmts.append(use(index(7), index(1)))
    body: Stmt = For(T, index(128), "threadIdx.x", Seq(tuple(stmts)))
    return Kernel((), (X, OUT), 1, Alloc(HELD, body))


def test_copies_go_on_while_the_other_version_is_read() -> None:
    assert in_flight_buffers(kernel().body) == {HELD}
    text = fold(kernel(), "k").functions
    assert text.count("p_copy_async") == 2
    assert text.count("p_copies_done<0>") == 2


OTHER = {
    "a turn reads what it copies": kernel(ahead=2),
    "no barrier in a turn": kernel(late=False),
    "no barrier before the last version is read": kernel(waits=False),
}


@pytest.mark.parametrize("name", OTHER)
def test_others_are_not_lent(name: str) -> None:
    assert in_flight_buffers(OTHER[name].body) == frozenset()
    assert "p_copy_async" not in fold(OTHER[name], "k").functions
