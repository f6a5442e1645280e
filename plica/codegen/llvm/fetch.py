"""Fetching: lines of memory asked for before they are read, where a loop says so.

    fetch=n                             what a loop reads, n elements ahead
    fetch_rows=n                        what a loop reads, n rows ahead
    fetch_next=(n, passes, lines)       what the next of such loops will read, n elements ahead: the
                                        loop around goes over the same this many times, and each
                                        time asks for another share, some lines in each iteration

Nothing depends on it: a line that is outside of all buffers is not read, and no fault.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.statement import Store
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, y, i, j = buffer("x", (9, 8), f32), buffer("y", (9, 8), f32), axis("i"), axis("j")
>>> rows = For(j, index(8), "vectorized", Store(y, (i, j), x[i, j] + y[i, 0]))
>>> [str(each.buffer.name) for each in loads_along(rows)]
['x']
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from plica.codegen.llvm.dialect import memory
from plica.codegen.llvm.lane import constant
from plica.codegen.llvm.value import LlvmValues
from plica.core import Term, free_vars, post_order, substitute
from plica.ir.loop import For, Load, Scalar, ScalarVar, Store, index, statements
from plica.schedule.default.machine import LINE

MAX_LINES_PER_ITERATION: Final = 64  # the maximum number of cache lines prefetched per iteration


def fetch(values: LlvmValues, loop: For, strip: int) -> None:
    """Prefetches the lines that a strip of a loop will read some elements ahead."""
    told, rows = [dict(loop.annotations).get(each) for each in ("fetch", "fetch_rows")]
    if not isinstance(told, int) and not isinstance(rows, int):
        return
    ahead = told if isinstance(told, int) else 0
    lanes = values.lanes
    for load in loads_along(loop):
        at = values.access.linear(load.buffer, values.evaluate(load.indices))
        size, kind, apart = load.buffer.dtype.bytes, memory(load.buffer.dtype), ""
        if isinstance(rows, int):
            place = values.access.places[load.buffer]
            if not values.around.is_inside(load.indices[-2], place.shape[-2]):
                continue  # of a row that may be outside there is none ahead
            stride = place.strides[-2]
            distance = lanes.mul(constant(rows), values.size_of(stride))
            ahead, apart = distance.plus, distance.text
        for start in range(max(1, strip * size // LINE)):
            there = lanes.add(at, constant(ahead + start * LINE // size))
            # Copies of a loop may read the same line.
            near = (there.plus * size + LINE // 2) // LINE
            asked = f"{values.w.block}: fetch {load.buffer.name} {there.text} {near}"
            if not lanes.is_known(asked):
                there = there._replace(step=0, plus=near * LINE // size)
                far = values.access.address(load.buffer, there, False)
                if apart:  # beside the address that is read: it takes no register of its own
                    far = values.w.let(f"getelementptr {kind}, ptr {far}, i64 {apart}")
                lanes.remember(asked, far)
                values.w.do(f"call void @llvm.prefetch.p0(ptr {far}, i32 0, i32 3, i32 1)")


def fetch_next(
    values: LlvmValues, loop: For, count: int | None, around: Sequence[tuple[ScalarVar, int | None]]
) -> None:
    """Prefetches a share of the vectors that will be read after the current ones.

    Enclosing loops are given from the outermost, with their extents.
    """
    match dict(loop.annotations).get("fetch_next"):
        case (int() as ahead, int() as times, int() as lines) if (
            1 <= lines <= MAX_LINES_PER_ITERATION
        ):
            pass
        case _:
            return
    lanes, known = values.lanes, values.around.vars
    for load in vectors_in(loop):
        inside = {var: None for scalar in load.indices for var in free_vars(scalar)}
        outer = next(
            (at for at in reversed(range(len(around))) if around[at][0] not in inside), None
        )
        if count is None or outer is None or around[outer][1] not in (times, times - 1, None):
            continue  # the last time may have been cut off; None is known when the kernel runs
        # Inner loops continue the access: they are runs of one sum.
        passed = [*around[outer:], (loop.var, count)]
        zero = {v: index(0) for v in inside if v not in known or v in dict(passed)}
        line = LINE // load.buffer.dtype.bytes
        at = values.access.linear(load.buffer, values.evaluate(_put(load.indices, zero)))
        step = lines * line
        for var, times_ in reversed(passed):
            at = lanes.add(at, lanes.mul(known[var], constant(step)))
            step *= times_ or 1
        for number in range(lines):
            there = lanes.add(at, constant(ahead + number * line))
            far = values.access.address(load.buffer, there, False)
            values.w.do(f"call void @llvm.prefetch.p0(ptr {far}, i32 0, i32 2, i32 1)")
        return


def _put(of: Sequence[Scalar], where: Mapping[Term, Scalar]) -> list[Scalar]:
    return [substitute(scalar, dict(where)) for scalar in of]


@lru_cache(maxsize=64)
def loads_along(loop: For) -> tuple[Load, ...]:
    """The loads of shared memory at places that depend on a loop and its enclosing loops."""
    found: dict[Load, None] = {}
    for stmt in statements(loop.body):
        if isinstance(stmt, Store):
            for node in post_order(stmt.value):
                if isinstance(node, Load) and _is_far(node, loop):
                    found[node] = None
    return tuple(found)


def vectors_in(loop: For) -> list[Load]:
    """What vectorized loops inside of a loop read of shared memory as vectors."""
    found: dict[Load, None] = {}
    for stmt in statements(loop.body):
        if isinstance(stmt, For) and stmt.kind == "vectorized":
            for load in loads_along(stmt):
                if any(loop.var in free_vars(scalar) for scalar in load.indices):
                    found[load] = None
    return list(found)


def _is_far(load: Load, loop: For) -> bool:
    vars_ = {var for place in load.indices for var in free_vars(place)}
    return load.buffer.scope == "global" and loop.var in vars_ and len(vars_) > 1
