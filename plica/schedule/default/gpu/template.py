"""Templates for tiled products: the tile parameters in a form's stages, and the trace.

The digits of a form are its decisions: tile sizes, warps and squares, operand layouts. Other
parameters (slices in flight, tile order) are looked up, or given by the search.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd, prod
from typing import Final

from attrs import evolve, frozen

from plica.analysis.enclosing import simple
from plica.core import Term, free_vars, substitute
from plica.ir.loop.scalar import Buffer, Load, Reduce, ScalarVar, index
from plica.ir.loop.stage import Each
from plica.ir.loop.stages import Stages, kernel_of, loads
from plica.ir.loop.statement import Kernel
from plica.ir.type import known
from plica.schedule.dataflow import stages as dataflow
from plica.schedule.default.gpu.machine import VECTOR_BYTES, Gpu
from plica.schedule.default.gpu.product import WIDE, Blocks, ProductTile, product
from plica.schedule.default.gpu.shape import stages
from plica.schedule.default.gpu.tensor_core import BANKS, Warps, tensor_core
from plica.schedule.default.gpu.thread import recorded
from plica.schedule.default.gpu.thread_map import spread
from plica.schedule.default.gpu.transpose import tiled_transpose, transpose_of
from plica.schedule.do import Body, DoBlock, do
from plica.schedule.replay import begin
from plica.schedule.trace import Trace

STAGED_BLOCKS: Final = 2
"""Blocks of a processor that have room for what they stage, at least: one stores while another
multiplies."""

HELD_AHEAD: Final = 1
"""Slices under way, at most, where threads hold what they read of a side until it is stored."""

ROW_DIGITS: Final = ("wm", "i", "w", "half", "g")
"""The digits of a row in its tile, on tensor cores."""

NEAR = 8  # tiles below one another that run at once: they read the same columns


@frozen(eq=False)
class TiledProduct:
    """The stages of a tiled product: its operands, their gathers, the sums, and the digit
    extents."""

    copies: tuple[Each, ...]  # sides that are copied first, with rows that can be moved at once
    sides: tuple[Each | None, Each | None]
    part: Each
    after: tuple[Each, ...]
    digits: Mapping[str, int]
    last: tuple[str, str]  # the last digit of each side: which are neighbours

    @property
    def count(self) -> tuple[int, int, int]:
        """Tiles: in z, down, across."""
        return self.digits.get("z", 1), self.digits["by"], self.digits["bx"]

    @property
    def is_plain(self) -> bool:
        """Whether the epilogue follows the sums, at a row and a column that are an axis each."""
        words = [axis.name.hint for axis in self.after[0].axes]
        return len(self.after) == 1 and words == ["z"] * ("z" in self.digits) + ["m", "n"]

    @property
    def sides_bytes(self) -> int:
        """Bytes of an element of a side."""
        return max(load.buffer.dtype.bytes for load in loads(self.part.value))

    def is_held(self, octet: int) -> bool:
        """Whether rows of a side begin anywhere: threads hold what they read of it."""
        sides = [load for side in self.sides if side is not None for load in loads(side.value)]
        return any((known(load.buffer.shape[-1]) or 0) % octet for load in sides)

    @property
    def counts(self) -> tuple[int, ...]:
        """Neighbours of a tile along each axis of the rows, where those are axes of the result."""
        out, *more = self.after
        parts = [load for load in loads(out.value) if load.buffer is self.part.out]
        if more or "z" in self.digits or len(parts) != 1 or self.is_plain:
            return ()
        inner, rows = index(0), 1
        last = out.axes[-1]
        for axis, place in zip(self.part.axes, parts[0].indices, strict=True):
            word = axis.name.hint
            own = free_vars(place).intersection(out.axes)
            if last in own if word in ("by", *ROW_DIGITS) else own - {last}:
                return ()  # columns are several axes of the result, or lie before the rows
            if word in ROW_DIGITS:
                inner, rows = inner * self.digits[word] + place, rows * self.digits[word]
        found, outer = list[int](), rows
        for axis, size in zip(out.axes[:-1], out.out.shape, strict=False):
            told: dict[Term, Term] = {each: index(int(each is axis)) for each in out.axes}
            step = known(simple(substitute(inner, told))) if known(size) != 1 else 0
            found.append(outer // step if step else 1)
            outer = step or outer
        return tuple(found) if prod(found) == rows else ()

    def blocks(self, *, fused: bool) -> Blocks:
        """The block names; with `fused` the epilogue is one of them."""
        left, right = (None if side is None else str(side.out.name) for side in self.sides)
        out = str(self.after[0].out.name) if fused else None
        return Blocks(left, right, str(self.part.out.name), out, self.count)


def tiled_of(of: Stages) -> TiledProduct | None:
    """The tile parameters of stages, or None if they are no tiled product."""
    every = [stage for stage in of.stages if isinstance(stage, Each)]
    at = next((n for n, stage in enumerate(every) if isinstance(stage.value, Reduce)), None)
    if len(every) != len(of.stages) or at is None:
        return None
    part, after = every[at], tuple(every[at + 1 :])
    made = {stage.out: stage for stage in every}
    sides = [load for load in loads(part.value) if load.buffer is not part.out]
    if len(sides) != 2 or not after:
        return None
    digits: dict[str, int] = {}
    for load, buffer in ((Load(part.out, part.axes), part.out), *[(e, e.buffer) for e in sides]):
        digits |= _extents(load, buffer)
    if not {"by", "bx"} <= digits.keys():
        return None
    last = (_hint(sides[0]), _hint(sides[1]))
    ours = (made.get(sides[0].buffer), made.get(sides[1].buffer))
    copies = tuple([stage for stage in every[:at] if stage not in ours])
    return TiledProduct(copies, ours, part, after, digits, last)


def _extents(of: Load, buffer: Buffer) -> dict[str, int]:
    return {
        axis.name.hint: known(size) or 0
        for axis, size in zip(of.indices, buffer.shape, strict=True)
        if isinstance(axis, ScalarVar)
    }


def _hint(of: Load) -> str:
    last = of.indices[-1]
    return last.name.hint if isinstance(last, ScalarVar) else ""


def tensor_core_schedule(
    of: Stages, gpu: Gpu, known_: Sequence[Warps]
) -> tuple[Trace, Kernel] | None:
    """The schedule of a product on tensor cores, in tiles of one of some known shapes."""
    if (found := tiled_of(of)) is None:
        return None
    of_part = found.digits
    together = "w" in of_part
    warps = next((each for each in known_ if _fits(each, of_part, together)), None)
    if warps is None:
        return None
    ahead = min(warps.ahead, HELD_AHEAD) if found.is_held(warps.octet) else warps.ahead
    near = evolve(warps, near=gcd(warps.near, found.count[1]), ahead=min(ahead, of_part["q"] - 1))
    along = (found.last[0] == "e", found.last[1] == "e")
    left, right = [load.buffer.dtype for load in loads(found.part.value)]
    dtypes = (left, right)
    kernel = kernel_of(of)
    spare = near.versions(of_part["q"]) > near.ahead + 1
    if found.is_plain or found.counts:
        staged = _staged(found, kernel, near, gpu)
        fused = found.blocks(fused=True)
        for way in dict.fromkeys((staged, None)):
            sums = tensor_core(near, along, fused, dtypes, found.counts, way, spare=spare)
            if (made := recorded(_after_copies(found, kernel, gpu, sums), kernel)) is not None:
                return made
    sums = tensor_core(near, along, found.blocks(fused=False), dtypes, spare=spare)
    return _apart(found, kernel, gpu, sums)


def _staged(of: TiledProduct, kernel: Kernel, warps: Warps, gpu: Gpu) -> int | None:
    """The index of the sums among the epilogue's operands, if they are staged in shared memory.

    Threads that multiply hold two adjacent elements in each of eight rows: with odd row lengths
    each is stored separately, which is slower than going through shared memory (for pairs it is
    equal). Sums take the place of slices there, which must not reduce the blocks per processor
    below two.
    """
    out = of.after[0].out
    rows, columns, terms = warps.tile
    slices = of.sides_bytes * warps.versions(of.digits["q"]) * terms * (rows + columns)
    sums = of.part.out.dtype.bytes * rows * (columns + BANKS // 4)
    if (known(out.shape[-1]) or 0) % 2 == 0 or not of.is_plain:
        return None
    if gpu.shared // max(slices, sums) < min(STAGED_BLOCKS, gpu.shared // slices):
        return None
    flow = dataflow(kernel.body)[out.name].inputs
    return flow.index(of.part.out) if of.part.out in flow else None


def _fits(of: Warps, digits: Mapping[str, int], together: bool) -> bool:
    """Whether digits are those of some warps."""
    high, wide = digits.get("i", 1), digits.get("j", 1) * (digits["o"] if together else 1)
    found = (digits["wm"], digits["wn"], high, wide, digits["s"], together, digits["e"])
    return found == (of.down, of.across, of.high, of.wide, of.steps, of.together, of.octet)


def product_schedule(
    of: Stages, gpu: Gpu, known_: Sequence[ProductTile]
) -> tuple[Trace, Kernel] | None:
    """The schedule of a product of f32, in tiles of one of some known shapes.

    The epilogue is done in registers where rows and columns are an axis of the result each.
    """
    if (found := tiled_of(of)) is None:
        return None
    digits = found.digits
    kept = found.last[0] == "e"
    along = (kept or _along(found.sides[0]), _along(found.sides[1]))
    rows, columns = digits["vi"] * digits["ty"] * WIDE, digits["vj"] * digits["tx"] * WIDE
    shape = (rows, columns, digits["e"], digits["ty"], digits["tx"])
    tile = next(
        (
            each
            for each in known_
            if (each.rows, each.columns, each.terms, each.down, each.across) == shape
            and each.keeps(along) == kept
        ),
        None,
    )
    if tile is None:
        return None
    kernel = kernel_of(of)
    if found.is_plain:
        near = evolve(tile, near=gcd(NEAR, found.count[1]))
        sums = product(near, found.blocks(fused=True), along)
        if (made := recorded(_after_copies(found, kernel, gpu, sums), kernel)) is not None:
            return made
    return _apart(found, kernel, gpu, product(tile, found.blocks(fused=False), along))


def _along(of: Each | None) -> bool:
    """Whether terms, not rows or columns, are contiguous in the gathered data."""
    if of is None:
        return False
    (load,) = loads(of.value)
    near = {var.name.hint for var in free_vars(load.indices[-1]) if isinstance(var, ScalarVar)}
    return near in ({"k", "e"}, {"e"})


def _after_copies(of: TiledProduct, kernel: Kernel, gpu: Gpu, sums: DoBlock) -> DoBlock:
    """Sums, after launches that copy sides with rows that can be moved at once."""
    labels = {copy.out.name for copy in of.copies}
    first = begin(kernel).kernel
    copies = [block_stage for block_stage in stages(first) or () if block_stage.label in labels]
    if not copies:
        return sums
    turns = {copy: transpose_of(first, copy) for copy in copies}

    @do
    def whole() -> Body:
        for each, turn in turns.items():
            octet = VECTOR_BYTES // of.sides_bytes
            yield (
                spread(each, (), gpu, lanes=octet) if turn is None else tiled_transpose(each, turn)
            )
        yield sums

    return whole()


def _apart(
    of: TiledProduct, kernel: Kernel, gpu: Gpu, sums: DoBlock
) -> tuple[Trace, Kernel] | None:
    """A product whose sums are joined and finished by another launch."""
    if (every := stages(begin(kernel).kernel)) is None:
        return None
    labels = {stage.out.name for stage in of.after}
    after = [block_stage for block_stage in every if block_stage.label in labels]
    whole_sums = _after_copies(of, kernel, gpu, sums)

    @do
    def whole(wide: bool) -> Body:
        yield spread(after[-1], tuple(after[:-1]), gpu, wide)
        yield whole_sums

    return recorded(whole(True), kernel) or recorded(whole(False), kernel)
