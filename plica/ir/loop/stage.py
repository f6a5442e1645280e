"""Stages: tensors computed one from another, as a person writes them.

    Stage ::= Each(out, axes, value)                                    element by element
            | Fold(outs, axes, terms, extents, combine, values)         a reduction of tuples
            | Scan(out, axes, along, combiner, value, exclusive, reverse)   a fold up to each place
            | Recurrence(out, axes, count, first, next)                 one row from those before
            | Scatter(out, axes, first, terms, extents, condition, indices, value)
                                                                terms stored at computed places
            | Extern(outs, body)                                        statements of one's own

A tensor that is only read is a `placeholder`.  `plica.ir.loop.define` makes a kernel of stages.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.tensor import reduce
>>> x = placeholder("x", (2, 3), f32)
>>> total = stage("total", (2,), lambda i: reduce("sum", (3,), lambda k: x[i, k]))
>>> share = stage("share", (2, 3), lambda i, j: x[i, j] / total[i])
>>> [str(each.name) for each in (*total.outs, *share.outs)]
['total', 'share']
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from attrs import frozen

from plica.core import Name, Term, all_of, free_vars, fresh, ill_formed, post_order, substitute
from plica.ir.loop.combiner import Combine
from plica.ir.loop.scalar import Buffer, Combiner, Like, Load, Reduce, Scalar, ScalarVar, dtype_of
from plica.ir.loop.statement import Stmt
from plica.ir.loop.tensor import Prefix, as_reductions, axis, buffer
from plica.ir.type.dim import DimLike, dim, known
from plica.ir.type.dtype import DType

WRITTEN = "ir.stage"  # the path that its terms are written down under


class _Stage(Term):
    """Computes results; the first can be read like a buffer."""

    __slots__ = ()

    @property
    def outs(self) -> tuple[Buffer, ...]:
        """The tensors it makes."""
        return (self.out,)  # type: ignore[attr-defined]  # those that have several say so

    def __getitem__(self, indices: Like | tuple[Like, ...]) -> Scalar:
        return self.outs[0][indices]


@frozen(eq=False)
class Each(_Stage):
    """`out[axes] = value`; the value may reduce."""

    binds = (("axes", ("value",)),)
    out: Buffer
    axes: tuple[ScalarVar, ...]
    value: Scalar


@frozen(eq=False)
class Fold(_Stage):
    """Tuples of `values` combined over the box of `terms`."""

    binds = (("axes", ("values",)), ("terms", ("values",)))
    results: tuple[Buffer, ...]
    axes: tuple[ScalarVar, ...]
    terms: tuple[ScalarVar, ...]
    extents: tuple[Scalar, ...]
    combine: Combine
    values: tuple[Scalar, ...]

    @property
    def outs(self) -> tuple[Buffer, ...]:
        return self.results


@frozen(eq=False)
class Scan(_Stage):
    """`out[axes]` is `value` folded over the places of an axis up to one's own, in their order.

    `along` is the number of that axis; `exclusive` leaves out the place itself, `reverse` begins
    with the last place.
    """

    binds = (("axes", ("value",)),)
    out: Buffer
    axes: tuple[ScalarVar, ...]
    along: int
    combiner: Combiner
    value: Scalar
    exclusive: bool = False
    reverse: bool = False

    @property
    def element(self) -> Prefix:
        """The element at the axes as a tensor expression."""
        here = self.axes[self.along]
        taken = {each.name for each in post_order(self) if isinstance(each, Buffer | ScalarVar)}
        own = ScalarVar(fresh(here.name, taken), here.dtype)
        value = substitute(self.value, {here: own})
        extent = self.out.shape[self.along]
        return Prefix(self.combiner, own, extent, here, value, self.exclusive, self.reverse)


@frozen(eq=False)
class Recurrence(_Stage):
    """`count` rows along the first axis are `first`, every further one is `next`, which may read
    rows of `out` before it."""

    binds = (("axes", ("first", "next")),)
    out: Buffer
    axes: tuple[ScalarVar, ...]
    count: int
    first: Scalar
    next: Scalar


@frozen(eq=False)
class Scatter(_Stage):
    """`out[axes]` is initialised with `first`; then each of `terms`, in order, stores `value` at
    `indices` if its `condition` holds. Terms may read what earlier terms stored.

    Without `first`, the terms update the existing contents of `out`.
    """

    binds = (("axes", ("first",)), ("terms", ("condition", "indices", "value")))
    out: Buffer
    axes: tuple[ScalarVar, ...]
    first: Scalar | None
    terms: tuple[ScalarVar, ...]
    extents: tuple[Scalar, ...]
    condition: Scalar
    indices: tuple[Scalar, ...]
    value: Scalar


@frozen(eq=False)
class ExternStage(_Stage):
    """Statements that fill the results; they are moved as one piece."""

    written = "ir.stage.Extern"

    results: tuple[Buffer, ...]
    body: Stmt

    @property
    def outs(self) -> tuple[Buffer, ...]:
        return self.results


Stage: TypeAlias = Each | Fold | Scan | Recurrence | Scatter | ExternStage


def placeholder(name: str, shape: Iterable[DimLike], dtype: DType) -> Buffer:
    """A tensor that is given."""
    return buffer(name, shape, dtype)


def stage(name: str, shape: Iterable[DimLike], body: Callable[..., Scalar]) -> Each:
    """The tensor whose element at `i, j, …` is `body(i, j, …)`."""
    sizes = tuple([dim(size) for size in shape])
    axes = _axes(sizes)
    value = body(*axes)
    return Each(Buffer(Name(name), sizes, dtype_of(value)), axes, value)


def fold(
    names: Sequence[str],
    shape: Iterable[DimLike],
    extents: Iterable[DimLike],
    combine: Combine,
    body: Callable[..., Sequence[Scalar]],
) -> Fold:
    """The tensors whose elements at `i, …` are `body(i, …, k, …)` combined over all `k, …`."""
    sizes, box = tuple([dim(each) for each in shape]), tuple([dim(extent) for extent in extents])
    axes, terms = _axes(sizes), tuple([axis("k", at) for at in range(len(box))])
    values = tuple(body(*axes, *terms))
    if len({len(values), len(names), len(combine.starts)}) != 1:
        raise ill_formed(f"A fold has a name and a value for each of {len(combine.starts)}.")
    buffers = [
        Buffer(Name(name), sizes, dtype_of(start))
        for name, start in zip(names, combine.starts, strict=True)
    ]
    return Fold(tuple(buffers), axes, terms, box, combine, values)


def stage_of(out: Buffer, axes: tuple[ScalarVar, ...], value: Scalar) -> Each | Scan:
    """The stage that makes the element `value` of each place; a prefix fold along one of the axes
    is a scan."""
    if isinstance(value, Prefix) and value.at in axes and value.at not in free_vars(value.body):
        along = axes.index(value.at)
        body = substitute(value.body, {value.axis: value.at})
        if out.shape[along] is value.extent:
            return Scan(out, axes, along, value.combiner, body, value.exclusive, value.reverse)
    return Each(out, axes, as_reductions(value))


def epilogue_of(fold: Each | Scan, last: Each) -> bool:
    """Whether a stage does something to each element of another: it reads it at its own place.

    Its axes are a permutation of the other's; axes of extent 1 may be added or dropped.
    """
    read = [node for node in all_of(Load, last.value) if node.buffer is fold.out]
    if len(read) != 1 or all_of(Reduce, last.value):
        return False
    sizes = dict(zip(last.axes, last.out.shape, strict=True))
    wanted = {axis for axis, size in sizes.items() if known(size) != 1}
    for place, size in zip(read[0].indices, fold.out.shape, strict=True):
        if place in wanted and sizes[place] is size:
            wanted.remove(place)
        elif known(size) != 1:
            return False
    return not wanted


def recurrence(
    name: str,
    shape: Iterable[DimLike],
    first: Callable[..., Scalar],
    next: Callable[..., Scalar],
    count: int = 1,
) -> Recurrence:
    """The tensor whose first rows are `first(t, i, …)`, and `next(rows, t, i, …)` after those."""
    sizes = tuple([dim(each) for each in shape])
    axes = _axes(sizes)
    start = first(*axes)
    out = Buffer(Name(name), sizes, dtype_of(start))
    return Recurrence(out, axes, count, start, next(out, *axes))


def extern(outs: Sequence[Buffer], build: Callable[..., Stmt]) -> ExternStage:
    """The tensors that the statements `build(*outs)` fill."""
    return ExternStage(tuple(outs), build(*outs))


def _axes(shape: Sequence[Any]) -> tuple[ScalarVar, ...]:
    return tuple([axis("i", at) for at in range(len(shape))])
