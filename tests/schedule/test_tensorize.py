"""tensorize: intrinsics are matched by meaning; near misses are refused with the difference."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from plica.ir.loop.intrinsic import intrinsic
from plica.ir.loop.scalar import Max, Scalar, ScalarVar, index, lit
from plica.ir.loop.statement import (
    For,
    Invoke,
    Kernel,
    Stmt,
    Store,
    While,
    block as make_block,
    seq,
    statements,
)
from plica.ir.loop.tensor import axis, buffer
from plica.ir.text.show import show_kernel
from plica.ir.type.dim import DimLike, dim, dim_var
from plica.ir.type.dtype import DType, bool_, f32, i32
from plica.schedule import (
    ScheduleRefused,
    block as find,
    blockize,
    do,
    loops,
    reorder,
    split,
    tensorize,
    trace_of,
)
from plica.schedule.do import Body
from plica.schedule.replay import scheduled
from tests.conftest import Golden
from tests.schedule.kernel import matmul, same_function


def looped(body: Stmt, *around: tuple[ScalarVar, DimLike]) -> Stmt:
    for var, extent in reversed(around):
        body = For(var, dim(extent), "serial", body)
    return body


def gemm(
    name: str, m: DimLike, n: DimLike, k: DimLike, *, transposed: bool = False,
    dtype: DType = f32, combine: Callable[[Scalar, Scalar], Scalar] = lambda a, b: a + b,
    begins: bool = False, scope: str = "global",
) -> str:  # fmt: skip
    """A matrix product of some size, its loops in an order nobody writes."""
    a = buffer("a", (m, k), dtype)
    b = buffer("b", (n, k) if transposed else (k, n), dtype)
    c = buffer("c", (m, n), dtype)
    i, j, p = axis("i"), axis("j"), axis("p")
    right = b[j, p] if transposed else b[p, j]
    body: Stmt = looped(Store(c, (i, j), combine(c[i, j], right * a[i, p])), (j, n), (i, m), (p, k))
    if begins:
        zero = looped(Store(c, (i, j), lit(0, dtype)), (i, m), (j, n))
        body = seq(zero, body)
    dims = tuple(each for each in (m, n, k) if isinstance(each, ScalarVar))
    return intrinsic(name, Kernel(dims, (a, b, c), 2, body)).name


G2 = gemm("test.gemm2", 2, 2, 2)
ANY = gemm("test.gemm", dim_var("rows"), dim_var("columns"), dim_var("depth"))
FIRST = gemm("test.gemm2_from_zero", 2, 2, 4, begins=True)


@do
def tiled(name: str, a: int = 2, b: int = 2, c: int = 2) -> Body:
    found = yield find("C")
    i, j, k = yield loops(found)
    i0, i1 = yield split(i, (None, a))
    j0, j1 = yield split(j, (None, b))
    k0, k1 = yield split(k, (None, c))
    yield reorder(i0, j0, k0, i1, j1, k1)
    yield tensorize(i1, name)


def after(schedule: object, kernel: Kernel) -> Kernel:
    return scheduled(trace_of(schedule, kernel), kernel)  # type: ignore[arg-type]  # a do-block


def refused(schedule: object, kernel: Kernel) -> tuple[str, str, str]:
    with pytest.raises(ScheduleRefused) as caught:
        trace_of(schedule, kernel)  # type: ignore[arg-type]  # a do-block
    problem = caught.value.problem
    return problem.precondition, problem.expected, problem.found


def invoked(kernel: Kernel) -> list[str]:
    return [each.name for each in statements(kernel.body) if isinstance(each, Invoke)]


def test_text(golden: Golden) -> None:
    golden(show_kernel(after(tiled(G2), matmul(6, 4, 8))), "tensorize")


@pytest.mark.parametrize(("name", "tile"), [(G2, (2, 2, 2)), (ANY, (3, 2, 4)), (FIRST, (2, 2, 4))])
def test_it_keeps_meaning(name: str, tile: tuple[int, int, int]) -> None:
    kernel = matmul(6, 4, 4 if name is FIRST else 8)
    new = after(tiled(name, *tile), kernel)
    assert invoked(new) == [name]
    assert same_function(kernel, new)


def test_a_block_and_unit_loops() -> None:
    @do
    def of_block() -> Body:
        found = yield find("C")
        i, j, k = yield loops(found)
        i0, i1 = yield split(i, (3, 2))
        i2, i3 = yield split(i1, (2, 1))
        j0, j1 = yield split(j, (2, 2))
        k0, k1 = yield split(k, (4, 2))
        yield reorder(k0, j0, i0, j1, i3, k1, i2)
        outer = yield blockize(j1)
        yield tensorize(outer, G2)

    new = after(of_block, matmul(6, 4, 8))
    assert invoked(new) == [G2]
    assert same_function(matmul(6, 4, 8), new)


def test_dimensions_of_one_element() -> None:
    x, y = buffer("x", (3, 1, 4), f32), buffer("y", (4, 3), f32)
    i, j, v, w = axis("i"), axis("j"), axis("v"), axis("w")
    inside = make_block("C", (v, w), (3, 4), "ss", (i, j), Store(y, (w, v), x[v, 0, w] * 2))
    a, b, k = buffer("a", (4,), f32), buffer("b", (4, 1), f32), axis("k")
    name = intrinsic(
        "test.double4", Kernel((), (a, b), 1, looped(Store(b, (k, index(0)), a[k] * 2), (k, 4)))
    ).name
    kernel = Kernel((), (x, y), 1, looped(inside, (i, 3), (j, 4)))

    @do
    def rows() -> Body:
        found = yield find("C")
        _, inner = yield loops(found)
        yield tensorize(inner, name)

    new = after(rows, kernel)
    assert invoked(new) == [name]
    assert same_function(kernel, new)


NEAR = (
    (gemm("test.wide", 2, 2, 4), "loops of 2, 2, 4", "loops of 2, 2, 2"),
    (gemm("test.transposed", 2, 2, 2, transposed=True), "b[", "B["),
    (gemm("test.whole", 2, 2, 2, dtype=i32), "c of i32", "C of f32"),
    (gemm("test.max", 2, 2, 2, combine=Max), "max(", "C["),
)


@pytest.mark.parametrize(("name", "expected", "found"), NEAR)
def test_near_misses(name: str, expected: str, found: str) -> None:
    word, wanted, there = refused(tiled(name), matmul(6, 4, 8))
    assert word == "match"
    assert expected in wanted
    assert found in there


def test_a_predicate_is_in_the_way() -> None:
    word, _, found = refused(tiled(G2), matmul(5, 4, 8))
    assert word == "match"
    assert "predicate" in found


def test_an_init_that_comes_too_early() -> None:
    assert refused(tiled(FIRST, 2, 2, 4), matmul(6, 4, 8))[0] == "match"


def test_other_refusals() -> None:
    assert refused(tiled("test.gem"), matmul(6, 4, 8))[0] == "known-intrinsic"
    b, i = buffer("b", (4,), f32), axis("i")
    zero = lit(0, f32)
    never = While(lit(False, bool_), Store(b, (index(0),), zero))
    fill = looped(Store(b, (i,), zero), (i, 4))
    odd = intrinsic("test.while", Kernel((), (b,), 0, seq(never, fill)))
    assert refused(tiled(odd.name), matmul(6, 4, 8))[0] == "describable"


def test_one_buffer_for_two() -> None:
    a, b, c, k = buffer("a", (4,), f32), buffer("b", (4,), f32), buffer("c", (4,), f32), axis("k")
    add = Store(c, (k,), a[k] + b[k])
    name = intrinsic("test.add4", Kernel((), (a, b, c), 2, looped(add, (k, 4)))).name
    x, y, i, v = buffer("x", (4,), f32), buffer("y", (4,), f32), axis("i"), axis("v")
    start = make_block("S", (v,), (4,), "s", (i,), Store(y, (v,), x[v]))
    j, w = axis("j"), axis("w")
    inside = make_block("C", (w,), (4,), "s", (j,), Store(y, (w,), y[w] + x[w]))
    kernel = Kernel((), (x, y), 1, seq(looped(start, (i, 4)), looped(inside, (j, 4))))

    @do
    def whole() -> Body:
        found = yield find("C")
        (loop,) = yield loops(found)
        yield tensorize(loop, name)

    word, expected, _ = refused(whole, kernel)
    assert word == "match"
    assert "different buffers" in expected
