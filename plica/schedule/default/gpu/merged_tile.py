"""Merging sorted runs on a GPU: each block produces a tile of the merged run, and reads its inputs
once.

    y[k] = … of the place of the k-th of two runs, found by halving
      -->  for block of 4096 places:
               where in both runs the tile begins and ends                  by halving, in memory
               keys of both parts                                           shared memory
               own = those of both that belong here, with where they were   registers
               y[…] = … of where they were, neighbours by neighbouring threads

`merge_runs` computes the source of each output separately, which would take a search in memory per
thread. The threads of a block have adjacent outputs: so they share two searches, and do the rest in
shared memory. The epilogue of an output is applied in place.

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.tensor import buffer
>>> from plica.ir.op.order import merged_place
>>> from plica.ir.type.dtype import f32
>>> x = buffer("x", (3, 20000), f32)
>>> runs = stage("y", (3, 20000), lambda r, k: merged_place(x, (r, k), 4096, False))
>>> [type(each).__name__ for each in merged_tiles(stages((x,), (runs,)), Gpu()).stages]
['ExternStage']
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Final

from attrs import frozen

from plica.core import Term, map_bottom_up, post_order, substitute
from plica.ir.loop import scalar as sc
from plica.ir.loop.stage import Each, ExternStage
from plica.ir.loop.stages import Stages, stages
from plica.ir.loop.statement import Alloc, Stmt, Store, allocated, seq
from plica.ir.type import i32, i64, known
from plica.schedule.default.gpu.machine import Gpu
from plica.schedule.default.gpu.shared_run import RunPair, SharedRuns, put
from plica.schedule.default.gpu.thread_code import ThreadNames, axes_of, only_within
from plica.schedule.default.merging import runs_of

OWN: Final = 16  # outputs per thread
MOST_BESIDE: Final = 4  # elements that are made of one place, at most


@frozen(eq=False)
class TiledRuns:
    """A stage of merged runs: its operand, the result axes that identify the row, the epilogue, and
    the run length."""

    x: sc.Buffer
    out: sc.Buffer
    axes: tuple[sc.ScalarVar, ...]
    leading: tuple[sc.Scalar, ...]
    """The indices of a row along all but the last axis of the operand."""
    width: int
    descending: bool
    place: sc.ScalarVar
    value: sc.Scalar

    @property
    def rows(self) -> tuple[sc.ScalarVar, ...]:
        """The axes that say which row."""
        return tuple([axis for axis in self.axes[:-1] if axis in self.leading])

    @property
    def others(self) -> tuple[sc.ScalarVar, ...]:
        """The axes of one output's epilogue."""
        return tuple([axis for axis in self.axes[:-1] if axis not in self.leading])

    def extent(self, axis: sc.ScalarVar) -> int:
        return known(self.out.shape[self.axes.index(axis)]) or 0


def merged_tiles(of: Stages, gpu: Gpu) -> Stages | None:
    """A stage of merged runs as thread statements, or None."""
    match of.stages:
        case (Each(out, axes, value),) if axes and not isinstance(value, sc.Reduce):
            pass
        case _:
            return None
    if not all(known(scalar) for scalar in (*out.shape, *[n for x in of.inputs for n in x.shape])):
        return None
    names = ThreadNames(of)
    tiled_runs = _tiled(of.inputs, Each(out, axes, value), names)
    if tiled_runs is None or prod(map(tiled_runs.extent, tiled_runs.others)) > MOST_BESIDE:
        return None
    writer = _TileWriter(tiled_runs, names, gpu)
    if (2 * tiled_runs.width) % writer.whole or writer.bytes > gpu.shared:
        return None
    return stages(of.inputs, (ExternStage((out,), writer.launch()),))


def _tiled(inputs: Sequence[sc.Buffer], of: Each, names: ThreadNames) -> TiledRuns | None:
    """The merge of a stage, or None."""
    nodes = [*post_order(of.value)]
    sizes = {axis: known(n) for axis, n in zip(of.axes, of.out.shape, strict=True)}
    for x in inputs:
        size = known(x.shape[-1]) if x.shape else None
        if size is None or not (sizes[of.axes[-1]] or 0) <= size < 1 << 30:
            continue
        rows = {
            node.indices[:-1] for node in nodes if isinstance(node, sc.Load) and node.buffer is x
        }
        for leading in sorted(rows, key=str):
            if not all(isinstance(scalar, sc.Lit) or scalar in sizes for scalar in leading):
                continue
            runs = runs_of(x, (*leading, of.axes[-1]), of.value)
            if runs is None:
                continue
            hole = names.var("place")
            value = _named(of.value, runs.place, hole)
            if len({*leading} & {*of.axes}) == sum(scalar in sizes for scalar in leading):
                return TiledRuns(
                    x, of.out, of.axes, leading, runs.width, runs.descending, hole, value
                )
    return None


def _named(of: sc.Scalar, place: sc.Scalar, name: sc.Scalar) -> sc.Scalar:
    """A value with a name for a part of it."""
    return map_bottom_up(lambda node: name if node is place else node, of)


