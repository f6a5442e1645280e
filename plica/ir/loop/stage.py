"""Stages: tensors computed one from another, as a person writes them.

    Stage ::= Each(out, axes, value)                                    element by element
            | Fold(outs, axes, terms, extents, combine, values)         a reduction of tuples
            | Scan(out, axes, count, first, next)                       one row from those before
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

from plica.core.diagnostic import ill_formed
from plica.core.name import Name
from plica.core.term import Term
from plica.ir.loop.combiner import Combine
from plica.ir.loop.scalar import Buffer, Like, Scalar, ScalarVar, dtype_of
from plica.ir.loop.statement import Stmt
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dim import DimLike, dim
from plica.ir.type.dtype import DType

WRITTEN = "ir.stage"  # the path that its terms are written down under


class _Stage(Term):
    """What has results; the first can be read as if it were a buffer."""

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
    """`count` rows along the first axis are `first`, every further one is `next`, which may read
    rows of `out` before it."""

    binds = (("axes", ("first", "next")),)
    out: Buffer
    axes: tuple[ScalarVar, ...]
    count: int
    first: Scalar
    next: Scalar


@frozen(eq=False)
class ExternStage(_Stage):
    """Statements that fill the results; they are moved as one piece."""

    written = "ir.stage.Extern"

    results: tuple[Buffer, ...]
    body: Stmt

    @property
    def outs(self) -> tuple[Buffer, ...]:
        return self.results


Stage: TypeAlias = Each | Fold | Scan | ExternStage


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
    sizes, box = tuple([dim(each) for each in shape]), tuple([dim(each) for each in extents])
    axes, terms = _axes(sizes), tuple([axis("k", at) for at in range(len(box))])
    values = tuple(body(*axes, *terms))
    if len({len(values), len(names), len(combine.starts)}) != 1:
        raise ill_formed(f"A fold has a name and a value for each of {len(combine.starts)}.")
    made = [
        Buffer(Name(name), sizes, dtype_of(each))
        for name, each in zip(names, combine.starts, strict=True)
    ]
    return Fold(tuple(made), axes, terms, box, combine, values)


def scan(
    name: str,
    shape: Iterable[DimLike],
    first: Callable[..., Scalar],
    next: Callable[..., Scalar],
    count: int = 1,
) -> Scan:
    """The tensor whose first rows are `first(t, i, …)`, and `next(rows, t, i, …)` after those."""
    sizes = tuple([dim(each) for each in shape])
    axes = _axes(sizes)
    start = first(*axes)
    out = Buffer(Name(name), sizes, dtype_of(start))
    return Scan(out, axes, count, start, next(out, *axes))


def extern(outs: Sequence[Buffer], build: Callable[..., Stmt]) -> ExternStage:
    """The tensors that the statements `build(*outs)` fill."""
    return ExternStage(tuple(outs), build(*outs))


def _axes(shape: Sequence[Any]) -> tuple[ScalarVar, ...]:
    return tuple([axis("i", at) for at in range(len(shape))])
