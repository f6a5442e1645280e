"""Suppression: sequential loops for non-maximum suppression per class.

    candidates = the boxes whose score is above the least, as a heap with the best on top
    while there are candidates, and fewer are kept than may be:
        take the best;  keep it unless it lies over one that is kept

>>> found = suppression((1, 2, 100), 5)
>>> [str(each.name) for each in found.params]
['boxes', 'scores', 'most', 'overlap', 'least', 'rows', 'count', 'heap', 'kept']
>>> found.inputs
5
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Final

from plica.core.name import Name
from plica.ir.loop import scalar as sc
from plica.ir.loop.statement import NOTHING, Bind, Branch, For, Kernel, Stmt, Store, allocated, seq
from plica.ir.op.top_k import comes_before
from plica.ir.type.dtype import DType, f32, i32, i64

CORNERS: Final = 4
"""The least places on both axes, and the greatest."""


LANES: Final = 8
"""Kept boxes compared at once."""


def suppression(
    sizes: Sequence[int], most: int, *, centred: bool = False, has_least: bool = True
) -> Kernel:
    """The kernel for a number of batches, classes and boxes, of which each class keeps at most
    `most`.

    Its inputs are boxes (as corners, or centre and extent), their scores, the maximum number, the
    overlap threshold, and the score threshold, if any; it returns rows of batch, class and box,
    their number, and its scratch buffers.
    """
    return _Suppression(sizes, most, centred, has_least).kernel()


class _Suppression:
    """The loops under construction."""

    def __init__(self, sizes: Sequence[int], most: int, centred: bool, has_least: bool) -> None:
        batch, classes, count = self.batch, self.classes, self.count = tuple(sizes)
        self.kept_most, self.centred, self.has_least = most, centred, has_least
        self.names = 0
        self.boxes = _buffer("boxes", (batch, count, CORNERS), f32)
        self.scores = _buffer("scores", (batch, classes, count), f32)
        self.most, self.overlap, self.least = (
            _buffer(name, (), dtype)
            for name, dtype in (("most", i64), ("overlap", f32), ("least", f32))
        )
        self.rows = _buffer("rows", (batch * classes * most, 3), i64)
        self.total = _buffer("count", (), i64)
        self.heap = _buffer("heap", (count,), i32)
        self.room = -(-most // LANES) * LANES
        self.kept = _buffer("kept", (CORNERS, self.room), f32)
        self.hits = _buffer("hits", (LANES,), i32, "local")
        self.size, self.number, self.at, self.first, self.covered = (
            _buffer(name, (1,), i64, "local")
            for name in ("size", "number", "at", "first", "covered")
        )
        self.b, self.c = (sc.ScalarVar(Name(each), i64) for each in ("b", "c"))

    def kernel(self) -> Kernel:
        """All classes of all batches."""
        one_class = seq(
            self.put(self.size, 0),
            self.each(self.count, self.candidate),
            self.ordered(),
            self.put(self.number, 0),
            self.up_to(self.got(self.size, self.count), lambda _: self.taken()),
        )
        body: Stmt = For(self.c, sc.index(self.classes), "serial", one_class)
        body = For(self.b, sc.index(self.batch), "serial", body)
        body = seq(Store(self.total, (), sc.index(0)), *self.empty(), body)
        body = allocated(
            body, (self.size, self.number, self.at, self.first, self.covered, self.hits)
        )
        inputs = [self.boxes, self.scores, self.most, self.overlap]
        inputs += [self.least] if self.has_least else []
        outputs = (self.rows, self.total, self.heap, self.kept)
        return Kernel((), (*inputs, *outputs), len(inputs), body)

    def empty(self) -> list[Stmt]:
        """Initialises all outputs."""
        zero, none = sc.Lit(0.0, f32), sc.Lit(0, i32)
        rows, corners = self.batch * self.classes * self.kept_most, [*map(sc.index, range(CORNERS))]
        return [
            self.each(rows, lambda at: seq(*[self.row(at, n, sc.index(-1)) for n in range(3)])),
            self.each(self.count, lambda at: Store(self.heap, (at,), none)),
            self.each(
                self.room, lambda at: seq(*[Store(self.kept, (each, at), zero) for each in corners])
            ),
        ]

    # --- the heap --------------------------------------------------------------------------------

    def candidate(self, box: sc.Scalar) -> Stmt:
        """Appends a box to the candidates if its score is above the threshold."""
        one: sc.Scalar = sc.index(1)
        if self.has_least:
            above = sc.Lt(sc.Load(self.least, ()), sc.Load(self.scores, (self.b, self.c, box)))
            one = sc.Select(above, one, sc.index(0))  # no branch: nobody can guess which are
        end = self.value(self.size)
        return seq(self.hold(end, sc.Cast(box, i32)), self.put(self.size, end + one))

    def ordered(self) -> Stmt:
        """Heapifies the candidates: from the lowest parents to the root, each sinks as far as its
        subtree reaches."""
        size = self.value(self.size)

        def level(above: sc.Scalar) -> Stmt:
            first = self.value(self.first)  # 2 ** n - 1, and as many places less one behind it
            half = self.inside(sc.FloorDiv(size, sc.index(2)) - first, self.count)
            places = self.up_to(
                sc.Min(half, first + 1),
                lambda at: seq(
                    self.put(self.at, self.value(self.first) + at), self.sunk(above + 1)
                ),
            )
            return seq(places, self.put(self.first, sc.FloorDiv(first, sc.index(2))))

        levels = max(1, self.count.bit_length() - 1)
        start = self.put(self.first, (1 << (levels - 1)) - 1)
        return seq(start, self.each(levels, level))

    def sunk(self, levels: sc.Scalar) -> Stmt:
        """Sinks an element, at most through a number of levels, while a child precedes it."""

        def level(_: sc.Scalar) -> Stmt:
            here, size = self.got(self.at, self.count - 1), self.value(self.size)
            below = here * 2 + 1
            right = sc.Min(below + 1, size - 1)

            def best_of(mine: sc.Scalar, first: sc.Scalar, second: sc.Scalar) -> Stmt:
                best = sc.Select(self.is_before(second, first), second, first)
                return self.bound((best,), lambda other: self.raised(mine, other))

            found = self.bound((here, below, right), best_of)
            return Branch(sc.Lt(below, size), found, NOTHING)

        return self.up_to(levels, level)

    def raised(self, one: sc.Scalar, other: sc.Scalar) -> Stmt:
        """Swaps a child with its parent if it precedes it; continues from there, or stays."""
        exchanged = self.bound(
            (self.held(one), self.held(other)),
            lambda mine, yours: seq(
                self.hold(one, yours), self.hold(other, mine), self.put(self.at, other)
            ),
        )
        return Branch(self.is_before(other, one), exchanged, self.put(self.at, self.count))

    def is_before(self, one: sc.Scalar, other: sc.Scalar) -> sc.Scalar:
        """Whether the box at one heap index precedes that at another."""
        boxes = [self.box_at(each) for each in (one, other)]
        keys = [sc.Load(self.scores, (self.b, self.c, each)) for each in boxes]
        return comes_before((keys[0], boxes[0]), (keys[1], boxes[1]), descending=True)

    def box_at(self, place: sc.Scalar) -> sc.Scalar:
        return self.inside(sc.Cast(self.held(place), i64), self.count - 1)

    def held(self, place: sc.Scalar) -> sc.Scalar:
        return sc.Load(self.heap, (self.inside(place, self.count - 1),))

    def hold(self, place: sc.Scalar, box: sc.Scalar) -> Stmt:
        return Store(self.heap, (self.inside(place, self.count - 1),), box)

    # --- what is kept ----------------------------------------------------------------------------

    def taken(self) -> Stmt:
        """Pops the best box, if more may be kept, and keeps it if it overlaps none."""
        left = sc.Lt(self.value(self.number), self.bounded_most())
        last = self.value(self.size) - 1
        first = sc.index(0)
        box = self.names_of("box")

        def without_top() -> Stmt:
            return seq(
                self.hold(first, self.held(last)),
                self.put(self.size, self.value(self.size) - 1),
                self.put(self.at, 0),
                self.sunk(sc.index(max(1, self.count.bit_length() - 1))),
            )

        def look(*corners: sc.Scalar) -> Stmt:
            return seq(
                self.put(self.covered, 0),
                self.up_to(
                    sc.FloorDiv(
                        self.got(self.number, self.kept_most) + (LANES - 1), sc.index(LANES)
                    ),
                    lambda group: self.compared(corners, group),
                ),
                Branch(
                    sc.Eq(self.value(self.covered), sc.index(0)), self.keep(box, corners), NOTHING
                ),
            )

        found = seq(without_top(), self.bound(self.corners(box), look))
        return Branch(left, Bind(box, self.box_at(first), found), NOTHING)

    def bounded_most(self) -> sc.Scalar:
        return sc.Min(sc.Load(self.most, ()), sc.index(self.kept_most))

    def compared(self, mine: Sequence[sc.Scalar], group: sc.Scalar) -> Stmt:
        """Records whether a box overlaps one of a group of kept ones too much."""
        lane = self.names_of("v")
        at = self.inside(group, self.room // LANES - 1) * LANES + lane
        best = [sc.Load(self.kept, (sc.index(n), at)) for n in range(CORNERS)]
        zero = sc.Lit(0.0, f32)

        def area(of: Sequence[sc.Scalar]) -> sc.Scalar:
            return (of[2] - of[0]) * (of[3] - of[1])

        def along(axis: int) -> sc.Scalar:
            ends, starts = sc.Min(best[axis + 2], mine[axis + 2]), sc.Max(best[axis], mine[axis])
            return sc.Max(ends - starts, zero)

        common = along(0) * along(1)
        union = area(best) + area(mine) - common
        there = sc.Lt(zero, union)
        share = sc.Div(common, sc.Select(there, union, sc.Lit(1.0, f32)))
        covers = sc.And(there, sc.Lt(sc.Load(self.overlap, ()), share))
        covers = sc.And(covers, sc.Lt(at, self.value(self.number)))
        hit = sc.Select(covers, sc.Lit(1, i32), sc.Lit(0, i32))
        lanes: list[sc.Scalar] = [sc.Load(self.hits, (sc.index(n),)) for n in range(LANES)]
        some = seq(
            For(lane, sc.index(LANES), "vectorized", Store(self.hits, (lane,), hit)),
            self.put(self.covered, sc.Cast(reduce(sc.Add, lanes), i64)),
        )
        return Branch(sc.Eq(self.value(self.covered), sc.index(0)), some, NOTHING)

    def corners(self, box: sc.Scalar) -> tuple[sc.Scalar, ...]:
        """The least and the greatest places of a box on both axes."""
        at = self.inside(box, self.count - 1)
        given: list[sc.Scalar] = [
            sc.Load(self.boxes, (self.b, at, sc.index(n))) for n in range(CORNERS)
        ]
        a, b, c, d = given
        if self.centred:
            half = sc.Lit(0.5, f32)
            c, d = c * half, d * half
            a, b, c, d = a - c, b - d, a + c, b + d
        return sc.Min(a, c), sc.Min(b, d), sc.Max(a, c), sc.Max(b, d)

    def keep(self, box: sc.Scalar, corners: Sequence[sc.Scalar]) -> Stmt:
        """Adds a box to the kept ones and to the result."""
        place = self.got(self.number, self.kept_most - 1)
        row = self.inside(sc.Load(self.total, ()), self.batch * self.classes * self.kept_most - 1)
        return seq(
            *[Store(self.kept, (sc.index(n), place), each) for n, each in enumerate(corners)],
            *[self.row(row, n, each) for n, each in enumerate((self.b, self.c, box))],
            self.put(self.number, self.value(self.number) + 1),
            Store(self.total, (), sc.Load(self.total, ()) + 1),
        )

    def row(self, at: sc.Scalar, column: int, value: sc.Scalar) -> Stmt:
        return Store(self.rows, (at, sc.index(column)), value)

    # --- words -----------------------------------------------------------------------------------

    def names_of(self, hint: str) -> sc.ScalarVar:
        self.names += 1
        return sc.ScalarVar(Name(hint, self.names), i64)

    def each(self, count: int, body: Callable[[sc.Scalar], Stmt]) -> Stmt:
        var = self.names_of("i")
        return For(var, sc.index(count), "serial", body(var))

    def up_to(self, count: sc.Scalar, body: Callable[[sc.Scalar], Stmt]) -> Stmt:
        """A loop whose length is known when it begins."""
        end, var = self.names_of("end"), self.names_of("i")
        return Bind(end, count, For(var, end, "serial", body(var)))

    def bound(self, values: tuple[sc.Scalar, ...], body: Callable[..., Stmt]) -> Stmt:
        """A statement about values that are computed once."""
        made = [sc.ScalarVar(self.names_of("v").name, sc.dtype_of(each)) for each in values]
        stmt = body(*made)
        for var, value in reversed([*zip(made, values, strict=True)]):
            stmt = Bind(var, value, stmt)
        return stmt

    def value(self, of: sc.Buffer) -> sc.Scalar:
        return sc.Load(of, (sc.index(0),))

    def got(self, of: sc.Buffer, most: int) -> sc.Scalar:
        """A stored number clamped to its range, so that bounds are provable."""
        return self.inside(self.value(of), most)

    def inside(self, of: sc.Scalar, most: int) -> sc.Scalar:
        return sc.Max(sc.index(0), sc.Min(of, sc.index(most)))

    def put(self, of: sc.Buffer, value: sc.Scalar | int) -> Stmt:
        made = sc.index(value) if isinstance(value, int) else value
        return Store(of, (sc.index(0),), made)


def _buffer(name: str, shape: tuple[int, ...], dtype: DType, scope: str = "global") -> sc.Buffer:
    return sc.Buffer(Name(name), tuple([sc.index(size) for size in shape]), dtype, scope)
