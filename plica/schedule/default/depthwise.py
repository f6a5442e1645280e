"""Windows over one channel: depthwise convolutions and pools, without a copy of the data.

    sum[n, c, i, j] = sum over k, l of (x[n, c, i + k - 1, j + l - 1] if inside) * w[c, k, l]

Lanes go along rows, and a tile is some rows high, so a row that is read serves all windows it is
in.  What is outside is not read: at the left and right end of a row some lanes take no part.  For
rows above and below zeros are read, whose address is chosen before the vectors of a row: so all
tiles are one text.  Where something else is taken for what is outside (a pool), where no address is
chosen so, where many rows of a tile are outside, or vectors have masks, the first and the last
tiles are apart: such rows are known there.

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

from plica.core.binding import free_vars, substitute
from plica.core.fold import map_bottom_up, post_order
from plica.core.name import Name, fresh
from plica.core.term import Term
from plica.ir.loop import scalar as sc
from plica.ir.loop.stage import Each
from plica.ir.loop.stages import Stages, loads, stages
from plica.ir.loop.statement import Block, Kernel, Store
from plica.ir.type.dim import known, polynomial
from plica.schedule.default.contraction import Contraction, contraction
from plica.schedule.default.form import elements, inside, names_of, packed, packer, span
from plica.schedule.default.machine import Machine
from plica.schedule.default.role import contraction_blocks, made_by, only_load, reads
from plica.schedule.default.share import pays
from plica.schedule.default.step import (
    annotate,
    block,
    decompose_reduction,
    fuse,
    loops,
    parallel,
    reorder,
    reverse_compute_at,
    set_scope,
    split,
    unroll,
    vectorize,
)
from plica.schedule.do import Body, do
from plica.schedule.do import DoBlock as Do
from plica.schedule.form import Facts
from plica.schedule.handle import Handle

__all__ = ["contraction", "is_window", "window_schedule", "window_tile", "windowed"]

Window: TypeAlias = Callable[[Stages, Facts, Machine], Stages | None]
"""What makes the form of a window, None where stages are none."""

TAPS = 49
"""So many places of a window are written out, at most; those of larger ones row by row.  A window
that is summed column after column has a column written out."""

TALL = 2
"""How many times as many rows as keep products busy a tile has that is summed column after column:
what is read of a column, and its weights, serve so many more sums.  At most so many, where vectors
are short and all columns are written out."""

PICKS = 64
"""Vectors that the places of a window read for one of a row, at most, where all are written out: of
a stride several are for one place."""

SMALL = 25
"""Places of a window of which all tiles of a small picture may be written out, at most."""

FEW = 4
"""So many tiles of an axis are all written out where each has something outside, at most."""

CHOSEN = 2
"""Rows of a tile whose address is chosen, at most: each takes a register of its own, and along the
row an instruction for each vector."""

WRITTEN = 4
"""How many times as many rows as keep products busy tiles that are written out have."""

MOST = 36
"""Multiply-adds in the text of a tile, at most, where it is not the least tile."""

SPARE = 6
"""Registers for what is read."""

OVERLAP = 2
"""Tiles that a processor has under way at once, as it goes on before the last one is done."""

NARROW = 4
"""Vectors of fewer lanes are none, and lanes farther apart are read one by one."""


def is_window(of: Contraction, machine: Machine) -> bool:
    """Whether a contraction is a window over one channel that is worth this schedule."""
    taps = [of.sizes[each] for each in of.k]
    if of.n or not of.axes or written_out(taps) > TAPS:
        return False
    row = of.axes[-1]
    if of.sizes[row] < NARROW or len(of.axes) < 2:
        return False
    lanes = machine.lanes(of.reduced.dtype)
    whole = of.sizes[row] % lanes == 0 if is_of_channels(of) else _has_ends(of, lanes)
    if not machine.masks and (machine.soon or not whole):
        return False  # lanes at the ends of a row take no part
    if row not in of.m and not is_of_channels(of):
        return False
    if any(row in _terms(place) for place in of.data.indices[:-1]):
        return False
    return 1 <= _terms(of.data.indices[-1]).get(row, 0) <= NARROW


def _has_ends(of: Contraction, lanes: int) -> bool:
    """Whether both ends of a row are read without masks as its middle is: a vector lies in the row
    as a whole, of what is read and of what is made, and it is known for all places of a window
    which lanes are outside.  Rows of which none is read twice gain nothing by it."""
    least = min(known(of.data.buffer.shape[-1]) or 0, of.sizes[of.axes[-1]])
    flat = len(of.k) == 2 and of.axes[-2] in of.m
    apart, taps = _terms(of.data.indices[-1]).get(of.axes[-1], 0), prod([of.sizes[k] for k in of.k])
    if taps > SMALL and min([of.sizes[each] for each in of.axes[-2:]]) <= FEW * lanes:
        return False  # nearly all tiles would be a text of their own
    return least >= lanes and flat and taps * apart <= PICKS


def is_of_channels(of: Contraction) -> bool:
    """Whether neighbours in memory are channels, each of which has a weight of its own, and windows
    slide along the axis before."""
    if len(of.axes) < 2 or of.weight is None:
        return False
    row, column = of.axes[-1], of.axes[-2]
    return of.data.indices[-1] is row and row in of.batch and column in of.m


def holds_rows(of: Contraction, machine: Machine) -> bool:
    """Whether registers hold what windows of a tile read until the last of them has read it.

    Row after row, that is a vector for each column of a window and each row of a tile, and all
    weights of a window, which every row reads.
    """
    taps = [of.sizes[each] for each in of.k]
    high = sums_under_way(machine) * (1 if machine.masks else TALL)
    if is_of_channels(of) or len(taps) == 1:
        return True  # what one column reads no other does
    weights = 0 if of.weight is None else written_out(taps)
    return max((taps[-1] + 2) * high, weights + high + SPARE) <= machine.registers


def sums_under_way(machine: Machine) -> int:
    """With fewer sums the units for products wait, and each row that is read serves less."""
    return ceil(machine.rates.latency * machine.rates.fma / OVERLAP)


def serial_terms(taps: Sequence[int], by_columns: bool = False) -> int:
    """How many loops over a window's places stay loops, so that the others can be written out."""
    some = range(int(by_columns), len(taps))
    return next((at for at in some if prod(taps[at:]) <= TAPS), max(0, len(taps) - 1))


