"""Races: parallel loops in which two iterations access one element and at least one writes it.

    for i in parallel(4): y[i // 2] = x[i]        iterations 0 and 1 write y[0]

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.statement import Store
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, y, i = buffer("x", (4,), f32), buffer("y", (4,), f32), axis("i")
>>> for place in (i, i // 2):
...     loop = For(i, x.shape[0], "parallel", Store(y, (place,), x[i]))
...     print(*races(Kernel((), (x, y), 1, loop)), sep="")
<BLANKLINE>
Iterations 0 and 1 of the loop i, which run at once, meet at y[0].

Index terms at every point of a grid of loops, worked out at once.

>>> from plica.ir.loop.tensor import axis
>>> i, j = axis("i"), axis("j")
>>> (found,) = on_grid([i * 4 + j], {i: np.arange(2).reshape(2, 1), j: np.arange(3).reshape(1, 3)})
>>> found.tolist()
[[0, 1, 2], [4, 5, 6]]
>>> on_grid([i + j], {i: np.arange(2)}) is j
True
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any, Final

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from plica.analysis.access import Access, accesses
from plica.analysis.dependence import conflicts
from plica.core import Term, all_of, free_vars, post_order
from plica.ir.loop.scalar import Buffer, Lit, Scalar, ScalarVar, Select, row_of
from plica.ir.loop.statement import Block, For, Kernel, Stmt, statements, substatements
from plica.ir.type import evaluate

Numbers = NDArray[np.int64]

AT_ONCE: Final = ("parallel", "blockIdx.x", "blockIdx.y", "blockIdx.z")
"""Kinds of loops between whose iterations nothing waits."""

ITERATIONS: Final = 64  # iterations that are gone through, at most
POINTS: Final = 1 << 14  # places that an access is followed to, at most
SIZE_OF_OPEN_DIMS: Final = 5  # what a size that is not known is taken to be


@frozen
class Race:
    """Two iterations of a loop that access one element of a buffer, at least one writing it."""

    loop: str
    buffer: str
    iterations: tuple[int, int]
    place: tuple[int, ...]

    def __str__(self) -> str:
        one, two = self.iterations
        at = ", ".join(map(str, self.place))
        return (
            f"Iterations {one} and {two} of the loop {self.loop}, which run at once, "
            f"meet at {self.buffer}[{at}]."
        )


@lru_cache(maxsize=1024)
def races(kernel: Kernel) -> tuple[Race, ...]:
    """The races of a kernel that are found, one for each loop and buffer.

    While blocks exist, a buffer used in only one loop counts as private to each iteration: it is
    allocated there when blocks are lowered to loops.
    """
    every = list(statements(kernel.body))
    has_blocks = any(isinstance(each, Block) for each in every)
    found: list[Race] = []
    for loop in every:
        if not isinstance(loop, For) or loop.kind not in AT_ONCE:
            continue
        for buffer in conflicts(loop):
            if (
                has_blocks
                and buffer not in kernel.params
                and not _is_seen_outside(every, loop, buffer)
            ):
                continue
            if (race := race_of(loop, buffer)) is not None:
                found.append(race)
    return tuple(found)


def _is_seen_outside(every: list[Stmt], loop: For, buffer: Buffer) -> bool:
    """Whether a statement outside of a loop touches a buffer."""
    inside = set(statements(loop))
    alone = [each for each in every if each not in inside and not substatements(each)]
    return any(buffer in free_vars(statement) for statement in alone)


def race_of(loop: For, buffer: Buffer) -> Race | None:
    """The first race that is found of a loop through a buffer that its iterations share."""
    if loop.kind not in AT_ONCE or (loop.kind != "parallel" and buffer.scope != "global"):
        return None  # each block of threads has its own
    choosy = _is_chosen(loop, buffer)
    touched = [
        access for access in accesses(loop.body)
        if access.buffer is buffer and access.certain and (access.written or not choosy)
    ]  # fmt: skip
    shape = [_size(size) for size in buffer.shape]
    rows = [(access.written, found) for access in touched
            if (found := _places(loop, access, shape)) is not None]  # fmt: skip
    if not (writes := [found for written, found in rows if written]):
        return None
    places, turns = (np.concatenate(each) for each in zip(*writes, strict=True))
    order = np.lexsort((turns, places))
    places, turns = places[order], turns[order]
    first = np.unique(places, return_index=True)[1]
    owner = dict(zip(places[first].tolist(), turns[first].tolist(), strict=True))
    for _, (at, who) in rows:
        for place, turn in zip(at.tolist(), who.tolist(), strict=True):
            if owner.get(place, turn) != turn:
                where = tuple([int(each) for each in np.unravel_index(place, shape)])
                pair = min(owner[place], turn), max(owner[place], turn)
                return Race(str(loop.var.name), str(buffer.name), pair, where)
    return None


def _is_chosen(loop: For, buffer: Buffer) -> bool:
    """Whether some element of a buffer is read only under a condition."""
    selects = all_of(Select, loop.body)
    return any(buffer in free_vars(branch) for select in selects for branch in select._children[1:])


def _places(loop: For, access: Access, shape: list[int]) -> tuple[Numbers, Numbers] | None:
    """The elements that an access touches in the first iterations, with the iterations; None if
    unknown."""
    if any(start is None for start in access.starts) or not all(shape):
        return None
    starts = [start for start in access.starts if start is not None]
    around: list[tuple[ScalarVar | None, int]] = [(loop.var, min(_size(loop.extent), ITERATIONS))]
    around += [(var, _size(extent)) for var, extent in access.inner]
    around += [(None, _size(extent)) for extent in access.extents]
    sizes = _fewer([size for _, size in around])
    steps = [np.arange(size).reshape([-1 if n == at else 1 for n in range(len(sizes))])
             for at, size in enumerate(sizes)]  # fmt: skip
    grid: dict[Term, NDArray[Any]] = {  # Any: as `on_grid` takes them
        var: step for (var, _), step in zip(around, steps, strict=True) if var is not None
    }
    extents = [extent for _, extent in access.inner]
    sized = {
        var: np.array(SIZE_OF_OPEN_DIMS) for extent in extents for var in free_vars(extent)
    } | grid
    for start in starts:
        for var in free_vars(start):
            grid.setdefault(var, np.array(0))  # a race in the first turn of loops around is one
    if isinstance(found := on_grid(starts, grid), Scalar):
        return None
    if isinstance(turned := on_grid(extents, sized), Scalar):
        return None
    happens = np.ones(sizes, bool)  # a loop may have fewer turns than another iteration's
    for step, extent in zip(steps[1:], turned, strict=False):
        happens &= step < extent
    offsets = steps[len(steps) - len(starts) :]
    flat = np.zeros(sizes, np.int64)
    for number, offset, size in zip(found, offsets, shape, strict=True):
        at = number + offset
        if (happens & ((at < 0) | (at >= size))).any():
            return None  # what is outside is another mistake
        flat = flat * size + at
    turns = np.broadcast_to(steps[0], flat.shape)
    return flat[happens], turns[happens].astype(np.int64)


def _fewer(sizes: list[int]) -> list[int]:
    """Reduced sizes of a grid with few points: only the first iterations of inner loops."""
    found = list(sizes)
    for at in range(len(found) - 1, 0, -1):
        if prod(found) > POINTS:
            found[at] = max(1, min(found[at], POINTS * found[at] // prod(found)))
    return found


def _size(of: Scalar) -> int:
    """A size where open dims are `SIZE_OF_OPEN_DIMS`; a negative extent counts as 0."""
    return max(evaluate(of, dict.fromkeys(free_vars(of), SIZE_OF_OPEN_DIMS)) or 0, 0)


# --- index terms at every point of a grid of loops, worked out at once -------------------------


def on_grid(
    wanted: Sequence[Scalar], grid: Mapping[Term, NDArray[Any]]
) -> list[NDArray[Any]] | Scalar:  # Any: index terms are integers, conditions bools
    """The values of terms over a grid of their variables; or the first subterm without a value: a
    variable of no loop, or a load."""
    memo: dict[Term, NDArray[Any]] = {}
    for node in post_order(*wanted):
        if not isinstance(node, Scalar):
            continue
        row = row_of(node)
        if isinstance(node, Lit):
            memo[node] = np.array(node.value)
        elif node in grid:
            memo[node] = grid[node]
        elif row is not None and not isinstance(node, ScalarVar):
            memo[node] = row.array(*[memo[child] for child in node._children])
        else:
            return node
    return [memo[scalar] for scalar in wanted]
