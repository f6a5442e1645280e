"""Flows: the program of an accelerator as loops over moves and sweeps, before it is a stream.

    Flow ::= Flow(tensors, tiles, body)
    Stmt ::= Block(stmts) | Loop(var, extent, body) | Threads(var, extent, body)
           | Transfer(operation, tile, sram, tensor, dram, rows, width, stride, pads)
           | Work(operation, extents, touches, given)

>>> from plica.ir.loop.tensor import axis
>>> i = axis("i")
>>> x, a = Memory("x", "inp", 64), Tile("a", "inp", 16)
>>> loads = Loop(i, 4, Transfer("load.inp", a, index(0), x, i * 16, index(1), index(16), index(16)))
>>> Flow((x,), (a,), loads).body.extent
4
"""

from __future__ import annotations

from typing import TypeAlias

from attrs import frozen

from plica.core import Term
from plica.ir.loop.scalar import Scalar, ScalarVar, index

ZERO = index(0)
NO_PADS = (ZERO, ZERO, ZERO, ZERO)


@frozen(eq=False)
class Memory(Term):
    """A tensor in memory, of elements of a scope's kind."""

    name: str
    scope: str
    elements: int


@frozen(eq=False)
class Tile(Term):
    """Elements of a scope; a private one exists once per thread."""

    name: str
    scope: str
    elements: int
    private: bool = True


@frozen(eq=False)
class Transfer(Term):
    """Rows of a tensor to a tile, or back, as the operation says.

    `filled` means that its padding matters even if there is nothing to copy: no move has that
    effect.
    """

    operation: str
    tile: Tile
    sram: Scalar
    tensor: Memory
    dram: Scalar
    rows: Scalar
    width: Scalar
    stride: Scalar
    pads: tuple[Scalar, ...] = NO_PADS
    filled: bool = False


@frozen(eq=False)
class Touch(Term):
    """An element of a tile: a base, and a stride for each loop of the work."""

    tile: Tile
    base: Scalar
    strides: tuple[Scalar, ...]


@frozen(eq=False)
class Work(Term):
    """An operation for each turn of loops; touches in the order of its `writes` and `reads`.

    Operands that are written come first, then other reads; `given` are operands such as immediates.
    """

    operation: str
    extents: tuple[Scalar, ...]
    touches: tuple[Touch, ...]
    given: tuple[tuple[str, int], ...] = ()


@frozen(eq=False)
class Steps(Term):
    """One after the other."""

    written = "codegen.accel.flow.Block"

    stmts: tuple[Stmt, ...]


@frozen(eq=False)
class Loop(Term):
    """The body for each value of the variable."""

    var: ScalarVar
    extent: int
    body: Stmt


@frozen(eq=False)
class Threads(Term):
    """The body in each of several threads, which share nothing they write."""

    var: ScalarVar
    extent: int
    body: Stmt


Leaf: TypeAlias = Transfer | Work
Stmt: TypeAlias = Leaf | Steps | Loop | Threads


@frozen(eq=False)
class Flow(Term):
    """A whole program."""

    tensors: tuple[Memory, ...]
    tiles: tuple[Tile, ...]
    body: Stmt
