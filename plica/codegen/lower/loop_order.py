"""Loop order: in which loops the elements of a tensor are visited, and which of them are vectors.

Rows of open length are walked in strips: whole ones of many lanes, then a vector at a time, of
which the last may hang over the end.

    for s in range(n // 64):                          y[i, 64 * s + lane]      lane < 64
    for s in range((n % 64 + 15) // 16):              y[i, n // 64 * 64 + 16 * s + lane]
        where that is less than n                                              lane < 16

Where vectors cannot be read in part, none hangs over: of elements alone the last few are done one
by one, and the last vector of sums ends with the row, some of which are made twice then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import Final

from attrs import frozen

from plica.core.binding import free_vars, substitute
from plica.core.fold import map_bottom_up, map_top_down, post_order
from plica.core.name import Name, fresh
from plica.core.term import Term
from plica.ir.loop import NOTHING, Branch, Each, For, Stmt, Store, loads, scalar as sc
from plica.ir.loop.reduction import exposed
from plica.ir.loop.stages import with_element
from plica.ir.loop.statement import Bind, LoopKind
from plica.ir.type import dim, known
from plica.schedule.default.lane import is_row, nested
from plica.schedule.default.machine import Machine
from plica.schedule.default.tile import RegisterTile, fits

BESIDE: Final = 4  # vectors of a row of open length that are under way at once, at most
ROWS: Final = 4
"""How many rows of open length are reduced together: for more of them, an open distance apart, one
address is made of another, and one waits for the other."""

WIDEST: Final = 64
"""Lanes of a row of known length, at most, that sums of open length are made for in strips."""

NEAR: Final = 4  # elements so far apart in what is read are picked from whole vectors


@frozen
class StripTile:
    """How rows of open length are walked: the lanes of a vector, how many vectors make a strip, how
    many rows are reduced together, and whether a vector can be read in part."""

    lanes: int = 16
    vectors: int = BESIDE
    rows: int = ROWS
    masks: bool = True

    @property
    def strip(self) -> int:
        """The lanes of a strip."""
        return self.lanes * self.vectors


def strip_tile(of: Each, machine: Machine | None) -> StripTile:
    """How a machine walks the rows of a stage; any, where none is given."""
    if machine is None:
        return StripTile()
    # What keeps totals of runs is touched once for each run.
    runs = [sc.dtype_of(reduction) for reduction in nested(of.value) if not exposed(reduction.body)]
    lanes = min(machine.lanes(dtype) for dtype in runs or [of.out.dtype])
    if not runs:
        return StripTile(lanes, BESIDE, 1, machine.masks)
    length = (known(of.out.shape[-1]) or 0) if of.axes else 0
    most = [n for n in range(1, BESIDE + 1) if fits(RegisterTile(n, ROWS), machine.registers)]
    even = [n for n in most if length % (n * lanes) == 0]
    return StripTile(lanes, max(even or most, default=1), ROWS, machine.masks)


@frozen
class LoopOrder:
    """How the elements of a tensor are visited: loops from outer to inner, where each element is
    stored, and how many of the last loops go inside the reductions."""

    loops: tuple[tuple[sc.ScalarVar, sc.Scalar], ...]
    indices: tuple[sc.Scalar, ...]
    body: sc.Scalar
    inside: int
    turned: tuple[tuple[sc.ScalarVar, sc.Scalar], ...] = ()
    """Axes that are walked otherwise, and what they are then."""

    kind: LoopKind = "serial"
    """The innermost loop's, which is the last of `loops` even if it goes inside the reductions."""

    guard: sc.Scalar | None = None
    """What must hold for an element to be stored; sums read nothing where it does not hold."""

    unrolled: tuple[sc.ScalarVar, ...] = ()
    """Loops that are written out."""

    begin: tuple[sc.ScalarVar, sc.Scalar, sc.Scalar] | None = None
    """Where lanes begin, by a name; and what holds of it where there are some."""

    def begun(self, stmt: Stmt) -> Stmt:
        """The statement for all lanes, which begin somewhere."""
        if self.begin is None:
            return stmt
        name, value, inside = self.begin
        return Bind(name, value, Branch(inside, stmt, NOTHING))

    def where(self, stmt: Stmt) -> Stmt:
        """The statement for elements that are there."""
        return stmt if self.guard is None else Branch(self.guard, stmt, NOTHING)


@frozen
class StoredElement:
    """What is stored once an element is reduced: `value` at `indices`, where it reads the element
    from `reduced` at the axes of the reduction."""

    reduced: sc.Buffer
    indices: tuple[sc.Scalar, ...]
    value: sc.Scalar


