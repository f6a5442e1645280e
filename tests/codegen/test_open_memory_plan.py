"""Arenas of open programs: nobody is disturbed, everybody fits, and there are few."""

from __future__ import annotations

from hypothesis import given, strategies as st

from plica.codegen.memory_plan import lives_of
from plica.codegen.open_memory_plan import plan_open_memory
from plica.codegen.program import Copy, Program, Slot
from plica.ir.type.dim import dim_var, evaluate
from plica.ir.type.dtype import f32

N, M = dim_var("n"), dim_var("m")
SIZES = (N, M, N * 3, N * M, (N + 1) // 2, M * 2 + 5)


def moved(shapes: list[int], steps: list[tuple[int, int]]) -> Program:
    """Tensors that are copied to one another."""
    slots = [Slot("temporary", at, (SIZES[size],), f32) for at, size in enumerate(shapes)]
    many = len(slots)
    copies = tuple([Copy(a % many, b % many) for a, b in steps if a % many != b % many])
    return Program((), (), tuple(slots), (copies,), 0, (), dims=(N, M))


@given(
    st.lists(st.integers(0, len(SIZES) - 1), min_size=2, max_size=9),
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=20),
    st.integers(0, 200),
    st.integers(0, 200),
)
def test_rooms_hold_all_who_are_there(
    shapes: list[int], steps: list[tuple[int, int]], n: int, m: int
) -> None:
    program = moved(shapes, steps)
    plan, (_, lives) = plan_open_memory(program), lives_of(program)
    assert plan.where.keys() == lives.keys()
    for slot, arena in plan.where.items():
        size, most = (
            evaluate(e, {N: n, M: m}) for e in (program.slots[slot].size, plan.arenas[arena])
        )
        assert size is not None
        assert most is not None
        assert size <= most
        for other, (born, last) in lives.items():
            if other != slot and plan.where[other] == arena:
                assert last < lives[slot][0] or lives[slot][1] < born


def test_tensors_of_different_sizes_share_a_room() -> None:
    program = moved([3, 0, 2, 1, 4], [(0, 1), (1, 2), (2, 3), (3, 4)])
    assert len(plan_open_memory(program).arenas) == 2
