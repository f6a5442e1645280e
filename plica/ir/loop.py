"""The tensor language: loops over buffers.

    Stmt   ::= For(var, extent, kind, body) | Store(buffer, indices, value) | Seq(stmts)
             | Branch(condition, then, orelse) | Alloc(buffer, body)
    Kernel ::= Kernel(dims, params, body)

A kernel's parameters are buffers; the last are those it writes.  Loops run from 0 to `extent`.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from attrs import frozen

from plica.core.diagnostic import ill_formed
from plica.core.term import Term
from plica.ir.scalar import Buffer, Scalar, ScalarVar

LoopKind = Literal["serial", "parallel", "vectorized", "unrolled"]


@frozen(eq=False)
class For(Term):
    """`for var in range(extent): body`."""

    binds = (("var", ("body",)),)
    var: ScalarVar
    extent: Scalar
    kind: LoopKind
    body: Stmt


@frozen(eq=False)
class Store(Term):
    """`buffer[indices] = value`."""

    buffer: Buffer
    indices: tuple[Scalar, ...]
    value: Scalar

    @staticmethod
    def normal(buffer: Buffer, indices: tuple[Scalar, ...], value: Scalar) -> tuple[Any, ...]:
        if len(indices) != len(buffer.shape):
            raise ill_formed(f"{buffer.name} has rank {len(buffer.shape)}, not {len(indices)}.")
        return buffer, indices, value


@frozen(eq=False)
class Seq(Term):
    """One statement after another; none is a statement that does nothing."""

    stmts: tuple[Stmt, ...]


@frozen(eq=False)
class Branch(Term):
    """`if condition: then else: orelse`."""

    condition: Scalar
    then: Stmt
    orelse: Stmt


@frozen(eq=False)
class Alloc(Term):
    """A buffer that lives during `body`; its contents begin undefined."""

    binds = (("buffer", ("body",)),)
    buffer: Buffer
    body: Stmt


Stmt: TypeAlias = For | Store | Seq | Branch | Alloc


@frozen(eq=False)
class Kernel(Term):
    """A loop program over buffers: `inputs` of them are read, the rest are written."""

    binds = (("dims", ("params", "body")), ("params", ("body",)))
    dims: tuple[ScalarVar, ...]
    params: tuple[Buffer, ...]
    inputs: int
    body: Stmt
