"""Tensor expressions: what an operator computes, per element.

    Compute ::= Compute(inputs, axes, shape, body)
    Scalar  ::= … | Prefix(combiner, axis, extent, at, body, exclusive, reverse)

The element of the result at `axes` is the scalar `body`, which loads from `inputs` and may reduce.
Prefix folds occur only in tensor expressions: a stage holds them as a `Scan` along an axis. Fusion
kind, shape function, numpy meaning and loop nest of an operator are derived from it.

>>> from plica.ir.type.dtype import f32
>>> x = buffer("x", (3,), f32)
>>> doubled = compute((x,), x.shape, lambda i: x[i] * 2)
>>> doubled.body
Mul(Load(Buffer(...), (ScalarVar(...))), Lit(2.0, DType('f32')))
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

from attrs import frozen

from plica.core import Name, Term, all_of, free_vars, map_bottom_up, substitute
from plica.ir.loop import scalar as sc
from plica.ir.loop.combiner import MEANING
from plica.ir.type.dim import DimLike, dim
from plica.ir.type.dtype import DType, i64

WRITTEN = "ir.tensor"  # the path that its terms are written down under


@frozen(eq=False)
class Compute(Term):
    """One output tensor; symbolic dims are free variables."""

    binds = (("inputs", ("body",)), ("axes", ("body",)))
    inputs: tuple[sc.Buffer, ...]
    axes: tuple[sc.ScalarVar, ...]
    shape: tuple[sc.Scalar, ...]
    body: sc.Scalar

    @property
    def dtype(self) -> DType:
        return sc.dtype_of(self.body)


@frozen(eq=False)
class Prefix(sc.Scalar):
    """`body` folded over the places of `axis` up to `at`, one by one from the combiner's identity.

    `exclusive` leaves out the element at `at`; `reverse` runs from the last index back to `at`.
    """

    binds = (("axis", ("body",)),)
    combiner: sc.Combiner
    axis: sc.ScalarVar
    extent: sc.Scalar
    at: sc.Scalar
    body: sc.Scalar
    exclusive: bool = False
    reverse: bool = False

    @property
    def dtype(self) -> DType:
        return sc.dtype_of(self.body)


def buffer(name: str, shape: Iterable[DimLike], dtype: DType) -> sc.Buffer:
    """A tensor to read from or write to."""
    return sc.Buffer(Name(name), tuple(dim(size) for size in shape), dtype)


def axis(name: str, number: int = 0) -> sc.ScalarVar:
    """An index variable."""
    return sc.ScalarVar(Name(name, number), i64)


def compute(
    inputs: Iterable[sc.Buffer], shape: Iterable[DimLike], body: Callable[..., sc.Scalar]
) -> Compute:
    """The tensor of the given shape whose element at `i, j, …` is `body(i, j, …)`."""
    sizes, read = tuple(dim(size) for size in shape), tuple(inputs)
    axes = _axes("i", len(sizes), _open((*sizes, *[size for each in read for size in each.shape])))
    return Compute(read, axes, sizes, body(*axes))


def reduce(
    combiner: sc.Combiner,
    extents: Iterable[DimLike],
    body: Callable[..., sc.Scalar],
    name: str = "k",
    runs: sc.Runs = "",
) -> sc.Scalar:
    """`body(k, …)` combined over the box; nested reductions need different axis names.

    Floats are summed one by one, or in runs (`plica.ir.loop.summation`). If an axis has the name of
    an open size, the axis is renamed.
    """
    sizes = tuple(dim(size) for size in extents)
    axes = _axes(name, len(sizes), _open(sizes))
    scalar = body(*axes)
    read = [var for var in free_vars(scalar) if isinstance(var, sc.Buffer)]
    taken = _open((*sizes, *[size for each in read for size in each.shape]))
    if not taken.isdisjoint(axes):
        axes = _axes(name, len(sizes), taken)
        scalar = body(*axes)
    return sc.Reduce(combiner, axes, sizes, scalar, runs)


def prefix(
    combiner: sc.Combiner,
    extent: DimLike,
    at: sc.Scalar,
    body: Callable[[sc.Scalar], sc.Scalar],
    *,
    exclusive: bool = False,
    reverse: bool = False,
) -> Prefix:
    """`body(k)` combined over all `k` up to `at`, in their order."""
    size, read = dim(extent), free_vars(body(at))
    shapes = [scalar for of in read if isinstance(of, sc.Buffer) for scalar in of.shape]
    (axis_,) = _axes("k", 1, _open((size, at, *shapes)))
    return Prefix(combiner, axis_, size, at, body(axis_), exclusive, reverse)


def _open(sizes: Iterable[sc.Scalar]) -> frozenset[Term]:
    """The dims that sizes are made of."""
    return frozenset[Term]().union(*map(free_vars, sizes))


def _axes(name: str, count: int, taken: frozenset[Term]) -> tuple[sc.ScalarVar, ...]:
    """The given number of unused index variables."""
    every = (var for number in itertools.count() if (var := axis(name, number)) not in taken)
    return tuple(itertools.islice(every, count))


def as_reductions(of: sc.Scalar) -> sc.Scalar:
    """Replaces each element of a prefix fold by a reduction.

    Law: terms are combined in the order of the scan.
    """
    if not all_of(Prefix, of):
        return of
    scalar = map_bottom_up(_as_reduction, of)
    assert isinstance(scalar, sc.Scalar)
    return scalar


def _as_reduction(node: Term) -> Term:
    """`fold(x[k] if k <= at else identity for k)`; from the end back `x[n - 1 - k]`."""
    if not isinstance(node, Prefix):
        return node
    step, last = node.axis, node.extent - 1
    value, end = node.body, node.at
    if node.reverse:
        value, end = substitute(value, {step: last - step}), last - end
    within = sc.Lt(step, end) if node.exclusive else sc.Le(step, end)
    neutral = MEANING[node.combiner][0](node.dtype)
    return sc.Reduce(node.combiner, (step,), (node.extent,), sc.Select(within, value, neutral))