def loops_over_columns(taps: Sequence[int], machine: Machine) -> bool:
    """Whether a window that is summed column after column is too long a text with all of them: in
    a short one it is known of every column which lanes are outside of an image."""
    return machine.masks and prod(taps) * sums_under_way(machine) > MOST


def written_out(taps: Sequence[int], by_columns: bool = False) -> int:
    """How many places of a window are written out."""
    return prod(taps[serial_terms(taps, by_columns) :])


def _terms(place: sc.Scalar) -> dict[sc.ScalarVar, int]:
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
    """How many rows a tile has, and how many lanes, of which a vector has at most so many.

    Of short vectors that are read by `columns` of a window, as many rows as take the fewest
    instructions.
    """
    lanes = most
    while lanes > NARROW and lanes // 2 >= row:
        lanes //= 2
    room = max(machine.registers - taps - SPARE, machine.registers // 4)
    least = sums_under_way(machine)
    if columns and not machine.masks:
        some = [n for n in range(least, TALL * least + 1) if _texts(rows, n) * n <= WRITTEN * least]
        return min(min(some, key=partial(_issued, taps, columns, rows)), rows), lanes
    if by_columns:
        high = max(least, min(room, TALL * least))
        return -(-rows // -(-rows // high)), lanes
    high = max(least, min(room, MOST // taps))
    heights = range(min(high, rows), max(high, min(room, TALL * high)) + 1)
    return min(heights, key=lambda each: (-(-rows // each) * each, each)), lanes  # few rows in vain


def _issued(taps: int, columns: int, rows: int, high: int) -> int:
    """Instructions of tiles so high: multiply-adds, what is read and written, steps of loops."""
    read = (high + taps // columns - 1) * columns
    return -(-rows // high) * (high * (taps + 2) + read + columns)


def _texts(rows: int, high: int) -> int:
    """How many tiles of a picture's rows may be written out: the first, the last, those between."""
    return min(3, -(-rows // high))


def windowed(of: Contraction, machine: Machine, *, by_columns: bool = False) -> Stages:
    """The stages, in which data is read only where it is inside; rows and columns fill tiles.

    If `by_columns`, the places of a window are summed column after column.
    """
    used = {each.name for each in (*of.inputs, of.reduced)} | {each.name for each in of.sizes}
    row, column = of.axes[-1], of.axes[-2]
    steps = of.sizes[column] if column in of.m else 1
    terms = tuple(reversed(of.k)) if by_columns else of.k
    taps = [of.sizes[each] for each in terms]
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
        names = names_of(of)
        parts = names.var("b"), names.var("v")
        there = packed(of, row, parts, lanes, names.name("packed"))
        before.append(packer(weight, row, parts, lanes, there))
        weight = substitute(there, dict(zip(parts, (row // lanes, row % lanes), strict=True)))
        used.add(there.buffer.name)
    body = data if weight is None else sc.Mul(data, weight)
    extents = tuple([sc.index(sizes[each]) for each in terms])
    shape = tuple([sc.index(sizes[each]) for each in of.axes])
    window = sc.Buffer(fresh(Name("window"), used), shape, of.reduced.dtype)

    def read(node: Term) -> Term:
        if isinstance(node, sc.Load) and node.buffer is of.reduced:
            return sc.Load(window, of.axes)
        return node

    value = map_bottom_up(read, of.value)
    whole = tuple([sc.index(of.sizes[each]) for each in of.axes])
    out = sc.Buffer(fresh(Name("out"), used | {window.name}), whole, sc.dtype_of(value))
    total = Each(window, of.axes, sc.Reduce(of.combiner, terms, extents, body))
    scratch = [each.out for each in before]
    return stages(of.inputs, (*before, total, Each(out, of.axes, value)), (*scratch, out))


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
    """Stages that read floats, for those that make each of a narrower number where they read it,
    and the way back; None where stages do no such thing."""
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
    if any(load.buffer is read.buffer for each in after for load in loads(each)):
        return None
    wide = sc.Buffer(read.buffer.name, read.buffer.shape, dtype)
    floats: sc.Scalar = sc.Load(wide, read.indices)
    if free_vars(_with(value, read, sc.Lit(0, read.buffer.dtype))) or weight is read:
        return None  # what is made of a number depends on its place
    if guard is not None:
        floats = sc.Select(guard.condition, floats, guard.orelse)
    reduced = evolve(fold.value, body=sc.Mul(floats, weight))
    inputs = [wide if each is read.buffer else each for each in of.inputs]
    plain = stages(inputs, (Each(fold.out, fold.axes, reduced), *after), of.outputs)

    def back(made: Stages) -> Stages:
        def new(node: Term) -> Term:
            if isinstance(node, sc.Load) and node.buffer is wide:
                return _with(value, read, sc.Load(read.buffer, node.indices))
            return node

        given = [read.buffer if each is wide else each for each in made.inputs]
        every = [
            evolve(each, value=map_bottom_up(new, each.value)) if isinstance(each, Each) else each
            for each in made.stages
        ]
        return stages(given, every, made.outputs)

    return plain, back


def _with(value: sc.Scalar, read: sc.Load, other: sc.Scalar) -> sc.Scalar:
    """A term with something else for what it reads."""
    found = map_bottom_up(lambda node: other if node is read else node, value)
    assert isinstance(found, sc.Scalar)
    return found


# --- the schedule ---------------------------------------------------------------------------------


def window_schedule(kernel: Kernel, machine: Machine) -> Do | None:
    """The schedule of such a kernel."""
    blocks = contraction_blocks(kernel)
    if blocks is None or blocks.epilogue is not blocks.result:
        return None
    if blocks.data is not None or blocks.weight is not None:
        return None  # both are read as they are given
    of, last_of = blocks.reduction, blocks.epilogue
    sizes = [known(each) or 0 for each in of.extents]
    around = of.kinds.count("spatial")
    taps = sizes[around:]
    found = _data(of)
    if found is None or len(last_of.vars) != around:
        return None
    data, apart = found
    # Column after column: the first of its terms goes along rows.
    by_columns = len(taps) > 1 and of.vars[around] in free_vars(data.indices[-1])
    columns = by_columns and loops_over_columns(taps, machine)
    if (taken := written_out(taps, columns)) > TAPS:
        return None
    by_channel = data.indices[-1] is of.vars[around - 1] and len(reads(of)) > 1
    out = kernel.params[-1]
    rows = (known(out.shape[around - 2]) or 0) if apart else 1
    most = machine.lanes(made_by(of).dtype)
    width = known(out.shape[-1]) or 0
    abreast = taps[0] if by_columns and not columns else 0
    high, lanes = window_tile(taken, rows, width, machine, most, columns, abreast)
    if sizes[around - 1] % lanes or (apart and sizes[around - 2] % high):
        return None  # rows and columns of a window fill its tiles
    choices = [node for node in post_order(of.body) if isinstance(node, sc.Select)]
    ahead = _to_next_tile(data, of.vars[around - 2], high) if apart and not machine.masks else 0
    if elements(data.buffer) * data.buffer.dtype.bytes <= machine.cache(1):
        ahead = 0  # it is there
    shares = pays(machine, prod(sizes), kernel.params)
    spans = {**dict.fromkeys(of.vars, 1), **dict(zip(of.vars[around:], taps, strict=True))}

    def parts(axis: int, by: int) -> tuple[int, bool, int]:
        """How many tiles an axis has, whether one of them reads nothing that is outside, and how
        many places that the first one and the last one read are."""
        var, place = of.vars[around + axis], data.indices[axis]
        count, size = sizes[around + axis] // by, known(data.buffer.shape[axis]) or 0
        low, high = span(place, {**spans, var: by})
        steps = [at * by * _terms(place).get(var, 0) for at in range(count)]
        has_middle = any(low + at >= 0 and high + at < size for at in steps)
        return count, has_middle, max(0, -low) + max(0, high + steps[-1] - size + 1)

    @do
    def schedule() -> Body:
        total = yield block(str(of.label))
        last = yield block(str(last_of.label))
        every: tuple[Handle, ...] = yield loops(total)
        vectors, lane = yield split(every[around - 1], (None, lanes))
        batch, terms = list(every[: around - 1]), every[around:]
        several = [(vectors, parts(-1, lanes))]
        tiles: list[Handle] = []
        steps: list[Handle] = []
        if apart:
            outer, inner = yield split(batch.pop(), (None, high))
            tiles, steps = [outer], [inner]
            of_rows = parts(-2, high)
            if by_channel or of_rows[2] > CHOSEN or cuts_rows(choices, machine):
                several.append((outer, of_rows))
        if by_channel and batch:
            several.append((batch[-1], (sizes[around - 3], True, 0)))  # rows are no tiles
        yield reorder(*batch, *tiles, vectors, *terms, *steps, lane)
        yield set_scope(total, 0, "local")
        yield reverse_compute_at(last, vectors)
        begun = yield decompose_reduction(total, terms[0])
        for each in (*terms[serial_terms(taps, columns) :], *steps):
            yield unroll(each)
        yield vectorize(lane)
        if ahead:
            yield annotate(lane, "fetch", ahead)
        for each in (begun, last):
            inside: tuple[Handle, ...] = yield loops(each)
            *many, whole = inside[len(batch) + len(tiles) + 1 :]
            one, wide = yield split(whole, (None, lanes))  # of the end of a row some lanes only
            for some in (*many, one):
                yield unroll(some)
            yield vectorize(wide)
        for each, (count, has_middle, _) in several if choices else ():
            if count > 2 and (has_middle or machine.masks or count > FEW):
                yield annotate(each, "cut_choices", True)
            else:
                yield unroll(each)
        if shares and batch:
            whole = batch[-1] if by_channel else batch[0]
            if len(batch) > 1 and not by_channel:
                whole = yield fuse(*batch)
            yield parallel(whole)

    return schedule()


def cuts_rows(choices: Sequence[sc.Select], machine: Machine) -> bool:
    """Whether tiles that have rows outside of an image are apart: zeros can be read for these rows,
    nothing else can."""
    if machine.masks or not machine.zero_rows:
        return True
    return any(not _is_zero(each.orelse) for each in choices)


def _is_zero(of: sc.Scalar) -> bool:
    return isinstance(of, sc.Lit) and of.value == 0


def _to_next_tile(data: sc.Load, column: sc.ScalarVar, high: int) -> int:
    """How many elements behind those of a tile the same rows of the next one are: a row has so few
    lines that no processor foresees which come next."""
    *_, rows, row = data.indices
    step = _terms(rows).get(column, 0)
    return high * step * (known(data.buffer.shape[-1]) or 0) if column not in free_vars(row) else 0


def _data(of: Block) -> tuple[sc.Load, bool] | None:
    """What is read along the last axis of a window, and whether it slides along the one before."""
    store = of.body
    around = of.kinds.count("spatial")
    if not isinstance(store, Store) or around < 2:
        return None
    column, row = of.vars[around - 2 : around]
    loads = [
        n
        for n in post_order(store.value)
        if isinstance(n, sc.Load) and n.buffer is not store.buffer
    ]
    found = [each for each in loads if each.indices and row in free_vars(each.indices[-1])]
    if len(found) == 2 and found[0].indices[-1] is row:
        found = found[:1]  # lanes go along channels, each with a weight of its own
    if len(found) != 1:
        return None
    (data,) = found
    if any(row in free_vars(place) for place in data.indices[:-1]):
        return None
    weights = [each for each in loads if each is not data]
    shared = {
        var for var, size in zip(of.vars[:around], of.extents, strict=False)
        if known(size) != 1 and var not in free_vars(data)
    }  # fmt: skip
    if any(var in shared for each in weights for var in free_vars(each)):
        return None  # sums of several outputs read the same data
    still = (
        any(column in free_vars(each) for each in weights) if weights else column in data.indices
    )
    return data, column in free_vars(data) and not still
