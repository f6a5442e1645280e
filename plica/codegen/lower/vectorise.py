"""Vectorise: what a loop over vector lanes must be, before the code generator makes it one.

The loop stays as it is, `for i in vectorized(8): …`; the fold to the target knows its lanes.  Its
extent must be a number, and nothing inside may wait for others or be run by others.

Law: nothing changes.  Refused: a symbolic extent; a barrier, a `while`, or a loop over threads or
cores inside.
"""

from __future__ import annotations

from plica.analysis.statement import refused
from plica.ir.loop.statement import THREADS, Barrier, For, Kernel, Stmt, While, statements
from plica.ir.type.dim import known


def vectorise(kernel: Kernel) -> Kernel:
    """The kernel itself, where all its loops over lanes can be made vectors."""
    for stmt in statements(kernel.body):
        if isinstance(stmt, For) and stmt.kind == "vectorized":
            _check(stmt)
    return kernel


def _check(loop: For) -> None:
    message = f"The loop {str(loop.var.name)!r} cannot be made vectors."
    if known(loop.extent) is None:
        hint = "Split off a loop of a fixed number of lanes."
        raise refused(message, loop.var.name, "an extent that is a number", "a symbolic one", hint)
    for each in statements(loop.body):
        if _is_foreign(each):
            kind = type(each).__name__.lower()
            inside = f"{each.kind} loop {each.var.name}" if isinstance(each, For) else kind
            found = f"a {inside} inside"
            raise refused(message, loop.var.name, "loops, branches and stores inside", found)


def _is_foreign(stmt: Stmt) -> bool:
    if isinstance(stmt, For):
        return stmt.kind in THREADS or stmt.kind in ("parallel", "virtual")
    return isinstance(stmt, Barrier | While)
