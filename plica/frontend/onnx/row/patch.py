"""The row that assembles patches to images, for any sizes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

from plica.frontend.measured import MINUS, ONE, ZERO, Piece, amount, places, reshaped
from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.word import Row, along, dtype, in_f32, like, rank, shape, to
from plica.frontend.onnx.run_time import demanded, pieces, size_from
from plica.ir.graph.expression import Expr, const
from plica.ir.op.namespace import op
from plica.ir.type import i64, known, product

MOST: Final = 64
"""The maximum number of patch or stride elements as separate slices, to bound the program."""


class _Patches:
    """The patch attributes of a node."""

    def __init__(self, node: OnnxNode, count: int) -> None:
        self.strides = node.integers("strides") or (1,) * count
        self.dilations = node.integers("dilations") or (1,) * count
        pads = node.integers("pads") or (0,) * (2 * count)
        lengths = len(self.strides), len(self.dilations), len(pads)
        if lengths != (count, count, 2 * count):
            wanted = f"{count}, {count}, {2 * count}"
            node.malformed("Col2Im has a number for each axis.", wanted, str(lengths))
        if min((*self.strides, *self.dilations)) < 1 or min(pads) < 0:
            node.malformed("Strides are above 0, and padding is not below.", "numbers", str(pads))
        self.padding = [(pads[at], pads[at + count]) for at in range(count)]


def _col2im(node: OnnxNode) -> Expr:
    """Patches added up where they lie: the transpose of cutting them out."""
    image, block = pieces(node, 1), pieces(node, 2)
    if node.rank() != 3 or not image or len(image) != len(block):
        found = f"{node.type()}, {len(image)} and {len(block)} sizes"
        node.malformed("The patches do not fit.", "rank 3, sizes for each axis", found)
    patches = _Patches(node, len(image))
    numbers = [each for each in (*image, *block) if isinstance(each, int)]
    if len(numbers) == 2 * len(image) and all(known(size) is not None for size in node.shape()):
        return _by_numbers(node, numbers[: len(image)], numbers[len(image) :], patches)
    return _by_values(node, image, block, patches)


def _by_numbers(
    node: OnnxNode, image: Sequence[int], block: Sequence[int], patches: _Patches
) -> Expr:
    """Each pixel sums the patch elements that cover it: its residue modulo the stride selects them,
    so there is one sum per residue."""
    x, count, sizes = node.x(0), len(image), node.sizes(0)
    strides, dilations, padding = patches.strides, patches.dilations, patches.padding
    inner = math.prod(block)
    if min(block) < 1 or sizes[1] % inner:
        node.malformed("The patches do not fit.", f"{block} times channels", str(node.type()))
    reach = [(size - 1) * step + 1 for size, step in zip(block, dilations, strict=True)]
    rooms = [image[at] + sum(padding[at]) - reach[at] for at in range(count)]
    steps = [room // stride + 1 for room, stride in zip(rooms, strides, strict=True)]
    if min(rooms) < 0:
        padded = [image[at] + sum(padding[at]) for at in range(count)]
        node.malformed("A dilated block is larger than the padded image.", str(padded), str(reach))
    if math.prod(steps) != sizes[2]:
        node.malformed("The number of patches does not fit.", str(steps), str(node.type()))
    if max(inner, math.prod(strides)) > MOST:
        return _by_values(node, image, block, patches)
    parts = op.reshape(in_f32(x), (sizes[0], sizes[1] // inner, *block, *steps))
    ways = [
        _phases(*each)
        for each in zip(image, block, steps, strides, dilations, padding, strict=True)
    ]
    first = [before // stride for (before, _), stride in zip(padding, strides, strict=True)]
    expr = _interleaved([_added(parts, phases) for phases in itertools.product(*ways)], strides)
    begin = [before - at * by for (before, _), at, by in zip(padding, first, strides, strict=True)]
    end = [at + size for at, size in zip(begin, image, strict=True)]
    return to(op.slice(expr, tuple(begin), tuple(end), axes=tuple(range(2, 2 + count))), dtype(x))


@dataclass(frozen=True)
class _Phase:
    """Pixels with one residue along an axis: their number, and the patch elements that cover them,
    with their patch offsets."""

    count: int
    taps: tuple[tuple[int, int], ...]


def _phases(  # noqa: PLR0917  # what an axis has
    image: int, block: int, steps: int, stride: int, dilation: int, padding: tuple[int, int]
) -> list[_Phase]:
    """The phases of an axis, as many as a stride is long."""
    first, last = padding[0] // stride, (padding[0] + image - 1) // stride + 1
    taps = [divmod(place * dilation, stride) for place in range(block)]
    return [
        _Phase(
            last - first,
            tuple([
                (place, shift - first)
                for place, (shift, phase) in enumerate(taps)
                if phase == at and max(0, first - shift) < min(steps, last - shift)
            ]),
        )
        for at in range(stride)
    ]  # fmt: skip


def _added(parts: Expr, phases: Sequence[_Phase]) -> Expr:
    """The sum of all elements of a phase of each axis, each shifted to its place."""
    count = len(phases)
    batch, channels, *rest = [known(size) or 0 for size in shape(parts)]
    steps, axes = rest[count:], tuple(range(2, 2 + 2 * count))
    wide = (batch, channels, *[phase.count for phase in phases])
    terms: list[Expr] = []
    for taps in itertools.product(*[phase.taps for phase in phases]):
        begin = [max(0, -shift) for _, shift in taps]
        end = [
            min(size, phase.count - shift)
            for size, phase, (_, shift) in zip(steps, phases, taps, strict=True)
        ]
        room = [
            (at + shift, phase.count - shift - stop)
            for at, stop, phase, (_, shift) in zip(begin, end, phases, taps, strict=True)
        ]
        starts = (*[place for place, _ in taps], *begin)
        stops = (*[place + 1 for place, _ in taps], *end)
        part = op.slice(parts, starts, stops, axes=axes)
        around = (*[(0, 0)] * (2 + count), *room)
        terms.append(op.pad(part, around) if any(map(any, room)) else part)
    if not terms:
        return op.full(wide, 0, dtype(parts))
    # Views come last, so that slices are read in place.
    return op.reshape(reduce(op.add, terms), wide)


def _interleaved(phases: Sequence[Expr], strides: Sequence[int]) -> Expr:
    """The places of all phases in their order; those of the last axis follow one another."""
    if len(phases) == 1:
        return phases[0]
    count = len(strides)
    batch, channels, *wide = [known(size) or 0 for size in shape(phases[0])]
    apart = op.reshape(op.stack(tuple(phases), axis=2), (batch, channels, *strides, *wide))
    pairs = [each for at in range(count) for each in (2 + count + at, 2 + at)]
    whole = [size * stride for size, stride in zip(wide, strides, strict=True)]
    return op.reshape(op.transpose(apart, (0, 1, *pairs)), (batch, channels, *whole))


def _by_values(
    node: OnnxNode, image: Sequence[Piece], block: Sequence[Piece], patches: _Patches
) -> Expr:
    """For each pixel and patch element, the patch in which they coincide, if any; image and patch
    axes alternate."""
    x, count = node.x(0), len(image)
    wide = [size_from(node, each, at + 2) for at, each in enumerate(image)]
    windows = [size_from(node, each, f"block {at}") for at, each in enumerate(block)]
    batch, rows, columns = shape(x)
    inner = product(windows)
    channels = node.measured(amount(rows) // op.maximum(amount(inner), ONE), 1)
    fits = amount(inner) > ZERO
    counts: list[Expr] = []
    for at in range(count):
        stride, dilation = (const(s[at], i64) for s in (patches.strides, patches.dilations))
        reach = (amount(windows[at]) - ONE) * dilation
        room = amount(wide[at]) + const(sum(patches.padding[at]) - 1, i64)
        room = room - reach
        fits = op.logical_and(fits, room > MINUS)
        counts.append(room // stride + ONE)
    fits = op.logical_and(fits, op.equal(reduce(op.multiply, [ONE, *counts]), amount(columns)))
    flat = demanded(node, in_f32(x), fits, "patch")
    flat = reshaped(flat, (batch, channels, inner * columns))
    at_patch: Expr = ZERO  # which patch
    at_place: Expr = ZERO  # which place of it
    held: list[Expr] = []
    for at in range(count):
        stride, dilation = (const(s[at], i64) for s in (patches.strides, patches.dilations))
        here = along(places(wide[at]), 2 * at, 2 * count)
        inside = along(places(windows[at]), 2 * at + 1, 2 * count)
        reached = here + const(patches.padding[at][0], i64)
        reached = reached - inside * dilation
        number = reached // stride
        there = op.logical_and(number > MINUS, number < counts[at])
        if patches.strides[at] > 1:
            there = op.logical_and(there, op.equal(reached % stride, ZERO))
        held.append(there)
        at_patch = at_patch * counts[at] + number
        at_place = at_place * amount(windows[at]) + inside
    where_ = at_place * amount(columns) + at_patch
    expr = op.take(flat, where_, axis=2, mode="clip")
    expr = op.where(reduce(op.logical_and, held), expr, like(0, expr))
    axes = tuple(range(3, rank(expr), 2))
    return to(op.sum(expr, axis=axes), dtype(x))


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "Col2Im": _col2im,
}
# fmt: on
