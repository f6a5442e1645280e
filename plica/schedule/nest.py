"""Nests: a statement as stores in loops, without blocks and bindings.

The result can be compared with another program: `plica.schedule.match` does so.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.statement import block
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, y, i, v = buffer("x", (3,), f32), buffer("y", (3,), f32), axis("i"), axis("v")
>>> inside = block("y", (v,), (3,), "s", (i,), Store(y, (v,), x[v]))
>>> nest, = nests_of(For(i, index(3), "serial", inside))
>>> nest.store.indices == (i,), len(nest.loops)
(True, 1)
"""

from __future__ import annotations

from functools import lru_cache

from attrs import frozen

from plica.analysis.enclosing import simple
from plica.analysis.index import EMPTY, Context, can_prove
from plica.core import Term, free_vars, substitute
from plica.ir.loop import Block, For, Scalar, ScalarVar, Seq, Stmt, Store, index
from plica.ir.type import known
from plica.schedule.block_class import reduction_body

Values = dict[Term, Scalar]
ALIKE = ("serial", "unrolled", "vectorized")  # the kinds of loops that one thread runs


@frozen(eq=False)
class Nest:
    """A store in loops, outermost first, none of which has a single iteration."""

    loops: tuple[tuple[ScalarVar, Scalar], ...]
    store: Store


@lru_cache(maxsize=512)
def nests_of(root: Stmt, context: Context = EMPTY) -> tuple[Nest, ...] | str:
    """The nests of a statement in execution order, or why there are none.

    The init of a reduction becomes a separate nest before that of its updates.
    """
    found: list[Nest] = []
    stack: list[tuple[Stmt, tuple[For, ...], Values, Context]] = [(root, (), {}, context)]
    while stack:
        stmt, loops, values, inside = stack.pop()
        match stmt:
            case For(var, extent, kind, body):
                if kind not in ALIKE:
                    return f"a loop of the kind {kind}"
                stack.append((body, (*loops, stmt), values, inside.loop(var, extent)))
            case Seq(stmts):
                if loops:
                    return "several statements in one loop"
                stack.extend([(statement, loops, values, inside) for statement in reversed(stmts)])
            case Store():
                found.append(_nest(stmt, loops, values))
            case Block():
                if not can_prove(_at(stmt.predicate, values), inside):
                    return f"a predicate on the block {stmt.label}"
                pairs = zip(stmt.vars, stmt.bindings, strict=True)
                own = dict(values)
                own.update([(var, _at(value, values)) for var, value in pairs])
                stack.append((stmt.body, loops, own, inside))
                if stmt.init is not None:
                    if (kept := _begun(stmt, loops, own)) is None:
                        return f"an init of {stmt.label} that is not apart from its updates"
                    stack.append((stmt.init, kept, own, inside))
            case _:
                return f"a {type(stmt).__name__}"
    return tuple(found)


def _begun(block: Block, loops: tuple[For, ...], own: Values) -> tuple[For, ...] | None:
    """The loops over which an init runs, or None if it cannot run before all updates."""
    if reduction_body(block) is not None:
        return None
    feeding: dict[str, set[Term]] = {"spatial": set(), "reduce": set()}
    for var, kind in zip(block.vars, block.kinds, strict=True):
        feeding[kind] |= free_vars(own[var])
    around = {loop.var for loop in loops}
    if feeding["spatial"] & feeding["reduce"] & around:
        return None
    start: Values = {loop.var: index(0) for loop in loops}
    for var, kind in zip(block.vars, block.kinds, strict=True):
        if kind == "reduce" and _at(own[var], start) is not index(0):
            return None  # the init runs in no turn of these loops, or only at times
    return tuple(loop for loop in loops if loop.var in feeding["spatial"])


def _nest(store: Store, loops: tuple[For, ...], values: Values) -> Nest:
    units: Values = {loop.var: index(0) for loop in loops if known(loop.extent) == 1}
    kept = tuple([(loop.var, _at(loop.extent, values)) for loop in loops if loop.var not in units])
    inner = {var: _at(value, units) for var, value in values.items()}
    return Nest(kept, _substituted(store, {**units, **inner}))


def _substituted(store: Store, values: Values) -> Store:
    return substitute(store, values) if values else store


def _at(term: Scalar, values: Values) -> Scalar:
    if not values:
        return term
    scalar = substitute(term, values)
    return simple(scalar)
