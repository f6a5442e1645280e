"""Tilings: the space of tile sizes and threads of a convolution, and a guess at what each costs.

>>> from plica.codegen.accel.conv import Convolution
>>> from plica.codegen.accel.vta import osdi
>>> shape = Convolution(64, 56, 56, 64, kernel=3, pad=1)
>>> best = ranked(osdi(), shape, threads=2)[0]
>>> fits(osdi(), shape, best), best.threads
(True, 2)
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

from plica.codegen.accel.conv import Across, Convolution, ConvTiling, finish_of
from plica.codegen.accel.declaration import Accelerator
from plica.codegen.accel.units import units_of

ACROSS: tuple[Across, ...] = ("height", "outputs")


def fits(machine: Accelerator, of: Convolution, tiling: ConvTiling) -> bool:
    """Whether the tiles of all threads fit into their scopes."""
    units = units_of(machine)
    tall, wide = _input(of, tiling)
    kk, t = of.kernel**2, tiling.threads
    shared, area = 1 if tiling.keep else t, tiling.height * tiling.width
    tensors = sum(bool(step.tensor) for step in finish_of(units, of))
    needed: Counter[str] = Counter()
    needed[units.data.scope.name] += t * tiling.inputs * tall * wide
    needed[units.weight.scope.name] += shared * tiling.outputs * tiling.inputs * kk
    needed[units.sums.name] += t * tiling.outputs * (area + tensors)
    needed[units.result.scope.name] |= needed[units.sums.name]
    return max(tall, wide) <= units.max_iterations and all(
        count <= machine.scope(name).depth for name, count in needed.items()
    )


def tilings(machine: Accelerator, of: Convolution, threads: int) -> list[ConvTiling]:
    """Every tiling that fits, of sizes that leave the last tile the least smaller."""
    units = units_of(machine)
    ci, co = -(-of.channels // units.depth), -(-of.outputs // units.columns)
    found: dict[ConvTiling, None] = {}
    for across in ACROSS[: 1 if threads == 1 else 2]:
        for height in _even(of.out_height):
            for width in _even(of.out_width):
                for outputs in _even(co):
                    for inputs in _even(ci):
                        for keep in (False, True)[
                            : 2 if inputs == ci and across == "height" else 1
                        ]:
                            each = ConvTiling(height, width, outputs, inputs, threads, across, keep)
                            if fits(machine, of, each) and not _idle(of, co, each):
                                found[each] = None
    return list(found)


def ranked(machine: Accelerator, of: Convolution, threads: int, most: int = 32) -> list[ConvTiling]:
    """The tilings that are guessed to be the fastest, the best first."""
    every = tilings(machine, of, threads)
    return sorted(every, key=lambda each: (estimate(machine, of, each), str(each)))[:most]


def estimate(machine: Accelerator, of: Convolution, tiling: ConvTiling) -> float:
    """A rough estimate of cycles: compute and memory time, overlapped or not."""
    timing = machine.timing
    units = units_of(machine)
    ci, co = -(-of.channels // units.depth), -(-of.outputs // units.columns)
    sides = (units.data, units.weight, units.result)
    read, weighed, stored = (side.scope.bytes for side in sides)
    tall, wide = _input(of, tiling)
    kk = of.kernel**2
    area = tiling.height * tiling.width
    tiles_of = -(-of.out_height // tiling.height) * -(-of.out_width // tiling.width)
    parts = -(-ci // tiling.inputs)
    tiles = tiles_of * -(-co // tiling.outputs)
    start = timing.issue + timing.fill
    fetch = timing.issue + timing.latency
    plain = of.kernel == 1 and of.stride == 1 and tiling.width == of.out_width
    if plain:
        inputs = fetch + tiling.inputs * (_row(machine, area * read))
    else:
        rows = tall * _row(machine, wide * read)
        inputs = tiling.inputs * (fetch + rows)
    one = fetch + tiling.outputs * _row(machine, tiling.inputs * kk * weighed)
    if tiling.width == of.out_width:
        store = fetch + tiling.outputs * _row(machine, area * stored)
    else:
        rows = tiling.height * _row(machine, tiling.width * stored)
        store = tiling.outputs * (fetch + rows)
    steps = finish_of(units, of)
    cycles = units.clear.operation.interval + sum(step.unit.operation.interval for step in steps)
    passes = tiling.outputs * area * cycles + (1 + len(steps)) * start
    turns = tiling.outputs * tiling.inputs * kk * area
    multiply = start + turns * units.multiply.operation.interval
    compute = tiles * (passes + parts * multiply)
    weights = one * (-(-co // tiling.outputs) if tiling.keep else tiles * parts)
    memory = weights + tiles * (parts * inputs + store)
    if tiling.threads == 1:
        return float(compute + memory)
    waiting = tiling.threads * (inputs + one) + store  # before the first and after the last
    if tiling.keep:
        waiting += weights
    return float(max(compute, memory) + 0.15 * min(compute, memory) + waiting)


def _row(machine: Accelerator, size: int) -> int:
    return -(-size // machine.timing.bus) + machine.timing.row


def _input(of: Convolution, tiling: ConvTiling) -> tuple[int, int]:
    down = 1 if of.kernel == 1 else of.stride
    tall = (tiling.height - 1) * down + of.kernel
    return tall, (tiling.width - 1) * of.stride + of.kernel


def _idle(of: Convolution, co: int, tiling: ConvTiling) -> bool:
    """Whether some thread would never have a tile."""
    whole, size = (
        (co, tiling.outputs) if tiling.across == "outputs" else (of.out_height, tiling.height)
    )
    return -(-whole // size) < tiling.threads


@lru_cache(maxsize=256)
def _even(size: int) -> tuple[int, ...]:
    """The sizes that are the smallest for their number of tiles."""
    return tuple(sorted({-(-size // count) for count in range(1, size + 1)}))
