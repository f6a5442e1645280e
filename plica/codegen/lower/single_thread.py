"""Once: what all threads of a block would write alike to memory they share, the first one writes.

    for t in threadIdx.x(32):               for t in threadIdx.x(32):
        for i in range(8):                      if t == 0:
            S[i] = A[i]               -->           for i in range(8):
        B[t] = S[t // 4]                                S[i] = A[i]
                                                B[t] = S[t // 4]

A schedule that stages data for threads has such kernels on its way, until it binds a loop of the
copy to the threads.

Law: the kernel means the same, and no two threads write one element.
"""

from __future__ import annotations

from plica.analysis.statement import mapped, same_state, walked, with_body, with_substatements
from plica.ir.loop.scalar import Eq, index
from plica.ir.loop.statement import NOTHING, Branch, For, Kernel, Stmt
from plica.schedule.launch import repeated, shares


def predicate_single_thread(kernel: Kernel) -> Kernel:
    """The kernel with one thread for what all would do alike."""
    return with_body(kernel, mapped(kernel.body, _guarded))


def _guarded(stmt: Stmt) -> Stmt:
    """A loop over threads, with what they would repeat left to the first."""
    if not isinstance(stmt, For) or not stmt.kind.startswith("threadIdx"):
        return stmt
    if not (alike := {part for part in shares(stmt) if repeated(stmt, part)}):
        return stmt
    first = Eq(stmt.var, index(0))

    def up(part: Stmt, parts: tuple[Stmt, ...], _: None) -> Stmt:
        return Branch(first, part, NOTHING) if part in alike else with_substatements(part, parts)

    return with_substatements(stmt, (walked(stmt.body, None, same_state, up),))
