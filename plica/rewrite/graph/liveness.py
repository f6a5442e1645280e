"""Liveness: from when to when the values of a block are needed.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Var
>>> from plica.ir.type.term import tensor
>>> x, y, z = (Var(Name(each), tensor((2,), "f32")) for each in "xyz")
>>> block = Let(y, x + x, Let(z, y * y, z - x))
>>> [(str(var.name), born, last) for var, (born, last) in intervals(block).items()]
[('x', -1, 2), ('y', 0, 1), ('z', 1, 2)]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from plica.core import free_vars
from plica.ir.graph.expression import Expr, Let, Var

Interval: TypeAlias = tuple[int, int]
FREE = -1  # where values are born that a block has from outside


def bindings(block: Expr) -> tuple[list[tuple[Var, Expr]], Expr]:
    """The lets of a block, and its result."""
    found: list[tuple[Var, Expr]] = []
    while isinstance(block, Let):
        found.append((block.var, block.value))
        block = block.body
    return found, block


def intervals(block: Expr) -> dict[Var, Interval]:
    """Definition and last use of every variable of a block; unused ones die at their definition.

    Every variable must be bound by one let.  Those from outside are born at -1.
    """
    lets, result = bindings(block)
    found: dict[Var, Interval] = {}
    for position, (var, value) in enumerate((*lets, (None, result))):
        for used in _used(value):
            if used is not var:  # a recursive function is not alive before it is made
                born = found[used][0] if used in found else FREE
                found[used] = born, position
        if var is not None:
            found[var] = position, position
    return dict(sorted(found.items(), key=lambda item: (item[1][0], item[0].name)))


def live_after(block: Expr) -> Iterator[frozenset[Var]]:
    """For each let, from last to first, the variables used after it."""
    lets, result = bindings(block)
    live = set(_used(result))
    for var, value in reversed(lets):
        yield frozenset(live)
        live.discard(var)
        live.update(each for each in _used(value) if each is not var)


def _used(value: Expr) -> list[Var]:
    return [each for each in free_vars(value) if isinstance(each, Var)]
