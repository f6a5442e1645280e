"""Isolation: a block's body speaks of the block's own variables.

A block depends only on its iteration variables, those of enclosing blocks, and the kernel's dims;
never on enclosing loops, which would make it immovable.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.statement import For, Kernel, Store, block
>>> from plica.ir.loop.tensor import axis, buffer
>>> y, i, v = buffer("y", (3,), f32), axis("i"), axis("v")
>>> bad = block("y", (v,), (3,), "s", (i,), Store(y, (i,), y[v]))
>>> [each.code for each in trespasses(Kernel((), (y,), 0, For(i, y.shape[0], "serial", bad)))]
['block-isolation']
"""

from __future__ import annotations

from functools import lru_cache

from plica.core import Term, free_vars
from plica.ir.loop.scalar import ScalarVar
from plica.ir.loop.statement import Bind, Block, For, Kernel, Stmt, substatements
from plica.runtime.error import Diagnostic, Place


@lru_cache(maxsize=256)
def trespasses(kernel: Kernel) -> tuple[Diagnostic, ...]:
    """The blocks that speak of variables of loops, or of bindings, around them."""
    found = []
    around: dict[Term, bool] = {}  # the variables in force, and whether blocks must not use them
    stack: list[Stmt | dict[Term, bool | None]] = [kernel.body]
    while stack:
        if isinstance(stmt := stack.pop(), dict):
            for var, before in stmt.items():
                if before is None:
                    del around[var]
                else:
                    around[var] = before
            continue
        if isinstance(stmt, Block):
            if names := _foreign(stmt, around):
                found.append(_trespass(stmt, names))
            own, forbidden = stmt.vars, False
        elif isinstance(stmt, For | Bind):
            own, forbidden = (stmt.var,), True
        else:
            stack.extend(reversed(substatements(stmt)))
            continue
        stack.append({var: around.get(var) for var in own})
        around.update(dict.fromkeys(own, forbidden))
        stack.extend(reversed(substatements(stmt)))
    return tuple(found)


def _foreign(block: Block, around: dict[Term, bool]) -> list[str]:
    parts = (block.init, block.body, *block.reads, *block.writes)
    free = frozenset[Term]().union(*[free_vars(each) for each in parts if each is not None])
    wrong = [each for each in free if around.get(each) and each not in block.vars]
    return sorted(str(each.name) for each in wrong if isinstance(each, ScalarVar))


def _trespass(block: Block, names: list[str]) -> Diagnostic:
    return Diagnostic(
        "block-isolation",
        f"The block {str(block.label)!r} speaks of variables that are not its own.",
        Place(node=str(block.label)),
        "variables of this block and of blocks around it, and the kernel's dims",
        ", ".join(names),
        "Bind them to variables of the block.",
    )