def stored(fold: Each, epilogue: Each | None) -> StoredElement | None:
    """An epilogue over the axes of its reduction."""
    if epilogue is None:
        return None
    (read,) = [load for load in loads(epilogue.value) if load.buffer is fold.out]
    places: dict[Term, sc.Scalar] = {
        place: axis
        for place, axis in zip(read.indices, fold.axes, strict=True)
        if isinstance(place, sc.ScalarVar)
    }
    for axis in epilogue.axes:
        places.setdefault(axis, sc.index(0))  # it has length 1
    value = substitute(epilogue.value, places)
    return StoredElement(fold.out, tuple([places[axis] for axis in epilogue.axes]), value)


def last_store(
    value: sc.Scalar, walk: LoopOrder, out: sc.Buffer, after: StoredElement | None
) -> Stmt:
    """The store of an element whose reduction is done."""
    if after is None:
        return Store(out, walk.indices, value)
    terms: list[sc.Scalar] = [after.value, *after.indices]
    if walk.turned:
        turned: dict[Term, Term] = dict(walk.turned)
        terms = [substitute(term, turned) for term in terms]
    return Store(out, tuple(terms[1:]), with_element(terms[0], after.reduced, value))


@frozen
class _Columns:
    """Some columns of a row: a given number of times a given number of lanes, from a place on."""

    place: sc.Scalar
    many: sc.Scalar
    lanes: int
    end: sc.Scalar | None = None  # where the row ends, if lanes may be behind that
    begin: tuple[sc.ScalarVar, sc.Scalar, sc.Scalar] | None = None
    alone: bool = False  # whether rows are done one by one, since there are few columns


