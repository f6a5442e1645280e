"""Choose: the form and the schedule of some work by rules of thumb.

`formed` says which kernel to begin with, `default_trace` how to schedule it: an ordinary trace,
whose decisions come from what is known of the machine.  Both give None where no rule applies.
"""

from __future__ import annotations

from functools import lru_cache

from plica.core.collector import paused
from plica.core.name import Name
from plica.ir.dim import known
from plica.ir.dtype import f32, f64
from plica.ir.loop import Kernel
from plica.schedule.default.contraction import Contraction, Work, contraction, merged
from plica.schedule.default.form import Formed, blocked, rowed
from plica.schedule.default.machine import Machine
from plica.schedule.default.register_tile import roles, scheduled, tile_of
from plica.schedule.default.tile import Tile, best_tile, cost
from plica.schedule.do import Body, do, run
from plica.schedule.primitive import block, loops, vectorize
from plica.schedule.site import map_of
from plica.schedule.trace import Trace

FEWEST = 2048
"""Fewer products than that are not worth a schedule."""

SCATTERED = 1.2
"""Cycles for each lane of a vector that is stored to places far apart."""

COPIED = 0.3
"""Cycles for each element that is copied to where there is room around it."""

NARROW = 4
"""Vectors of fewer lanes are none."""


def formed(of: Work, constant: tuple[bool, ...], machine: Machine) -> Formed | None:
    """The kernel to schedule for some work; `constant` says which inputs are known now."""
    found = contraction(of)
    if found is None or found.reduced.dtype not in (f32, f64):
        return None
    whole = 1
    for size in found.sizes.values():
        whole *= size
    if whole < FEWEST:
        return None
    found = merged(found) or found
    known_weight = constant[found.inputs.index(found.weight.buffer)]
    choices = [each for each in (_blocked(found, machine), _rowed(found, machine)) if each]
    if not choices:
        return None
    _, lanes, tile, form = min(choices, key=lambda each: each[0])
    if form == "blocked":
        return blocked(found, lanes, tile.steps, known_weight)
    return rowed(found, lanes * tile.vectors, tile.steps)


def _blocked(of: Contraction, machine: Machine) -> tuple[float, int, Tile, str] | None:
    """What lanes over outputs would cost: cycles, lanes, the tile."""
    if not of.lanes:
        return None
    lane = of.lanes[-1]
    if any(lane in each.indices and each.indices.count(lane) > 1 for each in of.loads()):
        return None
    lanes = machine.lanes(of.reduced.dtype)
    while of.sizes[lane] % lanes:
        lanes //= 2
    if lanes < NARROW:
        return None
    steps = of.sizes[of.pixels[-1]] if of.pixels else 1
    vectors = of.sizes[lane] // lanes
    tile = best_tile(vectors, steps, machine.registers, exact=False)
    times = _rest(of, [lane, *of.pixels[-1:]])
    scattered = SCATTERED * lanes if of.axes[-1] is not lane else 1
    each = cost(tile, vectors, steps) * of.depth + vectors * steps * scattered
    room = COPIED * _copied(of) if of.guarded or steps % tile.steps else 0
    return each * times + room, lanes, tile, "blocked"


def _rowed(of: Contraction, machine: Machine) -> tuple[float, int, Tile, str] | None:
    """What lanes over a row of the result would cost."""
    row = of.axes[-1]
    if row in of.lanes or of.sizes[row] < NARROW or row not in of.pixels:
        return None
    lanes = machine.lanes(of.reduced.dtype)
    vectors = -(-of.sizes[row] // lanes)
    steps = of.sizes[of.lanes[-1]] if of.lanes else 1
    if not of.lanes and of.depth < FEWEST:
        vectors_at_once = max(m for m in range(1, 9) if vectors % m == 0)
        tile = Tile(vectors_at_once, 1)
    else:
        tile = best_tile(vectors, steps, machine.registers, exact=True)
    stride = 1.5 if of.depth > of.sizes[of.terms[0]] else 1
    each = cost(tile, vectors, steps) * of.depth * stride + vectors * steps
    padded = of.guarded or of.sizes[row] % lanes
    room = COPIED * _copied(of) if padded else 0
    return each * _rest(of, [row, *of.lanes[-1:]]) + room, lanes, tile, "rowed"


def _rest(of: Contraction, taken: list[object]) -> int:
    """How many times the tiles of some axes are gone through."""
    count = 1
    for axis in of.axes:
        if axis not in taken:
            count *= of.sizes[axis]
    return count


def _copied(of: Contraction) -> int:
    count = 1
    for size in of.data.buffer.shape:
        count *= known(size) or 1
    return count


@lru_cache(maxsize=1024)
def default_trace(kernel: Kernel, machine: Machine) -> Trace | None:
    """The schedule of a kernel by rules of thumb, None where there is none for it."""
    found = default_schedule(kernel, machine)
    return None if found is None else found[0]


@lru_cache(maxsize=1024)
def default_schedule(kernel: Kernel, machine: Machine) -> tuple[Trace, Kernel] | None:
    """The trace, and the kernel it makes."""
    found = roles(kernel)
    if found is None:
        return None
    sums = map_of(kernel).blocks[Name("sum")].node
    lanes = found.extents[found.lane] if found.blocked else _row_lanes(found.extents[found.lane])
    del sums
    tile = tile_of(found, machine, lanes)
    present = [name for name in ("pad", "packed") if Name(name) in map_of(kernel).blocks]

    @do
    def whole() -> Body:
        yield scheduled(found, tile, lanes)
        for name in present:
            copy = yield block(name)
            every = yield loops(copy)
            yield vectorize(every[-1])

    with paused():
        steps, state, _ = run(whole, kernel, 0, {})
    return Trace(steps), state.kernel


def _row_lanes(extent: int) -> int:
    return next(lanes for lanes in (16, 8, 4, 2, 1) if extent % lanes == 0)
