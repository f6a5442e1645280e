"""Open rows: reductions along contiguous rows of open length, in lanes.

    out[i] = sum over k < n of f(x[i, k])
      -->  for blocks of 1024 terms:
               part[u, v]  += f(x[i, (h * 4 + u) * 16 + v])       whole vectors, four side by side
               part[0, v]  += f(x[i, …])                          one at a time, the last in part
               wide[v]     += f64(part[0, v] + … + part[3, v])
           out[i] = wide[0] + … + wide[15], halves on one another

Terms are joined in another order than they come: only for those who allow that.  A sum of floats
loses no more digits by that, as totals of blocks are kept in f64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import frozen

from plica.codegen.lower.loop_order import NEAR, VECTOR, is_row, loops_around, replaced
from plica.core.binding import substitute
from plica.core.term import Term
from plica.ir.loop import scalar as sc
from plica.ir.loop.combiner import MEANING
from plica.ir.loop.reduction import exposed
from plica.ir.loop.stage import Each
from plica.ir.loop.stages import Names
from plica.ir.loop.statement import Alloc, Seq, Stmt, Store
from plica.ir.type.dim import known
from plica.ir.type.dtype import f32, f64, i32, i64

BESIDE: Final = 4
"""Vectors that are under way at once."""

STRIP: Final = BESIDE * VECTOR
"""Terms that are reduced at once."""

BLOCK: Final = 16
"""Strips whose total is kept in f64."""


@frozen(eq=False)
class LaneReductions:
    """The steps that reduce what an element is made of, and what it is then."""

    value: sc.Scalar
    steps: tuple[Stmt, ...]
    buffers: tuple[sc.Buffer, ...]

    def held(self, last: Stmt) -> Stmt:
        """The steps, then what is done with the element."""
        found: Stmt = Seq((*self.steps, last))
        for each in reversed(self.buffers):
            found = Alloc(each, found)
        return found


def lane_reductions(of: Each) -> LaneReductions | None:
    """The reductions of a stage along open rows, None where it has others or none."""
    reductions = exposed(of.value)
    if not reductions or not all(map(_is_open_row, reductions)):
        return None
    names = Names(of)
    steps: list[Stmt] = []
    held: list[sc.Buffer] = []
    totals: dict[Term, sc.Scalar] = {}
    for each in reductions:
        row = _Row(each, names)
        steps += row.steps()
        held += row.buffers
        totals[each] = row.total
    return LaneReductions(replaced(of.value, totals), tuple(steps), tuple(held))


def _is_open_row(of: sc.Reduce) -> bool:
    if of.combiner not in ("sum", "max", "min") or len(of.axes) != 1:
        return False
    if sc.dtype_of(of) not in (f32, i32, i64):
        return False
    return known(of.extents[0]) is None and is_row(of.body, of.axes[0], (), NEAR)


class _Row:
    """A reduction along a row, and the registers of it."""

    def __init__(self, of: sc.Reduce, names: Names) -> None:
        self.of, self.names = of, names
        self.dtype = sc.dtype_of(of)
        self.wide = f64 if of.combiner == "sum" and self.dtype.is_float else self.dtype
        self.start, self.join = MEANING[of.combiner]
        part = (sc.index(BESIDE), sc.index(VECTOR))
        self.part = sc.Buffer(names.name("part"), part, self.dtype, "local")
        self.whole = sc.Buffer(names.name("wide"), (sc.index(VECTOR),), self.wide, "local")
        self.buffers = (self.part, self.whole)

    @property
    def total(self) -> sc.Scalar:
        """What all terms come to."""
        found = sc.Load(self.whole, (sc.index(0),))
        return found if self.wide is self.dtype else sc.Cast(found, self.dtype)

    def steps(self) -> list[Stmt]:
        """Blocks of the row, what is left of it, then the lanes of their totals."""
        block, strip, near = (self.names.var(each) for each in ("block", "strip", "near"))
        vector, lane = self.names.var("vector"), self.names.var("lane")
        (size,) = self.of.extents
        strips, lanes = size // STRIP, (lane, sc.index(VECTOR))
        whole = self._term((block * BLOCK + strip) * STRIP + near * VECTOR + lane)
        place = strips * STRIP + vector * VECTOR + lane
        some = sc.Select(sc.Lt(place, size), self._term(place), self.start(self.dtype))
        left = (size - strips * STRIP + (VECTOR - 1)) // VECTOR
        beside = [(near, sc.index(BESIDE)), lanes]
        here = [(strip, sc.Min(strips - block * BLOCK, sc.index(BLOCK))), *beside]
        main = self._total(
            beside, loops_around(here, self._joined(near, lane, whole), "vectorized", (near,))
        )
        last = loops_around(
            [(vector, left), lanes], self._joined(sc.index(0), lane, some), "vectorized"
        )
        begin = Store(self.whole, (lane,), self.start(self.wide))
        return [
            loops_around([lanes], begin, "vectorized"),
            loops_around([(block, (strips + (BLOCK - 1)) // BLOCK)], main),
            self._total([(near, sc.index(1)), lanes], last),
            *self._halves(),
        ]

    def _total(self, loops: Sequence[tuple[sc.ScalarVar, sc.Scalar]], terms: Stmt) -> Stmt:
        """What terms come to in each lane, added to what those before them did."""
        (near, many), (lane, _) = loops
        begin = Store(self.part, (near, lane), self.start(self.dtype))
        total: sc.Scalar = sc.Load(self.part, (sc.index(0), lane))
        for each in range(1, known(many) or 1):
            total = self.join(total, sc.Load(self.part, (sc.index(each), lane)))
        if self.wide is not self.dtype:
            total = sc.Cast(total, self.wide)
        kept = Store(self.whole, (lane,), self.join(sc.Load(self.whole, (lane,)), total))
        return Seq(
            (
                loops_around(loops, begin, "vectorized", (near,)),
                terms,
                loops_around(loops[1:], kept, "vectorized"),
            )
        )

    def _joined(self, near: sc.Scalar, lane: sc.Scalar, term: sc.Scalar) -> Stmt:
        place = (near, lane)
        return Store(self.part, place, self.join(sc.Load(self.part, place), term))

    def _term(self, place: sc.Scalar) -> sc.Scalar:
        return substitute(self.of.body, {self.of.axes[0]: place})

    def _halves(self) -> list[Stmt]:
        """One half of the lanes joined with the other, until one lane is left."""
        found: list[Stmt] = []
        many = VECTOR
        while many > 1:
            many //= 2
            lane = self.names.var("lane")
            both = self.join(sc.Load(self.whole, (lane,)), sc.Load(self.whole, (lane + many,)))
            step = Store(self.whole, (lane,), both)
            found.append(loops_around([(lane, sc.index(many))], step, "vectorized"))
        return found
