"""Memory of a block and of a thread: what may lie in one place, and what registers hold."""

from __future__ import annotations

import pytest

from plica.codegen.cuda.fold import fold
from plica.codegen.cuda.nest import (
    REGISTER_BYTES,
    chooses_registers,
    counts_of_clamped_differences,
    large_of_one_thread,
    shared_before,
    thread_bytes,
)
from plica.core.name import Name
from plica.ir.loop.scalar import Buffer, Cast, Lit, Max, Min, Scalar, ScalarVar, index
from plica.ir.loop.statement import Alloc, Barrier, Bind, For, Kernel, Seq, Stmt, Store
from plica.ir.loop.tensor import axis
from plica.ir.type.dtype import f32, i32, i64

T, TURN = axis("t"), axis("i")
OUT = Buffer(Name("y"), (index(32),), f32)
NUMBERS = Buffer(Name("n"), (index(32),), i64)
SLICE, SUMS = (Buffer(Name(word), (index(32),), f32, scope="shared") for word in ("s", "p"))


def nest(before: Stmt | None = None, *, waits: bool = True, around: bool = False) -> Stmt:
    """A slice is filled and read, then sums are: in one place of a thread's work each."""
    filled = Store(SLICE, (T,), Lit(1.0, f32))
    turn = For(TURN, index(3), "serial", Seq((*([Barrier("shared")] if waits else []), filled)))
    first: Stmt = Alloc(SLICE, turn)
    if around:
        first = For(axis("j"), index(2), "serial", first)
    after = Store(SUMS, (T,), Lit(2.0, f32)), Store(OUT, (T,), SUMS[T])
    parts = (*([] if before is None else [before]), first, *after)
    return For(T, index(32), "threadIdx.x", Alloc(SUMS, Seq(parts)))


def test_what_is_touched_later_may_lie_where_other_memory_was() -> None:
    assert shared_before(nest()) == {SLICE: frozenset([SUMS])}


@pytest.mark.parametrize(
    "of",
    [nest(Store(SUMS, (T,), Lit(0.0, f32))), nest(waits=False), nest(around=True)],
    ids=["touched before", "nobody waits", "in turns"],
)
def test_other_memory_has_a_place_of_its_own(of: Stmt) -> None:
    assert not shared_before(of)


@pytest.mark.parametrize("more", [0, 1])
def test_loops_name_registers_only_of_what_registers_hold(more: int) -> None:
    """Else they would be written out for nothing: the CUDA compiler took minutes for a thousand."""
    own = Buffer(Name("own"), (index(REGISTER_BYTES // 4 + more),), f32, "local")
    filled = For(TURN, own.shape[0], "serial", Store(own, (TURN,), Lit(1.0, f32)))
    assert (TURN in chooses_registers(Alloc(own, filled))) is not bool(more)


def own(word: str, elements: int, scope: str = "local") -> Buffer:
    return Buffer(Name(word), (index(elements),), f32, scope)


def filled(*buffers: Buffer) -> Stmt:
    """Memory inside of memory, all of it written."""
    whole: Stmt = Seq(tuple([Store(each, (index(0),), Lit(1.0, f32)) for each in buffers]))
    for each in reversed(buffers):
        whole = Alloc(each, whole)
    return whole


def test_a_thread_has_at_one_time_what_is_inside_of_other_memory() -> None:
    one, two, three = own("one", 100), own("two", 50), own("three", 120)
    body = Seq((filled(one, two, own("s", 999, "shared")), filled(three)))
    assert thread_bytes(For(T, index(32), "threadIdx.x", body), ()) == 150 * 4
    assert thread_bytes(body, (one,)) == 120 * 4


@pytest.mark.parametrize("scope", ["local", "global"])
@pytest.mark.parametrize("threads", [1, 2])
def test_large_memory_of_one_thread_may_lie_elsewhere(scope: str, threads: int) -> None:
    """That of each thread is there for all threads that a GPU can run, however few do."""
    large = own("large", REGISTER_BYTES // 4 + 1, scope)
    body = For(TURN, index(3), "serial", filled(own("small", REGISTER_BYTES // 4), large))
    nest = For(T, index(threads), "threadIdx.x", body)
    assert large_of_one_thread(nest) == ([large] if threads == 1 else [])


def _clamped(value: Scalar, *more: tuple[ScalarVar, Scalar]) -> bool:
    """Whether a loop over a stored value is one that ptxas must leave."""
    body: Stmt = Store(NUMBERS, (TURN,), value)
    for var, meant in more:
        body = Bind(var, meant, body)
    found = counts_of_clamped_differences(For(TURN, index(30), "serial", body))
    assert found <= {TURN, *[var for var, _ in more]}
    return TURN in found


def test_loops_whose_quotients_have_something_taken_away_and_are_clamped() -> None:
    """ptxas makes max(0, x - 4) of max(0, 4 - x) where it finds the 4 by writing out a loop."""
    x, zero = NUMBERS[TURN + 1], index(0)
    rest = TURN - TURN // 6 * 6
    assert _clamped(Max(zero, TURN // 6 - x))
    assert _clamped(Min(TURN % 6 - x, zero))
    assert _clamped(Max(zero, TURN % 6 + x * -1 + 3))
    bound = axis("b")
    assert _clamped(Max(zero, bound - x), (bound, TURN // 6))
    assert _clamped(Max(zero, bound), (bound, TURN // 6 - x))
    assert not _clamped(Max(zero, TURN // 6 - 3)), "numbers are added with their sign"
    assert not _clamped(Max(zero, x - TURN // 6)), "what is taken away may be known late"
    assert not _clamped(Max(zero, TURN - x)), "plain counts are known soon"
    assert not _clamped(rest - x), "nothing is chosen"


def test_such_loops_are_written_out_in_part() -> None:
    x, y = (Buffer(Name(word), (index(40),), i32) for word in "xy")
    value = Max(Lit(0, i32), Cast(TURN % 6, i32) - x[TURN])
    text = fold(
        Kernel((), (x, y), 1, For(TURN, index(40), "serial", Store(y, (TURN,), value))), "f"
    ).text
    assert "#pragma unroll 4\n  for (" in text
