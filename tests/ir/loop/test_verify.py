"""Verifiers: good kernels pass, and each planted mistake is found by the one that looks for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import evolve
from hypothesis import given

from plica.core.fold import map_bottom_up
from plica.core.name import Name
from plica.core.term import Term
from plica.ir.loop.device_limit import GPU, within
from plica.ir.loop.intrinsic import intrinsic
from plica.ir.loop.scalar import (
    Add,
    Broadcast,
    Buffer,
    Cast,
    Lit,
    Load,
    Lt,
    Ramp,
    Scalar,
    ScalarVar,
    index,
)
from plica.ir.loop.statement import (
    Alloc,
    Bind,
    Block,
    Branch,
    For,
    Invoke,
    Kernel,
    LoopKind,
    Region,
    Seq,
    Stmt,
    Store,
    While,
    block,
    seq,
)
from plica.ir.loop.tensor import axis, buffer
from plica.ir.loop.verify import well_formed
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import f32, i32, i64
from tests.strategies import kernels

n = dim_var("n")
i, j, k, vi, vj, vk = (axis(name) for name in ("i", "j", "k", "vi", "vj", "vk"))
a, b, c = (buffer(name, (n, n), f32) for name in "abc")
START = Store(c, (vi, vj), Lit(0, f32))
UPDATE = Store(c, (vi, vj), c[vi, vj] + a[vi, vk] * b[vk, vj])
BLOCK = block("c", (vi, vj, vk), (n, n, n), "ssr", (i, j, k), UPDATE, START, Lt(i, n))
GOOD = Kernel(
    (n,), (a, b, c), 2,
    For(i, n, "serial", For(j, n, "parallel", For(k, n, "serial", BLOCK))),
)  # fmt: skip

copy = Kernel((), (buffer("p", (4,), f32), buffer("q", (4,), f32)), 1, Seq(()))
intrinsic("test.copy", copy)


def codes(kernel: Kernel) -> list[str]:
    return [each.code for each in well_formed(kernel)]


def test_a_good_kernel() -> None:
    assert well_formed(GOOD) == ()


@given(kernels())
def test_generated_kernels_are_well_formed(kernel: Kernel) -> None:
    assert well_formed(kernel) == ()


def instead(new: Callable[[Term], Term | None]) -> Kernel:
    """The good kernel with other terms in some places."""
    changed = map_bottom_up(lambda each: new(each) or each, GOOD)
    assert isinstance(changed, Kernel)
    return changed


def body(stmt: Stmt) -> Kernel:
    return Kernel((n,), (a, b, c), 2, stmt)


def stored(value: Scalar, *indices: Scalar) -> Kernel:
    where = indices or (index(0), index(0))
    return body(Store(c, where, value))


def _with(term: Term, **parts: object) -> Term:
    assert isinstance(term, Block)
    return evolve(term, **parts)  # type: ignore[arg-type]  # by name


lost = buffer("lost", (n, n), f32)
odd = ScalarVar(Name("odd"), f32)
two = Ramp(index(0), index(1), 2)
MISTAKES: dict[str, tuple[Kernel, list[str]]] = {
    "a variable nobody binds": (stored(a[i, 0]), ["unbound-name"]),
    "a buffer nobody binds": (stored(lost[0, 0]), ["unbound-name"]),
    "a dim nobody binds": (Kernel((), (a, b, c), 2, Seq(())), ["unbound-name"]),
    "two blocks of one label": (body(seq(GOOD.body, GOOD.body)), ["duplicate-name"]),
    "a loop's variable in a block": (
        instead(lambda e: Store(c, (vi, vj), a[i, vj]) if e is UPDATE else None),
        ["block-isolation"],
    ),
    "a bound variable in a block": (
        body(Bind(k, index(0), For(i, n, "serial", block("s", (vi,), (n,), "s", (i,),
             Store(c, (vi, k), Lit(0, f32)))))),
        ["block-isolation"],
    ),
    "a value of another dtype": (stored(Lit(1, i32)), ["dtype-conflict"]),
    "sides of two dtypes": (stored(Add(a[0, 0], Lit(1, i32))), ["dtype-conflict"]),
    "a float index": (stored(Load(a, (Lit(0, f32), index(0)))), ["dtype-conflict"]),
    "a float store index": (stored(a[0, 0], index(0), Lit(0, f32)), ["dtype-conflict"]),
    "a float extent": (body(For(i, Lit(3, f32), "serial", Seq(()))), ["dtype-conflict"]),
    "a number as condition": (body(Branch(index(1), Seq(()), Seq(()))), ["dtype-conflict"]),
    "a number as while": (body(While(index(1), Seq(()))), ["dtype-conflict"]),
    "a number as predicate": (
        instead(lambda e: _with(e, predicate=index(1)) if e is BLOCK else None),
        ["dtype-conflict"],
    ),
    "a float binding": (
        instead(lambda e: _with(e, bindings=(Cast(i, f32), j, k)) if e is BLOCK else None),
        ["dtype-conflict"],
    ),
    "a binding of another dtype": (body(Bind(odd, index(1), Seq(()))), ["dtype-conflict"]),
    "a store to an input": (body(Store(a, (index(0), index(0)), Lit(0, f32))), ["ill-formed-term"]),
    "a scope nobody declared": (
        body(Alloc(Buffer(Name("t"), (n,), f32, "nowhere"), Seq(()))), ["unknown-scope"],
    ),
    "too few strides": (
        body(Alloc(Buffer(Name("t"), (n, n), f32, "local", (n,)), Seq(()))), ["ill-formed-term"],
    ),
    "an intrinsic nobody declared": (body(Invoke("test.none", ())), ["unknown-intrinsic"]),
    "an intrinsic with too few operands": (body(Invoke("test.copy", ())), ["wrong-arity"]),
    "an intrinsic with another dtype": (
        Kernel((), (), 0, Alloc(buffer("w", (4,), i64), Invoke("test.copy", (
            Region(buffer("w", (4,), i64), (index(0),), (index(4),)),
            Region(buffer("w", (4,), i64), (index(0),), (index(4),)),
        )))),
        ["dtype-conflict"],
    ),
    "lanes that differ": (
        stored(a[two, two] + Broadcast(Lit(0, f32), 3), two, index(0)), ["shape-conflict"],
    ),
    "a vector as condition": (
        body(Branch(Lt(two, Broadcast(n, 2)), Seq(()), Seq(()))), ["shape-conflict"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("kernel", "expected"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes(kernel: Kernel, expected: list[str]) -> None:
    assert codes(kernel) == expected


def test_several_mistakes_are_told_together() -> None:
    both = body(seq(Store(a, (index(0), index(0)), Lit(0, i32)), Store(c, (i, j), Lit(0, f32))))
    assert codes(both) == ["unbound-name", "unbound-name", "dtype-conflict", "ill-formed-term"]


# --- the limits of a device ----------------------------------------------------------------------


def launch(*loops: tuple[LoopKind, int], inside: Stmt | None = None) -> Kernel:
    stmt: Stmt = Store(c, (index(0), index(0)), Lit(0, f32)) if inside is None else inside
    for number, (kind, extent) in enumerate(loops):
        stmt = For(axis("t", number), index(extent), kind, stmt)
    return body(stmt)


def limited(kernel: Kernel) -> list[tuple[str, str | None]]:
    return [(each.code, each.found) for each in within(kernel, GPU)]


def local(scope: str, count: int) -> Buffer:
    return Buffer(Name("t"), (index(count),), f32, scope)


FINE = launch(("threadIdx.x", 32), ("threadIdx.y", 32), ("blockIdx.x", 1 << 20))
INNER = Store(c, (index(0), i), Lit(0, f32))
TOO_MUCH: dict[str, tuple[Kernel, list[tuple[str, str | None]]]] = {
    "threads": (launch(("threadIdx.x", 64), ("threadIdx.y", 32)), [("target-limit", "2048")]),
    "one axis": (launch(("threadIdx.z", 65)), [("target-limit", "65")]),
    "the grid": (
        launch(("threadIdx.x", 1), ("blockIdx.y", 1 << 16)), [("target-limit", "65536")],
    ),
    "threads nobody counted": (
        body(For(i, n, "threadIdx.x", Store(c, (i, i), Lit(0, f32)))), [("target-limit", None)],
    ),
    "threads of two sizes": (
        launch(("blockIdx.x", 2), inside=seq(
            For(i, index(8), "threadIdx.x", INNER), For(i, index(4), "threadIdx.x", INNER),
        )),
        [("thread-extent", "4")],
    ),
    "shared memory": (
        launch(("threadIdx.x", 2), inside=Alloc(local("shared", 12289), Seq(()))),
        [("target-limit", "49156 bytes")],
    ),
    "local memory": (
        launch(("threadIdx.x", 2), inside=Alloc(local("local", 1 << 20), Seq(()))),
        [("target-limit", "4194304 bytes")],
    ),
    "a vector": (
        launch(("threadIdx.x", 2), inside=For(i, index(8), "vectorized", INNER)),
        [("target-limit", "32 bytes")],
    ),
    "a vector nobody counted": (
        launch(("threadIdx.x", 2), inside=For(i, n, "vectorized", INNER)), [("target-limit", None)],
    ),
    "the host": (body(For(i, n, "serial", INNER)), [("host-access", None)]),
}  # fmt: skip


def test_within_the_limits() -> None:
    assert within(FINE) == ()
    fits = launch(("threadIdx.x", 2), inside=Alloc(local("shared", 12288), Seq(())))
    assert within(fits) == ()
    narrow = launch(("threadIdx.x", 2), inside=For(i, index(4), "vectorized", INNER))
    assert within(narrow) == ()


@pytest.mark.parametrize(("kernel", "expected"), TOO_MUCH.values(), ids=TOO_MUCH)
def test_too_much(kernel: Kernel, expected: list[tuple[str, str | None]]) -> None:
    assert limited(kernel) == expected
