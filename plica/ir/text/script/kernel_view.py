"""Views in the text of kernels: elements of a buffer under other indices, by strides and offset.

    v = view(x, Buffer[(3, 2), f32, strides(4, 1)], offset=5)

`v[i, j]` is the element `5 + 4 * i + j` of x in row-major order. A view is no memory: each access
is read as an access to x, so later passes see buffers only. An index out of the view's bounds is an
error even if x has such an element.

>>> from plica.core.name import Name
>>> from plica.ir.loop.tensor import axis, buffer
>>> from plica.ir.type.dtype import f32
>>> x, i = buffer("x", (16,), f32), axis("i")
>>> every_second = Buffer(Name("v"), (index(3),), f32, strides=(index(2),))
>>> place_in(x, every_second, index(5), (i,), {i: index(3)}) == (5 + i * 2,)
True
>>> type(place_in(x, every_second, index(5), (i,), {i: index(9)})[0]).__name__
'Select'
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from plica.ir.loop.scalar import And, Buffer, Le, Lt, Scalar, ScalarVar, Select, index
from plica.ir.type import known, normal_dim, polynomial, product


def place_in(
    of: Buffer,
    view: Buffer,
    begins: Scalar,
    indices: tuple[Scalar, ...],
    extents: Mapping[ScalarVar, Scalar],
) -> tuple[Scalar, ...]:
    """Where in a buffer an element of a view is; loops and blocks have these extents."""
    address = begins
    for at, scalar in enumerate(indices):
        step = view.strides[at] if view.strides else product(view.shape[at + 1 :])
        address = address + (scalar if known(step) == 1 else scalar * step)
    pairs = zip(indices, view.shape, strict=True)
    loose = [(scalar, size) for scalar, size in pairs if not _is_inside(scalar, size, extents)]
    if loose:
        inside: list[Scalar] = [
            one for scalar, size in loose for one in (Le(index(0), scalar), Lt(scalar, size))
        ]
        address = Select(reduce(And, inside), address, index(-1))
    places: list[Scalar] = []
    for at, size in enumerate(of.shape):
        rest = product(of.shape[at + 1 :])
        place = address if known(rest) == 1 else address // rest
        places.append(place % size if at else place)
    return tuple(places)


def _is_inside(each: Scalar, size: Scalar, extents: Mapping[ScalarVar, Scalar]) -> bool:
    """Whether an index is shown to be inside: a variable of such an extent, or by its bounds."""
    extent = extents.get(each) if isinstance(each, ScalarVar) else None
    if extent is not None and normal_dim(extent) is normal_dim(size):
        return True
    low = high = 0
    for atoms, factor in polynomial(each).values():
        if not atoms:
            low, high = low + factor, high + factor
            continue
        (var, *more) = atoms
        count = known(extents[var]) if isinstance(var, ScalarVar) and var in extents else None
        if more or count is None:
            return False
        reach = factor * (count - 1)
        low, high = low + min(0, reach), high + max(0, reach)
    most = known(size)
    return most is not None and low >= 0 and high < most


def view_problem(of: Buffer, view: Buffer, begins: Scalar) -> str | None:
    """Why something is no view of a buffer, as far as numbers tell."""
    if of.dtype is not view.dtype:
        return f"A view of {of.dtype} is of {of.dtype}, not of {view.dtype}."
    if of.strides or view.scope not in ("global", of.scope):
        return "A view is of a buffer that lies row by row, and in its scope."
    steps = view.strides or [product(view.shape[at + 1 :]) for at in range(len(view.shape))]
    numbers = [known(each) for each in (*view.shape, *steps, begins, product(of.shape))]
    if None in numbers:
        return None  # each access is checked as one of the buffer
    *both, first, count = [number for number in numbers if number is not None]
    sizes, strides = both[: len(view.shape)], both[len(view.shape) :]
    moves = [(size - 1) * step for size, step in zip(sizes, strides, strict=True)]
    low = first + sum(min(0, move) for move in moves)
    high = first + sum(max(0, move) for move in moves)
    if all(sizes) and (low < 0 or high >= count):
        return f"The view has the elements {low} to {high} of {str(of.name)!r}, which has {count}."
    return None
