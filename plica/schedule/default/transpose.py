"""Transposes: a square of elements at a time, turned in registers.

    out[…, i, …, j] = f(x[…, j, …, i])

Neighbours of the result are far apart in what is read.  A square of 16 x 16 is read along its rows,
turned in two steps that each pick every fourth element of four vectors, and stored along the rows
of the result.  What is left at the ends is part of squares that end there, and begin in others;
where it is little it goes element by element.

    tile[16 r + c]                     <-  x[…, j + r, …, i + c]
    half[64 c0 + 16 r1 + l]            <-  tile[64 r1 + c0 + 4 l]
    out[…, i + 4 c1 + c0, …, j + l]    <-  half[64 c0 + c1 + 4 l]

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.tensor import buffer
>>> x = buffer("x", (32, 40), f32)
>>> print(turned(stages((x,), (stage("y", (40, 32), lambda i, j: x[j, i]),)), Machine(512, 32)))
y = statements
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from plica.core.binding import free_vars, substitute
from plica.core.fold import map_bottom_up, post_order
from plica.ir.loop.scalar import Buffer, Load, Scalar, ScalarVar, index
from plica.ir.loop.stage import Each, ExternStage
from plica.ir.loop.stages import Names, Stages, reductions, stages
from plica.ir.loop.statement import Alloc, For, LoopKind, Seq, Stmt, Store, seq
from plica.ir.type.dim import known
from plica.schedule.default.machine import Machine
from plica.schedule.default.share import pays

SIDE = 16
"""Rows and columns of a square: four times four."""

STEP = 4


def turned(of: Stages, machine: Machine) -> Stages | None:
    """The stage of a transpose with the loops it should have, None where it is none."""
    match of.stages:
        case (Each() as whole,):
            pass
        case _:
            return None
    if len(whole.axes) < 2 or any(not known(size) for size in whole.out.shape):
        return None
    if reductions(whole.value):
        return None
    sizes = {a: known(s) or 0 for a, s in zip(whole.axes, whole.out.shape, strict=True)}
    load = _turned_load(whole, sizes)
    if load is None or load.buffer.dtype.bytes > 4:
        return None
    shares = pays(machine, prod(sizes.values()), (whole.out, load.buffer))
    body = _Turning(whole, load, sizes).body(shares)
    return stages(of.inputs, (ExternStage((whole.out,), body),))


def _turned_load(of: Each, sizes: Mapping[ScalarVar, int]) -> Load | None:
    """The one load along another axis than the last; all others are along the last, or still."""
    last = of.axes[-1]
    if sizes[last] < SIDE:
        return None
    found: Load | None = None
    for node in post_order(of.value):
        if not isinstance(node, Load) or last not in free_vars(node):
            continue
        if node.indices[-1] is last and all(last not in free_vars(e) for e in node.indices[:-1]):
            continue
        if found is not None or not _is_plain(node, sizes) or node.indices[-1] is last:
            return None
        found = node
    if found is None or not isinstance(found.indices[-1], ScalarVar):
        return None
    return found if sizes.get(found.indices[-1], 0) >= SIDE else None


def _is_plain(of: Load, sizes: Mapping[ScalarVar, int]) -> bool:
    """Whether each index is an axis of its own, or the only one there is.

    Squares are read whole, so what a condition keeps from being read past an end is none either.
    """
    axes = [each for each in of.indices if isinstance(each, ScalarVar)]
    if len(set(axes)) != len(axes) or any(each not in sizes for each in axes):
        return False
    for each, size in zip(of.indices, of.buffer.shape, strict=True):
        if isinstance(each, ScalarVar) and sizes[each] > (known(size) or 0):
            return False
    return all(isinstance(each, ScalarVar) or known(each) is not None for each in of.indices)


class _Turning:
    """The kernel under construction."""

    def __init__(self, of: Each, load: Load, sizes: Mapping[ScalarVar, int]) -> None:
        self.of, self.load, self.sizes, self.out = of, load, sizes, of.out
        self.names = Names(of)
        square = (index(SIDE * SIDE),)
        self.tile = Buffer(self.names.name("tile"), square, load.buffer.dtype)
        self.half = Buffer(self.names.name("half"), square, load.buffer.dtype)
        inner = load.indices[-1]
        assert isinstance(inner, ScalarVar)
        self.i, self.j = inner, of.axes[-1]

    def body(self, shares: bool) -> Stmt:
        """All squares, then the rows and columns that fill none."""
        i, j, sizes = self.i, self.j, self.sizes
        whole_i, whole_j = (sizes[each] // SIDE * SIDE for each in (i, j))
        parts: list[Stmt] = []
        for start, rows in _strips(sizes[i]):
            # Squares of squares: a line of memory that ends in the next square is still near then.
            many, a = _together(rows), self.names.var("a")
            strips = [
                self.squares((a * (many * SIDE) + start, first), many, columns)
                for first, columns in _strips(sizes[j])
            ]
            parts.append(For(a, index(rows // many), "serial", seq(*strips)))
        if 0 < sizes[j] - whole_j < STEP:
            parts.append(self.rest({i: (0, sizes[i]), j: (whole_j, sizes[j])}))
        if 0 < sizes[i] - whole_i < STEP:
            parts.append(self.rest({i: (whole_i, sizes[i]), j: (0, sizes[j])}))
        body: Stmt = parts[0] if len(parts) == 1 else Seq(tuple(parts))
        outer = [each for each in self.of.axes if each not in (i, j)]
        for number, each in reversed(list(enumerate(outer))):
            kind: LoopKind = "parallel" if shares and number == 0 and sizes[each] > 1 else "serial"
            body = For(each, index(sizes[each]), kind, body)
        if shares and not any(sizes[each] > 1 for each in outer):
            body = _shared(body)
        return body

    def squares(self, corner: tuple[Scalar, int], rows: int, columns: int) -> Stmt:
        """So many squares below each other, as many side by side, from a place on."""
        a, b0, b1 = (self.names.var(each) for each in "abb")
        many = _together(columns)
        start_i, start_j = corner[0] + a * SIDE, (b0 * many + b1) * SIDE + corner[1]
        r, c, r1, c0, c1, c2 = (self.names.var(each) for each in ("r", "c", "r", "c", "c", "c"))
        l1, l2 = self.names.var("l"), self.names.var("l")
        i, j, tile, half = self.i, self.j, self.tile, self.half
        read = self.at(self.load, start_i + c, start_j + r)
        first = _nest([(r, SIDE)], c, Store(tile, (r * SIDE + c,), read))
        square, quarter = SIDE * STEP, SIDE
        second = _nest(
            [(r1, STEP), (c0, STEP)],
            l1,
            Store(
                half,
                (c0 * square + r1 * quarter + l1,),
                Load(tile, (r1 * square + c0 + l1 * STEP,)),
            ),
        )
        load, picked = self.load, Load(half, (c2 * square + c1 + l2 * STEP,))
        body = map_bottom_up(lambda node: picked if node is load else node, self.of.value)
        value = self.at(body, start_i + c1 * STEP + c2, start_j + l2)
        moved = {i: start_i + c1 * STEP + c2, j: start_j + l2}
        places = tuple([moved.get(each, each) for each in self.of.axes])
        third = _nest([(c1, STEP), (c2, STEP)], l2, Store(self.out, places, value))
        near: Stmt = Alloc(tile, Alloc(half, Seq((first, second, third))))
        for var, count in ((b1, many), (a, rows), (b0, columns // many)):
            near = For(var, index(count), "serial", near)
        return near

    def at(self, of: Scalar, i: Scalar, j: Scalar) -> Scalar:
        return substitute(of, {self.i: i, self.j: j})

    def rest(self, spans: Mapping[ScalarVar, tuple[int, int]]) -> Stmt:
        """Elements one by one."""
        own = {each: self.names.var("e") for each in spans}
        moved = {each: own[each] + start for each, (start, _) in spans.items()}
        value = substitute(self.of.value, dict(moved))
        places = tuple([moved.get(each, each) for each in self.of.axes])
        body: Stmt = Store(self.out, places, value)
        for each, (start, end) in spans.items():
            body = For(own[each], index(end - start), "serial", body)
        return body


def _strips(size: int) -> list[tuple[int, int]]:
    """Where squares begin along an axis, and how many there are one after another."""
    found = [(0, size // SIDE)]
    return [*found, (size - SIDE, 1)] if size % SIDE >= STEP else found


def _together(count: int) -> int:
    """How many squares in a row go together."""
    return next(each for each in (8, 4, 2, 1) if count % each == 0)


def _nest(around: Sequence[tuple[ScalarVar, int]], lane: ScalarVar, body: Stmt) -> Stmt:
    """A vector, and loops around it that are written out."""
    body = For(lane, index(SIDE), "vectorized", body)
    for var, count in reversed(around):
        body = For(var, index(count), "unrolled", body)
    return body


def _shared(of: Stmt) -> Stmt:
    """The first loop of a statement, or of each part of it, for all cores."""
    match of:
        case Seq(stmts):
            return Seq(tuple([_shared(each) for each in stmts]))
        case For(var, extent, "serial", body):
            return For(var, extent, "parallel", body)
        case _:
            return of
