"""Guards: a condition on every block inside a statement.

Loops outside blocks hold only loops, blocks and allocations, so a condition on what they do is a
predicate of the blocks inside them.
"""

from __future__ import annotations

from collections.abc import Iterable

from plica.analysis.site import with_inside, with_parts
from plica.ir.loop.scalar import And, Scalar
from plica.ir.loop.statement import TRUE, Alloc, Block, For, Seq, Stmt, substatements
from plica.schedule.problem import Problem


def guarded(root: Stmt, condition: Scalar) -> Stmt:
    """The statement with one more condition on each of its outermost blocks."""
    done: list[Stmt] = []
    stack: list[tuple[Stmt, bool]] = [(root, False)]
    while stack:
        stmt, leaving = stack.pop()
        inside = substatements(stmt)
        if isinstance(stmt, Block):
            both = condition if stmt.predicate is TRUE else And(stmt.predicate, condition)
            done.append(with_parts(stmt, predicate=both))
        elif leaving:
            new = done[len(done) - len(inside) :]
            del done[len(done) - len(inside) :]
            for position in range(len(inside) - 1, -1, -1):
                stmt = with_inside(stmt, position, new[position])
            done.append(stmt)
        else:
            stack.append((stmt, True))
            stack.extend((each, False) for each in reversed(inside))
    return done[0]


def all_of(conditions: Iterable[Scalar]) -> Scalar:
    """All conditions at once, without those that always hold."""
    whole: Scalar = TRUE
    for each in conditions:
        if each is not TRUE:
            whole = each if whole is TRUE else And(whole, each)
    return whole


def unguardable(loop: For) -> Problem | None:
    """What stands inside a loop, outside blocks, that cannot carry a condition."""
    stack: list[Stmt] = [loop.body]
    while stack:
        if isinstance(stmt := stack.pop(), Block):
            continue
        if not isinstance(stmt, For | Seq | Alloc):
            where = f"the loop {loop.var.name}"
            found = f"a {type(stmt).__name__} outside any block"
            return Problem("blocks-only", where, "only loops and blocks inside", found)
        stack.extend(substatements(stmt))
    return None
