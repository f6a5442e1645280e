"""Sharing: whether work is worth waking other cores, from its cycles on one core.

>>> from plica.ir.loop.tensor import buffer
>>> machine = Machine(512, 32, cores=2)
>>> weights = buffer("w", (512, 784), f32)
>>> pays(machine, 512 * 784, (weights,))    # no product is used again: memory is what it takes
True
>>> pays(machine, 512 * 784, ())
False
>>> pays(Machine(512, 32, cores=1), 1 << 30, ())
False

The loops to share are chosen by the time of the slowest core. Loops are fused for that, except a
loop with a partial last iteration: fused with another, its end would be lost.

>>> share_of([("batch", 3, 0), ("columns", 6, 0.5), ("rows", 20, 0)], 2)
['columns']
>>> share_of([("batch", 4, 0), ("columns", 7, 0.5)], 2)
['batch']
>>> share_of([("batch", 1, 0), ("columns", 1, 0.5), ("rows", 20, 0.1)], 2)
['rows']

Starting other cores takes time in every iteration of outer loops.

>>> share_of([("batch", 3, 0), ("columns", 6, 0.5), ("rows", 20, 0)], 2, region=0.1)
['batch']
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Final, Generic, Literal, TypeAlias, TypeVar

from attrs import frozen

from plica.core import free_vars, post_order
from plica.ir.loop import Block, Buffer, Load, ScalarVar, Store
from plica.ir.type import DType, f32, known
from plica.schedule import primitive as st
from plica.schedule.default.machine import Machine
from plica.schedule.do import Body
from plica.schedule.handle import Handle

H = TypeVar("H")

Side: TypeAlias = Literal["data", "weight"]
"""The operands of a contraction: cores that share a loop over one of them each read a part
of it."""

BOTH: Final[frozenset[Side]] = frozenset(("data", "weight"))

SNOOPED: Final = 2  # the cost factor of reading what another core wrote
EVEN: Final = 0.9  # inner loops are chosen if outer ones take this much longer
WORTH: Final = 40
"""The minimum work in units of a parallel region's overhead: waking sleeping cores takes some ten
times as long as starting waiting ones, and cached data moves to another core at the speed of the
shared cache."""

ALONE: Final = 1.1
"""The maximum bandwidth ratio of all cores to one at which memory counts as a single core's."""


def pays(machine: Machine, operations: int, buffers: Iterable[Buffer], dtype: DType = f32) -> bool:
    """Whether a given number of operations of a lane on the elements of some buffers are worth
    sharing.

    None of them reads more than one element of a buffer.
    """
    if machine.cores < 2:
        return False
    return cycles(machine, operations, buffers, dtype) >= WORTH * machine.rates.region


def cycles(
    machine: Machine, operations: int, buffers: Iterable[Buffer], dtype: DType = f32
) -> float:
    """The cycles of a number of operations on one core, as far as others could share them."""
    moved = sum(buffer.dtype.bytes * min(operations, _elements(buffer)) for buffer in buffers)
    rates = machine.rates
    computed = operations / (rates.fma * machine.lanes(dtype))
    if moved <= machine.cache(2):  # it lies in caches, a part of it in those of other cores
        return max(computed, moved * (1 - 1 / machine.cores) * SNOOPED / rates.far)
    # What waits for memory is worth sharing as far as memory serves several cores faster than one.
    return max(computed, moved / rates.far if rates.far_all > ALONE * rates.far else 0.0)


@frozen
class SharedReads:
    """The reads of cores that share a contraction, relative to one core's time: all `data` and all
    of a `weight`, and the operand along each loop."""

    data: float
    weight: float
    along: tuple[frozenset[Side], ...]

    def time(self, first: int, counts: Sequence[int], cores: int) -> float:
        """How long a core reads if loops from one on, that go so often, are shared as one: it does
        neighbours of them, so that the outer ones of these are cut."""
        cut: frozenset[Side] = frozenset()
        for at, count in enumerate(counts, first):
            if count > 1 and cores > prod(counts[: at - first]):
                cut |= self.along[at]
        part = {literal_type: 1 / cores if literal_type in cut else 1.0 for literal_type in BOTH}
        return self.data * part["data"] + self.weight * part["weight"]


