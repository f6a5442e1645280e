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

from plica.rewrite.layout.transform import operator
from plica.rewrite.make import tabled as rule
from plica.rewrite.pack import Pack, pack
from plica.rewrite.packs.axes import KeepsOrder, SameShape, composed, explicit_order
from plica.rewrite.packs.shape import is_explicit
from plica.rewrite.packs.word import LikeLeft
from plica.rewrite.pattern import hole

x: Any = hole("x")
p: Any = hole("p")
q: Any = hole("q")
r: Any = hole("r", when=is_explicit)
transpose, reshape = operator("transpose"), operator("reshape")


# fmt: off
# ruff: noqa: E501  # a rule is one line
LAYOUT: Final[Pack] = pack(
    "layout",
    rule("layout-compose",  transpose(transpose(x, p), q), transpose(x, composed(explicit_order(p, x), explicit_order(q, x)))),
    rule("layout-keep",     transpose(x, p),               LikeLeft(transpose(x, p), x, "reshape", always=False), when=KeepsOrder("x", "p")),
    rule("layout-regroup",  reshape(reshape(x, p), q),     reshape(x, q)),
    rule("layout-same",     reshape(x, r),                 x, when=SameShape("x", "r")),
    version="1",
    doc="Transforms of layouts, cancelled.",
)
# fmt: on
