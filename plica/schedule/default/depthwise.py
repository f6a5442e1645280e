"""Windows over one channel: depthwise convolutions and pools, without a copy of the data.

    sum[n, c, i, j] = sum over k, l of (x[n, c, i + k - 1, j + l - 1] if inside) * w[c, k, l]

Lanes are along rows, and a tile is several rows high, so that a loaded row serves all its windows.
Elements outside are not read: at the ends of a row some lanes are masked. For rows above and below,
zeros are read from an address chosen before the vectors of a row: so all tiles share one text. If
another padding value is needed (a pool), no address is chosen, many rows of a tile are outside, or
vectors have masks, the first and last tiles are separate, with such rows known statically.

    for n, c:
        for tiles of rows:
            for vectors of a row, the first and the last apart:
                window[tile] = 0                                   registers
                for k, l: window[tile] += x[…] * w[c, k, l]        all written out
                out[tile] = f(window[tile])

Where channels are neighbours in memory lanes go along these, the weight is packed so that a vector
of it is read at once, and a tile is some columns wide:

    sum[n, i, j, c] = sum over k, l of (x[n, i + k - 1, j + l - 1, c] if inside) * w[c, k, l]

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.tensor import buffer, reduce
>>> x, w = buffer("x", (8, 20, 20), f32), buffer("w", (8, 3, 3), f32)
>>> conv = stage("y", (8, 18, 18), lambda c, i, j: reduce(
...     "sum", (3, 3), lambda k, l: x[c, i + k, j + l] * w[c, k, l]))
>>> found = contraction(stages((x, w), (conv,)))
>>> is_window(found, Machine(512, 32)), window_tile(9, 18, 18, Machine(512, 32), 16)
(True, (6, 16))
>>> windowed(found, Machine(512, 32)).scratch
()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import ceil, prod
from typing import TypeAlias

from attrs import evolve

from plica.core import Term, free_vars, map_bottom_up, substitute
from plica.ir.loop import Each, Stages, loads, scalar as sc
from plica.ir.loop.stages import stages, with_element
from plica.ir.type import known, polynomial
from plica.schedule.default.contraction import Contraction, contraction
from plica.schedule.default.form import inside, names_of, packed, packer
from plica.schedule.default.limb import StageList, summed
from plica.schedule.default.machine import MIN_LANES, Machine
from plica.schedule.default.role import only_load
from plica.schedule.form import Facts

__all__ = ["contraction", "is_window", "window_tile", "windowed"]

Window: TypeAlias = Callable[[Stages, Facts, Machine], Stages | None]
"""Builds the form of a window, or returns None."""

TAPS = 49
"""This many places of a window are written out, at most; those of larger ones row by row.  A window
that is summed column after column has a column written out."""

TALL = 2
"""The factor by which tiles summed column by column are higher than needed to keep the units busy,
because loaded columns and weights serve this many more sums. At most this, if vectors are short and
all columns are unrolled."""

PICKS = 64
"""Vectors that the places of a window read for one of a row, at most, where all are written out: of
a stride several are for one place."""

SMALL = 25  # places of a window of which all tiles of a small picture may be written out, at most
FEW = 4  # this many tiles of an axis are all written out where each has something outside, at most
WRITTEN = 4  # how many times as many rows as keep products busy tiles that are written out have
CHOSEN = 2
"""The maximum number of rows of a tile with a selected address: each takes a register, and an
instruction per vector along the row."""

MOST = 36  # multiply-adds in the text of a tile, at most, where it is not the least tile
SPARE = 6  # registers for operands
OVERLAP = 2  # tiles in flight at once, through out-of-order execution


def is_window(of: Contraction, machine: Machine) -> bool:
    """Whether a contraction is a window over one channel that is worth this schedule."""
    taps = [of.sizes[var] for var in of.k]
    if of.n or not of.axes or written_out(taps) > TAPS:
        return False
    row = of.axes[-1]
    if of.sizes[row] < MIN_LANES or len(of.axes) < 2:
        return False
    lanes = machine.lanes(of.reduced.dtype)
    whole = of.sizes[row] % lanes == 0 if is_of_channels(of) else _has_ends(of, lanes)
    if not machine.masks and (machine.soon or not whole):
        return False  # lanes at the ends of a row take no part
    if row not in of.m and not is_of_channels(of):
        return False
    if any(row in terms_of_place(place) for place in of.data.indices[:-1]):
        return False
    return 1 <= terms_of_place(of.data.indices[-1]).get(row, 0) <= MIN_LANES


def _has_ends(of: Contraction, lanes: int) -> bool:
    """Whether the ends of a row are read without masks like its middle: a vector fits in the row,
    for input and output, and lanes outside are static for all window positions. Rows without reuse
    gain nothing."""
    least = min(known(of.data.buffer.shape[-1]) or 0, of.sizes[of.axes[-1]])
    flat = len(of.k) == 2 and of.axes[-2] in of.m
    apart, taps = (
        terms_of_place(of.data.indices[-1]).get(of.axes[-1], 0),
        prod([of.sizes[k] for k in of.k]),
    )
    if taps > SMALL and min([of.sizes[axis] for axis in of.axes[-2:]]) <= FEW * lanes:
        return False  # nearly all tiles would be a text of their own
    return least >= lanes and flat and taps * apart <= PICKS


def is_of_channels(of: Contraction) -> bool:
    """Whether neighbours in memory are channels with separate weights, and windows slide along the
    axis before."""
    if len(of.axes) < 2 or of.weight is None:
        return False
    row, column = of.axes[-1], of.axes[-2]
    return of.data.indices[-1] is row and row in of.batch and column in of.m


def holds_rows(of: Contraction, machine: Machine) -> bool:
    """Whether registers hold what windows of a tile read until the last of them has read it.

    Row by row takes one vector per window column and tile row, and all weights of a window, which
    every row reads: except if a row is one masked vector. There a product broadcasts a weight from
    memory, and column by column all lanes at both ends would be checked again.
    """
    taps = [of.sizes[var] for var in of.k]
    high = sums_under_way(machine) * (1 if machine.masks else TALL)
    if is_of_channels(of) or len(taps) == 1:
        return True  # what one column reads no other does
    one = machine.masks and of.sizes[of.axes[-1]] <= machine.lanes(of.reduced.dtype)
    weights = 0 if of.weight is None or one else written_out(taps)
    read = 0 if goes_apart(of, machine) else (taps[-1] + 2) * high
    return max(read, weights + high + SPARE) <= machine.registers


def goes_apart(of: Contraction, machine: Machine) -> bool:
    """Whether windows are strided along a row, with short vectors taken apart: several window
    columns are lanes of the same vectors."""
    return not machine.masks and terms_of_place(of.data.indices[-1]).get(of.axes[-1], 0) > 1


def sums_under_way(machine: Machine) -> int:
    """With fewer sums the units for products wait, and each row that is read serves less."""
    return ceil(machine.rates.latency * machine.rates.fma / OVERLAP)


def serial_terms(taps: Sequence[int], by_columns: bool = False) -> int:
    """How many loops over a window's elements stay loops, so that the others can be unrolled."""
    some = range(int(by_columns), len(taps))
    return next((at for at in some if prod(taps[at:]) <= TAPS), max(0, len(taps) - 1))


