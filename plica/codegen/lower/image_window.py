"""Image windows: sums over places near one another in one channel of an image.

    y[n, c, i, j] = sum over k, l of x[n, c, 2 * i + k - 1, 2 * j + l - 1] * w[c, k, l]

where a place outside of the image has some number; depthwise convolutions, and pools with a border.
"""

from __future__ import annotations

from math import prod
from typing import Final

from attrs import frozen

from plica.codegen.lower.loop_order import NEAR
from plica.core import free_vars
from plica.ir.loop import Each, scalar as sc
from plica.ir.type import f32, f64, known, polynomial
from plica.schedule.default.contraction import product_of, says_inside

TAPS: Final = 49  # this many terms are written out, at most
WRITTEN: Final = 100  # terms in the text of a tile, about
BLOCKS: Final = 16  # into this many parts the channels are cut, where cores share them


@frozen(eq=False)
class WindowSide:
    """One of the last two axes of the data: `start + step * axis + some terms`, which reach so far
    beyond."""

    axis: sc.ScalarVar
    start: int
    step: int
    reach: int

    @property
    def beyond(self) -> int:
        """How far some windows reach, less `step` times their number."""
        return self.start + self.reach + 1 - self.step


@frozen(eq=False)
class ImageWindow:
    """A sum over a window of an image, and its load."""

    fold: Each
    reduction: sc.Reduce
    inside: sc.Select
    data: sc.Load
    fill: sc.Lit
    sides: tuple[WindowSide, WindowSide]


def image_window(fold: Each) -> ImageWindow | None:
    """The window that a stage is."""
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
    sides = [
        _side(place, axis, terms)
        for place, axis in zip(data.indices[-2:], (column, row), strict=True)
    ]
    (choice,) = [each for each in (body.body, *body.body._children) if isinstance(each, sc.Select)]
    if sides[0] is None or sides[1] is None or sides[1].step > NEAR:
        return None
    return ImageWindow(fold, body, choice, data, fill, (sides[0], sides[1]))


def _side(
    place: sc.Scalar, axis: sc.ScalarVar, terms: dict[sc.ScalarVar, int]
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
    return WindowSide(axis, start, step, reach) if step > 0 and start <= 0 else None
