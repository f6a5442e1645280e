"""Motion: transposes, reshapes and broadcasts move towards the results, where they meet.

Measure: operators, then the distance of rearrangements from the result. A rearrangement (transpose,
reshape, broadcast) of arguments becomes one of the result, so that two become one, and those before
and after an elementwise operator can cancel. A broadcast that another argument implies is removed.

Nothing here looks at values, so every rule is exact.

>>> relu, transpose = op("nn.relu"), op("transpose")
>>> from plica.ir.graph.expression import Var
>>> from plica.core.name import Name
>>> from plica.ir.type.term import tensor
>>> from plica.rewrite.pack import rewrite
>>> a = Var(Name("a"), tensor((2, 3), "f32"))
>>> rewrite(relu(transpose(a, (1, 0))), MOTION)[0] is transpose(relu(a), (1, 0))
True
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import attrs
import numpy as np

from plica.core import Term
from plica.ir.graph.expression import Const, const
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.pack import Pack, pack
from plica.rewrite.packs.axes import Axes
from plica.rewrite.packs.shape import is_explicit, is_order
from plica.rewrite.packs.word import CoversShape, OneShape, admitted, c, op, shape, spoken, v, z
from plica.rewrite.pattern import derived, hole, holes
from plica.rewrite.rule import Rule

transpose, reshape, broadcast_to = map(op, ["transpose", "reshape", "broadcast_to"])
p: Any = hole("p", when=is_order)
r: Any = hole("r", when=is_explicit)
(t,) = holes("t")

UNARY: Final = (
    "absolute", "cast", "clip", "exp", "logical_not", "negative", "nn.gelu", "nn.hard_swish",
    "nn.leaky_relu", "nn.relu", "nn.sigmoid", "nn.silu", "rsqrt", "sqrt", "square", "tanh",
)  # fmt: skip
BINARY: Final = (
    "add", "divide", "equal", "less", "maximum", "minimum", "multiply", "subtract",
)  # fmt: skip
ONE_SIDED: Final = ("divide", "subtract")
"""Binary operators whose constants are not moved to the right."""


def settings(name: str) -> dict[str, Any]:
    """A hole for each attribute of an operator."""
    return {attribute.name: hole(f"of_{attribute.name}") for attribute in op(name).attributes}


@attrs.frozen
class HasNoMoreAxes:
    """A guard: a constant has no more axes than a transpose."""

    constant: str
    order: str

    def __call__(self, match: PatternMatch) -> bool:
        return len(shape(match[self.constant])) <= len(match[self.order])


@derived
def turned_back(of: Const, order: Axes) -> Term:
    """A constant in the order of axes that the other argument has without its transpose."""
    if not of.shape:
        return of
    wide = of.numpy().reshape((1,) * (len(order) - len(of.shape)) + of.shape)
    return const(np.transpose(wide, np.argsort(order)), of.dtype)


def unary(name: str) -> Iterator[Rule]:
    """Moves a rearrangement out of a unary operator."""
    of, own, part = op(name), settings(name), spoken(name)
    x: Any = hole("x", dtypes=admitted(name))
    # fmt: off
    yield rule(f"{part}-of-transpose", of(transpose(x, p), **own),    transpose(of(x, **own), p))
    yield rule(f"{part}-of-reshape",   of(reshape(x, r), **own),      reshape(of(x, **own), r))
    yield rule(f"{part}-of-broadcast", of(broadcast_to(x, t), **own), broadcast_to(of(x, **own), t))
    # fmt: on


def binary(name: str) -> Iterator[Rule]:
    """Moves a rearrangement of both arguments, or of one with a scalar, out of a binary
    operator."""
    of, part, dtypes = op(name), spoken(name), admitted(name)
    x: Any = hole("x", dtypes=dtypes)
    y: Any = hole("y", dtypes=dtypes)

    # fmt: off
    # ruff: noqa: E501  # a rule is one line
    yield rule(f"{part}-of-transposes",         of(transpose(x, p), transpose(y, p)),       transpose(of(x, y), p))
    yield rule(f"{part}-of-reshapes",           of(reshape(x, r), reshape(y, r)),           reshape(of(x, y), r), when=OneShape("x", "y"))
    yield rule(f"{part}-of-broadcasts",         of(broadcast_to(x, t), broadcast_to(y, t)), broadcast_to(of(x, y), t))
    yield rule(f"{part}-of-transpose-constant", of(transpose(x, p), c),                     transpose(of(x, turned_back(c, p)), p), when=HasNoMoreAxes("c", "p"))
    yield rule(f"{part}-of-reshape-scalar",     of(reshape(x, r), v),                       reshape(of(x, v), r))
    yield rule(f"{part}-of-broadcast-scalar",   of(broadcast_to(x, t), v),                  broadcast_to(of(x, v), t))
    yield rule(f"{part}-right-broadcast",       of(z, broadcast_to(y, t)),                  of(z, y), when=CoversShape("z", "t"))
    yield rule(f"{part}-left-broadcast",        of(broadcast_to(x, t), z),                  of(x, z), when=CoversShape("z", "t"))
    if name in ONE_SIDED:
        yield rule(f"{part}-scalar-of-transpose", of(v, transpose(x, p)),                   transpose(of(v, x), p))
        yield rule(f"{part}-scalar-of-reshape",   of(v, reshape(x, r)),                     reshape(of(v, x), r))
        yield rule(f"{part}-scalar-of-broadcast", of(v, broadcast_to(x, t)),                broadcast_to(of(v, x), t))
    # fmt: on


MOTION: Final[Pack] = pack(
    "motion",
    *map(unary, UNARY),
    *map(binary, BINARY),
    version="1",
    doc="Transposes, reshapes and broadcasts move towards the results.",
)
