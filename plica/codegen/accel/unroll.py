"""Unrolling: the leaves of a flow in the order in which they happen, their numbers worked out.

>>> from plica.codegen.accel.flow import Loop, Memory, Tile, Transfer
>>> from plica.ir.loop.scalar import index
>>> from plica.ir.loop.tensor import axis
>>> i = axis("i")
>>> x, a = Memory("x", "inp", 64), Tile("a", "inp", 16)
>>> load = Transfer("load.inp", a, index(0), x, i * 16, index(1), index(16), index(16))
>>> [(leaf.operation, numbers[1]) for leaf, numbers in unroll(Loop(i, 3, load))]
[('load.inp', 0), ('load.inp', 16), ('load.inp', 32)]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from plica.analysis.race import on_grid
from plica.codegen.accel.flow import Leaf, Loop, Steps, Stmt, Threads, Transfer, Work
from plica.core import CompilerBug, Term, fold
from plica.ir.loop.scalar import Scalar, ScalarVar
from plica.runtime.error import Diagnostic, UnsupportedError

Array = np.ndarray[Any, Any]

MAX_STEPS: Final = 1 << 22
"""A flow of more leaves is refused: it would not fit any memory of instructions."""


def unroll(body: Stmt) -> list[tuple[Leaf, tuple[int, ...]]]:
    """Every leaf with its numbers, in the order of `numbers_of`."""
    sizes: dict[Term, int] = {}

    def count(node: Term, kids: tuple[int, ...]) -> int:
        match node:
            case Transfer() | Work():
                size = 1
            case Loop():
                size = node.extent * sizes[node.body]
            case Steps():
                size = sum(sizes[statement] for statement in node.stmts)
            case Threads():
                raise CompilerBug("virtual threads are lowered before a flow is unrolled")
            case _:
                size = 0
        sizes[node] = size
        return size

    total = fold(count, body)
    if total > MAX_STEPS:
        message = "The program of an accelerator has too many steps."
        hint = "Use larger tiles."
        raise UnsupportedError(
            Diagnostic("target-limit", message, None, f"at most {MAX_STEPS}", str(total), hint)
        )
    found: list[Any] = [None] * total
    stack: list[tuple[Stmt, int, tuple[tuple[ScalarVar, int, int], ...]]] = [(body, 0, ())]
    while stack:
        node, at, loops = stack.pop()
        if isinstance(node, Loop):
            stack.append((node.body, at, (*loops, (node.var, node.extent, sizes[node.body]))))
        elif isinstance(node, Steps):
            for statement in node.stmts:
                stack.append((statement, at, loops))
                at += sizes[statement]
        elif isinstance(node, Transfer | Work):
            _place(node, at, loops, found)
    return found


def numbers_of(leaf: Leaf) -> tuple[Scalar, ...]:
    """The expressions of a leaf, in order."""
    if isinstance(leaf, Transfer):
        return (leaf.sram, leaf.dram, leaf.rows, leaf.width, leaf.stride, *leaf.pads)
    return (*leaf.extents, *(n for touch in leaf.touches for n in (touch.base, *touch.strides)))


def _place(
    leaf: Leaf, at: int, loops: Sequence[tuple[ScalarVar, int, int]], found: list[Any]
) -> None:
    grid: dict[Term, Array] = {}
    times = np.full((1,) * len(loops), at)
    for number, (var, extent, period) in enumerate(loops):
        shape = [1] * len(loops)
        shape[number] = extent
        steps = np.arange(extent).reshape(shape)
        grid[var] = steps
        times = times + steps * period
    wanted = numbers_of(leaf)
    values = evaluate(wanted, grid)
    columns = [np.broadcast_to(value, times.shape).reshape(-1).tolist() for value in values]
    for time, numbers in zip(times.reshape(-1).tolist(), zip(*columns, strict=True), strict=True):
        found[time] = leaf, numbers


def evaluate(wanted: Sequence[Scalar], grid: Mapping[Term, Array]) -> list[Array]:
    """The index expressions at every point of a grid."""
    found = on_grid(wanted, grid)
    if not isinstance(found, Scalar):
        return found
    if isinstance(found, ScalarVar):
        message = f"The variable {found.name} is of no loop around it."
        some = ", ".join(str(each.name) for each in grid if isinstance(each, ScalarVar))
        raise UnsupportedError(
            Diagnostic("unsupported", message, None, some or "no variable", str(found.name))
        )
    message = f"The place of an access is worked out by {type(found).__name__}."
    raise UnsupportedError(
        Diagnostic("unsupported", message, None, "sums, products, minima, quotients")
    )
