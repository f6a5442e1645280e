"""Blocks to loops: bindings are put in, predicates and inits become branches.

    before                                      after
    for i in range(n):                          for i in range(n):
        for k in range(m):                          for k in range(m):
            with block(v=i, w=k (reduce)):              if k == 0:
                init: C[v] = 0                              C[i] = 0
                C[v] = C[v] + A[v, w]                   C[i] = C[i] + A[i, k]

Branches move out of loops in `hoist`, first iterations are peeled in `partition`.

Law: the kernel means the same.  Refused: a reduction across threads, which `allreduce` must have
lowered before.
"""

from __future__ import annotations

from functools import reduce

from plica.codegen.lower.statement import refused, walked, with_body, with_substatements
from plica.core.binding import free_vars, substitute
from plica.core.term import Term
from plica.ir.loop import (
    NOTHING,
    THREADS,
    TRUE,
    Block,
    Branch,
    For,
    Kernel,
    Seq,
    Stmt,
    substatements,
)
from plica.ir.scalar import And, Eq, Scalar, like


def blocks_to_loops(kernel: Kernel) -> Kernel:
    """The kernel without blocks."""
    return with_body(kernel, walked(kernel.body, frozenset(), _down, _up))


def _down(stmt: Stmt, threads: frozenset[Term]) -> tuple[Stmt, tuple[frozenset[Term], ...]]:
    while isinstance(stmt, Block):
        _check(stmt, threads)
        stmt = opened(stmt)
    if isinstance(stmt, For) and stmt.kind in THREADS:
        threads |= {stmt.var}
    return stmt, (threads,) * len(substatements(stmt))


def _up(stmt: Stmt, parts: tuple[Stmt, ...], threads: frozenset[Term]) -> Stmt:
    return with_substatements(stmt, parts)


def opened(block: Block) -> Stmt:
    """What a block does, in terms of the loops around it."""
    values = dict(zip(block.vars, block.bindings, strict=True))
    stmt = _stmt(block.body, values)
    if block.init is not None:
        init = _stmt(block.init, values)
        reducing = [
            Eq(binding, like(0, binding))
            for binding, kind in zip(block.bindings, block.kinds, strict=True)
            if kind == "reduce"
        ]
        first = _all(reducing)
        # A plain `Seq`: what stands in a loop keeps its number, which pipelines speak of.
        stmt = Seq((init if first is None else Branch(first, init, NOTHING), stmt))
    return stmt if block.predicate is TRUE else Branch(block.predicate, stmt, NOTHING)


def _stmt(of: Stmt, values: dict[Term, Scalar] | dict[object, object]) -> Stmt:
    new = substitute(of, values)  # type: ignore[arg-type]
    assert not isinstance(new, Scalar)
    return new  # type: ignore[return-value]  # a statement gives a statement


def _all(conditions: list[Eq]) -> Scalar | None:
    return reduce(And, conditions) if conditions else None


def _check(block: Block, threads: frozenset[Term]) -> None:
    for binding, kind in zip(block.bindings, block.kinds, strict=True):
        if kind == "reduce" and not threads.isdisjoint(free_vars(binding)):
            message = f"The block {str(block.label)!r} reduces across threads."
            expected = "reduce variables that follow serial loops"
            found = "one that follows a loop over threads"
            hint = "Run the pass allreduce first."
            raise refused(message, block.label, expected, found, hint)
