"""Nodes: one operator of a model as the rows of the table see it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import numpy as np
from attrs import frozen

from plica.frontend.tflite.flatbuffer import FlatTable
from plica.frontend.word import shape
from plica.ir.graph.expression import Const, Expr
from plica.ir.op.namespace import op
from plica.ir.type import DType, known
from plica.runtime.error import Place, UnsupportedError

EMPTY = FlatTable(bytes(4), 0, 0)  # options that are all absent


@frozen(eq=False)
class TfliteNode:
    """An operator: its terms, its options by number, and what the file says of its results."""

    name: str
    place: Place
    args: tuple[Expr | None, ...]
    options: FlatTable
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[DType, ...]

    def x(self, at: int = 0) -> Expr:
        """An argument that must be there."""
        expr = self.args[at] if at < len(self.args) else None
        if expr is None:
            self.refuse(f"Argument {at} of {self.name} is absent.", "a tensor", "nothing")
        return expr

    def maybe(self, at: int) -> Expr | None:
        """An argument, None where it is absent."""
        return self.args[at] if at < len(self.args) else None

    def constant(self, at: int, count: int | None = None) -> tuple[int, ...]:
        """The integers of an argument, which must be a constant, of this many if that is said."""
        found = self.x(at)
        if not isinstance(found, Const):
            self.refuse(f"Argument {at} of {self.name} is computed.", "a constant", "a tensor")
        array = np.asarray(found.numpy()).reshape(-1)
        if array.dtype.kind not in "iu":
            self.refuse(f"Argument {at} of {self.name}.", "integers", str(array.dtype))
        if count is not None and len(array) != count:
            self.refuse(f"Argument {at} of {self.name}.", f"{count} numbers", str(len(array)))
        return tuple(map(int, array))

    def sizes(self, at: int = 0, rank: int | None = None) -> tuple[int, ...]:
        """The sizes of an argument, of this rank if that is said."""
        found = tuple([known(dim) or 0 for dim in shape(self.x(at))])
        if rank is not None and len(found) != rank:
            self.refuse(f"Argument {at} of {self.name}.", f"rank {rank}", f"rank {len(found)}")
        return found

    def axis(self, value: int, rank: int) -> int:
        """An axis counted from the front."""
        if not -rank <= value < rank:
            self.refuse("There is no such axis.", f"from {-rank} to {rank - 1}", str(value))
        return value % rank

    def block(self) -> int:
        """The size of a block of places."""
        if (found := self.options.number(0)) < 1:
            self.refuse("A block has places.", "1 or more", str(found))
        return found

    def activated(self, x: Expr, option: int) -> Expr:
        """A result after the activation that an option fuses with it."""
        match self.options.byte(option):
            case 0:
                return x
            case 1:
                return op.nn.relu(x)
            case 2:
                return op.clip(x, min=-1, max=1)
            case 3:
                return op.nn.relu6(x)
            case 4:
                return op.tanh(x)
            case other:
                self.refuse("An activation is not supported.", "ReLU or tanh", str(other))

    def refuse(self, message: str, expected: str, found: str) -> NoReturn:
        """Refuses a model that needs an unsupported feature."""
        raise UnsupportedError.of("unsupported", message, self.place, expected, found)


def many(of: Sequence[Expr | None]) -> tuple[Expr, ...]:
    """The arguments that are there."""
    return tuple([expr for expr in of if expr is not None])
