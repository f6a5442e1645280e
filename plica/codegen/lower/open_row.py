"""Open rows: reductions along contiguous rows of open length, in lanes.

    out[i] = sum over k < n of f(x[i, k])
      -->  for blocks of 1024 terms:
               part[u, v]  += f(x[i, (h * 4 + u) * 16 + v])       whole vectors, four side by side
               part[0, v]  += f(x[i, …])                          one at a time, the last in part
                                                                  or its terms one by one
               wide[v]     += f64(part[0, v] + … + part[3, v])
           out[i] = wide[0] + … + wide[15], halves on one another

Terms are joined in another order than they come: only for those who allow that.  A sum of floats
loses no more digits by that, as totals of blocks are kept in f64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import frozen

from plica.codegen.lower.loop_order import (
    BESIDE,
    NEAR,
    StripTile,
    loops_around,
    replaced,
    strip_tile,
)
from plica.core import Term, substitute
from plica.ir.loop import MEANING, Each, Names, Seq, Stmt, Store, allocated, scalar as sc
from plica.ir.loop.reduction import exposed
from plica.ir.type import f32, f64, i32, i64, known
from plica.schedule.default.lane import is_row
from plica.schedule.default.machine import Machine

BLOCK: Final = 1024
"""Terms whose total is kept in f64."""


@frozen(eq=False)
class LaneReductions:
    """The steps that reduce what an element is made of, and what it is then."""

    value: sc.Scalar
    steps: tuple[Stmt, ...]
    buffers: tuple[sc.Buffer, ...]

    def held(self, last: Stmt) -> Stmt:
        """The steps, then what is done with the element."""
        found: Stmt = Seq((*self.steps, last))
        return allocated(found, reversed(self.buffers))


def lane_reductions(of: Each, machine: Machine | None = None) -> LaneReductions | None:
    """The reductions of a stage along open rows, None where it has others or none; rows of known
    length are as open ones where code is wanted soon."""
    reductions = exposed(of.value)
    soon = machine is not None and machine.soon
    if not reductions or not all(_is_open_row(each, soon) for each in reductions):
        return None
    names, tile = Names(of), strip_tile(of, machine)
    steps: list[Stmt] = []
    held: list[sc.Buffer] = []
    totals: dict[Term, sc.Scalar] = {}
    for each in reductions:
        row = _Row(each, names, tile)
        steps += row.steps()
        held += row.buffers
        totals[each] = row.total
    return LaneReductions(replaced(of.value, totals), tuple(steps), tuple(held))


def _is_open_row(of: sc.Reduce, soon: bool) -> bool:
    if of.combiner not in ("sum", "max", "min") or len(of.axes) != 1:
        return False
    if sc.dtype_of(of) not in (f32, i32, i64):
        return False
    return (soon or known(of.extents[0]) is None) and is_row(of.body, of.axes[0], (), NEAR)


class _Row:
    """A reduction along a row, and the registers of it."""

    def __init__(self, of: sc.Reduce, names: Names, tile: StripTile) -> None:
        self.of, self.names, self.masks = of, names, tile.masks
        self.lanes, self.strip = tile.lanes, tile.lanes * BESIDE
        self.dtype = sc.dtype_of(of)
        self.wide = f64 if of.combiner == "sum" and self.dtype.is_float else self.dtype
        self.start, self.join = MEANING[of.combiner]
        part = (sc.index(BESIDE), sc.index(self.lanes))
        self.part = sc.Buffer(names.name("part"), part, self.dtype, "local")
        self.whole = sc.Buffer(names.name("wide"), (sc.index(self.lanes),), self.wide, "local")
        self.rest = sc.Buffer(names.name("rest"), (sc.index(1),), self.dtype, "local")
        self.buffers = (self.part, self.whole, *(() if tile.masks else (self.rest,)))

    @property
    def total(self) -> sc.Scalar:
        """What all terms come to."""
        found: sc.Scalar = sc.Load(self.whole, (sc.index(0),))
        if not self.masks:
            rest: sc.Scalar = sc.Load(self.rest, (sc.index(0),))
            found = self.join(found, rest if self.wide is self.dtype else sc.Cast(rest, self.wide))
        return found if self.wide is self.dtype else sc.Cast(found, self.dtype)

    def steps(self) -> list[Stmt]:
        """Blocks of the row, what is left of it, then the lanes of their totals."""
        block, strip, near = (self.names.var(each) for each in ("block", "strip", "near"))
        vector, lane = self.names.var("vector"), self.names.var("lane")
        (size,) = self.of.extents
        many, few = self.strip, self.lanes
        strips, lanes, long = size // many, (lane, sc.index(few)), BLOCK // many
        whole = self._term((block * long + strip) * many + near * few + lane)
        place = strips * many + vector * few + lane
        some, left = self._term(place), (size - strips * many) // few
        if self.masks:
            some = sc.Select(sc.Lt(place, size), some, self.start(self.dtype))
            left = (size - strips * many + (few - 1)) // few
        beside = [(near, sc.index(BESIDE)), lanes]
        here = [(strip, sc.Min(strips - block * long, sc.index(long))), *beside]
        main = self._total(
            beside, loops_around(here, self._joined(near, lane, whole), "vectorized", (near,))
        )
        last = loops_around(
            [(vector, left), lanes], self._joined(sc.index(0), lane, some), "vectorized"
        )
        begin = Store(self.whole, (lane,), self.start(self.wide))
        return [
            loops_around([lanes], begin, "vectorized"),
            loops_around([(block, (strips + (long - 1)) // long)], main),
            self._total([(near, sc.index(1)), lanes], last),
            *self._halves(),
            *([] if self.masks else self._one_by_one(size)),
        ]

    def _one_by_one(self, size: sc.Scalar) -> list[Stmt]:
        """What fills no vector."""
        at, term, ends = (sc.index(0),), self.names.var("term"), size // self.lanes * self.lanes
        joined = self.join(sc.Load(self.rest, at), self._term(ends + term))
        return [
            Store(self.rest, at, self.start(self.dtype)),
            loops_around([(term, size - ends)], Store(self.rest, at, joined)),
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
        many = self.lanes
        while many > 1:
            many //= 2
            lane = self.names.var("lane")
            both = self.join(sc.Load(self.whole, (lane,)), sc.Load(self.whole, (lane + many,)))
            step = Store(self.whole, (lane,), both)
            found.append(loops_around([(lane, sc.index(many))], step, "vectorized"))
        return found
