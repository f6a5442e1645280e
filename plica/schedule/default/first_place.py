"""First places: the stage that computes, per row, the indices of its first elements in order.

    y[r] = the place of the element that r others come before

The rows are along any axis; the result may have no axis for places where one is wanted alone.
Forms of it: `plica.schedule.default.selection` for rows of neighbours,
`plica.schedule.default.selection` for columns, and sorting on graphics processors.

>>> from plica.ir.loop.tensor import axis, buffer
>>> from plica.ir.loop.stage import stage
>>> from plica.ir.type.dtype import f32
>>> x, terms = buffer("x", (100, 3), f32), (axis("m"), axis("o"))
>>> first = stage("y", (5, 3), lambda r, i: place_of_rank(
...     lambda at: x[at, i], sc.index(100), r, terms, True))
>>> found = first_places_of(x, first.out, first.axes, first.value)
>>> found.axis, found.size, found.kept, found.is_row
(0, 100, 5, False)
"""

from __future__ import annotations

from functools import partial

from attrs import frozen

from plica.ir.loop import scalar as sc
from plica.ir.op.top_k import place_of_rank
from plica.ir.type import known


@frozen(eq=False)
class FirstPlaces:
    """A stage of first places: a row for each point of the other axes."""

    x: sc.Buffer
    out: sc.Buffer
    rows: tuple[sc.Scalar, ...]
    descending: bool
    axis: int  # the axis of the input along which a row lies

    @property
    def size(self) -> int:
        """The elements of a row."""
        return known(self.x.shape[self.axis]) or 0

    @property
    def kept(self) -> int:
        """How many places are wanted; one where the result has no axis for them."""
        return (known(self.out.shape[self.axis]) or 0) if self.has_axis else 1

    @property
    def is_row(self) -> bool:
        """Whether the elements of a row are neighbours in memory."""
        return self.axis == len(self.x.shape) - 1

    @property
    def has_axis(self) -> bool:
        """Whether the places of a row are an axis of the result."""
        return len(self.out.shape) == len(self.x.shape)


def first_places_of(
    x: sc.Buffer, out: sc.Buffer, axes: tuple[sc.ScalarVar, ...], value: sc.Reduce
) -> FirstPlaces | None:
    """What first places a stage finds, if that is what it does."""
    match value:
        case sc.Reduce("sum", (mine,), (size,), sc.Select(sc.Eq(sc.Reduce() as count, rank))):
            pass
        case _:
            return None
    shapes = [known(scalar) for scalar in (*x.shape, *out.shape)]
    if len(count.axes) != 1 or not all(shapes) or len(x.shape) - len(out.shape) not in (0, 1):
        return None
    rows = tuple([
        sc.index(0) if known(term) == 1 else at for at, term in zip(axes, out.shape, strict=True)
    ])  # fmt: skip
    terms = (mine, count.axes[0])
    for along in reversed(range(len(x.shape))):
        if len(out.shape) < len(x.shape):  # one place of each row
            before, place, behind = rows[:along], sc.index(0), rows[along:]
        else:
            before, place, behind = rows[:along], rows[along], rows[along + 1 :]
        if size is not x.shape[along] or rank is not place:
            continue
        for descending in (False, True):
            key = partial(_element, x, before, behind)
            if place_of_rank(key, size, place, terms, descending) is value:
                return FirstPlaces(x, out, (*before, *behind), descending, along)
    return None


def _element(
    x: sc.Buffer, before: tuple[sc.Scalar, ...], behind: tuple[sc.Scalar, ...], at: sc.Scalar
) -> sc.Scalar:
    return sc.Load(x, (*before, at, *behind))
