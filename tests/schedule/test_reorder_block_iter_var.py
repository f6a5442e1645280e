"""reorder_block_iter_var: the variables of a block in another order."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from plica.analysis.site import map_of
from plica.core.digest import digest
from plica.schedule import block, reorder_block_iter_var
from plica.schedule.do import Body
from tests.schedule.hostile import after, refusal
from tests.schedule.kernel import matmul


@given(st.permutations(range(3)))
def test_an_order_and_back(order: list[int]) -> None:
    def there() -> Body:
        yield reorder_block_iter_var((yield block("C")), tuple(order))

    def back() -> Body:
        c = yield block("C")
        yield reorder_block_iter_var(c, tuple(order))
        yield reorder_block_iter_var(c, tuple(sorted(range(3), key=order.__getitem__)))

    (found,) = map_of(after(matmul(), there)).blocks.values()
    assert [str(var.name) for var in found.node.vars] == [("vi", "vj", "vk")[at] for at in order]
    assert digest(after(matmul(), back)) == digest(matmul())


@pytest.mark.parametrize("order", [(0, 1), (0, 1, 1), (0, 1, 3)])
def test_no_permutation(order: tuple[int, ...]) -> None:
    def schedule() -> Body:
        yield reorder_block_iter_var((yield block("C")), order)

    assert refusal(matmul(), schedule) == "permutation"
