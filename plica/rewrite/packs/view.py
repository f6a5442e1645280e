"""Views first: a reshape of what is cut out or widened becomes a cut, or a cast, of a reshape.

Measure: casts and slices below reshapes.  A reshape is no work where it is one of memory, so what is
cut out of a tensor and widened can be read by its users where it lies: heads of attention are parts
of one product, and nobody copies them.

No element is computed here: every rule is exact.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Var
>>> from plica.ir.type.term import tensor
>>> from plica.rewrite.pack import rewrite
>>> x = Var(Name("x"), tensor((5, 24), "f16"))
>>> heads = rewrite(reshape(slice_(x, (8,), (16,), None, (1,)), (5, 2, 4)), VIEW)[0]
>>> heads is slice_(reshape(x, (5, 6, 4)), (2,), (4,), None, (1,))
True
"""

from __future__ import annotations

from math import prod
from typing import Any, Final

from plica.core.term import Term
from plica.ir.type.dim import known
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.pack import Pack, pack
from plica.rewrite.packs.cut import cuts, numbers, sliced
from plica.rewrite.packs.shape import is_explicit
from plica.rewrite.packs.word import op, shape, x
from plica.rewrite.pattern import hole, holes

slice_, reshape, cast = map(op, ["slice", "reshape", "cast"])

# Any: holes for attributes.
a, i, j, s, p = holes("a i j s p")
r: Any = hole("r", when=is_explicit)
n: Any = hole("n", dtypes=("f16", "bf16"))


def cut_later(match: PatternMatch) -> Term | None:
    """A slice of a reshape for a reshape of a slice that cuts whole groups of one axis."""
    sizes = [known(size) for size in shape(match.x)]
    new = [known(size) for size in match.r]
    found = {axis: numbers(each)
             for axis, each in cuts(shape(match.x), match.i, match.j, match.s, match.a).items()}  # fmt: skip
    if len(found) != 1 or None in sizes or None in new:
        return None
    ((at, told),) = found.items()
    after = len(sizes) - at - 1
    middle = [size or 0 for size in new[at : len(new) - after]]
    if not middle and told is not None and told[1:] == (1, 1) and after:
        return _joined(match, at, told[0], [size or 0 for size in sizes])
    size, group = sizes[at] or 0, prod(middle[1:])
    if told is None or told[1] != 1 or len(middle) < 2 or prod(middle) != told[2] or not group:
        return None
    if new[:at] != sizes[:at] or new[len(new) - after :] != sizes[at + 1 :]:
        return None
    if size % group or told[0] % group:
        return None
    whole = reshape(match.x, (*new[:at], size // group, *middle[1:], *sizes[at + 1 :]))
    return sliced(whole, {at: (told[0] // group, 1, middle[0])})


def _joined(match: PatternMatch, at: int, place: int, sizes: list[int]) -> Term | None:
    """One of an axis, which goes: a cut of that axis and the next as one."""
    if [known(size) for size in match.r] != sizes[:at] + sizes[at + 1 :] or not sizes[at + 1]:
        return None
    near = sizes[at + 1]
    whole = reshape(match.x, (*sizes[:at], sizes[at] * near, *sizes[at + 2 :]))
    return sliced(whole, {at: (place * near, 1, near)})


# fmt: off
# ruff: noqa: E501  # a rule is one line
VIEW: Final[Pack] = pack(
    "view",
    rule("reshape-of-widened",    reshape(cast(n, dtype=p), r),                 cast(reshape(n, r), dtype=p)),
    rule("reshape-of-slice",      reshape(slice_(x, i, j, s, a), r),            cut_later),
    version="1",
)
# fmt: on
