"""Tails: lanes that are no power of two, as one vector of which some lanes take no part.

Fourteen lanes would be vectors of eight, four and two, and whatever is computed in them is computed
three times.  A processor that writes single lanes of a vector does it once, in sixteen lanes of
which two are masked: they read nothing and write nothing.

What lies in registers cannot be read in part, so a loop that reads or writes neighbours of these is
cut as before; columns of a tile of registers (`plica.codegen.llvm.transpose`) can be padded.

>>> from plica.ir.loop.tensor import axis
>>> from plica.ir.loop.scalar import index
>>> i, j = axis("i"), axis("j")
>>> apart(i * 32 + j, i), apart(j * 2, i), apart(i // 2, i)
(32, 0, None)
"""

from __future__ import annotations

from functools import lru_cache

from plica.core.binding import free_vars
from plica.core.fold import post_order
from plica.ir.loop.scalar import Buffer, Load, Scalar, ScalarVar
from plica.ir.loop.statement import Alloc, For, Invoke, Stmt, Store, statements
from plica.ir.type.dim import polynomial


def padded(loop: For, left: int, register: int) -> int | None:
    """How many lanes of a register do what is left of a loop, some of them masked.

    None where all of them take part, where one register does not hold them, and where a mask does
    not help.
    """
    lanes = 1 << (left - 1).bit_length()
    if lanes == left or lanes > register or not _can_be_masked(loop, register):
        return None
    return lanes


@lru_cache(maxsize=256)  # copies of an unrolled loop ask again
def _can_be_masked(loop: For, register: int) -> bool:
    for stmt in statements(loop.body):
        if isinstance(stmt, Invoke):
            return False
        if not isinstance(stmt, Store):
            continue
        if _is_own(stmt.buffer) and any(loop.var in free_vars(each) for each in stmt.indices):
            return False
        for node in post_order(stmt.value):
            if isinstance(node, Load) and _is_own(node.buffer):
                steps = [apart(each, loop.var) for each in node.indices]
                if not all(step is not None and step % register == 0 for step in steps):
                    return False
    return True


def _is_own(buffer: Buffer) -> bool:
    """Whether a buffer is to be in registers."""
    return buffer.scope == "local"


def apart(index: Scalar, var: ScalarVar) -> int | None:
    """How far an index goes with each step of a variable, None where that is not always as far."""
    step = 0
    for atoms, coefficient in polynomial(index).values():
        if any(var in free_vars(each) for each in atoms):
            if atoms != (var,):
                return None
            step = coefficient
    return step


@lru_cache(maxsize=256)
def is_straight(loop: For) -> bool:
    """Whether one instruction can do for all lanes what a loop's body does."""
    for stmt in statements(loop.body):
        if isinstance(stmt, Alloc):
            return False
        if isinstance(stmt, For) and (
            stmt.kind == "vectorized" or loop.var in free_vars(stmt.extent)
        ):
            return False
    return True


@lru_cache(maxsize=256)  # copies of an unrolled loop ask again
def widest_bytes(body: Stmt) -> int:
    """The bytes of the widest element that is read or written; narrow floats become f32."""
    widest = 1
    for stmt in statements(body):
        if isinstance(stmt, Store):
            dtypes = [stmt.buffer.dtype]
            dtypes += [each.dtype for each in free_vars(stmt.value) if isinstance(each, Buffer)]
            widest = max(widest, *[4 if each.is_narrow else each.bytes for each in dtypes])
    return widest
