"""Tensor expressions: what an operator computes, element by element.

    Compute ::= Compute(inputs, axes, shape, body)

The element of the result at `axes` is the scalar `body`, which loads from `inputs` and may reduce.
Fusion kind, shape function, numpy meaning and loop nest of an operator are all derived from it.

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

from plica.core.binding import free_vars
from plica.core.name import Name
from plica.core.term import Term
from plica.ir.loop.scalar import Buffer, Combiner, Reduce, Runs, Scalar, ScalarVar, dtype_of
from plica.ir.type.dim import DimLike, dim
from plica.ir.type.dtype import DType, i64

WRITTEN = "ir.tensor"  # the path that its terms are written down under


@frozen(eq=False)
class Compute(Term):
    """One output tensor; symbolic dims stay free."""

    binds = (("inputs", ("body",)), ("axes", ("body",)))
    inputs: tuple[Buffer, ...]
    axes: tuple[ScalarVar, ...]
    shape: tuple[Scalar, ...]
    body: Scalar

    @property
    def dtype(self) -> DType:
        return dtype_of(self.body)


def buffer(name: str, shape: Iterable[DimLike], dtype: DType) -> Buffer:
    """A tensor to read from or write to."""
    return Buffer(Name(name), tuple(dim(size) for size in shape), dtype)


def axis(name: str, number: int = 0) -> ScalarVar:
    """An index variable."""
    return ScalarVar(Name(name, number), i64)


def compute(
    inputs: Iterable[Buffer], shape: Iterable[DimLike], body: Callable[..., Scalar]
) -> Compute:
    """The tensor of the given shape whose element at `i, j, …` is `body(i, j, …)`."""
    sizes, read = tuple(dim(size) for size in shape), tuple(inputs)
    axes = _axes("i", len(sizes), _open((*sizes, *[size for each in read for size in each.shape])))
    return Compute(read, axes, sizes, body(*axes))


def reduce(
    combiner: Combiner,
    extents: Iterable[DimLike],
    body: Callable[..., Scalar],
    name: str = "k",
    runs: Runs = "",
) -> Scalar:
    """`body(k, …)` combined over the box; nested reductions need different axis names.

    Floats are joined one by one, or in runs (`plica.ir.loop.summation`).  An open size of what is
    read may be called as an axis would be: then the axis gets another name.
    """
    sizes = tuple(dim(size) for size in extents)
    axes = _axes(name, len(sizes), _open(sizes))
    made = body(*axes)
    read = [each for each in free_vars(made) if isinstance(each, Buffer)]
    taken = _open((*sizes, *[size for each in read for size in each.shape]))
    if not taken.isdisjoint(axes):
        axes = _axes(name, len(sizes), taken)
        made = body(*axes)
    return Reduce(combiner, axes, sizes, made, runs)


def _open(sizes: Iterable[Scalar]) -> frozenset[Term]:
    """The dims that sizes are made of."""
    return frozenset[Term]().union(*map(free_vars, sizes))


def _axes(name: str, count: int, taken: frozenset[Term]) -> tuple[ScalarVar, ...]:
    """So many index variables, none of which is taken."""
    every = (each for number in itertools.count() if (each := axis(name, number)) not in taken)
    return tuple(itertools.islice(every, count))
