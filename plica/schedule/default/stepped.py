"""Stepped tensors: elements a given number of places apart are made in one way, those between in
another.

    out[i, j] = x[i // 3, j // 2] if i % 3 == 0 and j % 2 == 0 else 0
      -->  for a:  for b: out[3 a, 2 b] = x[a, b]; out[3 a, 2 b + 1] = 0
                   for c in range(2): for b: out[3 a + 1 + c, 2 b], … = 0

Transposed convolutions with windows shorter than their stride, and gradients of strided slices,
test each index for an element. Indices with equal residue have equal answers: such an axis is split
by its step, and no element is tested.

>>> from plica.ir.loop.scalar import FloorDiv, Lit, index
>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.tensor import buffer
>>> from plica.ir.type.dtype import f32
>>> x = buffer("x", (30, 30), f32)
>>> spread = stage("y", (30, 88), lambda i, j: Select(
...     Eq(FloorMod(j - 1, index(3)), index(0)), x[i, FloorDiv(j - 1, index(3))], Lit(0, f32)))
>>> steps_of(spread.value, spread.axes)
{1: (3, 1)}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Final

from plica.analysis.index.context import conjuncts
from plica.core import free_vars, post_order
from plica.ir.loop.scalar import (
    Buffer,
    Eq,
    FloorDiv,
    FloorMod,
    Lit,
    Load,
    Scalar,
    ScalarVar,
    Select,
)
from plica.ir.loop.stages import loads
from plica.ir.loop.statement import Kernel, Store
from plica.ir.type import known, polynomial
from plica.schedule import primitive as st
from plica.schedule.default.machine import MIN_ELEMENTS, Machine
from plica.schedule.default.nest import opened
from plica.schedule.default.role import only_map
from plica.schedule.default.share import pays
from plica.schedule.do import Body, DoBlock as Do, do
from plica.schedule.handle import Handle

LONGEST: Final = 8
"""Longer steps would be more code than they are worth."""


def steps_of(value: Scalar, axes: Sequence[ScalarVar]) -> Mapping[int, tuple[int, int]]:
    """The stepped axes of a tensor, with each step and the tested residue."""
    found: dict[int, tuple[int, int]] = {}
    for node in post_order(value):
        for each in conjuncts(node.condition) if isinstance(node, Select) else ():
            match each:
                case Eq(FloorMod(place, Lit(int() as step)), Lit(0)) if 1 < step <= LONGEST:
                    at = _moved(place, axes)
                    if at is None:
                        continue
                    axis, apart = at
                    if found.setdefault(axis, (step, -apart % step)) != (step, -apart % step):
                        return {}
    return found


def _moved(place: Scalar, axes: Sequence[ScalarVar]) -> tuple[int, int] | None:
    """The axis of an index and its offset, or None."""
    terms = dict(polynomial(place).values())
    apart = terms.pop((), 0)
    match [*terms.items()]:
        case [((ScalarVar() as axis,), 1)] if axis in axes:
            return axes.index(axis), apart
        case _:
            return None


def _is_worth(
    out: Buffer, axes: Sequence[ScalarVar], value: Scalar, steps: Mapping[int, tuple[int, int]]
) -> bool:
    """Whether there are enough elements, and operands of a row advance by one per step."""
    sizes = [known(size) or 0 for size in out.shape]
    if (
        not steps
        or prod(sizes) < MIN_ELEMENTS
        or any(sizes[at] < step for at, (step, _) in steps.items())
    ):
        return False
    last = len(axes) - 1
    step = steps[last][0] if last in steps else 1
    return all(_goes_on(load, axes, step) for load in loads(value))


def _goes_on(of: Load, axes: Sequence[ScalarVar], step: int) -> bool:
    row = axes[-1]
    if any(row in free_vars(place) for place in of.indices[:-1]):
        return False
    if not of.indices or row not in free_vars(of.indices[-1]):
        return True
    match of.indices[-1]:
        case FloorDiv(place, Lit(int() as by)):
            return by == step > 1 and _moved(place, axes) is not None
        case place:
            return step == 1 and _moved(place, axes) is not None


def stepped_schedule(kernel: Kernel, machine: Machine) -> Do | None:
    """The schedule of a stepped tensor, None for other kernels: stepped axes are split by their
    steps, from the last on."""
    if (of := only_map(kernel)) is None:
        return None
    assert isinstance(of.body, Store)
    steps = steps_of(of.body.value, of.vars)
    if not _is_worth(of.body.buffer, of.vars, of.body.value, steps):
        return None
    sizes = [known(each) or 0 for each in of.extents]
    last = len(sizes) - 1
    outer = next((at for at in range(last) if sizes[at] > 1), None)
    shares = outer not in steps and pays(machine, prod(sizes), kernel.params)

    @do
    def schedule() -> Body:
        _, every = yield from opened(of)
        for at in range(last, -1, -1):
            if at not in steps:
                if at == last:
                    yield st.vectorize(every[at])
                elif at == outer and shares:
                    yield st.parallel(every[at])
                continue
            step, rest = steps[at]
            whole, over = sizes[at] - sizes[at] % step, sizes[at] % step
            parts: tuple[Handle, ...] = (every[at],)
            if over:
                parts = yield st.loop_partition(every[at], (whole, over))
            turns: list[tuple[Handle, int]] = [(each, over) for each in parts[1:]]
            _, turn = yield st.split(parts[0], (None, step))
            for each, length in (*turns, (turn, step)):  # what comes behind goes first
                ends = sorted({0, min(rest, length), min(rest + 1, length), length})
                lengths = tuple([stop - start for start, stop in pairwise(ends)])
                pieces: tuple[Handle, ...] = (each,)
                if len(lengths) > 1:
                    pieces = yield st.loop_partition(each, lengths)
                for piece in pieces if at == last else ():
                    yield st.unroll(piece)

    return schedule()