def read_times(machine: Machine, data: int, weight: int, work: float) -> tuple[float, float]:
    """How long a core reads a given number of bytes of data and weights, as parts of a given number
    of cycles of work.

    The previous kernel left a part of the data in each core's cache, from which others load it line
    by line; weights are not written.
    """
    far = machine.rates.far * work
    return data * (1 - 1 / machine.cores) * SNOOPED / far, weight / far


@frozen
class LoopShare(Generic[H]):
    """Loops shared as one, and the relative time, 1 for a single core."""

    loops: tuple[H, ...]
    time: float


def share_of(
    loops: Sequence[tuple[H, int, float]],
    cores: int,
    *,
    region: float = 0.0,
    reads: SharedReads | None = None,
) -> list[H]:
    """The loops that cores share: each has its iterations, and which part of one the last is where
    it is cut short, else 0.

    `region` is the relative cost of starting the others, `reads` the operands each of them reads.
    The first loops that are nearly optimal are taken.
    """
    every = shares(loops, cores, region=region, reads=reads)
    least = min([loop_share.time for loop_share in every])
    return list(next(loop_share.loops for loop_share in every if EVEN * loop_share.time <= least))


def shares(
    loops: Sequence[tuple[H, int, float]],
    cores: int,
    *,
    region: float = 0.0,
    reads: SharedReads | None = None,
) -> list[LoopShare[H]]:
    """What cores may share: loops from each one on, the outermost first, and few before many."""
    loop_shares: list[LoopShare[H]] = []
    goes = [count for _, count, _ in loops]
    for first, (_, extent, left) in enumerate(loops):
        calls = prod([each for _, each, _ in loops[:first]])
        counts, last = [extent], first + 1
        while _joins(loops[last - 1]) and last < len(loops) and _joins(loops[last]):
            counts.append(counts[-1] * loops[last][1])
            last += 1
        cut = 0.0 if _joins(loops[first]) else left
        loop_shares += [
            LoopShare(
                tuple([loop for loop, _, _ in loops[first : first + many]]),
                _busy(count, cut, cores)
                + calls * region
                + (0.0 if reads is None else reads.time(first, goes[first : first + many], cores)),
            )
            for many, count in enumerate(counts, 1)
        ]
    return loop_shares


def _joins(loop: tuple[H, int, float]) -> bool:
    """Whether a loop may become one with another: its last iteration is like all others."""
    return loop[1] == 1 or not loop[2]


def _busy(count: int, left: float, cores: int) -> float:
    """How long cores take for a given number of iterations, of which the last may be cut short."""
    rounds, short = -(-count // cores), 1 - left if left else 0.0
    last = short if count % cores == 1 else 0.0  # nobody waits for more than what is left
    return (rounds - last) / (count - short)


def _elements(of: Buffer) -> int:
    return prod(known(size) or 1 for size in of.shape)


def bytes_along(of: Block, var: ScalarVar) -> tuple[int, int]:
    """Bytes of the buffers that a block reads along a variable, and of the others."""
    assert isinstance(of.body, Store)
    sizes: dict[bool, dict[Buffer, int]] = {True: {}, False: {}}
    for each in post_order(of.body.value):
        if isinstance(each, Load) and each.buffer is not of.body.buffer:
            moves = var in free_vars(each)
            sizes[moves][each.buffer] = each.buffer.dtype.bytes * _elements(each.buffer)
    return sum(sizes[True].values()), sum(sizes[False].values())


def touched(of: Store) -> tuple[Buffer, ...]:
    """The buffers that a statement reads and writes."""
    read = [node.buffer for node in post_order(of.value) if isinstance(node, Load)]
    return tuple(dict.fromkeys((of.buffer, *read)))


def shared(outer: Sequence[Handle]) -> Body:
    """Cores share the iterations of nested loops."""
    whole = outer[0]
    if len(outer) > 1:
        whole = yield st.fuse(*outer)
    yield st.parallel(whole)
