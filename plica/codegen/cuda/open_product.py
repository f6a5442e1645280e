"""Open products: matrix products with open sizes, in tiles shared by a block.

y[…, i, j] = sum(a[…, i, k] * b[…, k, j] for k < K)

for tiles of 16 of K:      left[16, 64], right[16, 64]      shared, 0 beyond the last
    each thread            own[4, 4] += left[k, 4 of i] * right[k, 4 of j]
y[…, i, j] = f(own)        of places that there are
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import frozen

from plica.codegen.lower.loop_order import StoredElement, stored
from plica.core import Term, free_vars, substitute
from plica.ir.loop import Each, Names, reductions, scalar as sc, statement as st
from plica.ir.loop.stages import with_element
from plica.ir.type import f32, known, product
from plica.schedule.default.lane import is_row

SIDE: Final = 64  # rows and columns of a tile
DEPTH: Final = 16  # terms of a sum that are shared at once
OWN: Final = 4  # rows and columns of a thread
ROOM: Final = SIDE + 4  # elements of a row of shared memory: neighbouring rows begin in other banks
FEW: Final = 8  # rows, columns or terms that are worth no tile

Axes = tuple[tuple[sc.ScalarVar, sc.Scalar], ...]  # axes and their sizes


@frozen(eq=False)
class OpenProduct:
    """A sum of products, and which axes are which."""

    fold: Each
    terms: Axes
    left: sc.Scalar
    right: sc.Scalar
    rows: Axes
    columns: Axes
    others: Axes


def product_of(of: Each) -> OpenProduct | None:
    """A stage as a matrix product, or None if tiles are not worthwhile."""
    value = of.value
    if not isinstance(value, sc.Reduce) or value.combiner != "sum":
        return None
    if not isinstance(value.body, sc.Mul) or sc.dtype_of(value) is not f32:
        return None
    left, right = value.body.left, value.body.right
    terms = tuple(zip(value.axes, value.extents, strict=True))
    if reductions(left) or reductions(right):
        return None
    sides = [free_vars(left), free_vars(right)]
    if any(free_vars(size) & {axis for axis, _ in terms} for _, size in terms):
        return None
    if not all(axis in side for side in sides for axis, _ in terms):
        return None
    axes = [(a, size) for a, size in zip(of.axes, of.out.shape, strict=True) if known(size) != 1]
    rows = tuple([each for each in axes if each[0] in sides[0] and each[0] not in sides[1]])
    columns = tuple([each for each in axes if each[0] in sides[1] and each[0] not in sides[0]])
    others = tuple([each for each in axes if each not in rows and each not in columns])
    for kind in (rows, columns, terms):
        count = known(_count(kind))
        if not kind or (count is not None and count < FEW):
            return None
    return OpenProduct(of, terms, left, right, rows, columns, others)


def _count(axes: Axes) -> sc.Scalar:
    return product([size for _, size in axes])


def product_launch(of: OpenProduct, epilogue: Each | None, out: sc.Buffer, names: Names) -> st.Stmt:
    """The launch of a product with its epilogue."""
    return _TileWriter(of, stored(of.fold, epilogue), out, names).launch()


class _TileWriter:
    """Builds a block's work on a tile."""

    def __init__(
        self, of: OpenProduct, after: StoredElement | None, out: sc.Buffer, names: Names
    ) -> None:
        self.of, self.after, self.out, self.names = of, after, out, names
        self.block, self.thread = names.var("b"), names.var("t")
        self.counts = [_count(each) for each in (of.rows, of.columns, of.terms)]
        rows, columns, _ = self.counts
        self.high, self.wide = ((scalar + (SIDE - 1)) // SIDE for scalar in (rows, columns))
        self.row, self.column, self.lot = (names.var(each) for each in ("row", "column", "lot"))
        self.which: dict[Term, sc.ScalarVar] = {axis: names.var("which") for axis, _ in of.others}
        room = (sc.index(DEPTH), sc.index(ROOM))
        self.left = sc.Buffer(names.name("left"), room, sc.dtype_of(of.left), "shared")
        self.right = sc.Buffer(names.name("right"), room, sc.dtype_of(of.right), "shared")
        own = (sc.index(OWN), sc.index(OWN))
        self.own = sc.Buffer(names.name("own"), own, f32, "local")
        few = (sc.index(OWN),)
        self.near = [
            sc.Buffer(names.name("near"), few, buffer.dtype, "local")
            for buffer in (self.left, self.right)
        ]

    def launch(self) -> st.Stmt:
        """All tiles, each by a block."""
        turn, i, j = (self.names.var(each) for each in ("s", "i", "j"))
        start = self._each(((i, OWN), (j, OWN)), st.Store(self.own, (i, j), sc.Lit(0.0, f32)))
        body = st.seq(
            start,
            st.For(turn, (self.counts[2] + (DEPTH - 1)) // DEPTH, "serial", self._turn(turn)),
            self._last(),
        )
        body = st.allocated(body, (self.own, *self.near, self.left, self.right))
        threads = (SIDE // OWN) ** 2
        body = st.For(self.thread, sc.index(threads), "threadIdx.x", self._placed(body))
        count = product([_count(self.of.others), self.high, self.wide])
        return st.For(self.block, count, "blockIdx.x", body)

    def _placed(self, body: st.Stmt) -> st.Stmt:
        """A statement where it is known which tile of which product this is."""
        for axis, digit in digits(self.of.others, self.lot).items():
            body = st.Bind(self.which[axis], digit, body)
        tall, broad = (sc.Max(scalar, sc.index(1)) for scalar in (self.high, self.wide))
        rest = self.block // broad
        body = st.Bind(self.lot, rest // tall, body)
        body = st.Bind(self.row, rest % tall * SIDE, body)
        return st.Bind(self.column, self.block % broad * SIDE, body)

    def _turn(self, turn: sc.ScalarVar) -> st.Stmt:
        """Some terms of all sums of a tile."""
        of, k = self.of, self.names.var("k")
        first = turn * DEPTH
        loads = [
            self._shared(self.left, of.left, (of.rows, self.row), self.counts[0], first),
            self._shared(self.right, of.right, (of.columns, self.column), self.counts[1], first),
        ]
        places = [self.thread // (SIDE // OWN) * OWN, self.thread % (SIDE // OWN) * OWN]
        reads: list[st.Stmt] = []
        for near, far, at in zip(self.near, (self.left, self.right), places, strict=True):
            v = self.names.var("v")
            reads.append(
                self._each(
                    ((v, OWN),), st.Store(near, (v,), sc.Load(far, (k, at + v))), "vectorized"
                )
            )
        i, j = self.names.var("i"), self.names.var("j")
        term = sc.Load(self.near[0], (i,)) * sc.Load(self.near[1], (j,))
        added = st.Store(self.own, (i, j), sc.Load(self.own, (i, j)) + term)
        inner = st.seq(*reads, self._each(((i, OWN), (j, OWN)), added))
        return st.seq(
            *loads,
            st.Barrier("shared"),
            st.For(k, sc.index(DEPTH), "unrolled", inner),
            st.Barrier("shared"),
        )

    def _shared(
        self,
        into: sc.Buffer,
        side: sc.Scalar,
        begin: tuple[Axes, sc.Scalar],
        count: sc.Scalar,
        depth: sc.Scalar,
    ) -> st.Stmt:
        """Copies a tile of a factor to shared memory; adjacent threads read adjacent elements."""
        u = self.names.var("u")
        threads = (SIDE // OWN) ** 2
        number = u * threads + self.thread
        if is_row(side, self.of.terms[-1][0]):
            place, term = number // DEPTH, number % DEPTH
        else:
            place, term = number % SIDE, number // SIDE
        at, k = begin[1] + place, depth + term
        where = {**self.which, **digits(begin[0], at), **digits(self.of.terms, k)}
        inside = sc.And(sc.Lt(at, count), sc.Lt(k, self.counts[2]))
        value = sc.Select(inside, substitute(side, where), sc.Lit(0, into.dtype))
        store = st.Store(into, (term, place), value)
        return self._each(((u, DEPTH * SIDE // threads),), store)

    def _last(self) -> st.Stmt:
        """The epilogue of each element in bounds."""
        of, i, j = self.of, self.names.var("i"), self.names.var("j")
        row = self.row + self.thread // (SIDE // OWN) * OWN + i
        column = self.column + self.thread % (SIDE // OWN) * OWN + j
        where = {**self.which, **digits(of.rows, row), **digits(of.columns, column)}
        where |= {axis: sc.index(0) for axis in of.fold.axes if axis not in where}
        total = sc.Load(self.own, (i, j))
        indices: tuple[sc.Scalar, ...] = of.fold.axes
        value: sc.Scalar = total
        if self.after is not None:
            indices = self.after.indices
            value = with_element(self.after.value, self.after.reduced, total)
        places = tuple([substitute(index, where) for index in indices])
        store = st.Store(self.out, places, substitute(value, where))
        inside = sc.And(sc.Lt(row, self.counts[0]), sc.Lt(column, self.counts[1]))
        return self._each(((i, OWN), (j, OWN)), st.Branch(inside, store, st.NOTHING))

    @staticmethod
    def _each(
        loops: Sequence[tuple[sc.ScalarVar, int]], body: st.Stmt, kind: st.LoopKind = "unrolled"
    ) -> st.Stmt:
        for var, count in reversed(loops):
            body = st.For(var, sc.index(count), kind, body)
        return body


def digits(axes: Axes, number: sc.Scalar) -> dict[Term, sc.Scalar]:
    """Where along some axes the place of a number is, the last axis first."""
    found: dict[Term, sc.Scalar] = {}
    first = next((axis for axis, size in axes if known(size) != 1), None)
    for axis, size in reversed(axes):
        if known(size) == 1:
            found[axis] = sc.index(0)
            continue
        by = size if known(size) else sc.Max(size, sc.index(1))  # of nothing there are no places
        found[axis] = number if axis is first else number % by
        number = number // by
    return found
