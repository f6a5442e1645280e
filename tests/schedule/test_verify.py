"""Verifiers that prove: what they pass runs, and planted mistakes are found."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.strategies import DrawFn

from plica.analysis.site import with_parts
from plica.core.diagnostic import EvaluationError
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.scalar import Lit, Load, Lt, Ramp, Reduce, Scalar, Select, index
from plica.ir.loop.statement import (
    Alloc,
    Bind,
    Block,
    Branch,
    For,
    Invoke,
    Kernel,
    Region,
    Seq,
    Stmt,
    Store,
    block,
)
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import f32, i64
from plica.schedule.verify import in_bounds, regions_cover

n = dim_var("n")
i, j, k, o, v, w = (axis(name) for name in "ijkovw")
x, y = buffer("x", (n,), f32), buffer("y", (n,), f32)


def kernel(stmt: Stmt) -> Kernel:
    return Kernel((n,), (x, y), 1, stmt)


def over(stmt: Stmt, extent: Scalar = n) -> For:
    return For(i, extent, "serial", stmt)


def tiled(tile: int, *, guarded: bool = True) -> Kernel:
    place = o * tile + i
    inside = block(
        "y", (v,), (n,), "s", (place,), Store(y, (v,), x[v]),
        predicate=Lt(place, n) if guarded else Lt(index(0), index(1)),
    )  # fmt: skip
    loop = For(i, index(tile), "serial", inside)
    return kernel(For(o, (n + tile - 1) // tile, "serial", loop))


FINE: dict[str, Kernel] = {
    "a copy": kernel(over(Store(y, (i,), x[i]))),
    "reversed": kernel(over(Store(y, (i,), x[n - 1 - i]))),
    "a guard": kernel(over(Store(y, (i,), Select(Lt(i + 1, n), x[i + 1], x[i])))),
    "a branch": kernel(over(Branch(Lt(i + 1, n), Store(y, (i,), x[i + 1]), Seq(())))),
    "the other branch": kernel(over(Branch(Lt(i + 1, n), Seq(()), Store(y, (n - 1 - i,), x[i])))),
    "a tile": tiled(4),
    "a bound name": kernel(over(Bind(j, n - 1 - i, Store(y, (j,), x[j])))),
    "a reduction": kernel(over(Store(y, (i,), Reduce("sum", (k,), (i + 1,), x[k])))),
    "a vector": kernel(
        Branch(Lt(index(3), n), Store(y, (Ramp(index(0), index(1), 4),), Lit(0, f32)), Seq(()))
    ),
}
WRONG: dict[str, tuple[Kernel, str]] = {
    "one too far": (kernel(over(Store(y, (i,), x[i + 1]))), "index-out-of-bounds"),
    "one before": (kernel(over(Store(y, (i - 1,), x[i]))), "index-out-of-bounds"),
    "no guard": (tiled(4, guarded=False), "binding-out-of-range"),
    "the wrong guard": (
        kernel(over(Store(y, (i,), Select(Lt(i, n), x[i + 1], x[i])))),
        "index-out-of-bounds",
    ),
    "the wrong branch": (
        kernel(over(Branch(Lt(i + 1, n), Seq(()), Store(y, (i,), x[i + 1])))),
        "index-out-of-bounds",
    ),
    "a long reduction": (
        kernel(over(Store(y, (i,), Reduce("sum", (k,), (n + 1,), x[k])))),
        "index-out-of-bounds",
    ),
    "a vector": (
        kernel(Store(y, (Ramp(index(0), index(1), 4),), Lit(0, f32))),
        "index-out-of-bounds",
    ),
    "a region": (
        kernel(over(Invoke("any", (Region(x, (i,), (index(2),)),)))),
        "index-out-of-bounds",
    ),
}


@pytest.mark.parametrize("good", FINE.values(), ids=FINE)
def test_inside(good: Kernel) -> None:
    assert in_bounds(good) == ()


@pytest.mark.parametrize(("bad", "code"), WRONG.values(), ids=WRONG)
def test_outside(bad: Kernel, code: str) -> None:
    assert {each.code for each in in_bounds(bad)} == {code}


def test_the_place_where_it_fails() -> None:
    small = buffer("small", (3,), f32)
    (said,) = in_bounds(Kernel((), (small,), 0, over(Store(small, (i * 2,), small[i]), index(3))))
    assert (said.code, said.found) == ("index-out-of-bounds", "dimension 0 where i = 2")


@st.composite
def copies(draw: DrawFn) -> Kernel:
    """A copy by small affine indices, inside or not."""
    sizes = [draw(st.integers(1, 5)) for _ in range(2)]
    a, b = (
        buffer("a", (draw(st.integers(1, 9)),), i64),
        buffer("b", (draw(st.integers(1, 9)),), i64),
    )
    coefficients = st.integers(-2, 2)

    def place() -> Scalar:
        return i * draw(coefficients) + j * draw(coefficients) + draw(st.integers(-1, 5))

    stmt: Stmt = Store(b, (place(),), Load(a, (place(),)))
    if draw(st.booleans()):
        stmt = Branch(Lt(place(), index(draw(st.integers(0, 5)))), stmt, Seq(()))
    nest = For(i, index(sizes[0]), "serial", For(j, index(sizes[1]), "serial", stmt))
    fill = For(k, b.shape[0], "serial", Store(b, (k,), index(0)))
    return Kernel((), (a, b), 1, Seq((fill, nest)))


@given(copies())
def test_proved_inside_is_inside(copy: Kernel) -> None:
    size = copy.params[0].shape[0]
    assert isinstance(size, Lit)
    try:
        run_kernel(copy, (np.zeros(int(size.value), np.int64),))
        runs = True
    except EvaluationError as error:
        assert error.code == "index-out-of-bounds"  # noqa: PT017
        runs = False
    assert (in_bounds(copy) == ()) == runs  # affine indices are always decided


# --- declared regions ----------------------------------------------------------------------------


def declared(
    reads: tuple[Region, ...], writes: tuple[Region, ...], stmt: Stmt | None = None
) -> Kernel:
    """Sums of windows of three, in a block that declares what it touches."""
    inside = Store(y, (v,), x[v] + x[v + w]) if stmt is None else stmt
    base = block("y", (v, w), (n - 2, 3), "sr", (i, j), inside)
    whole = with_parts(base, reads=reads, writes=writes)
    assert isinstance(whole, Block)
    return kernel(over(For(j, index(3), "serial", whole), n - 2))


def box(of: str, start: Scalar, extent: Scalar) -> Region:
    return Region(x if of == "x" else y, (start,), (extent,))


ONE, THREE = index(1), index(3)


@pytest.mark.parametrize(
    ("reads", "writes", "stmt"),
    [
        ((), (), None),
        ((box("x", v, THREE),), (box("y", v, ONE),), None),
        ((box("x", index(0), n),), (), None),
        ((box("x", v, ONE), box("x", v + w, ONE)), (box("y", v, ONE),), None),
        ((box("x", v, ONE),), (box("y", v, ONE),), Store(y, (v,), y[v] + x[v])),
        (
            (box("x", v, ONE),),
            (box("y", v, ONE),),
            Alloc(buffer("t", (1,), f32), Store(buffer("t", (1,), f32), (index(0),), x[v])),
        ),
    ],
)
def test_regions_that_cover(
    reads: tuple[Region, ...], writes: tuple[Region, ...], stmt: Stmt | None
) -> None:
    assert regions_cover(declared(reads, writes, stmt)) == ()


@pytest.mark.parametrize(
    ("reads", "writes"),
    [
        ((box("x", v, index(2)),), ()),
        ((box("x", v + 1, THREE),), ()),
        ((box("y", v, THREE),), ()),
        ((), (box("y", v + 1, ONE),)),
        ((), (box("y", v, index(0)),)),
        ((), (box("x", v, THREE),)),
    ],
)
def test_regions_that_do_not(reads: tuple[Region, ...], writes: tuple[Region, ...]) -> None:
    (said,) = regions_cover(declared(reads, writes))
    assert said.code == "region-uncovered"
    assert said.place is not None
    assert said.place.node == "y"
