"""Shapes of kernels: the blocks a rule of thumb looks at, before it schedules them.

Inlinable stages are inlined; then the last block computes the result, and reductions precede it.
"""

from __future__ import annotations

from math import prod

from attrs import frozen

from plica.analysis.site import map_of
from plica.core import Name
from plica.ir.loop.statement import Block, For, Kernel
from plica.ir.type import known
from plica.schedule.do import Body, do
from plica.schedule.primitive import block, compute_inline
from plica.schedule.problem import ScheduleRefused


@frozen(eq=False)
class BlockStage:
    """A block with its loops: first those of its elements, then those of its terms."""

    label: Name
    spatial: tuple[int, ...]
    reduce: tuple[int, ...]

    @property
    def elements(self) -> int:
        return prod(self.spatial)

    @property
    def terms(self) -> int:
        return prod(self.reduce)


def stages(kernel: Kernel) -> tuple[BlockStage, ...] | None:
    """The blocks of a kernel in order, or None if one is not in plain loops of static extent."""
    found = []
    for label, site in map_of(kernel).blocks.items():
        stage = _stage(label, site.node, site.loops)
        if stage is None or site.scope is not None:
            return None
        found.append(stage)
    return tuple(found)


def _stage(label: Name, block_: Block, loops: tuple[For, ...]) -> BlockStage | None:
    sizes = [known(loop.extent) for loop in loops]
    kinds = block_.kinds
    plain = tuple([loop.var for loop in loops]) == block_.bindings
    count = sum(kind == "spatial" for kind in kinds)
    ordered = all(kind == "spatial" for kind in kinds[:count])
    if not plain or not ordered or not all(kind in ("spatial", "reduce") for kind in kinds):
        return None
    if any(size is None or size < 1 for size in sizes):
        return None
    numbers = [size or 0 for size in sizes]
    return BlockStage(label, tuple(numbers[:count]), tuple(numbers[count:]))


@do
def inlined(labels: tuple[Name, ...]) -> Body:
    """Every block that can be computed where it is read is."""
    for label in labels:
        handle = yield block(str(label))
        try:
            yield compute_inline(handle)
        except ScheduleRefused:
            continue
