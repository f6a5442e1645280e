"""Late: steps that are asked at the end whether loops that run at once may do so."""

from __future__ import annotations

import pytest

from plica.ir.loop.define import defined
from plica.ir.loop.statement import Kernel
from plica.ir.loop.tensor import buffer, compute, reduce
from plica.ir.type.dtype import f32
from plica.schedule import ScheduleRefused, bind, block, loops
from plica.schedule.do import Body, do, run

X = buffer("x", (4, 8), f32)


def sums() -> Kernel:
    return defined(compute((X,), (4,), lambda i: reduce("sum", (8,), lambda k: X[i, k])))


@do
def bound(which: int, tag: str) -> Body:
    yield bind((yield loops((yield block("out"))))[which], tag)


def test_what_is_safe_is_taken() -> None:
    early, late = (run(bound(0, "blockIdx.x"), sums(), 0, {}, late=late) for late in (False, True))
    assert early[0] == late[0]
    assert early[1].kernel is late[1].kernel


def test_what_is_not_safe_is_refused_in_the_end() -> None:
    """Blocks of threads would add to one sum at once."""
    for late in (False, True):
        with pytest.raises(ScheduleRefused, match="independent"):
            run(bound(1, "blockIdx.x"), sums(), 0, {}, late=late)


def test_other_preconditions_are_asked_at_once() -> None:
    with pytest.raises(ScheduleRefused, match="known-thread"):
        run(bound(0, "threadIdx.w"), sums(), 0, {}, late=True)
