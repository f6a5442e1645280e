"""Guarded updates: an update that takes the identity where a guard fails is skipped there.

    for v: acc[0] = acc[0] + (x[v] if k < n else 0)   -->   for v: if k < n: acc[0] = acc[0] + x[v]

Padded reductions fold the identity of their combiner; a thread leaves such an update out, and reads
nothing for it.  A guard that does not depend on the lanes of a loop then leaves that loop.

Law: the kernel means the same; a sum that begins with 0 is never -0.0, so that it may leave out 0.
"""

from __future__ import annotations

from typing import Final

from plica.analysis.statement import mapped, with_body
from plica.ir.loop import MEANING, NOTHING, Branch, Kernel, Stmt, Store, scalar as sc
from plica.ir.loop.memory_scope import scope

COMBINERS: Final = {join: word for word, (_, join) in MEANING.items()}


def guard_updates(kernel: Kernel) -> Kernel:
    """The kernel without updates by an identity, in memory that its threads or blocks have."""
    return with_body(kernel, mapped(kernel.body, _guarded))


def _guarded(stmt: Stmt) -> Stmt:
    if not isinstance(stmt, Store) or scope(stmt.buffer.scope).reach == "all":
        return stmt
    match stmt.value:
        case (
            sc.Add(old, sc.Select(condition, value, rest))
            | sc.Mul(old, sc.Select(condition, value, rest))
            | sc.Max(old, sc.Select(condition, value, rest))
            | sc.Min(old, sc.Select(condition, value, rest))
        ):
            pass
        case _:
            return stmt
    join = type(stmt.value)
    word = COMBINERS.get(join)
    if word is None or old is not sc.Load(stmt.buffer, stmt.indices):
        return stmt
    if rest is not MEANING[word][0](stmt.buffer.dtype):
        return stmt
    return Branch(condition, Store(stmt.buffer, stmt.indices, join(old, value)), NOTHING)
