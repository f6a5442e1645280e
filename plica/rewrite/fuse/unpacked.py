"""Unpacked operands: products that decode their operand where they read it."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Final

from plica.core.binding import free_vars
from plica.core.term import Term
from plica.ir.graph.expression import Const, Expr
from plica.ir.loop.scalar import Scalar, ScalarVar
from plica.ir.type import known
from plica.rewrite.fuse.as_it_lies import MATRICES, is_narrow
from plica.rewrite.fuse.reading import Index, operator, parts, reading

MAX_ROWS: Final = 256  # rows that a weight is unpacked for; for more it is unpacked once, to memory


def is_unpacked(value: Expr) -> bool:
    """Whether a value is made of codes and constants alone, element by element."""
    seen, stack, codes = {value}, [value], 0
    while stack:
        expr = stack.pop()
        if (args := parts(expr)) is None or (of := reading(expr)) is None:
            return False
        given = parts(args[0]) is None and not isinstance(args[0], Const) if args else False
        if given and (operator(expr) == "bit_field" or is_narrow(expr)):
            codes += 1
            continue
        if not of.is_view and of.kind not in ("elementwise", "broadcast"):
            return False
        more = [part for part in args if not isinstance(part, Const)]
        stack += [part for part in more if part not in seen]
        seen.update(more)
    return codes > 0


def are_products(users: Iterable[Expr]) -> bool:
    """Whether what uses a value multiplies matrices."""
    return all(operator(user) in MATRICES for user in users)


def is_read_by_few(
    place: Index,
    axes: Iterable[tuple[ScalarVar, Scalar]],
    terms: Iterable[tuple[ScalarVar, Scalar]],
) -> bool:
    """Whether an element is read for few results, over such axes (so it is where they are open),
    and for neighbouring terms neighbours."""
    used = frozenset[Term]().union(*map(free_vars, place))
    along = free_vars(place[-1]) if place else frozenset[Term]()
    rows = prod([known(size) or 1 for axis, size in axes if axis not in used])
    return rows <= MAX_ROWS and bool(along) and along <= {axis for axis, _ in terms}
