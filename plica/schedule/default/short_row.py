"""Short rows side by side: stages along rows that fill no vectors have a row in each lane.

    m[i]    = max over k of x[i, k]            for b:  rows i = b * 16 + v, a row in each lane
    e[i, j] = exp(x[i, j] - m[i])       -->        for k: m[v]    = max(m[v], x[i, k])
    s[i]    = sum over k of e[i, k]                for j: e[j, v] = exp(x[i, j] - m[v])
    y[i, j] = e[i, j] / s[i]                       for k: s[v]    = s[v] + e[k, v]
                                                   for j: y[i, j] = e[j, v] / s[v]

Along such a row most lanes of a vector would have nothing to do, and what a row has once, a
logarithm or a root, would be computed for one row at a time.  Rows are reduced in the order of
their elements.  The last lanes begin earlier where there are not enough rows left for them, and
those rows are computed twice.

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.tensor import buffer, reduce
>>> x = buffer("x", (40, 5), f32)
>>> top = stage("m", (40, 1), lambda i, j: reduce("max", (5,), lambda k: x[i, k]))
>>> away = stage("y", (40, 5), lambda i, j: x[i, j] - top[i, 0])
>>> made = short_row_form(stages((x,), (top, away)), Machine(512, 32))
>>> [type(each).__name__ for each in made.stages]
['ExternStage']
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Final

from plica.core.binding import substitute
from plica.core.fold import map_bottom_up
from plica.core.term import Term
from plica.ir.loop import scalar as sc
from plica.ir.loop.combiner import MEANING
from plica.ir.loop.stage import Each, ExternStage
from plica.ir.loop.stages import Names, Stages, reductions, stages
from plica.ir.loop.statement import Alloc, For, LoopKind, Stmt, Store, seq
from plica.ir.type.dim import known
from plica.ir.type.dtype import f32
from plica.schedule.default.elementwise import COSTLY
from plica.schedule.default.machine import Machine
from plica.schedule.default.row import rows_of
from plica.schedule.default.share import pays

SHORTEST: Final = 4
"""Of rows that are shorter still, plain loops become vectors: there are instructions that take two
or three vectors apart."""

LONGEST: Final = 15
"""Elements of a short row: as many vectors of them stay in registers, and longer ones fill four of
the shortest vectors there are."""


def short_row_form(of: Stages, machine: Machine) -> Stages | None:
    """Stages along short rows with the loops they should have, None where rows are no such ones."""
    rows = rows_of(of)
    every = [each for each in of.stages if isinstance(each, Each)]
    if rows is None or of.dims or len(of.outputs) > 1:
        return None
    if not all(_is_short(each, rows) for each in every):
        return None
    lanes, count = machine.lanes(f32), known(every[0].out.shape[rows - 1]) or 0
    if lanes < SHORTEST or count < lanes or max(_length(e, rows) for e in every) < SHORTEST:
        return None
    return stages(of.inputs, (ExternStage((of.result,), _Writer(of, rows, lanes, machine).body()),))


def _is_short(of: Each, rows: int) -> bool:
    """Whether a stage has few elements in a row, each made of numbers or of few terms."""
    if of.out.dtype is not f32 or not all(known(size) for size in of.out.shape):
        return False
    if _length(of, rows) > LONGEST:
        return False
    if not isinstance(of.value, sc.Reduce):
        return not reductions(of.value)
    fold = of.value
    if fold.combiner not in MEANING or reductions(fold.body) or sc.dtype_of(fold.body) is not f32:
        return False
    return 0 < prod([known(size) or 0 for size in fold.extents]) <= LONGEST


def _length(of: Each, rows: int) -> int:
    """How many elements of a stage are in a row."""
    return prod([known(size) or 0 for size in of.out.shape[rows:]])


class _Writer:
    """The loops of stages along short rows under construction."""

    def __init__(self, of: Stages, rows: int, lanes: int, machine: Machine) -> None:
        self.of, self.rows, self.lanes = of, rows, lanes
        self.every = [each for each in of.stages if isinstance(each, Each)]
        self.names = Names(of)
        self.kept = {
            each.out: sc.Buffer(
                self.names.name("kept"),
                (*each.out.shape[rows:], sc.index(lanes)),
                each.out.dtype,
                "local",
            )
            for each in self.every
            if each.out is not of.result
        }
        self.sizes = [known(size) or 0 for size in self.every[0].out.shape[:rows]]
        steps = sum([prod([known(n) or 0 for n in each.out.shape]) for each in self.every])
        self.shares = pays(machine, COSTLY * steps, of.inputs)

    def body(self) -> Stmt:
        """All rows, as many at once as a vector has lanes."""
        *around, count = self.sizes
        outer = [self.names.var("i") for _ in around]
        whole, left = divmod(count, self.lanes)
        block = self.names.var("b")
        alone = self.shares and all(size == 1 for size in around)
        made: Stmt = seq(
            For(
                block,
                sc.index(whole),
                "parallel" if alone else "serial",
                self.block(outer, block * self.lanes),
            ),
            *([self.block(outer, sc.index(count - self.lanes))] if left else []),
        )
        first = next((at for at, size in enumerate(around) if size > 1), None)
        for at in reversed(range(len(around))):
            kind: LoopKind = "parallel" if self.shares and at == first else "serial"
            made = For(outer[at], sc.index(around[at]), kind, made)
        return made

    def block(self, outer: Sequence[sc.ScalarVar], start: sc.Scalar) -> Stmt:
        """Stage after stage of the rows from one on."""
        made: Stmt = seq(*[self.stage(each, outer, start) for each in self.every])
        for kept in self.kept.values():
            made = Alloc(kept, made)
        return made

    def stage(self, of: Each, outer: Sequence[sc.ScalarVar], start: sc.Scalar) -> Stmt:
        """All elements of a stage in each of the rows."""
        inner = of.axes[self.rows :]
        sizes = of.out.shape[self.rows :]

        def element(value: sc.Scalar, lane: sc.ScalarVar) -> sc.Scalar:
            places: dict[Term, Term] = dict(
                zip(of.axes[: self.rows], (*outer, start + lane), strict=True)
            )
            return substitute(self.near(value, lane), places)

        def store(lane: sc.ScalarVar, value: sc.Scalar) -> Stmt:
            if of.out is self.of.result:
                return Store(of.out, (*outer, start + lane, *inner), value)
            return Store(self.kept[of.out], (*inner, lane), value)

        if not isinstance(of.value, sc.Reduce):
            value = of.value
            return self.over(
                inner, sizes, self.vector(lambda lane: store(lane, element(value, lane)))
            )
        body = of.value
        begin, join = MEANING[body.combiner]
        total = sc.Buffer(self.names.name("total"), (sc.index(self.lanes),), of.out.dtype, "local")
        added = self.vector(
            lambda lane: Store(
                total, (lane,), join(sc.Load(total, (lane,)), element(body.body, lane))
            )
        )
        reduced = seq(
            self.vector(lambda lane: Store(total, (lane,), begin(of.out.dtype))),
            self.over(body.axes, body.extents, added),
            self.vector(lambda lane: store(lane, sc.Load(total, (lane,)))),
        )
        return self.over(inner, sizes, Alloc(total, reduced))

    def near(self, of: sc.Scalar, lane: sc.ScalarVar) -> sc.Scalar:
        """A value that reads what earlier stages have kept of the row of a lane."""

        def new(node: Term) -> Term:
            if not isinstance(node, sc.Load) or node.buffer not in self.kept:
                return node
            return sc.Load(self.kept[node.buffer], (*node.indices[self.rows :], lane))

        found = map_bottom_up(new, of)
        assert isinstance(found, sc.Scalar)
        return found

    def vector(self, each: Callable[[sc.ScalarVar], Stmt]) -> Stmt:
        """Something for each lane."""
        lane = self.names.var("v")
        return For(lane, sc.index(self.lanes), "vectorized", each(lane))

    def over(self, axes: Sequence[sc.ScalarVar], sizes: Sequence[sc.Scalar], body: Stmt) -> Stmt:
        """Something at all places of axes, one after another in code: what is kept is then in
        registers."""
        for axis, size in reversed([*zip(axes, sizes, strict=True)]):
            body = For(axis, size, "unrolled", body)
        return body