def strips(
    of: Each,
    indices: Sequence[sc.Scalar],
    after: Sequence[sc.Scalar],
    machine: Machine | None = None,
) -> tuple[LoopOrder, ...] | None:
    """Rows of open length that are contiguous: whole strips of lanes, then what is left.

    Elements are stored at `indices`, and terms read what comes `after` the tensor, too.
    """
    if not of.axes:
        return None
    reductions = exposed(of.value)
    length, tile = known(of.out.shape[-1]), strip_tile(of, machine)
    if length is not None:
        soon = machine is not None and machine.soon and is_near(of, machine)
        if length < tile.lanes or not (soon or (_are_open(reductions) and length <= WIDEST)):
            return None
    within = nested(of.value)
    bodies = [reduction.body for reduction in reductions] or [of.value]
    axis = of.axes[-1]
    if tuple(indices[-1:]) != (axis,):
        return None
    if not all(is_row(scalar, axis, within, NEAR) for scalar in (*bodies, *after)):
        return None
    taken = {node.name for node in post_order(of) if isinstance(node, sc.ScalarVar)}
    one, lane, few, near, column = [
        sc.ScalarVar(fresh(Name(each), taken), axis.dtype)
        for each in ("strip", "lane", "few", "near", "column")
    ]
    columns = _columns(of.out.shape[-1], tile, (one, lane, column), bool(reductions))
    around = list(zip(of.axes, of.out.shape, strict=True))[:-1]
    rows: list[tuple[sc.Scalar | None, sc.Scalar, int]] = [(None, sc.index(1), 1)]
    single = rows
    place_of_rows = 0
    if reductions and around:  # rows go together: what is read of columns serves all of them
        place_of_rows = _shared(bodies, axis, around, tile.rows)
        row, count = around.pop(place_of_rows)
        whole = count // tile.rows * tile.rows
        rows = [
            (few * tile.rows + near, count // tile.rows, tile.rows),
            (whole + few, count - whole, 1),
        ]
        single = [(few, count, 1)]
    rows = [each for each in rows if known(each[1]) != 0]
    found = []
    both = [(each, part) for part in columns for each in (single if part.alone else rows)]
    for (at, many, together), part in both:
        here: dict[sc.ScalarVar, sc.Scalar] = {axis: part.place}
        loops = [*around]
        inside = [(lane, sc.Lit(part.lanes, axis.dtype))]
        if at is not None:
            here[row] = at
            loops.insert(place_of_rows, (few, many))
            if together > 1:
                inside.insert(0, (near, sc.Lit(together, axis.dtype)))
        body = substitute(of.value, {**here})
        guard = None if part.end is None else sc.Lt(part.place, part.end)
        if reductions and guard is not None:
            body = _where(guard, body, lane)
        found.append(
            LoopOrder(
                (*loops, (one, part.many), *inside),
                tuple([here.get(var, var) for var in of.axes]),
                body,
                len(inside) if reductions else 0,
                tuple(here.items()),
                "vectorized",
                guard,
                (near,),
                part.begin,
            )
        )
    return tuple(found)


def is_near(of: Each, machine: Machine) -> bool:
    """Whether a stage sums, and what its rows read again and again stays in the second cache."""
    length = known(of.out.shape[-1]) if of.axes else None
    terms = prod(known(size) or 0 for reduction in nested(of.value) for size in reduction.extents)
    whole = terms * (length or 0) * of.out.dtype.bytes
    return bool(exposed(of.value)) and whole <= machine.cache(2)


def _columns(
    size: sc.Scalar,
    tile: StripTile,
    names: tuple[sc.ScalarVar, sc.ScalarVar, sc.ScalarVar],
    sums: bool,
) -> list[_Columns]:
    """The columns of a row: whole strips, then whatever is left of it."""
    one, lane, column = names
    strip, few = tile.strip, tile.lanes
    if (length := known(size)) is not None:
        whole, left = divmod(length, strip)
        parts = ((one * strip, whole, strip), (sc.index(whole * strip), 1, left))
        return [_Columns(at + lane, sc.index(n), wide) for at, n, wide in parts if n and wide]
    done: sc.Scalar = size // strip * strip
    strips_ = _Columns(one * strip + lane, size // strip, strip)
    left_ = (size - done + (few - 1)) // few
    if tile.masks:
        return [strips_, _Columns(done + one * few + lane, left_, few, size)]
    if not sums:
        ends = size // few * few
        some = _Columns(done + one * few + lane, dim((size - done) // few), few)
        rest = _Columns(ends + one + lane, dim(size - ends), 1)
        return [columns for columns in (strips_, some, rest) if known(columns.many) != 0]
    inside = sc.And(sc.Le(sc.index(0), column), sc.Le(column + few, size))  # if there are this many
    begin = (column, sc.Min(done + one * few, size - few), inside)
    narrow = sc.Max(sc.Min(sc.index(few) - size, sc.index(1)), sc.index(0))
    return [
        strips_,
        _Columns(column + lane, left_, few, None, begin),
        _Columns(one * few + lane, narrow, few, size, alone=True),
    ]


def panels(of: Each, lanes: int) -> tuple[LoopOrder, ...]:
    """A row of known length a given number of lanes at a time, then what is left of it, for
    reductions of each lane."""
    axis, size = of.axes[-1], known(of.out.shape[-1])
    assert size is not None
    around = tuple(zip(of.axes, of.out.shape, strict=True))[:-1]
    taken = {node.name for node in post_order(of) if isinstance(node, sc.ScalarVar)}
    one, lane = (sc.ScalarVar(fresh(Name(each), taken), axis.dtype) for each in ("panel", "lane"))
    found = []
    for first, count, long in ((0, size // lanes, lanes), (size // lanes * lanes, 1, size % lanes)):
        if count and long:
            place = one * lanes + lane + first
            loops = (*around, (one, sc.index(count)), (lane, sc.Lit(long, axis.dtype)))
            body, indices = substitute(of.value, {axis: place}), (*of.axes[:-1], place)
            found.append(LoopOrder(loops, indices, body, 1, ((axis, place),), "vectorized"))
    return tuple(found)


def _are_open(reductions: Sequence[sc.Reduce]) -> bool:
    """Whether it is not known how many terms sums have."""
    return any(known(size) is None for reduction in reductions for size in reduction.extents)


def _where(guard: sc.Scalar, body: sc.Scalar, lane: sc.ScalarVar) -> sc.Scalar:
    """A term that reads what is there alone: whatever it is elsewhere is not stored."""

    def guarded(node: Term) -> Term:
        if isinstance(node, sc.Load) and lane in free_vars(node):
            return sc.Select(guard, node, sc.Lit(0, node.buffer.dtype))
        return node

    return map_bottom_up(guarded, body)


def _shared(
    bodies: Sequence[sc.Scalar],
    axis: sc.ScalarVar,
    around: Sequence[tuple[sc.ScalarVar, sc.Scalar]],
    together: int,
) -> int:
    """The axis whose neighbours read the same columns; the last where there is none."""
    columns: set[Term] = set()
    for body in bodies:
        for node in post_order(body):
            if isinstance(node, sc.Load) and axis in free_vars(node):
                columns |= free_vars(node)
    for at, (var, count) in enumerate(around):
        if var not in columns and (known(count) or 0) >= together:
            return at
    return len(around) - 1


def replaced(of: sc.Scalar, by: Mapping[Term, sc.Scalar]) -> sc.Scalar:
    return map_top_down(lambda node: by.get(node, node), of) if by else of


def loops_around(
    around: Sequence[tuple[sc.ScalarVar, sc.Scalar]],
    inside: Stmt,
    innermost: LoopKind = "serial",
    unrolled: Collection[sc.ScalarVar] = (),
) -> Stmt:
    """A statement in loops, the innermost of some kind, others maybe written out."""
    kind = innermost
    for var, extent in reversed(around):
        inside = For(var, extent, "unrolled" if var in unrolled else kind, inside)
        kind = "serial"
    return inside
