"""The parts of a declaration: scopes, fields, token queues, operations and what they do.

>>> from plica.ir.type.dtype import i8
>>> Scope("inp", 2048, (1, 16), i8).bytes
16
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from attrs import frozen

from plica.core import Name, Term
from plica.ir.loop import Buffer, Compute, index
from plica.ir.type import DType

FLAGS: Final = ("pop_prev", "pop_next", "push_prev", "push_next")
POP_PREV, POP_NEXT, PUSH_PREV, PUSH_NEXT = 1, 2, 4, 8
"""The flags as bits of `Instruction.tokens`, in the order of `FLAGS`."""

WORD: Final = 64  # no field crosses from one word of this many bits to the next
MAX_BITS: Final = 128

Way: TypeAlias = Literal["in", "out"]


@frozen(eq=False)
class Scope(Term):
    """A memory of the accelerator: `depth` elements, each a little tensor of the shape."""

    name: str
    depth: int
    shape: tuple[int, ...]
    dtype: DType

    @property
    def bytes(self) -> int:
        """The bytes of one element."""
        return math.prod(self.shape) * self.dtype.numpy.itemsize


@frozen(eq=False)
class Field(Term):
    """Bits `at` to `at + bits - 1` of a word."""

    name: str
    at: int
    bits: int
    signed: bool = False

    @property
    def least(self) -> int:
        return -(1 << self.bits - 1) if self.signed else 0

    @property
    def most(self) -> int:
        return (1 << self.bits - self.signed) - 1


@frozen(eq=False)
class Queue(Term):
    """Tokens from one unit to its neighbour, at most `depth` at once."""

    source: str
    target: str
    depth: int = 8


@frozen(eq=False)
class Micro(Term):
    """Micro-operations: words in a scope that give a sweep its places."""

    scope: str
    fields: tuple[Field, ...]


@frozen(eq=False)
class Move(Term):
    """A copy of `rows` rows of `width` elements, `stride` apart in memory and dense in the scope.

    The words name fields.  `pads` are rows before and after, and columns before and after, that
    are filled with zeros on the way in.  A width of 0 does nothing.  In memory lie elements of the
    scope, or of the scope `kind`, which have the same shape and become elements of this one.
    """

    scope: str
    way: Way
    sram: str
    dram: str
    width: str
    rows: str = ""
    stride: str = ""
    pads: tuple[str, ...] = ()
    kind: str = ""

    @property
    def memory(self) -> str:
        """The scope of which elements lie in memory."""
        return self.kind or self.scope


@frozen(eq=False)
class Reach(Term):
    """The element that a turn of a sweep touches: a base, and a stride for each loop.

    The base is a field of the micro-operation, or of the instruction if there are none. Writes to
    the first scope also go to the others, converted to their element types.
    """

    scopes: tuple[str, ...]
    base: str
    strides: tuple[str, ...]


@frozen(eq=False)
class Sweep(Term):
    """For every turn of the loops, and for each micro-operation: `writes` becomes the meaning.

    The inputs of the meaning are the elements at `reads`; its free variables are fields. `latency`
    is the number of iterations before a written element may be accessed again.
    """

    loops: tuple[str, ...]
    micro: tuple[str, ...]
    writes: Reach
    reads: tuple[Reach, ...]
    meaning: Compute
    latency: int = 1


@frozen(eq=False)
class Idle(Term):
    """Nothing but the tokens."""


Does: TypeAlias = Move | Sweep | Idle


@frozen(eq=False)
class Operation(Term):
    """One kind of instruction; `interval` is the cycles per iteration of a sweep."""

    name: str
    unit: str
    fields: tuple[Field, ...]
    fixed: tuple[tuple[str, int], ...]
    does: Does
    interval: int = 1
    carries: bool = True

    @property
    def operands(self) -> tuple[Field, ...]:
        """The fields that are neither fixed nor flags."""
        return operands_of(self)


@frozen(eq=False)
class Timing(Term):
    """Cycles: of issuing, of filling a pipeline, to the first beat of memory, of each row."""

    megahertz: int = 100
    issue: int = 4
    fill: int = 8
    latency: int = 64
    bus: int = 8
    row: int = 8
    ports: int = 1


DEFAULT_TIMING: Final = Timing()  # the timing of a machine that says nothing of it


def element(scope: Scope) -> Buffer:
    """An element of the scope, for the meaning of a sweep to speak of."""
    return Buffer(Name(scope.name), tuple(index(size) for size in scope.shape), scope.dtype)


@lru_cache(maxsize=1024)
def operands_of(operation: Operation) -> tuple[Field, ...]:
    taken = {name for name, _ in operation.fixed} | set(FLAGS)
    return tuple(field for field in operation.fields if field.name not in taken)
