"""Races of threads: reported exactly where two of them meet with no barrier between."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from hypothesis import given, strategies as st

from plica.core.diagnostic import EvaluationError
from plica.core.name import Name
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.scalar import Buffer, Scalar, index
from plica.ir.loop.statement import Alloc, Barrier, For, Kernel, Stmt, Store, seq
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import i32

THREADS = 4
Map: TypeAlias = tuple[int, int]  # t becomes (a * t + b) % THREADS
Stage: TypeAlias = tuple[Map, Map, bool]  # where it writes, where it reads, a barrier after it

x, y = buffer("x", (THREADS,), i32), buffer("y", (THREADS,), i32)
shared = Buffer(Name("shared"), (index(THREADS),), i32, "shared")
t = axis("t")
maps = st.tuples(st.integers(0, 3), st.integers(0, 3))
stages = st.lists(st.tuples(maps, maps, st.booleans()), max_size=4)


def place(of: Map) -> Scalar:
    return (t * of[0] + of[1]) % THREADS


def program(given_: list[Stage]) -> Kernel:
    """All threads fill the memory they share, then move its elements about."""
    body: list[Stmt] = [Store(shared, (t,), x[t]), Barrier("shared")]
    for written, read, barrier in given_:
        body.append(Store(shared, (place(written),), shared[place(read)] + 1))
        if barrier:
            body.append(Barrier("shared"))
    body += [Barrier("shared"), Store(y, (t,), shared[t])]
    inside = For(t, index(THREADS), "threadIdx.x", seq(*body))
    return Kernel((), (x, y), 1, Alloc(shared, inside))


def races(given_: list[Stage]) -> bool:
    """Whether two threads meet at an element in one phase, one of them writing it."""
    touched: list[tuple[int, int, bool]] = []
    for written, read, barrier in given_:
        for thread in range(THREADS):
            for (a, b), writes in ((read, False), (written, True)):
                touched.append((thread, (a * thread + b) % THREADS, writes))
        if any(
            one[0] != two[0] and one[1] == two[1] and (one[2] or two[2])
            for one in touched
            for two in touched
        ):
            return True
        if barrier:
            touched = []
    return False


def moved(given_: list[Stage], start: list[int]) -> list[int]:
    """What the stages do one thread at a time, which is what they do where nothing races."""
    memory = list(start)
    for (a, b), (c, d), _ in given_:
        before = list(memory)
        for thread in range(THREADS):
            memory[(a * thread + b) % THREADS] = before[(c * thread + d) % THREADS] + 1
    return memory


@given(stages)
def test_races_are_reported_exactly(given_: list[Stage]) -> None:
    start = [3, 1, 4, 1]
    try:
        (found,) = run_kernel(program(given_), (np.array(start, np.int32),))
    except EvaluationError as error:
        assert error.code == "data-race"  # noqa: PT017
        assert races(given_)
        return
    assert not races(given_)
    assert found.tolist() == moved(given_, start)
