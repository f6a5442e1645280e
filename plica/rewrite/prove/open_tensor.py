"""Open tensors: tensors of any shape, as the scalar at a place; and why a rule cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from plica.core import Term
from plica.ir.loop.scalar import Lit, Scalar
from plica.ir.type import DType
from plica.rewrite.prove.open_shape import SCALAR, OpenIndex, OpenShape


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
