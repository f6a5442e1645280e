"""Blocks to loops: bindings are substituted, predicates and inits become branches.

    before                                      after
    for i in range(n):                          for i in range(n):
        for k in range(m):                          for k in range(m):
            with block(v=i, w=k (reduce)):              if k == 0:
                init: C[v] = 0                              C[i] = 0
                C[v] = C[v] + A[v, w]                   C[i] = C[i] + A[i, k]

A reduction or scan over several loops begins where all of them do: `k * 4 + l == 0` is `k == 0 and
l == 0`, since loops count from 0.  Branches leave their loops in `hoist`, or are cut off in
`partition`.

Law: the kernel means the same.  Refused: a reduction across threads, which `allreduce` must have
lowered before, and a scan across threads.
"""

from __future__ import annotations

from functools import reduce
from typing import TypeAlias

from plica.analysis.statement import refused, walked, with_body
from plica.core import Term, free_vars, substitute
from plica.ir.loop import statement as st
from plica.ir.loop.scalar import And, Eq, Scalar, like
from plica.ir.type import polynomial

State: TypeAlias = tuple[frozenset[Term], frozenset[Term]]  # variables of threads, and counts


def blocks_to_loops(kernel: st.Kernel) -> st.Kernel:
    """The kernel without blocks."""
    start: State = (frozenset(), frozenset(kernel.dims))
    return with_body(kernel, walked(kernel.body, start, _down))


def _down(stmt: st.Stmt, state: State) -> tuple[st.Stmt, tuple[State, ...]]:
    threads, counts = state
    while isinstance(stmt, st.Block):
        _check(stmt, threads)
        stmt = opened(stmt, counts)
    if isinstance(stmt, st.For):
        counts |= {stmt.var}
        if stmt.kind in st.THREADS:
            threads |= {stmt.var}
    elif isinstance(stmt, st.Bind):
        counts -= {stmt.var}
    return stmt, ((threads, counts),) * len(st.substatements(stmt))


def opened(block: st.Block, counts: frozenset[Term] = frozenset()) -> st.Stmt:
    """The body of a block in terms of its loops; `counts` are known to be non-negative."""
    values: dict[Term, Scalar] = dict(zip(block.vars, block.bindings, strict=True))
    stmt = substitute(block.body, values)
    if block.init is not None:
        init = substitute(block.init, values)
        pairs = zip(block.bindings, block.kinds, strict=True)
        along = [scalar for scalar, kind in pairs if kind in st.ACCUMULATING]
        reducing = [one for scalar in along for one in _zero(scalar, counts)]
        first = _all(reducing)
        # A plain `Seq`: statements of a loop keep their index, which pipelines refer to.
        stmt = st.Seq((init if first is None else st.Branch(first, init, st.NOTHING), stmt))
    return stmt if block.predicate is st.TRUE else st.Branch(block.predicate, stmt, st.NOTHING)


def _zero(binding: Scalar, counts: frozenset[Term]) -> list[Scalar]:
    """The conditions that a binding is 0, each about as little as can be."""
    parts = list(polynomial(binding).values())
    if all(len(atoms) == 1 and atoms[0] in counts and factor > 0 for atoms, factor in parts):
        return [Eq(atom, like(0, atom)) for (atom,), _ in parts]
    return [Eq(binding, like(0, binding))]


def _all(conditions: list[Scalar]) -> Scalar | None:
    return reduce(And, conditions) if conditions else None


def _check(block: st.Block, threads: frozenset[Term]) -> None:
    for binding, kind in zip(block.bindings, block.kinds, strict=True):
        if kind in st.ACCUMULATING and not threads.isdisjoint(free_vars(binding)):
            message = f"The block {str(block.label)!r} accumulates across threads."
            expected = "reduce and scan variables that follow serial loops"
            found = "one that follows a loop over threads"
            hint = (
                "The pass allreduce joins threads of a block where only serial loops lie between "
                "their loop and the sum: bind it to threadIdx, or reorder it inside of others."
            )
            raise refused(message, block.label, expected, found, hint)
