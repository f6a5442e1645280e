"""merge_loops: nests one after another as one."""

from __future__ import annotations

from hypothesis import given, strategies as st

from plica.ir.loop.statement import Kernel
from plica.ir.text.show import show_kernel
from plica.ir.type.dim import dim_var
from plica.schedule import annotate, block, do, loops, merge_loops
from plica.schedule.do import Body
from tests.conftest import Golden
from tests.schedule.hostile import after, keeps, names, nests, refusal
from tests.schedule.kernel import chain, matmul, product_and_relu


@given(nests(2, 3), st.integers(0, 1))
def test_what_is_accepted_keeps_its_meaning(kernel: Kernel, depth: int) -> None:
    @do
    def schedule() -> Body:
        sides = []
        for number in range(3):
            around = yield loops((yield block(f"y{number}")))
            sides.append(around[min(depth, len(around) - 1)])
            if number:
                yield merge_loops(sides[0], sides[-1])

    keeps(kernel, schedule)


def doubled(size: int = 7) -> Kernel:
    return chain(size, lambda a, v: a[v] * 2, lambda a, v: a[v] + 1, lambda a, v: a[v] * a[v])


def test_a_chain_in_one_loop(golden: Golden) -> None:
    def schedule() -> Body:
        mine = []
        for name in ("B1", "B2", "B3"):
            (i,) = yield loops((yield block(name)))
            mine.append(i)
        one = yield merge_loops(*mine)
        yield annotate(one, "pragma", "one")

    kernel = after(doubled(), schedule)
    assert names(kernel) == ["i_1"]
    golden(show_kernel(kernel), "merge_loops")


def test_nests_of_two_loops_with_symbolic_extents() -> None:
    def schedule() -> Body:
        c, d = (yield block("C")), (yield block("D"))
        (_, j, _), (_, j2) = (yield loops(c)), (yield loops(d))
        yield merge_loops(j, j2)

    kernel = product_and_relu(dim_var("rows"), dim_var("columns"))
    assert names(after(kernel, schedule, rows=3, columns=4)) == ["i0", "p0", "i", "j", "p"]


def test_refusals() -> None:
    def of(kernel: Kernel, *places: tuple[str, int]) -> str:
        def schedule() -> Body:
            mine = []
            for name, at in places:
                around = yield loops((yield block(name)))
                mine.append(around[at])
            yield merge_loops(*mine)

        return refusal(kernel, schedule)

    whole = product_and_relu()
    assert of(whole, ("C", 0)) == "count"
    assert of(whole, ("C", 0), ("C", 0)) == "count"
    assert of(matmul(), ("C", 0), ("C", 1)) == "siblings"
    assert of(whole, ("A1", 0), ("D", 0)) == "siblings"
    assert of(whole, ("D", 0), ("C", 0)) == "siblings"
    assert of(whole, ("C", 0), ("D", 1)) == "depth"
    assert of(whole, ("A1", 1), ("C", 1)) == "extents"
    assert of(whole, ("C", 2), ("D", 1)) == "depth"
    shifted = chain(6, lambda a, v: a[v] * 2, lambda a, v: a[(v + 1) % 6])
    assert of(shifted, ("B1", 0), ("B2", 0)) == "independent"
    assert of(doubled(), ("B1", 0), ("B2", 0)) == "accepted"


def test_only_plain_loops() -> None:
    def schedule() -> Body:
        (i,), (j,) = (yield loops((yield block("B1")))), (yield loops((yield block("B2"))))
        yield annotate(j, "pragma", "x")
        yield merge_loops(i, j)

    assert refusal(doubled(), schedule) == "plain-loop"


def test_rows_alone() -> None:
    def schedule() -> Body:
        (i, _, _), (i2, _) = (yield loops((yield block("C")))), (yield loops((yield block("D"))))
        yield merge_loops(i, i2)

    after(product_and_relu(), schedule)
