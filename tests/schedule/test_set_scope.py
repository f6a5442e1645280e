"""set_scope: buffers in other memories, as far as threads allow."""

from __future__ import annotations

import pytest

from plica.ir.text.show import show_kernel
from plica.ir.type.dim import dim_var
from plica.schedule import bind, block, compute_at, loops, set_scope, split
from plica.schedule.do import Body
from tests.conftest import Golden
from tests.schedule.hostile import after, refusal
from tests.schedule.kernel import product_and_relu, stencil


def test_another_memory(golden: Golden) -> None:
    def schedule() -> Body:
        yield set_scope((yield block("A1")), 0, "shared")
        yield set_scope((yield block("C")), 0, "local")

    golden(show_kernel(after(product_and_relu(dim_var("rows")), schedule, rows=3)), "set_scope")


@pytest.mark.parametrize(
    ("word", "name", "number", "scope"),
    [
        ("written", "A1", 1, "shared"),
        ("written", "A1", -1, "shared"),
        ("intermediate", "D", 0, "shared"),
        ("known-scope", "A1", 0, "shard"),
    ],
)
def test_refusals(word: str, name: str, number: int, scope: str) -> None:
    def schedule() -> Body:
        yield set_scope((yield block(name)), number, scope)

    assert refusal(product_and_relu(), schedule) == word


@pytest.mark.parametrize(
    ("scope", "thread", "answer"),
    [
        ("local", "threadIdx.x", "accepted"),
        ("shared", "blockIdx.x", "accepted"),
        ("local", "blockIdx.x", "accepted"),
        ("global", "blockIdx.x", "independent"),
        ("global", "threadIdx.x", "independent"),
    ],
)
def test_each_thread_fills_a_part_that_others_fill_too(
    scope: str, thread: str, answer: str
) -> None:
    def schedule() -> Body:
        b, c = (yield block("B")), (yield block("C"))
        (j,) = yield loops(c)
        j0, _ = yield split(j, (None, 4))
        yield compute_at(b, j0)
        yield set_scope(b, 0, "local")
        yield bind(j0, thread)
        yield set_scope(b, 0, scope)

    assert refusal(stencil(), schedule) == answer


def test_private_memory_is_not_handed_over() -> None:
    def schedule() -> Body:
        b, c = (yield block("B")), (yield block("C"))
        (j,) = yield loops(c)
        j0, j1 = yield split(j, (None, 4))
        yield compute_at(b, j0)
        yield set_scope(b, 0, "shared")
        around = yield loops(b)
        yield bind(j0, "blockIdx.x")
        yield bind(around[-1], "threadIdx.x")
        yield bind(j1, "threadIdx.x")
        yield set_scope(b, 0, "local")

    assert refusal(stencil(), schedule) == "handed-over"
