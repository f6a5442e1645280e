"""Weights of few bits on tensor cores: numbers are restored in registers, of words as they lie.

    for n0 in blocks:                              16 rows of the weight, by all warps of a block
        each warp: some words of these rows, several under way
            a[n, k] = (number(w[n, k], k) - zero[n, k]) * scale[n, k]       in registers
            c[n, m] += a[n, k] * x[m, k]                                    tensor cores
        out[m, n] = f(sum over warps of c[n, m])

For few rows of data: reading the weight dominates, which for 4 bits is an eighth of that for
floats. Rows of the weight are rows of the tensor core product, so loaded registers are operands;
terms are in memory order, equal for both operands.
"""

from __future__ import annotations

from functools import reduce
from math import gcd, prod
from typing import Final

from attrs import frozen

from plica.analysis.enclosing import simple
from plica.core import Term, substitute
from plica.ir.loop import scalar as sc
from plica.ir.loop.stage import ExternStage
from plica.ir.loop.stages import Stages, stages, with_element
from plica.ir.loop.statement import NOTHING, Alloc, Branch, For, Invoke, Stmt, Store, allocated, seq
from plica.ir.type import DType, f32, i32, u8
from plica.schedule.default.few_bits import FewBits, few_bits
from plica.schedule.default.gpu.cost import ENDS, STREAM
from plica.schedule.default.gpu.machine import LANES, VECTOR_BYTES, Gpu
from plica.schedule.default.gpu.narrow_read import NARROW
from plica.schedule.default.gpu.tensor_core_meaning import OCTET, QUADS
from plica.schedule.default.gpu.thread_code import ThreadNames, region_of
from plica.schedule.default.gpu.warp_meaning import quad_mma, restored

MOST_ROWS: Final = 16
"""Rows of data, at most: of more, products take longer than reading, and floats are as good."""

BITS: Final = (2, 4, 8)

TILE: Final = 16  # rows of the weight that tensor cores multiply at once


UNDER_WAY: Final = 16
"""The vectors in flight per row, over all warps of a block, per thread: this many of one warp, or
one of this many."""

FEW_BIT_WARPS: Final = (4, 8, 16)  # warps of a block that are considered
ALONE: Final = 8  # warps in whose time one that is alone waits once more


@frozen
class FewBitTile:
    """The warps of a block, each with a part of the terms."""

    warps: int

    @property
    def ahead(self) -> int:
        """Vectors of each row that a thread has under way."""
        return UNDER_WAY // self.warps


def few_bits_of(of: Stages) -> FewBits | None:
    """The product by a weight of few bits that stages are, if tensor cores are to do it."""
    bits = few_bits(of)
    if bits is None or bits.dtype not in NARROW or bits.zero.buffer.dtype is not u8:
        return None
    return bits if data_rows(bits) <= MOST_ROWS else None


def data_rows(of: FewBits) -> int:
    """Rows that the weight is multiplied by."""
    return prod(of.whole.sizes[axis] for axis in of.whole.axes if axis not in of.whole.n)


