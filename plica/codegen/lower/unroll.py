"""Unroll: loops that ask for it are written out, one copy of the body for each iteration.

    for i in unrolled(2, unroll_explicit=True):         A[0] = B[0]
        A[i] = B[i]                             -->     A[1] = B[1]

Other unrolled loops stay: the code generator expands them without making terms of it.

Law: the kernel means the same.  Refused: a loop whose extent is not a number, or is too large.
"""

from __future__ import annotations

from typing import Final

from plica.analysis.statement import mapped, refused, with_body
from plica.core.binding import substitute
from plica.ir.loop.scalar import Lit
from plica.ir.loop.statement import For, Kernel, Seq, Stmt
from plica.ir.type.dim import known

MOST: Final = 1024
"""How many copies of a body one loop may make."""


def unroll(kernel: Kernel) -> Kernel:
    """The kernel with explicitly unrolled loops written out."""
    return with_body(kernel, mapped(kernel.body, _written_out))


def _written_out(stmt: Stmt) -> Stmt:
    if not isinstance(stmt, For) or dict(stmt.annotations).get("unroll_explicit") is not True:
        return stmt
    count = known(stmt.extent)
    if count is None or count > MOST:
        message = f"The loop {str(stmt.var.name)!r} cannot be written out."
        found = "a symbolic one" if count is None else str(count)
        hint = "Split it first."
        raise refused(message, stmt.var.name, f"an extent of at most {MOST}", found, hint)
    copies = [
        substitute(stmt.body, {stmt.var: Lit(number, stmt.var.dtype)}) for number in range(count)
    ]
    return Seq(tuple(copies))