class _TileWriter(SharedRuns):
    """Writes the statements: which part of which runs a block has, and what its threads do."""

    def __init__(self, of: TiledRuns, names: ThreadNames, gpu: Gpu) -> None:
        super().__init__(names, of.x, OWN, gpu.threads, 1, of.descending)
        self.of = of
        self.size = known(of.x.shape[-1]) or 0
        self.wanted = known(of.out.shape[-1]) or 0
        self.tiles = -(-self.wanted // self.whole)
        counts = [of.extent(row) for row in of.rows]
        self.blocks = prod(counts) * self.tiles
        self.axes: dict[Term, Term] = dict(
            zip(of.rows, axes_of(self.block // self.tiles, counts), strict=True)
        )
        self.leading = tuple([substitute(scalar, self.axes) for scalar in of.leading])
        first = sc.Cast(self.block % self.tiles * self.whole, i32)
        width = sc.Lit(of.width, i32)
        self.far = sc.BitAnd(first, sc.Lit(2 * of.width - 1, i32)) if _is_power(of.width) else (
            first % sc.Lit(2 * of.width, i32)
        )  # fmt: skip
        begin, zero, end = first - self.far, sc.Lit(0, i32), sc.Lit(self.size, i32)
        lengths = sc.Min(width, end - begin), sc.Max(zero, sc.Min(width, end - begin - width))
        self.pair = RunPair(begin, begin + width, lengths)
        self.count = sc.Min(sc.Lit(self.whole, i32), lengths[0] + lengths[1] - self.far)
        """Elements of the tile."""

    def launch(self) -> Stmt:
        """All rows, some places of one in each block."""
        begin, end = (self.local(word) for word in ("begin", "end"))
        left, right = (self.local(word) for word in ("left", "right"))
        mine = sc.Min(sc.Cast(self.thread * OWN, i32), self.count)
        parts = end[0] - begin[0], self.count - (end[0] - begin[0])
        tile = RunPair(sc.Lit(0, i32), parts[0], parts)
        body = seq(
            self._ends(begin, end),
            self._read(begin, end),
            self.begin_of_share(tile, mine, (left, right), self.whole.bit_length()),
            self.taken(tile, left, right),
            self.kept(),
            self._written(),
        )
        return self.launched(allocated(body, (begin, end, left, right)), self.blocks)

    def _key(self, place: sc.Scalar) -> sc.Scalar:
        """A key in memory, clamped to the row."""
        inside = sc.Max(sc.Lit(0, i32), sc.Min(place, sc.Lit(self.size - 1, i32)))
        return self.key_at((*self.leading, sc.Cast(inside, i64)))

    def _ends(self, begin: sc.Buffer, end: sc.Buffer) -> Stmt:
        """The number of left-run elements before the tile, and before its end, for all threads."""
        begins, steps, highs = zip(*[
            self.halving(self.pair, far, low, self._key)
            for low, far in ((begin, self.far), (end, self.far + self.count))
        ], strict=True)  # fmt: skip
        search = self.each(self.of.width.bit_length(), lambda _: seq(*steps), "serial")
        return allocated(seq(*begins, search), highs)

    def _read(self, begin: sc.Buffer, end: sc.Buffer) -> Stmt:
        """The keys of the tile into shared memory, with where they were."""
        wide = end[0] - begin[0]

        def fetch(e: sc.Scalar) -> Stmt:
            number = sc.Cast(e * self.threads + self.thread, i32)
            place = sc.Select(
                sc.Lt(number, wide), self.pair.left + begin[0] + number,
                self.pair.right + (self.far - begin[0]) + (number - wide),
            )  # fmt: skip
            return seq(Store(self.at, (e,), place), Store(self.key, (e,), self._key(place)))

        def share(e: sc.Scalar) -> Stmt:
            return seq(
                Store(self.keys, self.spread(e), self.key[e]),
                Store(self.places, self.spread(e), self.at[e]),
            )

        return seq(*[self.each(OWN, each) for each in (fetch, share)])

    def _written(self) -> Stmt:
        """The outputs, stored contiguously by adjacent threads."""
        of = self.of
        own = self.local("place", 1, i64)

        def write(e: sc.Scalar) -> Stmt:
            k = self.block % self.tiles * self.whole + (e * self.threads + self.thread)
            at: dict[Term, Term] = {**self.axes, of.axes[-1]: k, of.place: own[0]}
            statements: list[Stmt] = []
            for beside in product(*[range(of.extent(var)) for var in of.others]):
                here = at | dict(zip(of.others, map(sc.index, beside), strict=True))
                there = tuple([_number(here[axis]) for axis in of.axes])
                statements.append(Store(of.out, there, substitute(of.value, here)))
            cast = sc.Cast(sc.Load(self.places, self.spread(e)), i64)
            inside = sc.Max(sc.index(0), sc.Min(cast, sc.index(self.size - 1)))
            result = Alloc(own, seq(put(own, inside), *statements))
            return only_within(result, [(k, self.tiles * self.whole, self.wanted)])

        return self.each(OWN, write)


def _number(of: Term) -> sc.Scalar:
    assert isinstance(of, sc.Scalar)
    return of


def _is_power(of: int) -> bool:
    return of & (of - 1) == 0
