"""Enclosing loops: the context that the enclosing loops and blocks define.

>>> from plica.ir.loop.statement import NOTHING, For
>>> from plica.ir.loop.tensor import axis
>>> i, n = axis("i"), axis("n")
>>> inside = context_of(((For(i, n, "serial", NOTHING), 0),))
>>> simple((i + n) // n, inside)
Lit(1, DType('i64'))
"""

from __future__ import annotations

from functools import lru_cache

from plica.analysis.index import EMPTY, Context, can_prove, simplify
from plica.analysis.site import Above, Site
from plica.core import post_order
from plica.ir.loop.scalar import FloorDiv, FloorMod, Lit, Scalar, ScalarVar
from plica.ir.loop.statement import Block, Branch, For


def context_of(above: Above) -> Context:
    """The context inside the statements of a path; dims are positive or none runs."""
    context = EMPTY
    for stmt, position in above:
        match stmt:
            case For(var, extent):
                context = context.loop(var, extent)
            case Block():
                context = context.where(stmt.predicate)
                context = context.loops(zip(stmt.vars, stmt.extents, strict=True))
            case Branch(condition):
                context = context.where(condition) if position == 0 else context.unless(condition)
            case _:
                pass
    return context


def inside(site: Site[For] | Site[Block]) -> Context:
    """The context inside a loop or a block."""
    return context_of((*site.above, (site.node, 0)))


@lru_cache(maxsize=4096)
def simple(term: Scalar, context: Context = EMPTY) -> Scalar:
    """An index term in its simplest form; remembered, since schedules ask again and again."""
    if isinstance(term, Lit | ScalarVar):
        return term
    return simplify(term, context.concerning(term))


@lru_cache(maxsize=8192)
def tidy(term: Scalar, context: Context = EMPTY) -> Scalar:
    """The simple form of a term where it says the same with less: a canonical form need not.

    (256 * i + j) // 196  is kept, because  i + (60 * i + j) // 196  has looser bounds.
    """
    found = simple(term, context)
    cuts = _cuts(found)
    return found if not cuts or cuts < _cuts(term) else term


@lru_cache(maxsize=8192)
def _cuts(term: Scalar) -> int:
    """How many quotients and remainders a term has."""
    return sum(isinstance(each, FloorDiv | FloorMod) for each in post_order(term))


@lru_cache(maxsize=8192)
def shown(condition: Scalar, context: Context, *, quick: bool = False) -> bool:
    """Whether a condition is shown to hold in a context; remembered.

    `quick` is for questions that are often answered no, where no is no harm.
    """
    about = context.concerning(condition)
    if about is not context:
        return shown(condition, about, quick=quick)
    return can_prove(condition, context, quick=quick)
