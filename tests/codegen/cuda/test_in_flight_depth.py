"""Patience: what a barrier need not wait for."""

from __future__ import annotations

import pytest

from plica.codegen.cuda.in_flight_depth import flat, groups, in_flight_after, in_flight_depth
from plica.core.name import Name
from plica.ir.loop.scalar import Buffer, Scalar, index
from plica.ir.loop.statement import Barrier, For, Invoke, Region, Seq, Stmt, Store
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import f16

Q, LANE = axis("q"), axis("i")
SOURCE = buffer("x", (64, 8), f16)


def held(versions: int) -> Buffer:
    return Buffer(Name("s"), (index(versions), index(8)), f16, "shared")


def copy(to: Buffer, place: Scalar, row: Scalar) -> Stmt:
    return For(LANE, index(8), "vectorized", Store(to, (place, LANE), SOURCE[row, LANE]))


def pipelined(
    versions: int, ahead: int, first: int, *, lone: bool = True
) -> tuple[list[Stmt], For]:
    """Copies of the first slices, and a loop that copies slices ahead and reads others."""
    s = held(versions)
    before = [copy(s, index(n % versions), index(n)) for n in range(first)]
    read = Invoke("multiply", (Region(s, (Q % versions, index(0)), (index(1), index(8))),))
    parts = [Barrier("shared"), copy(s, (Q + ahead) % versions, Q + ahead), read]
    body = Seq(tuple(parts if lone else [*parts, Barrier("shared")]))
    return before, For(Q, index(9), "serial", body)


def found(before: list[Stmt], loop: For, versions: int) -> int:
    return in_flight_depth(before, loop, groups(Seq((*before, loop)), frozenset([held(versions)])))


@pytest.mark.parametrize("ahead", [1, 2, 3])
def test_all_but_the_next_slice_may_be_under_way(ahead: int) -> None:
    assert found(*pipelined(ahead + 1, ahead, ahead), ahead + 1) == ahead - 1


def test_slices_that_are_not_copied_beforehand_are_waited_for() -> None:
    assert found(*pipelined(4, 3, 2), 4) == 1
    assert found(*pipelined(4, 3, 0), 4) == 0


def test_what_is_read_at_once_is_waited_for() -> None:
    assert found(*pipelined(1, 1, 1), 1) == 0


def test_a_loop_with_more_barriers_waits_for_all() -> None:
    assert found(*pipelined(3, 2, 2, lone=False), 3) == 0


def test_other_statements_before_the_loop_end_the_search() -> None:
    before, loop = pipelined(4, 3, 3)
    other: Stmt = Barrier("shared")
    assert found([before[0], other, *before[1:]], loop, 4) == 2
    assert found([*before, other], loop, 4) == 0


def test_sequences_are_one() -> None:
    before, loop = pipelined(3, 2, 2)
    nested = Seq((before[0], Seq((before[1],)), loop))
    assert [*flat((nested,))] == [*before, loop]


def after(before: list[Stmt], *products: Stmt) -> tuple[int, ...]:
    """What may be under way when each of some products begins, behind a barrier."""
    handed = frozenset([held(4)])
    copies = groups(Seq(tuple(before)), handed)
    return in_flight_after(before, products, copies, lambda each: isinstance(each, Invoke))


def product(slot: int) -> Stmt:
    return Invoke("multiply", (Region(held(4), (index(slot), index(0)), (index(1), index(8))),))


def test_the_last_products_wait_for_what_each_reads() -> None:
    """Of slices 9 to 11, which the last turns of the loop copied, in the order of their slots."""
    before, loop = pipelined(4, 3, 3)
    assert after([*before, loop], product(1), product(2), product(3)) == (2, 1, 0)
    assert after([*before], product(0), product(1), product(2)) == (2, 1, 0)
    assert after([*before], product(2), product(0), product(1)) == (0, 0, 0)


def test_a_copy_that_no_product_reads_is_waited_for_at_the_barrier() -> None:
    before, loop = pipelined(4, 3, 3)
    assert after([*before, loop], product(1), product(2)) == ()
    assert after([*before, loop], before[0], product(1)) == ()
    assert after([Barrier("shared")], product(1)) == (0,)
