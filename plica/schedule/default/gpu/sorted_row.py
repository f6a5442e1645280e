"""Rows brought into order on a GPU: the threads of a block sort some neighbours each, and merge.

    y[i, r] = the place of the element of row i that r others come before
      -->  for block i, for threads:
               own = some neighbours, put in order                      registers
               for runs of 1, 2, 4 … threads:
                   own = those of two runs that belong here             shared memory

Where in two runs a thread begins it finds by halving; from there on it takes the one that comes
first, of equals that of the left run, so that equals keep their order.  Runs are filled up with
what comes behind everything.  Short rows share a block.  Where no more are wanted of a long row
than a thread has, so many of each two runs are merged, by one thread each: these are neighbours.

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

from collections.abc import Callable, Sequence
from math import prod
from typing import Final

from plica.ir.loop import scalar as sc
from plica.ir.loop.stage import Each, ExternStage
from plica.ir.loop.stages import Names, Stages, stages
from plica.ir.loop.statement import NOTHING, Alloc, Branch, For, LoopKind, Stmt, Store, seq
from plica.ir.op.order import is_before, last_of
from plica.ir.type.dim import known
from plica.ir.type.dtype import DType, f32, i32, i64
from plica.schedule.default.first_place import FirstPlaces, first_places_of
from plica.schedule.default.gpu.machine import Gpu

OWN: Final = 16
"""Neighbours that a thread has, at most."""

LEAST_THREADS: Final = 128
"""Threads of a block: rows that have fewer share it."""


def sorted_rows(of: Stages, gpu: Gpu) -> Stages | None:
    """A stage of first places as statements of threads, None where it is another."""
    match of.stages:
        case (Each(out, axes, sc.Reduce() as value),) if len(of.inputs) == 1:
            found = first_places_of(of.inputs[0], out, axes, value)
        case _:
            return None
    if found is None or not found.is_row:
        return None
    writer = _SortWriter(found, Names(of), gpu)
    if not writer.has_room(gpu):
        return None
    return stages(of.inputs, (ExternStage((out,), writer.launch()),))


class _SortWriter:
    """Writes the statements: who has which elements, and where they are between."""

    def __init__(self, of: FirstPlaces, names: Names, gpu: Gpu) -> None:
        self.of, self.names = of, names
        dtype = of.x.dtype
        if dtype.bytes < i32.bytes:  # what is compared as such
            dtype = f32 if dtype.is_float else i32
        self.whole = max(2, 1 << (of.size - 1).bit_length())
        self.own = min(OWN, max(2, self.whole // gpu.warp))
        self.threads = self.whole // self.own
        self.beside = max(1, LEAST_THREADS // self.threads)
        self.counts = [known(each) or 0 for each in of.x.shape[:-1]]
        self.rows = prod(self.counts)
        self.blocks = -(-self.rows // self.beside)
        self.block, self.row, self.thread = map(names.var, ("b", "r", "t"))
        # Neighbours of a thread are one more apart from those of others: no bank has all threads.
        room = (self.beside, self.threads, self.own + 1)
        self.keys, self.places = (
            sc.Buffer(names.name(word), tuple(map(sc.index, room)), kind, "shared")
            for word, kind in (("keys", dtype), ("places", i32))
        )
        self.bytes = prod(room) * (dtype.bytes + i32.bytes)
        self.key = self._local("key", self.own, dtype)
        self.at = self._local("at", self.own, i32)

    def has_room(self, gpu: Gpu) -> bool:
        """Whether a block has threads and memory for a row."""
        return self.threads <= gpu.block and self.bytes <= gpu.shared

    def launch(self) -> Stmt:
        """All rows, some of them in each block."""
        body = seq(self._read(), self._in_order(), self._kept(), self._merged(), self._written())
        for each in (self.key, self.at, self.keys, self.places):
            body = Alloc(each, body)
        body = For(self.thread, sc.index(self.threads), "threadIdx.x", body)
        if self.beside > 1:
            body = For(self.row, sc.index(self.beside), "threadIdx.y", body)
        return For(self.block, sc.index(self.blocks), "blockIdx.x", body)

    # --- places -----------------------------------------------------------------------------------

    def _local(self, word: str, count: int, dtype: DType) -> sc.Buffer:
        return sc.Buffer(self.names.name(word), (sc.index(count),), dtype, "local")

    def _each(
        self, count: int, body: Callable[[sc.Scalar], Stmt], kind: LoopKind = "unrolled"
    ) -> Stmt:
        var = self.names.var("v")
        return For(var, sc.index(count), kind, body(var))

    def _number(self) -> sc.Scalar:
        """Which row a thread has."""
        return self.block * self.beside + self.row if self.beside > 1 else self.block

    def _row_axes(self) -> tuple[sc.Scalar, ...]:
        number = self._number()
        if self.blocks * self.beside > self.rows:
            number = sc.Min(number, sc.index(self.rows - 1))
        found: list[sc.Scalar] = []
        for size in reversed(self.counts):
            found.insert(0, number % size)
            number = number // size
        return tuple(found)

    def _there(self, thread: sc.Scalar, near: sc.Scalar) -> tuple[sc.Scalar, ...]:
        """Where in shared memory one of a thread's neighbours is."""
        return (self.row if self.beside > 1 else sc.index(0), thread, near)

    def _spread(self, e: sc.Scalar) -> tuple[sc.Scalar, ...]:
        """The same of an element that neighbouring threads have neighbours of."""
        place = e * self.threads + self.thread
        if self.threads % self.own:
            return self._there(place // self.own, place % self.own)
        many = e * (self.threads // self.own) + self.thread // self.own
        return self._there(many, self.thread % self.own)

    def _inside(self, what: Stmt) -> Stmt:
        if self.blocks * self.beside == self.rows:
            return what
        return Branch(sc.Lt(self._number(), sc.index(self.rows)), what, NOTHING)

    # --- what is done -----------------------------------------------------------------------------

    def _read(self) -> Stmt:
        """A row into shared memory, neighbours by neighbouring threads, and from there what each
        thread begins with."""
        of, dtype = self.of, self.keys.dtype
        last = sc.Lit(last_of(dtype if dtype.is_float else of.x.dtype, of.descending), dtype)

        def fetch(e: sc.Scalar) -> Stmt:
            place = e * self.threads + self.thread
            value: sc.Scalar = sc.Load(of.x, (*self._row_axes(), place))
            value = value if of.x.dtype is dtype else sc.Cast(value, dtype)
            if self.whole > of.size:
                value = sc.Select(sc.Lt(place, sc.index(of.size)), value, last)
            return Store(self.key, (e,), value)

        def share(e: sc.Scalar) -> Stmt:
            return Store(self.keys, self._spread(e), self.key[e])

        def take(e: sc.Scalar) -> Stmt:
            place = sc.Cast(self.thread * self.own + e, i32)
            key = sc.Load(self.keys, self._there(self.thread, e))
            return seq(Store(self.key, (e,), key), Store(self.at, (e,), place))

        return seq(*[self._each(self.own, each) for each in (fetch, share, take)])

    def _in_order(self) -> Stmt:
        """What a thread has, by exchanging neighbours; equals stay where they are."""

        def pairs(first: int) -> Stmt:
            def exchange(n: sc.Scalar) -> Stmt:
                one, two = n * 2 + first, n * 2 + (first + 1)
                moves: list[Stmt] = []
                kept: list[sc.Buffer] = []
                for each in (self.key, self.at):
                    kept.append(self._local("was", 1, each.dtype))
                    moves += [
                        Store(kept[-1], (sc.index(0),), each[one]), Store(each, (one,), each[two]),
                        Store(each, (two,), kept[-1][0]),
                    ]  # fmt: skip
                wrong = is_before(self.key[two], self.key[one], self.of.descending)
                body: Stmt = Branch(wrong, seq(*moves), NOTHING)
                for buffer in kept:
                    body = Alloc(buffer, body)
                return body

            count = (self.own - first) // 2
            return self._each(count, exchange) if count else NOTHING

        return self._each(self.own // 2, lambda _: seq(pairs(0), pairs(1)))

    def _kept(self, thread: sc.Scalar | None = None) -> Stmt:
        """What a thread has, where others find it: where another one would have it, perhaps."""

        def keep(e: sc.Scalar) -> Stmt:
            return seq(*[
                Store(far, self._there(self.thread if thread is None else thread, e), near[e])
                for far, near in ((self.keys, self.key), (self.places, self.at))
            ])  # fmt: skip

        return self._each(self.own, keep)

    def _merged(self) -> Stmt:
        """Runs of so many threads, two by two, until one is left."""
        rounds = (self.threads - 1).bit_length()
        if not rounds:
            return NOTHING
        number = self.names.var("n")
        wide, low, high, left, right = (
            self._local(word, 1, i32) for word in ("wide", "low", "high", "left", "right")
        )
        zero = (sc.index(0),)
        one = sc.Lit(1, i32)
        if self.of.kept <= self.own and self.beside == 1:
            return self._first_merged(rounds, left, right)
        mine = sc.Cast(self.thread * self.own, i32)
        # How far a thread is in the pair of runs that it is in, and where that begins.
        far = sc.BitAnd(mine, wide[0] * 2 - one)
        begin = mine - far

        middle = sc.ShiftRight(low[0] + high[0], one)
        after = is_before(self._element(self.keys, begin + wide[0] + far - one - middle),
                          self._element(self.keys, begin + middle), self.of.descending)  # fmt: skip
        halve = Branch(after, Store(high, zero, middle), Store(low, zero, middle + one))
        search = seq(
            Store(low, zero, sc.Max(sc.Lit(0, i32), far - wide[0])),
            Store(high, zero, sc.Min(far, wide[0])),
            self._each(self.whole.bit_length(),
                       lambda _: Branch(sc.Lt(low[0], high[0]), halve, NOTHING), "serial"),
            Store(left, zero, low[0]),
            Store(right, zero, far - low[0]),
        )  # fmt: skip
        turn = seq(
            search,
            self._taken(begin, wide[0], left, right),
            self._kept(),
            Store(wide, zero, wide[0] * 2),
        )
        for each in (low, high, left, right):
            turn = Alloc(each, turn)
        whole = For(number, sc.index(rounds), "serial", turn)
        return Alloc(wide, seq(Store(wide, zero, sc.Lit(self.own, i32)), whole))

    def _first_merged(self, rounds: int, left: sc.Buffer, right: sc.Buffer) -> Stmt:
        """The first ones of all runs, two by two: as many threads as there are pairs have one.

        Rounds are written out, so that it is known which threads meet.
        """
        zero, none = (sc.index(0),), sc.Lit(0, i32)
        every: list[Stmt] = []
        for pair in [2 << n for n in range(rounds)]:
            begin = sc.Cast(self.thread * (pair * self.own), i32)
            taken = seq(
                Store(left, zero, none), Store(right, zero, none),
                self._taken(begin, sc.Lit(pair * self.own // 2, i32), left, right),
            )  # fmt: skip
            is_pair = sc.Lt(self.thread, sc.index(self.threads // pair))
            kept = self._kept(self.thread * pair)
            every += [Branch(is_pair, each, NOTHING) for each in (taken, kept)]
        body = seq(*every)
        for each in (left, right):
            body = Alloc(each, body)
        return body

    def _element(self, of: sc.Buffer, place: sc.Scalar) -> sc.Scalar:
        """What is in shared memory of an element of a row."""
        bits = (self.own - 1).bit_length()
        inside = sc.BitAnd(place, sc.Lit(self.whole - 1, i32))
        many = sc.ShiftRight(inside, sc.Lit(bits, i32))
        near = sc.BitAnd(place, sc.Lit(self.own - 1, i32))
        return sc.Load(of, self._there(sc.Cast(many, i64), sc.Cast(near, i64)))

    def _taken(self, begin: sc.Scalar, wide: sc.Scalar, left: sc.Buffer, right: sc.Buffer) -> Stmt:
        """As many elements of two runs as a thread has, one after another."""
        zero, one = (sc.index(0),), sc.Lit(1, i32)
        first, second, new = (
            self._local(word, 1, self.key.dtype) for word in ("first", "second", "new")
        )
        wins, at = self._local("wins", 1, i32), self._local("from", 1, i32)

        def take(e: sc.Scalar) -> Stmt:
            behind = is_before(second[0], first[0], self.of.descending)
            mine = sc.And(sc.Lt(left[0], wide), sc.Not(behind))
            is_left = sc.Eq(wins[0], one)
            here, there = begin + left[0], begin + wide + right[0]
            return seq(
                Store(wins, zero, sc.Select(
                    sc.Or(sc.Le(wide, right[0]), mine), one, sc.Lit(0, i32))),
                Store(self.key, (e,), sc.Select(is_left, first[0], second[0])),
                Store(at, zero, sc.Select(is_left, here, there)),
                Store(self.at, (e,), self._element(self.places, at[0])),
                Store(left, zero, left[0] + wins[0]),
                Store(right, zero, right[0] + one - wins[0]),
                Store(at, zero, at[0] + one),
                Store(new, zero, self._element(self.keys, at[0])),
                Store(first, zero, sc.Select(is_left, new[0], first[0])),
                Store(second, zero, sc.Select(is_left, second[0], new[0])),
            )  # fmt: skip

        body = seq(
            Store(first, zero, self._element(self.keys, begin + left[0])),
            Store(second, zero, self._element(self.keys, begin + wide + right[0])),
            self._each(self.own, take),
        )
        for each in (first, second, new, wins, at):
            body = Alloc(each, body)
        return body

    def _written(self) -> Stmt:
        """The places that are wanted, neighbours by neighbouring threads."""
        of = self.of
        rows: Sequence[sc.Scalar] = self._row_axes()

        def write(e: sc.Scalar) -> Stmt:
            place = e * self.threads + self.thread
            found = sc.Cast(sc.Load(self.places, self._spread(e)), i64)
            there = (*rows, place) if of.has_axis else tuple(rows)
            result: Stmt = Store(of.out, there, found)
            if of.kept % self.threads:
                result = Branch(sc.Lt(place, sc.index(of.kept)), result, NOTHING)
            return result

        return self._inside(self._each(-(-of.kept // self.threads), write))


__all__ = ["sorted_rows"]
