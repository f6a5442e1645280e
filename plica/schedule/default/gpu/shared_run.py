"""Sorted runs in shared memory: each thread of a block merges its share of two.

    left = a b c d …      own = those of both, from the share of this thread on
    right = p q r s …     of equals that of the left run is first, so that equals keep their order

The start of a share in the two runs is found by binary search (`begin_of_share`); then elements are
taken one by one. Keys are in storage form with their original indices (`places`); a thread's share
is in registers. Its elements are padded by one, to avoid bank conflicts.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from attrs import frozen

from plica.ir.loop import scalar as sc
from plica.ir.loop.statement import (
    NOTHING,
    Alloc,
    Branch,
    For,
    LoopKind,
    Stmt,
    Store,
    allocated,
    seq,
)
from plica.ir.op.order import is_before
from plica.ir.type import DType, f32, i32, i64
from plica.schedule.default.gpu.thread_code import ThreadNames

ZERO, ONE = sc.Lit(0, i32), sc.Lit(1, i32)


@frozen(eq=False)
class RunPair:
    """Two runs: where each begins, and how many elements it has, all of i32."""

    left: sc.Scalar
    right: sc.Scalar
    lengths: tuple[sc.Scalar, sc.Scalar]


class SharedRuns:
    """A launch of blocks that have keys and places in shared memory, and a share for each thread.

    A block has some rows `beside` one another, each by so many threads.
    """

    def __init__(  # noqa: PLR0917  # what there is, and who has it
        self, names: ThreadNames, x: sc.Buffer, own: int, threads: int, beside: int,
        descending: bool,
    ) -> None:  # fmt: skip
        self.names, self.x, self.descending = names, x, descending
        self.own, self.threads, self.beside = own, threads, beside
        self.whole = own * threads
        self.block, self.row, self.thread = map(names.var, ("b", "r", "t"))
        self.dtype = compared_as(x.dtype)
        room = (beside, threads, own + 1)
        self.keys = names.buffer("keys", room, self.dtype, "shared")
        self.places = names.buffer("places", room, i32, "shared")
        self.bytes = prod(room) * (self.dtype.bytes + i32.bytes)
        self.key, self.at = self.local("key", own, self.dtype), self.local("at", own, i32)

    def launched(self, body: Stmt, blocks: int) -> Stmt:
        """The body of a thread as a launch, with the memory that it needs."""
        body = allocated(body, (self.key, self.at, self.keys, self.places))
        body = For(self.thread, sc.index(self.threads), "threadIdx.x", body)
        if self.beside > 1:
            body = For(self.row, sc.index(self.beside), "threadIdx.y", body)
        return For(self.block, sc.index(blocks), "blockIdx.x", body)

    def local(self, word: str, count: int = 1, dtype: DType = i32) -> sc.Buffer:
        """Registers of a thread."""
        return self.names.buffer(word, (count,), dtype, "local")

    def each(
        self, count: int, body: Callable[[sc.Scalar], Stmt], kind: LoopKind = "unrolled"
    ) -> Stmt:
        """A body for each index."""
        return self.names.each({"v": count}, body, kind)

    def key_at(self, place: tuple[sc.Scalar, ...]) -> sc.Scalar:
        """A key in memory, as it is compared."""
        load = sc.Load(self.x, place)
        return load if self.x.dtype is self.dtype else sc.Cast(load, self.dtype)

    def there(self, thread: sc.Scalar, near: sc.Scalar) -> tuple[sc.Scalar, ...]:
        """Where in shared memory one of a thread's neighbours is."""
        return (self.row if self.beside > 1 else sc.index(0), thread, near)

    def spread(self, e: sc.Scalar) -> tuple[sc.Scalar, ...]:
        """The same of an element that neighbouring threads have neighbours of."""
        place = e * self.threads + self.thread
        if self.threads % self.own:
            return self.there(place // self.own, place % self.own)
        many = e * (self.threads // self.own) + self.thread // self.own
        return self.there(many, self.thread % self.own)

    def element(self, of: sc.Buffer, place: sc.Scalar) -> sc.Scalar:
        """A row's element in shared memory."""
        bits = (self.own - 1).bit_length()
        inside = sc.BitAnd(place, sc.Lit(self.whole - 1, i32))
        many = sc.ShiftRight(inside, sc.Lit(bits, i32))
        near = sc.BitAnd(place, sc.Lit(self.own - 1, i32))
        return sc.Load(of, self.there(sc.Cast(many, i64), sc.Cast(near, i64)))

    def kept(self, thread: sc.Scalar | None = None) -> Stmt:
        """Stores a thread's elements, possibly at another thread's place."""

        def keep(e: sc.Scalar) -> Stmt:
            return seq(*[
                Store(far, self.there(self.thread if thread is None else thread, e), near[e])
                for far, near in ((self.keys, self.key), (self.places, self.at))
            ])  # fmt: skip

        return self.each(self.own, keep)

    def begin_of_share(
        self, of: RunPair, far: sc.Scalar, into: tuple[sc.Buffer, sc.Buffer], bits: int
    ) -> Stmt:
        """How many of the first `far` of two runs are of the left one, how many of the right."""
        low = self.local("low")
        begin, halve, high = self.halving(of, far, low, lambda at: self.element(self.keys, at))
        body = seq(
            begin,
            self.each(bits, lambda _: halve, "serial"),
            put(into[0], low[0]),
            put(into[1], far - low[0]),
        )
        return Alloc(low, Alloc(high, body))

    def halving(
        self, of: RunPair, far: sc.Scalar, low: sc.Buffer, key: Callable[[sc.Scalar], sc.Scalar]
    ) -> tuple[Stmt, Stmt, sc.Buffer]:
        """The search how many of the first `far` of two runs are of the left one: what comes
        before it, a step of it, and the register that it takes besides `low`."""
        high = self.local("high")
        middle = sc.ShiftRight(low[0] + high[0], ONE)
        after = is_before(key(of.right + (far - ONE - middle)), key(of.left + middle),
                          self.descending)  # fmt: skip
        halve = Branch(after, put(high, middle), put(low, middle + ONE))
        left, right = of.lengths
        begin = seq(put(low, sc.Max(ZERO, far - right)), put(high, sc.Min(far, left)))
        return begin, Branch(sc.Lt(low[0], high[0]), halve, NOTHING), high

    def taken(self, of: RunPair, left: sc.Buffer, right: sc.Buffer) -> Stmt:
        """As many elements of two runs as a thread has, one after another."""
        first, second, new = (
            self.local(word, 1, self.dtype) for word in ("first", "second", "new")
        )
        wins, at = self.local("wins"), self.local("from")

        def take(e: sc.Scalar) -> Stmt:
            behind = is_before(second[0], first[0], self.descending)
            mine = sc.And(sc.Lt(left[0], of.lengths[0]), sc.Not(behind))
            is_left = sc.Eq(wins[0], ONE)
            here, there = of.left + left[0], of.right + right[0]
            return seq(
                put(wins, sc.Select(
                    sc.Or(sc.Le(of.lengths[1], right[0]), mine), ONE, ZERO)),
                Store(self.key, (e,), sc.Select(is_left, first[0], second[0])),
                put(at, sc.Select(is_left, here, there)),
                Store(self.at, (e,), self.element(self.places, at[0])),
                put(left, left[0] + wins[0]),
                put(right, right[0] + ONE - wins[0]),
                put(at, at[0] + ONE),
                put(new, self.element(self.keys, at[0])),
                put(first, sc.Select(is_left, new[0], first[0])),
                put(second, sc.Select(is_left, second[0], new[0])),
            )  # fmt: skip

        body = seq(
            put(first, self.element(self.keys, of.left + left[0])),
            put(second, self.element(self.keys, of.right + right[0])),
            self.each(self.own, take),
        )
        return allocated(body, (first, second, new, wins, at))


def put(into: sc.Buffer, value: sc.Scalar) -> Store:
    """A register's new value."""
    return Store(into, (sc.index(0),), value)


def compared_as(of: DType) -> DType:
    """The dtype that represents keys of another in comparisons."""
    if of.bytes >= i32.bytes:
        return of
    return f32 if of.is_float else i32
