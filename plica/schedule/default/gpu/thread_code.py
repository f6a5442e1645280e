"""Code of threads, written as statements: launches, loop nests, places and what guards them.

>>> from plica.core.name import Name
>>> from plica.ir.loop.statement import NOTHING, statements
>>> from plica.ir.type.dtype import i64
>>> block, thread, lane = (sc.ScalarVar(Name(each), i64) for each in ("b", "t", "l"))
>>> made = block_launch(NOTHING, (block, 7), (thread, 32), (lane, 4))
>>> [each.kind for each in statements(made) if isinstance(each, For)]
['blockIdx.x', 'threadIdx.x', 'threadIdx.y']
>>> made = block_launch(NOTHING, (block, 7), (thread, 8), (lane, 4), beside=False)
>>> [each.kind for each in statements(made) if isinstance(each, For)]
['blockIdx.x', 'threadIdx.y', 'threadIdx.x']
>>> made = block_launch(NOTHING, (block, 7), (thread, 32), (lane, 1))
>>> [each.kind for each in statements(made) if isinstance(each, For)]
['blockIdx.x', 'threadIdx.x']
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from math import prod
from typing import TypeAlias

from plica.core import Term, substitute
from plica.ir.loop import NOTHING, Branch, For, Names, Region, Stmt, scalar as sc
from plica.ir.loop.statement import LoopKind
from plica.ir.type import DType, known

Counted: TypeAlias = tuple[sc.ScalarVar, int]  # a variable and its extent
Guard: TypeAlias = tuple[sc.Scalar, int, int]  # a place, how far it reaches, and how far it may


class ThreadNames(Names):
    """Names for the loops and buffers of threads."""

    def buffer(self, like: str, shape: Sequence[int], dtype: DType, scope: str) -> sc.Buffer:
        return sc.Buffer(self.name(like), tuple(map(sc.index, shape)), dtype, scope)

    def nest(
        self, axes: Mapping[str, int], body: Callable[..., Stmt], kind: LoopKind = "serial",
        around: LoopKind = "serial",
    ) -> Stmt:  # fmt: skip
        """A nest of loops; the last is of a kind, those around it of another."""
        own = [self.var(word) for word in axes]
        whole = body(*own)
        for number, (var, size) in enumerate(reversed([*zip(own, axes.values(), strict=True)])):
            whole = For(var, sc.index(size), kind if number == 0 else around, whole)
        return whole

    def each(
        self, axes: Mapping[str, int], body: Callable[..., Stmt], kind: LoopKind = "unrolled"
    ) -> Stmt:
        """A nest of loops that are written out; the last is of a kind."""
        return self.nest(axes, body, kind, "unrolled")


def block_launch(
    body: Stmt, blocks: Counted, along: Counted, across: Counted, *, beside: bool = True
) -> Stmt:
    """A per-thread body as a launch; contiguous elements belong to the threads of a warp: across
    rows if several are `beside` one another, else along the row."""
    (block, count), (thread, rows), (lane, columns) = blocks, along, across
    if columns == 1:
        body = substitute(body, {lane: sc.index(0)})
        body = For(thread, sc.index(rows), "threadIdx.x", body)
    elif not beside:
        body = For(thread, sc.index(rows), "threadIdx.x", body)
        body = For(lane, sc.index(columns), "threadIdx.y", body)
    else:
        body = For(thread, sc.index(rows), "threadIdx.y", body)
        body = For(lane, sc.index(columns), "threadIdx.x", body)
    return For(block, sc.index(count), "blockIdx.x", body)


def region_of(of: sc.Buffer, starts: Mapping[int, sc.Scalar], extents: Mapping[int, int]) -> Region:
    """A region that has all of a buffer but along some axes."""
    begin = [starts.get(at, sc.index(0)) for at in range(len(of.shape))]
    count = [sc.index(extents[at]) if at in extents else size for at, size in enumerate(of.shape)]
    return Region(of, tuple(begin), tuple(count))


def flattened(of: sc.Buffer) -> sc.Buffer:
    """A buffer with one axis."""
    return sc.Buffer(of.name, (sc.index(prod([known(n) or 0 for n in of.shape])),), of.dtype)


# --- places ---------------------------------------------------------------------------------------


def digits(
    axes: Sequence[sc.ScalarVar], sizes: Mapping[sc.ScalarVar, int], number: sc.Scalar
) -> dict[Term, Term]:
    """Where along some axes the place of a number is."""
    found: dict[Term, Term] = {}
    for axis in reversed(axes):
        found[axis] = number if axis is axes[0] else number % sizes[axis]
        number = number // sizes[axis]
    return found


def axes_of(number: sc.Scalar, counts: Sequence[int]) -> tuple[sc.Scalar, ...]:
    """The places along axes of a place that is counted through all of them."""
    places: list[sc.Scalar] = []
    for size in reversed(counts):
        places.insert(0, number % size)
        number = number // size
    return tuple(places)


def inside(guards: Iterable[Guard]) -> sc.Scalar | None:
    """Whether all places are below how far they may be; None where they always are."""
    tests: list[sc.Scalar] = [
        sc.Lt(place, sc.index(size)) for place, reach, size in guards if reach > size
    ]
    return reduce(sc.And, tests) if tests else None


def within(value: sc.Scalar, guards: Iterable[Guard], beyond: sc.Scalar | None = None) -> sc.Scalar:
    """A value where all places are inside, elsewhere another one, or 0."""
    if (test := inside(guards)) is None:
        return value
    return sc.Select(test, value, sc.Lit(0, sc.dtype_of(value)) if beyond is None else beyond)


def only_within(body: Stmt, guards: Iterable[Guard]) -> Stmt:
    """A body for places that are inside."""
    test = inside(guards)
    return body if test is None else Branch(test, body, NOTHING)
