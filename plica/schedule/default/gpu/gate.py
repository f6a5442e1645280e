"""Gates: several sums of products for each element, and what is made of them, by threads of a warp.

    z[j]  = sum over k of h[k] * w[j, k]               each element j by the threads of a warp:
    y[j]  = f(z[j], z[j + 128], z[j + 256], …)   -->       own = parts of all sums, in vectors
                                                           totals across the threads
                                                           y[j] = f(totals)

Sums that an element reads at several places are made there, so a step of a recurrent layer is one
launch.  It is for products of few rows, whose weights are read about once.
"""

from __future__ import annotations

from math import prod
from typing import Final

from attrs import frozen

from plica.core import Term, free_vars, map_bottom_up, substitute
from plica.ir.loop import scalar as sc
from plica.ir.loop.invocation import TensorIntrinsic
from plica.ir.loop.stage import Each, ExternStage
from plica.ir.loop.stages import Names, Stages, loads, stages
from plica.ir.loop.statement import (
    NOTHING,
    Alloc,
    Branch,
    For,
    Invoke,
    LoopKind,
    Stmt,
    Store,
    allocated,
    seq,
)
from plica.ir.type import f32, known
from plica.schedule.default.gpu.attention_tile import region_of
from plica.schedule.default.gpu.cost import ENDS, STREAM
from plica.schedule.default.gpu.decode_tile import LANES, WARPS, KeyLanes, lanes_for
from plica.schedule.default.gpu.machine import Gpu, vector_lanes
from plica.schedule.default.gpu.split_reduction import is_along
from plica.schedule.default.gpu.warp_meaning import lanes_sum
from plica.schedule.default.summed import in_free_order
from plica.schedule.online_softmax import folds_and_last

MOST: Final = 8
"""Sums of an element, at most."""

ROWS: Final = 4
"""How often all of the weights may be read."""

AHEAD: Final = 4
"""Vectors of each side that a thread has under way."""

ZERO: Final = sc.Lit(0.0, f32)


@frozen(eq=False)
class Gates:
    """What an element is made of: sums over the same terms, where they are read, and the rest."""

    of: Stages
    out: Each
    sums: tuple[tuple[sc.Load, sc.Scalar], ...]
    """What reads a sum, and its terms."""
    term: sc.ScalarVar
    count: int

    @property
    def sides(self) -> tuple[sc.Load, ...]:
        """What is read along the terms."""
        read = [each for _, body in self.sums for each in loads(body)]
        return tuple([each for each in dict.fromkeys(read) if self.term in free_vars(each)])

    @property
    def elements(self) -> int:
        return prod(known(size) or 0 for size in self.out.out.shape)

    @property
    def lanes(self) -> KeyLanes:
        """How threads share the terms of an element."""
        most = max(each.buffer.dtype.bytes for each in self.sides)
        near = vector_lanes(self.count, most)
        return lanes_for(near, self.count)


def gates_of(of: Stages) -> Gates | None:
    """Elements as what is made of sums; None where they are something else, or worth tiles."""
    of = in_free_order(of)
    if of.dims or len(of.outputs) != 1 or not all(isinstance(each, Each) for each in of.stages):
        return None
    *first, out = folds_and_last([each for each in of.stages if isinstance(each, Each)])
    made = {each.out: each for each in first}
    term = Names(of).var("k")
    found: dict[sc.Load, sc.Scalar] = {}
    counts: set[int | None] = set()
    for load in loads(out.value):
        if load.buffer not in made:
            continue
        whole = made[load.buffer].value
        if not isinstance(whole, sc.Reduce) or whole.combiner != "sum" or len(whole.axes) != 1:
            return None
        if whole.runs or sc.dtype_of(whole) is not f32:
            return None
        there: dict[Term, Term] = dict(zip(made[load.buffer].axes, load.indices, strict=True))
        body = substitute(whole.body, {**there, whole.axes[0]: term})
        if any(each.buffer in made for each in loads(body)):
            return None
        found[load] = body
        counts.add(known(whole.extents[0]))
    count = next(iter(counts)) if len(counts) == 1 else None
    gates = Gates(of, out, tuple(found.items()), term, count or 0)
    parts = len(found) > 1 or any(known(each) is None and not isinstance(each, sc.ScalarVar)
                                  for load in found for each in load.indices)  # fmt: skip
    if not count or not parts or len(found) > MOST or not gates.elements or not gates.sides:
        return None
    sizes = dict(zip(out.axes, [known(size) or 0 for size in out.out.shape], strict=True))
    again = [prod(size for axis, size in sizes.items() if axis not in free_vars(each))
             for each in gates.sides]  # fmt: skip
    near = all(is_along(each, term) for each in gates.sides)
    return gates if near and min(again) <= ROWS else None


def gate_cost(of: Gates, gpu: Gpu) -> float:
    """Cycles, of which most go into reading weights."""
    read = of.elements * of.count * sum(each.buffer.dtype.bytes for each in of.sides)
    return ENDS + read / (STREAM * gpu.processors)


def gate_intrinsics(across: int) -> tuple[TensorIntrinsic, ...]:
    """What elements of up to a given number of sums ask of the threads of a warp."""
    return tuple([lanes_sum(across, count) for count in range(1, MOST + 1)])


def gate_warps(of: Gates) -> Stages:
    """The stages as statements of threads: an element by some threads of a warp."""
    return _GateWriter(of).stages()


