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
from plica.ir.loop.stages import Names
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

ZERO, ONE = sc.Lit(0, i32), sc.Lit(1, i32)
FIRST = (sc.index(0),)


@frozen(eq=False)
class RunPair:
    """Two runs: where each begins, and how many elements it has, all of i32."""

    left: sc.Scalar
    right: sc.Scalar
    lengths: tuple[sc.Scalar, sc.Scalar]


class SharedRuns:
    """Keys and places of a block in shared memory, and what each thread has of them."""

    def __init__(  # noqa: PLR0917  # what there is, and who has it
        self, names: Names, dtype: DType, own: int, threads: int, beside: int, descending: bool
    ) -> None:
        self.names, self.descending = names, descending
        self.own, self.threads, self.beside = own, threads, beside
        self.whole = own * threads
        self.row, self.thread = map(names.var, ("r", "t"))
        room = (beside, threads, own + 1)
        self.keys, self.places = (
            sc.Buffer(names.name(word), tuple(map(sc.index, room)), kind, "shared")
            for word, kind in (("keys", dtype), ("places", i32))
        )
        self.bytes = prod(room) * (dtype.bytes + i32.bytes)
        self.key, self.at = self.local("key", own, dtype), self.local("at", own, i32)

    def kept_in(self, body: Stmt) -> Stmt:
        """Statements with the memory that they need."""
        return allocated(body, (self.key, self.at, self.keys, self.places))

    def local(self, word: str, count: int, dtype: DType) -> sc.Buffer:
        """Registers of a thread."""
        return sc.Buffer(self.names.name(word), (sc.index(count),), dtype, "local")

    def each(
        self, count: int, body: Callable[[sc.Scalar], Stmt], kind: LoopKind = "unrolled"
    ) -> Stmt:
        """A body for each index."""
        var = self.names.var("v")
        return For(var, sc.index(count), kind, body(var))

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
        low, high = (self.local(word, 1, i32) for word in ("low", "high"))
        halve = halving(
            (low, high), far, lambda at: self.element(self.keys, of.left + at),
            lambda at: self.element(self.keys, of.right + at), self.descending,
        )  # fmt: skip
        left, right = of.lengths
        body = seq(
            Store(low, FIRST, sc.Max(ZERO, far - right)),
            Store(high, FIRST, sc.Min(far, left)),
            self.each(bits, lambda _: halve, "serial"),
            Store(into[0], FIRST, low[0]),
            Store(into[1], FIRST, far - low[0]),
        )
        return Alloc(low, Alloc(high, body))

    def taken(self, of: RunPair, left: sc.Buffer, right: sc.Buffer) -> Stmt:
        """As many elements of two runs as a thread has, one after another."""
        first, second, new = (
            self.local(word, 1, self.key.dtype) for word in ("first", "second", "new")
        )
        wins, at = self.local("wins", 1, i32), self.local("from", 1, i32)

        def take(e: sc.Scalar) -> Stmt:
            behind = is_before(second[0], first[0], self.descending)
            mine = sc.And(sc.Lt(left[0], of.lengths[0]), sc.Not(behind))
            is_left = sc.Eq(wins[0], ONE)
            here, there = of.left + left[0], of.right + right[0]
            return seq(
                Store(wins, FIRST, sc.Select(
                    sc.Or(sc.Le(of.lengths[1], right[0]), mine), ONE, ZERO)),
                Store(self.key, (e,), sc.Select(is_left, first[0], second[0])),
                Store(at, FIRST, sc.Select(is_left, here, there)),
                Store(self.at, (e,), self.element(self.places, at[0])),
                Store(left, FIRST, left[0] + wins[0]),
                Store(right, FIRST, right[0] + ONE - wins[0]),
                Store(at, FIRST, at[0] + ONE),
                Store(new, FIRST, self.element(self.keys, at[0])),
                Store(first, FIRST, sc.Select(is_left, new[0], first[0])),
                Store(second, FIRST, sc.Select(is_left, second[0], new[0])),
            )  # fmt: skip

        body = seq(
            Store(first, FIRST, self.element(self.keys, of.left + left[0])),
            Store(second, FIRST, self.element(self.keys, of.right + right[0])),
            self.each(self.own, take),
        )
        return allocated(body, (first, second, new, wins, at))


def halving(
    ends: tuple[sc.Buffer, sc.Buffer],
    far: sc.Scalar,
    left: Callable[[sc.Scalar], sc.Scalar],
    right: Callable[[sc.Scalar], sc.Scalar],
    descending: bool,
) -> Stmt:
    """A step of the search how many of the first `far` of two runs are of the left one."""
    low, high = ends
    middle = sc.ShiftRight(low[0] + high[0], ONE)
    after = is_before(right(far - ONE - middle), left(middle), descending)
    halve = Branch(after, Store(high, FIRST, middle), Store(low, FIRST, middle + ONE))
    return Branch(sc.Lt(low[0], high[0]), halve, NOTHING)


def compared_as(of: DType) -> DType:
    """The dtype that represents keys of another in comparisons."""
    if of.bytes >= i32.bytes:
        return of
    return f32 if of.is_float else i32


__all__ = ["RunPair", "SharedRuns", "compared_as", "halving"]
