"""Rows brought into order on a GPU: the threads of a block sort some neighbours each, and merge.

    y[i, r] = the place of the element of row i that r others come before
      -->  for block i, for threads:
               own = some neighbours, put in order                      registers
               for runs of 1, 2, 4 … threads:
                   own = those of two runs that belong here             shared memory

The start of a thread in two runs is found by binary search; then it takes the smaller element, from
the left run on ties, so that sorting is stable. Runs are padded with values that sort last. Short
rows share a block. If few elements of a long row are wanted, only as many of each two runs are
merged, by as many adjacent threads.

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.tensor import axis, buffer
>>> from plica.ir.op.top_k import place_of_rank
>>> from plica.ir.type.dtype import f32
>>> x, terms = buffer("x", (3, 1000), f32), (axis("m"), axis("o"))
>>> first = stage("y", (3, 1000), lambda i, r: place_of_rank(
...     lambda at: x[i, at], sc.index(1000), r, terms, False))
>>> [type(each).__name__ for each in sorted_rows(stages((x,), (first,)), Gpu()).stages]
['ExternStage']
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from plica.ir.loop import scalar as sc
from plica.ir.loop.stage import Each, ExternStage
from plica.ir.loop.stages import Stages, stages
from plica.ir.loop.statement import NOTHING, Alloc, Branch, For, Stmt, Store, allocated, seq
from plica.ir.op.order import is_before, last_of
from plica.ir.type import i32, i64, known
from plica.schedule.default.first_place import FirstPlaces, first_places_of
from plica.schedule.default.gpu.machine import Gpu, power_of_two
from plica.schedule.default.gpu.shared_run import RunPair, SharedRuns, put
from plica.schedule.default.gpu.thread_code import ThreadNames, axes_of, only_within, within

OWN: Final = 16  # neighbours that a thread has, at most
LEAST_THREADS: Final = 128  # threads of a block: rows that have fewer share it


def sorted_rows(of: Stages, gpu: Gpu) -> Stages | None:
    """A stage of first places as thread statements, or None."""
    match of.stages:
        case (Each(out, axes, sc.Reduce() as value),) if len(of.inputs) == 1:
            first_places = first_places_of(of.inputs[0], out, axes, value)
        case _:
            return None
    if first_places is None or not first_places.is_row:
        return None
    writer = _SortWriter(first_places, ThreadNames(of), gpu)
    if not writer.fits(gpu):
        return None
    return stages(of.inputs, (ExternStage((out,), writer.launch()),))


class _SortWriter(SharedRuns):
    """Writes the statements: who has which elements, and where they are between."""

    def __init__(self, of: FirstPlaces, names: ThreadNames, gpu: Gpu) -> None:
        self.of = of
        self.filled = max(2, power_of_two(of.size))
        own = min(OWN, max(2, self.filled // gpu.warp))
        threads = self.filled // own
        super().__init__(names, of.x, own, threads, max(1, LEAST_THREADS // threads), of.descending)
        self.counts = [known(dim) or 0 for dim in of.x.shape[:-1]]
        self.rows = prod(self.counts)
        self.blocks = -(-self.rows // self.beside)

    def fits(self, gpu: Gpu) -> bool:
        """Whether a block has threads and memory for a row."""
        return self.threads <= gpu.block and self.bytes <= gpu.shared

    def launch(self) -> Stmt:
        """All rows, some of them in each block."""
        every = self._read(), self._in_order(), self.kept(), self._merged(), self._written()
        return self.launched(seq(*every), self.blocks)

    def _number(self) -> sc.Scalar:
        """Which row a thread has."""
        return self.block * self.beside + self.row if self.beside > 1 else self.block

    def _row_axes(self) -> tuple[sc.Scalar, ...]:
        number = self._number()
        if self.blocks * self.beside > self.rows:
            number = sc.Min(number, sc.index(self.rows - 1))
        return axes_of(number, self.counts)

    # --- what is done -----------------------------------------------------------------------------

    def _read(self) -> Stmt:
        """A row into shared memory, neighbours by neighbouring threads, and from there what each
        thread begins with."""
        of, dtype = self.of, self.dtype
        last = sc.Lit(last_of(dtype if dtype.is_float else of.x.dtype, of.descending), dtype)

        def fetch(e: sc.Scalar) -> Stmt:
            place = e * self.threads + self.thread
            value = self.key_at((*self._row_axes(), place))
            return Store(self.key, (e,), within(value, [(place, self.filled, of.size)], last))

        def share(e: sc.Scalar) -> Stmt:
            return Store(self.keys, self.spread(e), self.key[e])

        def take(e: sc.Scalar) -> Stmt:
            place = sc.Cast(self.thread * self.own + e, i32)
            key = sc.Load(self.keys, self.there(self.thread, e))
            return seq(Store(self.key, (e,), key), Store(self.at, (e,), place))

        return seq(*[self.each(self.own, each) for each in (fetch, share, take)])

    def _in_order(self) -> Stmt:
        """Sorts a thread's elements by exchanging neighbours; stable."""

        def pairs(first: int) -> Stmt:
            def exchange(n: sc.Scalar) -> Stmt:
                one, two = n * 2 + first, n * 2 + (first + 1)
                moves: list[Stmt] = []
                kept: list[sc.Buffer] = []
                for each in (self.key, self.at):
                    kept.append(self.local("was", 1, each.dtype))
                    moves += [
                        put(kept[-1], each[one]), Store(each, (one,), each[two]),
                        Store(each, (two,), kept[-1][0]),
                    ]  # fmt: skip
                wrong = is_before(self.key[two], self.key[one], self.of.descending)
                body: Stmt = Branch(wrong, seq(*moves), NOTHING)
                return allocated(body, kept)

            count = (self.own - first) // 2
            return self.each(count, exchange) if count else NOTHING

        return self.each(self.own // 2, lambda _: seq(pairs(0), pairs(1)))

    def _merged(self) -> Stmt:
        """Runs of a given number of threads, two by two, until one is left."""
        rounds = (self.threads - 1).bit_length()
        if not rounds:
            return NOTHING
        share = -(-self.of.kept // self.own)
        if self.beside == 1 and 2 * share < self.threads:
            return self._first_merged(rounds, power_of_two(share))
        number = self.names.var("n")
        wide, left, right = (self.local(word) for word in ("wide", "left", "right"))
        mine = sc.Cast(self.thread * self.own, i32)
        # How far a thread is in the pair of runs that it is in, and where that begins.
        far = sc.BitAnd(mine, wide[0] * 2 - sc.Lit(1, i32))
        begin = mine - far
        pair = RunPair(begin, begin + wide[0], (wide[0], wide[0]))
        turn = seq(
            self.begin_of_share(pair, far, (left, right), self.filled.bit_length()),
            self.taken(pair, left, right),
            self.kept(),
            put(wide, wide[0] * 2),
        )
        turn = allocated(turn, (left, right))
        whole = For(number, sc.index(rounds), "serial", turn)
        return Alloc(wide, seq(put(wide, sc.Lit(self.own, i32)), whole))

    def _first_merged(self, rounds: int, share: int) -> Stmt:
        """The first ones of all runs, two by two: of each pair as many as a given number of threads
        have, which is a power of two.

        Rounds are written out, so that it is known which threads meet.
        """
        left, right = (self.local(word) for word in ("left", "right"))
        every: list[Stmt] = []
        for run in [1 << n for n in range(rounds)]:  # threads of each of two runs
            mine = min(2 * run, share)
            number, far = self.thread // mine, sc.Cast(self.thread % mine * self.own, i32)
            begin = sc.Cast(number * (2 * run * self.own), i32)
            length = sc.Lit(min(run, share) * self.own, i32)
            pair = RunPair(begin, begin + sc.Lit(run * self.own, i32), (length, length))
            bits = (min(run, share) * self.own).bit_length()
            none = [put(buffer, sc.Lit(0, i32)) for buffer in (left, right)]
            begins = self.begin_of_share(pair, far, (left, right), bits)
            taken = seq(*none if mine == 1 else (begins,), self.taken(pair, left, right))
            is_pair = sc.Lt(self.thread, sc.index(self.threads // (2 * run) * mine))
            kept = self.kept(number * (2 * run) + self.thread % mine)
            every += [Branch(is_pair, statement, NOTHING) for statement in (taken, kept)]
        body = seq(*every)
        return allocated(body, (left, right))

    def _written(self) -> Stmt:
        """The places that are wanted, neighbours by neighbouring threads."""
        of = self.of
        rows: Sequence[sc.Scalar] = self._row_axes()

        def write(e: sc.Scalar) -> Stmt:
            place = e * self.threads + self.thread
            cast = sc.Cast(sc.Load(self.places, self.spread(e)), i64)
            there = (*rows, place) if of.has_axis else tuple(rows)
            return only_within(Store(of.out, there, cast), [(place, turns * self.threads, of.kept)])

        turns, many = -(-of.kept // self.threads), self.blocks * self.beside
        return only_within(self.each(turns, write), [(self._number(), many, self.rows)])
