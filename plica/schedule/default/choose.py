"""Choose: the form and the schedule of some work by rules of thumb.

`formed` says which kernel to begin with, `default_trace` how to schedule it: an ordinary trace,
whose decisions come from what is known of the machine.  Both give None where no rule applies.

>>> from plica.ir.tensor import buffer, compute, reduce
>>> x, w = buffer("x", (56, 8), f32), buffer("w", (8, 64), f32)
>>> dense = compute((x, w), (56, 64), lambda m, n: reduce("sum", (8,), lambda k: x[m, k] * w[k, n]))
>>> machine = Machine(vector=512, registers=32)
>>> form = formed(Work(dense), (False, True), machine)
>>> "reverse_compute_at" in default_trace(form.kernel, machine).to_python()
True
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

from plica.core.collector import paused
from plica.core.name import Name
from plica.ir.dim import known, polynomial
from plica.ir.dtype import DType, f32, f64
from plica.ir.loop import Block, Kernel, Store
from plica.ir.scalar import ScalarVar, Select
from plica.schedule.default.contraction import Contraction, Work, bared, contraction, merged
from plica.schedule.default.form import Formed, blocked, rowed
from plica.schedule.default.machine import Machine
from plica.schedule.default.reduction import row_form, row_schedule
from plica.schedule.default.register_tile import Roles, roles, scheduled, shared, tile_of
from plica.schedule.default.tile import Tile, best_tile, cost
from plica.schedule.do import Block as Do
from plica.schedule.do import Body, do, run
from plica.schedule.primitive import block, decompose_padding, loops, reorder, vectorize
from plica.schedule.problem import ScheduleRefused
from plica.schedule.site import map_of
from plica.schedule.trace import Trace

FEWEST = 2048
"""Fewer products than that are not worth a schedule."""

SHARED = 1 << 20
"""Fewer products than that are not worth waking other cores."""

SCATTERED = 1.2
"""Cycles for each lane of a vector that is stored to places far apart."""

COPIED = 0.3
"""Cycles for each element that is copied to where there is room around it."""

WINDOW = 49
"""A window whose places are all written out has at most so many."""

NARROW = 4
"""Vectors of fewer lanes are none."""


def formed(
    of: Work, constant: tuple[bool, ...], machine: Machine, *, reassociates: bool = False
) -> Formed | None:
    """The kernel to schedule for some work; `constant` says which inputs are known now.

    Terms of sums are joined in the order in which they come, unless it `reassociates`.
    """
    of = bared(of)
    found = contraction(of)
    along_rows = row_form(of, machine) if reassociates else None
    if found is None or (found.weight is None and along_rows is not None):
        return along_rows
    if found.reduced.dtype not in (f32, f64):
        return None
    whole = 1
    for size in found.sizes.values():
        whole *= size
    if whole < FEWEST:
        return None
    found = merged(found) or found
    weight = found.weight
    known_weight = weight is not None and constant[found.inputs.index(weight.buffer)]
    choices = [each for each in (_blocked(found, machine), _rowed(found, machine)) if each]
    if not choices:
        return None
    _, lanes, tile, form = min(choices, key=lambda each: each[0])
    if form == "blocked":
        return blocked(found, lanes, tile.steps, known_weight)
    return rowed(found, lanes)


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
    times = _rest(of, [lane, *of.pixels[-1:]])
    scattered = SCATTERED * lanes if of.axes[-1] is not lane else 1
    found: list[tuple[float, int, Tile, str]] = []
    for exact in (True, False):
        tile = best_tile(vectors, steps, machine.registers, exact=exact)
        each = cost(tile, vectors, steps) * of.depth + vectors * steps * scattered
        room = _room(of, machine) if of.guarded or steps % tile.steps else 0
        found.append((each * times + room, lanes, tile, "blocked"))
    return min(found, key=lambda each: each[0])


def _rowed(of: Contraction, machine: Machine) -> tuple[float, int, Tile, str] | None:
    """What lanes over a row of the result would cost."""
    if not of.axes:
        return None
    row = of.axes[-1]
    if row in of.lanes or of.sizes[row] < NARROW or row not in of.pixels:
        return None
    lanes = machine.lanes(of.reduced.dtype)
    while lanes > NARROW and -(-of.sizes[row] // lanes) == -(-of.sizes[row] // (lanes // 2)):
        lanes //= 2
    vectors = -(-of.sizes[row] // lanes)
    steps = of.sizes[of.lanes[-1]] if of.lanes else 1
    if not of.lanes:
        if of.depth > WINDOW:
            return None
        tile = Tile(1, 1)
    else:
        tile = best_tile(vectors, steps, machine.registers, exact=True)
    # Neighbours of a window are no whole lines of a cache.
    apart = 1.3 if of.depth > of.sizes[of.terms[0]] else 1
    each = cost(tile, vectors, steps) * of.depth * apart + vectors * steps
    strided = _stride(of, row) > 1
    room = _room(of, machine) if of.guarded or strided or of.sizes[row] % lanes else 0
    return each * _rest(of, [row, *of.lanes[-1:]]) + room, lanes, tile, "rowed"


def _stride(of: Contraction, row: ScalarVar) -> int:
    """How far apart the data of neighbours in a row is."""
    for place in of.data.indices:
        for atoms, factor in polynomial(place).values():
            if atoms == (row,):
                return factor
    return 1


def _room(of: Contraction, machine: Machine) -> float:
    """What copying the data costs."""
    count = _copied(of)
    near = count * of.reduced.dtype.bytes <= machine.cache(2)
    return count * (COPIED if near else 3 * COPIED)


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
    along_rows = row_schedule(kernel)
    if along_rows is not None:
        return _recorded(along_rows, kernel)
    found = roles(kernel)
    if found is None:
        return None
    whole_lane = found.extents[found.lane]
    lanes = whole_lane if found.blocked else _row_lanes(whole_lane, found.dtype, machine)
    tile = tile_of(found, machine, lanes)
    blocks = map_of(kernel).blocks
    near = Name("pad") in blocks and all(str(each.name) != "pad" for each in kernel.params)
    together = _together(found, tile, machine)
    shares = machine.cores > 1 and prod(found.extents) >= SHARED

    @do
    def whole() -> Body:
        yield scheduled(found, tile, lanes, together, pads=near, shares=shares)
        for name in ("pad", "packed"):
            if Name(name) in blocks:
                copy = yield block(name)
                every = yield loops(copy)
                if name == "packed" and len(every) == 3:
                    yield reorder(every[1], every[0])  # along rows of what is read
                    every = (every[1], every[0], every[2])
                if name == "pad" and near and _is_guarded(blocks[Name("pad")].node):
                    fill = yield decompose_padding(copy, every[-1])
                    filled = yield loops(fill)
                    yield vectorize(filled[-1])
                yield vectorize(every[-1])
                if shares and not (name == "pad" and near):
                    yield from shared(every[:-2] or every[:1])

    return _recorded(whole, kernel)


def _recorded(schedule: Do, kernel: Kernel) -> tuple[Trace, Kernel] | None:
    """The trace of a schedule; one that is not shown to be legal is none."""
    with paused():
        try:
            steps, state, _ = run(schedule, kernel, 0, {})
        except ScheduleRefused:
            return None
    return Trace(steps), state.kernel


def _is_guarded(of: Block) -> bool:
    return isinstance(of.body, Store) and isinstance(of.body.value, Select)


def _row_lanes(extent: int, dtype: DType, machine: Machine) -> int:
    """As many lanes as a vector has, or as divide a row."""
    lanes = machine.lanes(dtype)
    while extent % lanes:
        lanes //= 2
    return lanes


def _together(of: Roles, tile: Tile, machine: Machine) -> int:
    """How many tiles of a matrix product go together: their rows stay in a cache; 0 for all."""
    if not of.blocked or of.steps is None or any(of.extents[at] > 1 for at in of.around):
        return 0
    row = of.dtype.bytes * tile.steps
    for at in of.terms:
        row *= of.extents[at]
    tiles = of.extents[of.steps] // tile.steps
    most = machine.cache(2) // 2 // row
    if tiles <= most or most < 1:
        return 0
    return max(each for each in range(1, most + 1) if tiles % each == 0)
