"""Small programs that tempt a schedule into mistakes, and what an accepted step must keep."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from plica.analysis.site import map_of
from plica.ir.loop.scalar import Buffer, Lt, Max, Scalar, ScalarVar, index, lit
from plica.ir.loop.statement import TRUE, For, Kernel, Stmt, Store, block, seq
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import i32
from plica.schedule import (
    ScheduleRefused,
    block as block_named,
    do,
    fuse,
    loops,
    record,
    reorder,
    split,
)
from plica.schedule.do import Body, DoBlock
from plica.schedule.replay import kernel_of
from tests.schedule.kernel import matmul, same_function

SIZE = 26


@st.composite
def nests(draw: DrawFn, depth: int = 3, blocks: int = 1) -> Kernel:
    """A fill of y, then nests of loops that update y at affine places, in ways good and bad."""
    x, y = buffer("x", (SIZE, SIZE), i32), buffer("y", (SIZE,), i32)
    f, vf = axis("f"), axis("vf")
    fill = block("fill", (vf,), (SIZE,), "s", (f,), Store(y, (vf,), lit(3, i32)))
    stmts: list[Stmt] = [For(f, index(SIZE), "serial", fill)]
    for number in range(draw(st.integers(1, blocks))):
        stmts.append(draw(_nest(x, y, number, depth)))
    return Kernel((), (x, y), 1, seq(*stmts))


@st.composite
def _nest(draw: DrawFn, x: Buffer, y: Buffer, number: int, depth: int) -> Stmt:
    count = draw(st.integers(1, depth))
    loops = [axis(f"{'abc'[at]}{number}") for at in range(count)]
    sizes = [draw(st.integers(1, 4)) for _ in loops]
    variables = [axis(f"v{'abc'[at]}{number}") for at in range(count)]
    kinds = "".join(draw(st.sampled_from("ssr")) for _ in loops)

    def place(of: list[ScalarVar]) -> Scalar:
        total: Scalar = index(draw(st.integers(0, 2)))
        for var in of:
            total = total + var * draw(st.sampled_from((0, 1, 1, 1, 2, 4)))
        return total

    spatial = [v for v, kind in zip(variables, kinds, strict=True) if kind == "s"]
    at = place(spatial) if draw(st.booleans()) else place(variables)
    taken = x[place(variables), place(variables)]
    other = y[place(variables)]
    values: list[Callable[[], Scalar]] = [
        lambda: y[at] + taken,
        lambda: y[at] + taken,
        lambda: Max(y[at], taken),
        lambda: taken,
        lambda: y[at] * 2 + taken,
        lambda: other + taken,
    ]
    body = Store(y, (at,), draw(st.sampled_from(values))())
    init = Store(y, (at,), lit(1, i32)) if "r" in kinds and draw(st.booleans()) else None
    bindings: list[Scalar] = list(loops)
    if draw(st.integers(0, 3)) == 0:
        bindings[0] = index(sizes[0] - 1) - loops[0]
    predicate = TRUE
    if draw(st.integers(0, 3)) == 0:
        predicate = Lt(place(loops), index(draw(st.integers(1, 6))))  # type: ignore[assignment]
    stmt: Stmt = block(
        f"y{number}", variables, sizes, kinds, bindings, body, init, predicate
    )  # fmt: skip
    for var, size in zip(reversed(loops), reversed(sizes), strict=True):
        stmt = For(var, index(size), "serial", stmt)
    return stmt


def keeps(kernel: Kernel, schedule: DoBlock, **sizes: int) -> bool:
    """Whether a schedule was accepted; if so, the kernel must mean the same as before."""
    try:
        after = record(schedule, kernel).module
    except ScheduleRefused:
        return False
    assert same_function(kernel, kernel_of(after)[2], **sizes)
    return True


def refusal(kernel: Kernel, schedule: Callable[[], Body]) -> str:
    """The precondition by which a schedule is refused."""
    try:
        record(do(schedule), kernel)
    except ScheduleRefused as refused:
        return refused.problem.precondition
    return "accepted"


def after(kernel: Kernel, schedule: Callable[[], Body], **sizes: int) -> Kernel:
    """The kernel after a schedule; it means the same as before."""
    scheduled = kernel_of(record(do(schedule), kernel).module)[2]
    assert same_function(kernel, scheduled, **sizes)
    return scheduled


@st.composite
def products(draw: DrawFn) -> tuple[Kernel, dict[str, int]]:
    """A product of matrices, some of its sizes symbolic, and numbers for those."""
    numbers = {"rows": 6, "columns": 5, "depth": 7}
    sizes = {name: draw(st.integers(1, most)) for name, most in numbers.items()}
    given = [dim_var(each) if draw(st.booleans()) else size for each, size in sizes.items()]
    return matmul(*given), sizes


@do
def prepared(data: st.DataObject, steps: int = 3) -> Body:
    """A few random splits, fusions and reorderings around the block C, as far as they are legal."""
    c = yield block_named("C")
    for _ in range(data.draw(st.integers(0, steps))):
        around = yield loops(c)
        factor, kind = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 2))
        at = data.draw(st.integers(0, len(around) - 1))
        try:
            if kind == 0:
                yield split(
                    around[at], data.draw(st.sampled_from(((None, factor), (factor, None))))
                )
            elif kind == 1:
                yield fuse(*around[at : at + 2])
            else:
                yield reorder(*data.draw(st.permutations(around)))
        except ScheduleRefused:
            continue
    around = yield loops(c)
    return c, around


def names(kernel: Kernel) -> list[str]:
    """The names of the loops, in the order of the text."""
    return [str(var.name) for var in map_of(kernel).loops]
