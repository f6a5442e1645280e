"""Refusals that all steps which move data share: what is read must be settled, and be there."""

from __future__ import annotations

from collections.abc import Callable

from plica.ir.loop.scalar import Buffer, Lt, Scalar, ScalarVar, index
from plica.ir.loop.statement import TRUE, Alloc, For, Kernel, Seq, Stmt, Store, block, seq
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import f32
from plica.schedule import (
    block as block_named,
    compute_at,
    compute_inline,
    loops,
    reverse_compute_at,
    reverse_compute_inline,
)
from plica.schedule.do import Body
from tests.schedule.hostile import refusal

A, X, B, C, D = (buffer(name, (4,), f32) for name in "AXBCD")
Row = tuple[str, Buffer, Callable[[ScalarVar], Scalar]]


def stage(number: int, row: Row, most: int = 4) -> Stmt:
    """One loop and one block over four elements; it runs for the first `most`."""
    label, to, value = row
    i, v = axis("i", number), axis("v", number)
    where = TRUE if most == 4 else Lt(i, index(most))
    store = Store(to, (v,), value(v))
    return For(i, index(4), "serial", block(label, (v,), (4,), "s", (i,), store, None, where))


def program(*rows: Row, most: int = 4, outputs: tuple[Buffer, ...] = (C,)) -> Kernel:
    """Stages one after another; the last runs for the first `most` elements."""
    last = len(rows) - 1
    stmts = [stage(at, row, most if at == last else 4) for at, row in enumerate(rows)]
    body = seq(*stmts)
    made = dict.fromkeys(to for _, to, _ in rows if to not in outputs)
    for each in made:
        body = Alloc(each, body)
    return Kernel((), (A, *outputs), 1, body)


def inline(label: str) -> Body:
    yield compute_inline((yield block_named(label)))


def inline_back(label: str) -> Body:
    yield reverse_compute_inline((yield block_named(label)))


def move(label: str, to: str) -> Body:
    yield compute_at((yield block_named(label)), (yield loops((yield block_named(to))))[0])


def move_back(label: str, to: str) -> Body:
    yield reverse_compute_at((yield block_named(label)), (yield loops((yield block_named(to))))[0])


FIRST: Row = ("B", B, lambda v: A[v] + 1)
THEN: Row = ("C", C, lambda v: B[v] * 2)


def test_inlining_what_others_read_too() -> None:
    twice = program(FIRST, THEN, ("D", D, lambda v: B[v] * 3), outputs=(C, D))
    assert refusal(twice, lambda: inline("B")) == "accepted"
    assert refusal(twice, lambda: inline_back("C")) == "sole-reader"
    assert refusal(twice, lambda: move("B", "C")) == "consumers-under"
    assert refusal(twice, lambda: move_back("D", "B")) == "accepted"


def test_what_is_a_parameter_stays() -> None:
    seen = program(FIRST, THEN, outputs=(B, C))
    assert refusal(seen, lambda: inline("B")) == "intermediate"
    assert refusal(seen, lambda: inline_back("C")) == "intermediate"
    assert refusal(seen, lambda: move("B", "C")) == "intermediate"
    assert refusal(seen, lambda: move_back("C", "B")) == "accepted"


def test_readers_come_after() -> None:
    early = program(THEN, FIRST)  # B is read before it is written
    assert refusal(early, lambda: inline("B")) == "written-before"
    assert refusal(early, lambda: move("B", "C")) == "written-before"
    assert refusal(early, lambda: inline_back("C")) == "stage-pipeline"
    assert refusal(early, lambda: move_back("C", "B")) == "stage-pipeline"


def test_what_nobody_reads() -> None:
    dead = program(FIRST, ("C", C, lambda v: A[v]))
    assert refusal(dead, lambda: inline("B")) == "has-consumers"
    assert refusal(dead, lambda: move("B", "C")) == "has-consumers"


def test_a_block_that_does_not_run_everywhere() -> None:
    part = program(FIRST, THEN, most=3)
    assert refusal(part, lambda: inline_back("C")) == "affine"
    assert refusal(part, lambda: move_back("C", "B")) == "affine"
    assert refusal(part, lambda: move("B", "C")) == "accepted"


def test_other_inputs_are_there_in_time() -> None:
    both: Row = ("C", C, lambda v: B[v] + X[v])
    late = program(FIRST, ("X", X, lambda v: A[v]), both)
    assert refusal(late, lambda: inline_back("C")) == "accepted"  # it goes into X
    assert refusal(late, lambda: move_back("C", "B")) == "available"
    assert refusal(late, lambda: move_back("C", "X")) == "accepted"


def test_what_is_made_in_the_same_loop_only() -> None:
    """X is made in the loop of B, backwards: what C needs with B[v] may be missing."""
    i, j, v, w, u = axis("i"), axis("j"), axis("v"), axis("w"), axis("u")
    one = block("X", (v,), (4,), "s", (i,), Store(X, (v,), A[v]))
    two = block("B", (w,), (4,), "s", (i,), Store(B, (w,), A[w] * 2))
    three = block("C", (u,), (4,), "s", (j,), Store(C, (u,), B[u] + X[index(3) - u]))
    both = For(i, index(4), "serial", Seq((one, two)))
    body = Alloc(X, Alloc(B, seq(both, For(j, index(4), "serial", three))))
    kernel = Kernel((), (A, C), 1, body)
    assert refusal(kernel, lambda: inline_back("C")) == "available"
    assert refusal(kernel, lambda: move_back("C", "B")) in ("one-place", "covered")