def loops_over_columns(taps: Sequence[int], machine: Machine) -> bool:
    """Whether a window that is summed column after column is too long a text with all of them: in
    a short one it is known of every column which lanes are outside of an image."""
    return machine.masks and prod(taps) * sums_under_way(machine) > MOST


def written_out(taps: Sequence[int], by_columns: bool = False) -> int:
    """How many places of a window are written out."""
    return prod(taps[serial_terms(taps, by_columns) :])


def terms_of_place(place: sc.Scalar) -> dict[sc.ScalarVar, int]:
    """The factors of the variables in an affine index."""
    found: dict[sc.ScalarVar, int] = {}
    for atoms, factor in polynomial(place).values():
        for atom in atoms:
            assert isinstance(atom, sc.ScalarVar)
            found[atom] = factor
    return found


def window_tile(  # noqa: PLR0917  # a window, a picture, a machine
    taps: int, rows: int, row: int, machine: Machine, most: int, by_columns: bool = False,
    columns: int = 0,
) -> tuple[int, int]:  # fmt: skip
    """How many rows a tile has, and how many lanes, of which a vector has at most this many.

    Of short vectors that are read by `columns` of a window, as many rows as take the fewest
    instructions.  Higher ones, where these are all whole and one text, but those would not be.
    """
    lanes = most
    while lanes > MIN_LANES and lanes // 2 >= row:
        lanes //= 2
    room = max(machine.registers - taps - SPARE, machine.registers // 4)
    least = sums_under_way(machine)
    if columns and not machine.masks:
        some = [n for n in range(least, TALL * least + 1) if _texts(rows, n) * n <= WRITTEN * least]
        issued = partial(_issued, taps, columns, rows)
        high = min(some, key=issued)
        if high < rows and rows % high and taps // columns - 1 <= CHOSEN:
            whole = [n for n in range(high, TALL * least + 1) if rows % n == 0]
            high = min(whole, key=issued, default=high)
        return min(high, rows), lanes
    if by_columns:
        high = max(least, min(room, TALL * least))
        return -(-rows // -(-rows // high)), lanes
    high = max(least, min(room, MOST // taps))
    heights = range(min(high, rows), max(high, min(room, TALL * high)) + 1)
    return min(heights, key=lambda each: (-(-rows // each) * each, each)), lanes  # few rows in vain


def _issued(taps: int, columns: int, rows: int, high: int) -> int:
    """The instructions of tiles of a height: multiply-adds, loads, stores and loop overhead."""
    read = (high + taps // columns - 1) * columns
    return -(-rows // high) * (high * (taps + 2) + read + columns)


def _texts(rows: int, high: int) -> int:
    """How many tiles of a picture's rows may be written out: the first, the last, those between."""
    return min(3, -(-rows // high))


def windowed(of: Contraction, machine: Machine, *, by_columns: bool = False) -> Stages:
    """The stages, in which data is read only where it is inside; rows and columns fill tiles.

    If `by_columns`, the places of a window are summed column after column.
    """
    names = names_of(of)
    row, column = of.axes[-1], of.axes[-2]
    steps = of.sizes[column] if column in of.m else 1
    terms = tuple(reversed(of.k)) if by_columns else of.k
    taps = [of.sizes[term] for term in terms]
    columns = by_columns and loops_over_columns(taps, machine)
    high, lanes = window_tile(
        written_out(taps, columns),
        steps,
        of.sizes[row],
        machine,
        machine.lanes(of.reduced.dtype),
        columns,
        taps[0] if by_columns and len(taps) > 1 and not columns else 0,
    )
    sizes = dict(of.sizes)
    sizes[row] = -(-sizes[row] // lanes) * lanes
    if column in of.m:
        sizes[column] = -(-sizes[column] // high) * high
    data, weight = inside(of, sizes), of.weight
    before: list[Each] = []
    if weight is not None and row in free_vars(weight):
        parts = names.var("b"), names.var("v")
        there = packed(of, row, parts, lanes, names.name("packed"))
        before.append(packer(weight, row, parts, lanes, there))
        weight = substitute(there, dict(zip(parts, (row // lanes, row % lanes), strict=True)))
    body = data if weight is None else sc.Mul(data, weight)
    stages_ = StageList(names)
    stages_.stages += before
    total = summed([(term, sizes[term]) for term in terms], body, of.combiner)
    window = stages_.made("window", [(axis, sizes[axis]) for axis in of.axes], total)
    value = with_element(of.value, of.reduced, window)
    out = stages_.made("out", [(axis, of.sizes[axis]) for axis in of.axes], value)
    return stages(of.inputs, stages_.stages, (*[stage.out for stage in before], out.buffer))


# --- bytes as floats ------------------------------------------------------------------------------


def through_prologue(make: Window) -> Window:
    """What makes windows, where these make floats of narrower numbers as they read them, too."""

    def through(of: Stages, facts: Facts, machine: Machine) -> Stages | None:
        if (apart := behind_prologue(of)) is None:
            return make(of, facts, machine)
        floats, back = apart
        made = make(floats, facts, machine)
        return None if made is None else back(made)

    return through


def behind_prologue(of: Stages) -> tuple[Stages, Callable[[Stages], Stages]] | None:
    """Stages that read floats, for stages that convert each from a narrower type on reading, and
    the inverse; None for other stages."""
    fold, *after = of.stages
    if not isinstance(fold, Each) or not isinstance(fold.value, sc.Reduce):
        return None
    if not isinstance(fold.value.body, sc.Mul):
        return None
    left, weight = fold.value.body.left, fold.value.body.right
    guard = left if isinstance(left, sc.Select) and isinstance(left.orelse, sc.Lit) else None
    value = left if guard is None else guard.then
    read = only_load(value)
    dtype = sc.dtype_of(value)
    if read is None or value is read or read.buffer.dtype.bytes >= dtype.bytes:
        return None
    if any(load.buffer is read.buffer for stage in after for load in loads(stage)):
        return None
    wide = sc.Buffer(read.buffer.name, read.buffer.shape, dtype)
    floats: sc.Scalar = sc.Load(wide, read.indices)
    if free_vars(_with(value, read, sc.Lit(0, read.buffer.dtype))) or weight is read:
        return None  # what is made of a number depends on its place
    if guard is not None:
        floats = sc.Select(guard.condition, floats, guard.orelse)
    reduced = evolve(fold.value, body=sc.Mul(floats, weight))
    inputs = [wide if buffer is read.buffer else buffer for buffer in of.inputs]
    plain = stages(inputs, (Each(fold.out, fold.axes, reduced), *after), of.outputs)

    def back(made: Stages) -> Stages:
        def new(node: Term) -> Term:
            if isinstance(node, sc.Load) and node.buffer is wide:
                return _with(value, read, sc.Load(read.buffer, node.indices))
            return node

        given = [read.buffer if buffer is wide else buffer for buffer in made.inputs]
        every = [
            evolve(each, value=map_bottom_up(new, each.value)) if isinstance(each, Each) else each
            for each in made.stages
        ]
        return stages(given, every, made.outputs)

    return plain, back


def _with(value: sc.Scalar, read: sc.Load, other: sc.Scalar) -> sc.Scalar:
    """A term with something else for what it reads."""
    scalar = map_bottom_up(lambda node: other if node is read else node, value)
    assert isinstance(scalar, sc.Scalar)
    return scalar
