"""Rules that cancel the transforms of layouts against each other.

Measure: each removes a `transpose` or a `reshape`.

>>> from plica.ir.loop.layout import as_it_is, permuted
>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Var
>>> from plica.ir.type.term import tensor
>>> from plica.rewrite.pack import rewrite
>>> from plica.rewrite.layout.transform import shape_of, transform
>>> x = Var(Name("x"), tensor((1, 8, 5, 5), "f32"))
>>> here, there = as_it_is(4), permuted((0, 2, 3, 1))
>>> back = transform(transform(x, here, there, shape_of(x)), there, here, shape_of(x))
>>> rewrite(back, LAYOUT)[0] is x
True
"""

from __future__ import annotations

from typing import Any, Final

from plica.ir.graph.expression import Expr
from plica.ir.type import known
from plica.rewrite.layout.transform import operator, shape_of
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.pack import Pack, pack
from plica.rewrite.pattern import hole

x: Any = hole("x")
p: Any = hole("p")
q: Any = hole("q")
transpose, reshape = operator("transpose"), operator("reshape")


def _order(axes: Any, rank: int) -> tuple[int, ...]:
    """The permutation of a transpose; reversed if none is given."""
    return tuple(range(rank))[::-1] if axes is None else tuple(axis % rank for axis in axes)


def _composed(m: PatternMatch) -> Expr:
    rank = len(shape_of(m.x))
    inner, outer = _order(m.p, rank), _order(m.q, rank)
    return transpose(m.x, tuple(inner[at] for at in outer))


def _keeps_order(m: PatternMatch) -> bool:
    """Whether a transpose moves nothing in memory: only axes of size 1 change places."""
    shape = shape_of(m.x)
    wide = [at for at in _order(m.p, len(shape)) if known(shape[at]) != 1]
    return wide == sorted(wide)


def _reshaped(m: PatternMatch) -> Expr:
    shape = shape_of(m.x)
    new = tuple(shape[at] for at in _order(m.p, len(shape)))
    found: Expr = m.x if new == shape else reshape(m.x, new)
    return found


def _has_shape(m: PatternMatch) -> bool:
    return shape_of(m.x) == tuple(m.p)


# fmt: off
LAYOUT: Final[Pack] = pack(
    "layout",
    rule("layout-compose",  transpose(transpose(x, p), q), _composed),
    rule("layout-keep",     transpose(x, p),               _reshaped,     when=_keeps_order),
    rule("layout-regroup",  reshape(reshape(x, p), q),     reshape(x, q)),
    rule("layout-same",     reshape(x, p),                 x,             when=_has_shape),
    version="1",
    doc="Transforms of layouts, cancelled.",
)
# fmt: on
