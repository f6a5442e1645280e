"""Open tensors and folds: tensors of any shape as the scalar at a place; reductions of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from plica.core import Term
from plica.ir.loop.scalar import Combiner, Lit, Scalar
from plica.ir.type import DType
from plica.rewrite.prove.open_shape import SCALAR, AxisSet, OpenIndex, OpenShape


class Unprovable(Exception):
    """Why the prover cannot read a rule."""


class IllTypedRule(Unprovable):
    """With these dtypes the left side is no term."""


@attrs.frozen(eq=False)
class OpenTensor:
    """A tensor of any shape: its dtype, and the element at a place."""

    dtype: DType
    shape: OpenShape
    at: Callable[[OpenIndex], Scalar]
    parts: tuple[OpenTensor, ...] = ()  # what a concatenation is made of, and along which axis
    axis: Any = None


class OpenTensors(dict[Term, OpenTensor]):
    """The tensors that parts of a rule are; to read anything else as one is refused."""

    def __missing__(self, part: object) -> OpenTensor:
        raise Unprovable(f"{part!r} is no tensor that is modelled")


def constant(value: bool | int | float, dtype: DType) -> OpenTensor:
    """A scalar constant."""
    literal = Lit(value, dtype)
    return OpenTensor(dtype, SCALAR, lambda _: literal)


@attrs.frozen(eq=False)
class OpenFold:
    """A reduction: what is combined, where, along which axes of which sizes, in which order."""

    combiner: Combiner
    place: OpenIndex
    gone: AxisSet
    sizes: OpenShape
    order: OpenShape | None
    may_be_empty: bool  # whether it is an extreme that has a value for no terms, too
    body: Scalar

    @property
    def domain(self) -> tuple[Any, ...]:
        """What two reductions of the same terms agree in."""
        return (self.gone, self.sizes, self.order, self.may_be_empty)
