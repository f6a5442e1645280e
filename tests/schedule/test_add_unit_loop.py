"""add_unit_loop: a loop of one iteration."""

from __future__ import annotations

from plica.core.digest import digest
from plica.schedule import add_unit_loop, block, fuse, loops
from plica.schedule.do import Body
from tests.schedule.hostile import after, names
from tests.schedule.kernel import matmul


def test_around_a_block_and_around_a_loop() -> None:
    def schedule() -> Body:
        c = yield block("C")
        i, _, _ = yield loops(c)
        yield add_unit_loop(c)
        yield add_unit_loop(i)

    assert names(after(matmul(), schedule)) == ["u_1", "i", "j", "k", "u"]


def test_fused_with_the_loop_inside_it_is_gone() -> None:
    def schedule() -> Body:
        i, _, _ = yield loops((yield block("C")))
        u = yield add_unit_loop(i)
        yield fuse(u, i)

    assert digest(after(matmul(), schedule)) == digest(matmul())