class _GateWriter:
    """Writes the statements; knows the names, and which element a thread has."""

    def __init__(self, of: Gates) -> None:
        self.of, self.lanes, self.names = of, of.lanes, Names(of.of)
        self.lane, self.warp, self.block, self.turn = map(self.names.var, ("t", "w", "b", "n"))
        beside = WARPS * LANES // self.lanes.across
        self.blocks = -(-of.elements // beside)
        self.near = self.lane % self.lanes.across
        own = self.warp * (LANES // self.lanes.across) + self.lane // self.lanes.across
        self.element = self.block * beside + own
        self.is_whole = self.blocks * beside == of.elements
        number: sc.Scalar = self.element
        if not self.is_whole:
            number = sc.Min(number, sc.index(of.elements - 1))
        self.at: dict[Term, Term] = {}
        for axis, size in reversed([*zip(of.out.axes, of.out.out.shape, strict=True)]):
            self.at[axis] = number if axis is of.out.axes[0] else number % size
            number = number // size
        self.ahead = min(AHEAD, self.lanes.turns)
        self.turns = -(-self.lanes.turns // self.ahead)
        self.units = of.count // self.lanes.near

    def stages(self) -> Stages:
        """All of it as one stage of statements."""
        of, count = self.of, sc.index(len(self.of.sums))
        out = sc.Buffer(self.names.name("out"), of.out.out.shape, of.out.out.dtype)
        own = sc.Buffer(self.names.name("own"), (sc.index(LANES), count), f32, "warp")
        total = sc.Buffer(self.names.name("total"), (count,), f32, "local")
        numbers = [sc.index(number) for number in range(len(of.sums))]
        first = self.lane // self.lanes.across * self.lanes.across
        threads = region_of(own, {0: first}, {0: self.lanes.across})
        across = lanes_sum(self.lanes.across, len(of.sums)).name
        body = seq(
            *[Store(own, (self.lane, number), ZERO) for number in numbers],
            *[Store(total, (number,), ZERO) for number in numbers],
            For(self.turn, sc.index(self.turns), "serial", self._step(own)),
            Invoke(across, (threads, region_of(total, {}, {}))),
            self._written(out, total),
        )
        body = Alloc(own, Alloc(total, body))
        body = For(self.lane, sc.index(LANES), "threadIdx.x", body)
        body = For(self.warp, sc.index(WARPS), "threadIdx.y", body)
        body = For(self.block, sc.index(self.blocks), "blockIdx.x", body)
        return stages(of.of.inputs, (ExternStage((out,), body),))

    def _unit(self, u: sc.Scalar) -> sc.Scalar:
        """Which neighbours among the terms a thread has."""
        return (self.turn * self.ahead + u) * self.lanes.across + self.near

    def _inside(self, u: sc.Scalar, value: sc.Scalar) -> sc.Scalar:
        """A value, 0 beyond the last of the terms."""
        if self.turns * self.ahead * self.lanes.across == self.units:
            return value
        zero = sc.Lit(0, sc.dtype_of(value))
        return sc.Select(sc.Lt(self._unit(u), sc.index(self.units)), value, zero)

    def _step(self, own: sc.Buffer) -> Stmt:
        """Some vectors of all sides, and what they add to the sums."""
        near, sides = self.lanes.near, self.of.sides
        shape = (sc.index(self.ahead), sc.index(near))
        held = [sc.Buffer(self.names.name("side"), shape, side.buffer.dtype, "local")
                for side in sides]  # fmt: skip
        u, v = self.names.var("u"), self.names.var("v")
        there: dict[Term, Term] = {**self.at, self.of.term: self._unit(u) * near + v}
        fetched = [
            self._each(u, v, Store(into, (u, v), self._inside(u, substitute(side, there))), True)
            for side, into in zip(sides, held, strict=True)
        ]
        read: dict[Term, Term] = {
            side: sc.Load(into, (u, v)) for side, into in zip(sides, held, strict=True)
        }
        added: list[Stmt] = []
        for number, (_, body) in enumerate(self.of.sums):
            value = substitute(map_bottom_up(lambda node: read.get(node, node), body), there)
            place = (self.lane, sc.index(number))
            added.append(Store(own, place, sc.Load(own, place) + self._inside(u, value)))
        step = seq(*fetched, self._each(u, v, seq(*added), False))
        return allocated(step, held)

    def _each(self, u: sc.ScalarVar, v: sc.ScalarVar, body: Stmt, at_once: bool) -> Stmt:
        """What is done for each vector, and for each element of it."""
        one, two = self.names.var("u"), self.names.var("v")
        kind: LoopKind = "vectorized" if at_once else "unrolled"
        inner = For(two, sc.index(self.lanes.near), kind, substitute(body, {u: one, v: two}))
        return For(one, sc.index(self.ahead), "unrolled", inner)

    def _written(self, out: sc.Buffer, total: sc.Buffer) -> Stmt:
        """The element, by the first of its threads."""
        of = self.of
        whole: dict[Term, Term] = {load: total[number] for number, (load, _) in enumerate(of.sums)}
        value = substitute(map_bottom_up(lambda node: whole.get(node, node), of.out.value), self.at)
        places = tuple([substitute(axis, self.at) for axis in of.out.axes])
        first: sc.Scalar = sc.Eq(self.near, sc.index(0))
        if not self.is_whole:
            first = sc.And(first, sc.Lt(self.element, sc.index(of.elements)))
        return Branch(first, Store(out, places, value), NOTHING)
