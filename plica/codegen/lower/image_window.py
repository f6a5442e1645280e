"""Image windows: sums over places near one another in one channel of an image.

    y[n, c, i, j] = sum over k, l of x[n, c, 2 * i + k - 1, 2 * j + l - 1] * w[c, k, l]

where a place outside of the image has some number; depthwise convolutions, and pools with a border.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from math import prod
from typing import Final

from attrs import frozen

from plica.codegen.lower.loop_order import (
    NEAR,
    LoopOrder,
    StoredElement,
    loops_around,
    replaced,
    stored,
)
from plica.codegen.lower.nest import in_order, in_registers, open_sizes
from plica.core import free_vars, substitute
from plica.ir.loop import Each, scalar as sc
from plica.ir.loop.stages import Names, Stages, pairs
from plica.ir.loop.statement import NOTHING, Branch, For, Kernel, Seq, Stmt
from plica.ir.type import f32, f64, known, polynomial
from plica.schedule.default.contraction import product_of, says_inside

TAPS: Final = 49  # this many terms are written out, at most
BLOCKS: Final = 16  # into this many parts the channels are cut, where cores share them


@frozen(eq=False)
class WindowSide:
    """One of the last two axes of the data: `start + step * axis + some terms`, which reach so far
    beyond; the sizes of the result and of the data, and by how much the latter may exceed `step`
    times the former."""

    axis: sc.ScalarVar
    start: int
    step: int
    reach: int
    made: sc.Scalar
    read: sc.Scalar
    remainders: tuple[int, ...]

    @property
    def beyond(self) -> int:
        """How far some windows reach, less `step` times their number."""
        return self.start + self.reach + 1 - self.step

    @property
    def before(self) -> int:
        """How many windows begin before the axis, at most."""
        return -(self.start // self.step)

    @property
    def behind(self) -> int:
        """How many windows end behind the axis, at most."""
        return max(0, -((min(self.remainders) - self.beyond) // self.step))


@frozen(eq=False)
class ImageWindow:
    """Stages that are windows of images, with the load of each, and what is made of each sum."""

    stages: Stages
    fold: Each
    reduction: sc.Reduce
    inside: sc.Select
    data: sc.Load
    fill: sc.Lit
    rows: WindowSide
    columns: WindowSide
    after: StoredElement | None
    names: Names

    @property
    def taps(self) -> int:
        """The terms of a sum."""
        return prod([known(extent) or 0 for extent in self.reduction.extents])

    def kernel(
        self, image: Stmt, block: sc.ScalarVar, blocks: int, before: tuple[Stmt, ...] = (),
        *scratch: sc.Buffer,
    ) -> Kernel:  # fmt: skip
        """The kernel that does the images of all channels, these in blocks that cores share if
        there are several, after what is done `before` by each; `scratch` is memory of the launch.
        """
        around = list(zip(self.fold.axes, self.fold.out.shape, strict=True))[:-2]
        if blocks > 1 and around:
            part = self.names.var("part")
            axis, size = around.pop()
            count = (size + (blocks - 1)) // blocks
            there = block * count + part
            image = Branch(sc.Lt(there, size), substitute(image, {axis: there}), NOTHING)
            around.append((part, count))
        body = loops_around(around, image)
        if before:
            body = Seq((*before, body))
        if blocks > 1:
            body = For(block, sc.index(blocks), "parallel", body)
        else:
            body = substitute(body, {block: sc.index(0)})
        params = (*self.stages.inputs, *scratch, self.stages.result)
        return Kernel(open_sizes(params, body), params, len(self.stages.inputs), body)

    def tile(  # where it is, and what it reads
        self,
        row: sc.Scalar,
        many: int,
        column: sc.Scalar,
        lanes: int,
        read: Callable[[sc.ScalarVar, sc.ScalarVar], sc.Scalar],
        *,
        reduction: sc.Reduce | None = None,
        looped: Collection[sc.ScalarVar] = (),
        narrow: bool = False,
    ) -> Stmt:
        """The windows of some rows and a vector of columns, which read what is given for a row and
        a lane; terms that are `looped` are not written out, and what is behind the end of a row is
        not stored where it is `narrow`."""
        of, near, lane = reduction or self.reduction, self.names.var("near"), self.names.var("lane")
        here: dict[sc.ScalarVar, sc.Scalar] = {
            self.rows.axis: row + near, self.columns.axis: column + lane,
        }  # fmt: skip
        walk = LoopOrder(
            ((near, sc.index(many)), (lane, sc.index(lanes))),
            tuple([here.get(axis, axis) for axis in self.fold.axes]),
            substitute(replaced(of, {self.inside: read(near, lane)}), {**here}),
            2,
            tuple(here.items()),
            "vectorized",
            sc.Lt(column + lane, self.columns.made) if narrow else None,
            (near, *[var for var in of.axes if var not in looped]),
        )
        return in_registers(walk, self.stages.result, self.after, self.names)


def image_window(of: Stages) -> ImageWindow | None:
    """The windows that stages are; None where they are none, or the size of the result does not
    follow from that of the data."""
    every = pairs(of) if all(isinstance(e, Each) for e in of.stages) else []
    if len(every) != 1:
        return None
    ((given, epilogue),) = every
    fold = in_order(given)
    body = fold.value
    if not isinstance(body, sc.Reduce) or body.runs or sc.dtype_of(body) not in (f32, f64):
        return None
    if len(fold.axes) < 2:
        return None
    terms = {axis: known(size) or 0 for axis, size in zip(body.axes, body.extents, strict=True)}
    if not 1 < prod(terms.values()) <= TAPS:
        return None
    sizes = terms | {
        axis: n for axis, size in zip(fold.axes, fold.out.shape, strict=True) if (n := known(size))
    }
    if (product := product_of(body, sizes)) is None:
        return None
    data, guards, fill, weight = product
    column, row = fold.axes[-2:]
    inner = {column, row, *terms}
    around = [*data.indices[:-2], *(weight.indices if weight is not None else ())]
    if not guards or not all(says_inside(guard, data) for guard in guards) or len(data.indices) < 2:
        return None
    if any({column, row}.isdisjoint(free_vars(guard)) for guard in guards):
        return None  # a plane that is outside as a whole
    if any(not {column, row}.isdisjoint(free_vars(scalar)) for scalar in around):
        return None
    if any(not inner.isdisjoint(free_vars(index)) for index in data.indices[:-2]):
        return None
    down, along = [
        _side(data.indices[at], fold.axes[at], terms, fold.out.shape[at], data.buffer.shape[at])
        for at in (-2, -1)
    ]
    (choice,) = [each for each in (body.body, *body.body._children) if isinstance(each, sc.Select)]
    if down is None or along is None or along.step > NEAR:
        return None
    after = stored(fold, epilogue)
    if after is not None and tuple(after.indices[-1:]) != fold.axes[-1:]:
        return None
    names = Names(of, *([] if after is None else [after.value]))
    return ImageWindow(of, fold, body, choice, data, fill, down, along, after, names)


def _side(  # an index of the data, and sizes along it
    place: sc.Scalar,
    axis: sc.ScalarVar,
    terms: Mapping[sc.ScalarVar, int],
    made: sc.Scalar,
    read: sc.Scalar,
) -> WindowSide | None:
    """An index of the data, or None if it is no window."""
    start, step, reach = 0, 0, 0
    for atoms, factor in polynomial(place).values():
        if not atoms:
            start += factor
        elif atoms == (axis,):
            step = factor
        elif len(atoms) == 1 and isinstance(atoms[0], sc.ScalarVar) and atoms[0] in terms:
            reach += factor * (terms[atoms[0]] - 1)
            if factor < 0:
                return None
        else:
            return None
    remainders = _remainders(read, made, step) if step > 0 and start <= 0 else None
    if not remainders:
        return None
    return WindowSide(axis, start, step, reach, made, read, remainders)


def _remainders(read: sc.Scalar, made: sc.Scalar, step: int) -> tuple[int, ...] | None:
    """By how much the size of the data may exceed a multiple of that of the result.

    A quotient times its divisor is what was divided, less one of the remainders.
    """
    rest, less = read - made * step, 1
    quotients = [
        (atoms[0], factor)
        for atoms, factor in polynomial(rest).values()
        if len(atoms) == 1 and isinstance(atoms[0], sc.FloorDiv)
    ]
    for quotient, factor in quotients[:1]:
        assert isinstance(quotient, sc.FloorDiv)
        less = -factor
        if less != known(quotient.right):
            return None
        rest = rest + quotient * less - quotient.left
    found = polynomial(rest)
    if any(atoms for atoms, _ in found.values()):
        return None
    least = sum([factor for _, factor in found.values()])
    return tuple(range(least, least + less))
