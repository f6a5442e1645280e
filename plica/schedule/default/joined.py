"""Joined tensors: each part is copied by loops of its own.

    out[c, i, j] = x[c, i, j] if c < 8 else y[c - 8, i, j] if c < 24 else z[c - 24, i, j]
      -->  for c in range(8):  for i, j: out[c, i, j]      = x[c, i, j]
           for c in range(16): for i, j: out[c + 8, i, j]  = y[c, i, j]
           for c in range(8):  for i, j: out[c + 24, i, j] = z[c, i, j]

So no element asks where it comes from, and rows are vectors.  A row shorter than a vector is one
vector of which some lanes take no part.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.scalar import Lt, Select
>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.tensor import buffer
>>> x, y = buffer("x", (8, 40, 40), f32), buffer("y", (16, 40, 40), f32)
>>> both = stage("z", (24, 40, 40), lambda c, i, j: Select(
...     Lt(c, index(8)), x[c, i, j], y[c - 8, i, j]))
>>> parts_of(both)
(0, (8, 16))
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING

from plica.analysis.index.context import conjuncts
from plica.core.binding import free_vars
from plica.core.fold import post_order
from plica.ir.loop.scalar import Buffer, Le, Lit, Load, Lt, Scalar, ScalarVar, Select, index
from plica.ir.loop.stage import Each
from plica.ir.loop.stages import Names, Stages, loads, reductions, stages
from plica.ir.loop.statement import Kernel, Store
from plica.ir.type.dim import known, polynomial
from plica.ir.type.dtype import f32, f64
from plica.runtime.late import late
from plica.schedule.default.machine import Machine
from plica.schedule.default.role import block_flow, is_reduction
from plica.schedule.do import Body, do
from plica.schedule.do import DoBlock as Do
from plica.schedule.handle import Handle
from plica.schedule.primitive import block, loops, parallel, split, vectorize

if TYPE_CHECKING:
    from plica.schedule.primitive import loop_partition
else:
    loop_partition = late("plica.schedule.primitive:loop_partition")

__all__ = ["index", "joined_form", "joined_schedule", "parts_of"]

FEWEST = 4096
"""Fewer elements than that are not worth a schedule."""

SHARED = 1 << 17
"""Fewer elements than that are not worth waking other cores."""

MOST = 256
"""So many parts have loops of their own, at most."""


def parts_of(of: Each) -> tuple[int, tuple[int, ...]] | None:
    """The axis along which tensors are joined, and the lengths of the parts."""
    return None if reductions(of.value) else _parts(of.value, of.axes, of.out.shape)


def _parts(
    body: Scalar, axes: tuple[Scalar, ...], shape: tuple[Scalar, ...]
) -> tuple[int, tuple[int, ...]] | None:
    cuts: dict[int, set[int]] = {}
    for node in post_order(body):
        for each in conjuncts(node.condition) if isinstance(node, Select) else ():
            match each:
                case Lt(left, Lit(int() as place)) if left in axes:
                    cuts.setdefault(axes.index(left), set()).add(place)
                case Le(Lit(int() as place), right) if right in axes:
                    cuts.setdefault(axes.index(right), set()).add(place)
    if len(cuts) != 1:
        return None
    ((at, places),) = cuts.items()
    size = known(shape[at]) or 0
    inner = sorted(each for each in places if 0 < each < size)
    if at == len(axes) - 1 or not 1 <= len(inner) < MOST:
        return None
    return at, tuple([b - a for a, b in pairwise((0, *inner, size))])


def joined_form(of: Stages) -> Stages | None:
    """The stage of tensors that are joined, None where it is something else."""
    match of.stages:
        case (Each() as whole,):
            pass
        case _:
            return None
    if not _is_worth(whole.out, whole.axes, whole.value) or parts_of(whole) is None:
        return None
    out = Buffer(Names(of).name("joined_rows"), whole.out.shape, whole.out.dtype)
    return stages(of.inputs, (Each(out, whole.axes, whole.value),))


def _is_worth(out: Buffer, axes: Sequence[ScalarVar], value: Scalar) -> bool:
    """Whether elements are many enough, and rows lie as they are read."""
    sizes = [known(size) or 0 for size in out.shape]
    if not axes or prod(sizes) < FEWEST or out.dtype not in (f32, f64):
        return False
    return all(_is_row(load, axes[-1]) for load in loads(value))


def _is_row(of: Load, row: Scalar) -> bool:
    """Whether neighbours in a row of the result are neighbours in what is read, or one element."""
    if any(row in free_vars(place) for place in of.indices[:-1]):
        return False
    if not of.indices or row not in free_vars(of.indices[-1]):
        return True
    factors = [f for atoms, f in polynomial(of.indices[-1]).values() if row in atoms]
    return factors == [1]


def joined_schedule(kernel: Kernel, machine: Machine) -> Do | None:
    """The schedule of such a kernel."""
    flow = block_flow(kernel)
    if flow is None or len(flow.blocks) != 1 or is_reduction(flow.result):
        return None
    of = flow.result
    assert isinstance(of.body, Store)
    found = _parts(of.body.value, of.vars, of.extents)
    if found is None or not _is_worth(of.body.buffer, of.vars, of.body.value):
        return None
    at, lengths = found
    sizes = [known(each) or 0 for each in of.extents]
    most = machine.lanes(kernel.params[-1].dtype)
    lanes = 1 << (sizes[-1] - 1).bit_length()
    short = sizes[-1] < most and lanes != sizes[-1] and machine.masks
    shares = machine.cores > 1 and prod(sizes) >= SHARED

    @do
    def schedule() -> Body:
        rows = yield block(str(of.label))
        every: tuple[Handle, ...] = yield loops(rows)
        row = every[-1]
        if short:
            _, row = yield split(row, (None, lanes))
        yield vectorize(row)
        parts = yield loop_partition(every[at], lengths)
        for each in parts if shares and prod(sizes[:at]) == 1 else ():
            yield parallel(each)

    return schedule()
