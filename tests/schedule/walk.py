"""Random traces: a walk over a kernel that takes whatever step is legal."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from plica.ir.loop.statement import Kernel
from plica.schedule import (
    ScheduleRefused,
    Trace,
    annotate,
    block,
    do,
    fuse,
    loops,
    parallel,
    reorder,
    sample_tile,
    split,
    trace_of,
    unannotate,
    unroll,
    vectorize,
)
from plica.schedule.do import Body, DoBlock

SIZES = (2, 3, 4, 5)

moves = st.lists(st.tuples(st.integers(0, 10), st.integers(0, 7)), max_size=8)
"""What a walk does: a kind of step, and something to choose its target and its number by."""


@do
def walk(name: str, choices: Sequence[tuple[int, int]]) -> Body:
    """Steps as chosen; those that are refused are left out."""
    c = yield block(name)
    around = list((yield loops(c)))
    for kind, pick in choices:
        at = pick % len(around)
        loop, following = around[at], around[min(at + 1, len(around) - 1)]
        try:
            if kind in (0, 1):
                around[at : at + 1] = yield split(loop, (None, SIZES[pick % 4]))
            elif kind == 2:
                around[at : at + 1] = yield split(loop, sample_tile(2, max_inner=4))
            elif kind in (3, 4):
                around[at : at + 2] = [(yield fuse(loop, following))]
            elif kind == 5:
                yield reorder(following, loop)
                around[at : at + 2] = [following, loop]
            elif kind == 6:
                yield unroll(loop)
            elif kind == 7:
                yield annotate(loop, "pragma", SIZES[pick % 4] * "x")
            elif kind == 8:
                yield unannotate(loop, "pragma")
            elif kind == 9:
                yield (parallel if pick % 2 else vectorize)(loop)
            else:
                again = yield block(name)
                around = list((yield loops(again)))
        except ScheduleRefused:
            continue


def walked(kernel: Kernel, choices: Sequence[tuple[int, int]], name: str = "C") -> Trace:
    """The trace of a walk."""
    schedule: DoBlock = walk(name, choices)
    return trace_of(schedule, kernel)