def few_bit_cost(of: FewBits, tile: FewBitTile, gpu: Gpu) -> float:
    """Cycles of the processor with most blocks, of which most go into reading the words.

    With few blocks, more warps of each keep a processor busy; with many, blocks with fewer warps
    overlap their starts and ends.
    """
    rows, groups, held, _ = of.sizes
    blocks = -(-rows // (TILE * gpu.processors))
    registers = 48 + 16 * -(-data_rows(of) // OCTET)
    beside = min(blocks, max(1, gpu.registers // (LANES * tile.warps * registers)))
    read = TILE * groups * (held * i32.bytes + of.dtype.bytes + u8.bytes)
    with_words = min(tile.warps, -(-groups * held * i32.bytes // (QUADS * VECTOR_BYTES)))
    waiting = 1 + ALONE / (beside * with_words)
    return blocks * read / STREAM * waiting + -(-blocks // beside) * ENDS


def few_bit_warps(of: FewBits, source: Stages, tile: FewBitTile) -> Stages:
    """The stages as statements of threads."""
    return _FewBitWriter(of, source, tile).stages()


class _FewBitWriter:
    """Writes the statements; knows the names, and which words a thread has."""

    def __init__(self, of: FewBits, source: Stages, tile: FewBitTile) -> None:
        self.of, self.tile, self.names = of, tile, ThreadNames(source, *of.whole.inputs)
        self.lane, self.warp, self.block, self.turn = map(self.names.var, ("t", "w", "b", "n"))
        self.rows, groups, self.held, self.several = of.sizes
        words = groups * self.held
        self.near = next(n for n in (4, 2, 1) if words % n == 0)
        self.same = gcd(self.near, self.held)  # words of a vector that have one scale
        self.units = words // self.near
        self.beside = self.tile.warps * QUADS * self.tile.ahead
        self.count = data_rows(of)
        self.wide = -(-self.count // OCTET)
        self.sums = self._buffer("sums", (self.wide, 2, 2), f32, "local")

    def stages(self) -> Stages:
        """All of it as one stage of statements."""
        whole = self.of.whole
        out = sc.Buffer(
            self.names.name("out"), tuple([sc.index(whole.sizes[axis]) for axis in whole.axes]),
            sc.dtype_of(whole.value),
        )  # fmt: skip
        parts = self._buffer("parts", (self.tile.warps, TILE, self.wide * OCTET), f32, "shared")
        full, rest = divmod(self.units, self.beside)
        body = seq(
            self.names.each(self._squares, lambda j, h, p: Store(self.sums, (j, h, p), _ZERO)),
            For(self.turn, sc.index(full), "serial", self._step(self.turn)) if full else NOTHING,
            self._step(sc.index(full), last=True) if rest else NOTHING,
            self.names.each(self._squares, lambda j, h, p: Store(
                parts,
                (self.warp, h * OCTET + self.lane // QUADS,
                 j * OCTET + self.lane % QUADS * 2 + p),
                self.sums[j, h, p],
            )),
            self._written(out, parts),
        )  # fmt: skip
        body = Alloc(parts, Alloc(self.sums, body))
        body = For(self.lane, sc.index(LANES), "threadIdx.x", body)
        body = For(self.warp, sc.index(self.tile.warps), "threadIdx.y", body)
        body = For(self.block, sc.index(-(-self.rows // TILE)), "blockIdx.x", body)
        own = {
            self.of.weight.buffer.name: self.of.weight.buffer,
            whole.data.buffer.name: self._data_buffer,
        }
        inputs = [own.get(buffer.name, buffer) for buffer in whole.inputs]
        return stages(inputs, (ExternStage((out,), body),))

    # --- words ----------------------------------------------------------------------------------

    @property
    def _squares(self) -> dict[str, int]:
        return {"j": self.wide, "h": 2, "p": 2}

    @property
    def _data_buffer(self) -> sc.Buffer:
        """The data in memory order."""
        view = self.of.whole.data.buffer
        return sc.Buffer(view.name, view.shape, self.of.dtype)

    def _buffer(self, like: str, shape: tuple[int, ...], dtype: DType, scope: str) -> sc.Buffer:
        return sc.Buffer(self.names.name(like), tuple(map(sc.index, shape)), dtype, scope)

    def _row(self, half: sc.Scalar) -> sc.Scalar:
        """The row of the weight that a thread reads, or the last one."""
        row = self.block * TILE + half * OCTET + self.lane // QUADS
        return row if self.rows % TILE == 0 else sc.Min(row, sc.index(self.rows - 1))

    def _unit(self, turn: sc.Scalar, u: sc.Scalar) -> sc.Scalar:
        """Which neighbours of a row a thread has."""
        step = turn * self.tile.ahead + u
        return (step * self.tile.warps + self.warp) * QUADS + self.lane % QUADS

    def _places(self, row: sc.Scalar, number: sc.Scalar) -> dict[Term, Term]:
        """Where a row of the weight and one of the data are in the result."""
        whole = self.of.whole
        found: dict[Term, Term] = {}
        apart = [axis for axis in whole.axes if axis not in whole.n]
        for axis in reversed(apart):
            size = whole.sizes[axis]
            found[axis] = number if axis is apart[0] else number % size
            number = number // size
        return {**found, **dict.fromkeys(whole.n, row)}

    # --- products -------------------------------------------------------------------------------

    def _step(self, turn: sc.Scalar, *, last: bool = False) -> Stmt:
        """Some words of each row, and what they add to the sums; of the `last` some are none."""
        of, near, shares = self.of, self.near, self.near // self.same
        words = self._buffer("words", (self.tile.ahead, 2, near), i32, "local")
        scales = self._buffer("scales", (self.tile.ahead, 2, shares), of.dtype, "local")
        zeros = self._buffer("zeros", (self.tile.ahead, 2, shares), u8, "local")

        def unit(u: sc.Scalar) -> sc.Scalar:
            scalar = self._unit(turn, u)
            return sc.Min(scalar, sc.index(self.units - 1)) if last else scalar

        def inside(u: sc.Scalar, value: sc.Scalar) -> sc.Scalar:
            if not last:
                return value
            test = sc.Lt(self._unit(turn, u), sc.index(self.units))
            return sc.Select(test, value, sc.Lit(0, sc.dtype_of(value)))

        def fetched(u: sc.Scalar, half: sc.Scalar, v: sc.Scalar) -> Stmt:
            at = (self._row(half), unit(u) * near + v)
            return Store(words, (u, half, v), sc.Load(of.weight.buffer, at))

        def scaled(u: sc.Scalar, half: sc.Scalar, s: sc.Scalar) -> Stmt:
            group = simple((unit(u) * near + s * self.same) // self.held)
            at = (self._row(half), group)
            return seq(
                Store(scales, (u, half, s), inside(u, sc.Load(of.scale.buffer, at))),
                Store(zeros, (u, half, s), sc.Load(of.zero.buffer, at)),
            )

        def multiplied(u: sc.Scalar, w: sc.Scalar) -> Stmt:
            left = self._buffer("left", (LANES, 2, 1, self.several), of.dtype, "warp")
            data = self._buffer("data", (self.wide, self.several), of.dtype, "local")
            right = self._buffer("right", (LANES, self.wide, 1, self.several), of.dtype, "warp")
            number = restored(of.bits, of.dtype).name
            product = quad_mma((1, self.several), of.dtype).name
            share = w // self.same

            def taken(half: sc.Scalar) -> Stmt:
                at = {0: u, 1: half}
                one = {0: 1, 1: 1, 2: 1}
                return Invoke(number, (
                    region_of(words, {**at, 2: w}, one), region_of(zeros, {**at, 2: share}, one),
                    region_of(scales, {**at, 2: share}, one),
                    region_of(left, {0: self.lane, 1: half}, {0: 1, 1: 1}),
                ))  # fmt: skip

            def read(j: sc.Scalar, e: sc.Scalar, v: sc.Scalar) -> Stmt:
                part = e * beside + v
                value = inside(u, self._data(j, unit(u) * near + w, part))
                return Store(data, (j, part), value)

            def paired(j: sc.Scalar, h: sc.Scalar, p: sc.Scalar) -> Stmt:
                place = (self.lane, j, sc.index(0), p * 2 + h)
                return Store(right, place, data[j, h * (self.several // 2) + p])

            def added(j: sc.Scalar) -> Stmt:
                return Invoke(product, (
                    region_of(left, {0: self.lane // QUADS * QUADS}, {0: QUADS}),
                    region_of(right, {0: self.lane % QUADS * 2 * QUADS, 1: j},
                              {0: 2 * QUADS, 1: 1}),
                    region_of(self.sums, {0: j}, {0: 1}),
                ))  # fmt: skip

            beside = min(self.several, VECTOR_BYTES // of.dtype.bytes)
            body = seq(
                self.names.each({"h": 2}, taken),
                self.names.each({"j": self.wide, "e": self.several // beside, "v": beside}, read,
                           "vectorized"),
                self.names.each({"j": self.wide, "h": 2, "p": self.several // 2}, paired),
                self.names.each({"j": self.wide}, added),
            )  # fmt: skip
            return allocated(body, (left, data, right))

        step = seq(
            self.names.each({"u": self.tile.ahead, "h": 2, "v": near}, fetched, "vectorized"),
            self.names.each({"u": self.tile.ahead, "h": 2, "s": shares}, scaled),
            self.names.each({"u": self.tile.ahead, "w": near}, multiplied),
        )
        return allocated(step, (words, scales, zeros))

    def _data(self, j: sc.Scalar, word: sc.Scalar, part: sc.Scalar) -> sc.Scalar:
        """A number of the data; padding rows repeat the last one, because their sums are unused."""
        of, number = self.of, j * OCTET + self.lane // QUADS
        if self.wide * OCTET > self.count:
            number = sc.Min(number, sc.index(self.count - 1))
        there = (simple(word // self.held), simple(word % self.held), part)
        terms: dict[Term, Term] = {
            old: new for old, new in zip(of.terms, there, strict=True)
            if isinstance(old, sc.ScalarVar)
        }  # fmt: skip
        load = substitute(of.whole.data, {**terms, **self._places(sc.index(0), number)})
        places = tuple([simple(index) for index in load.indices])
        return sc.Load(self._data_buffer, places)

    # --- results --------------------------------------------------------------------------------

    def _written(self, out: sc.Buffer, parts: sc.Buffer) -> Stmt:
        """The sums of all warps, and the epilogue."""
        whole, turn = self.of.whole, self.names.var("n")
        threads, many = self.tile.warps * LANES, TILE * self.count
        total = self._buffer("total", (1,), f32, "local")
        place = turn * threads + self.warp * LANES + self.lane
        own, number = place % TILE, place // TILE
        row = self.block * TILE + own
        held: list[sc.Scalar] = [
            sc.Load(parts, (sc.index(n), own, number)) for n in range(self.tile.warps)
        ]
        tests: list[sc.Scalar] = [
            test
            for test, needed in (
                (sc.Lt(place, sc.index(many)), many % threads),
                (sc.Lt(row, sc.index(self.rows)), self.rows % TILE),
            )
            if needed
        ]
        at = self._places(row, number)
        value = substitute(with_element(whole.value, whole.reduced, total[0]), at)
        there = tuple([substitute(axis, at) for axis in whole.axes])
        body = seq(Store(total, (sc.index(0),), reduce(sc.Add, held)), Store(out, there, value))
        body = Alloc(total, body)
        if tests:
            body = Branch(reduce(sc.And, tests), body, NOTHING)
        turns = -(-many // threads)
        return For(turn, sc.index(turns), "serial", body)


_ZERO: Final = sc.Lit(0.0, f32)
