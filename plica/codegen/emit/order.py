"""Order: the parts of scalar terms in the order in which they are written, each once.

Operands come before what is made of them, and every part has a number.  What does not depend on
the place where a term is written is here, so the copies of an unrolled loop share it.  A part that
opens a scope of its own (a reduction, a guarded read) is one step: what is inside is ordered when
it is come to, since what is known by then is not written again.

>>> from plica.ir.loop.tensor import axis
>>> i = axis("i")
>>> made = order((i * 4 + 1, i * 4), operands, lambda node: type(node).__name__, str)
>>> [(step.row, step.kids) for step in made.steps], made.roots
([('ScalarVar', ()), ('Mul', (0, 1)), ('Add', (2, 3))], (4, 2))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from attrs import frozen

from plica.ir.loop.scalar import Lit, Load, Reduce, Scalar, ScalarVar, dtype_of
from plica.ir.type.dtype import DType

V = TypeVar("V")
"""What a value is in the text: an expression, a register …"""


class OrderStep(NamedTuple):
    """One part of a term: the row that writes it, and the numbers of its operands."""

    row: Any  # as `plica.codegen.emit.scalar` calls it
    number: int
    node: Any  # a scalar, of the class that its row is for
    kids: tuple[int, ...]
    dtypes: tuple[DType, ...]


@frozen(eq=False)
class Order(Generic[V]):
    """The parts of some terms; `start` has the values of those that are known before."""

    steps: tuple[OrderStep, ...]
    numbers: Mapping[Scalar, int]
    start: tuple[V | None, ...]
    roots: tuple[int, ...]


def operands(node: Scalar) -> tuple[Scalar, ...]:
    """The terms whose values an operation takes; what is inside a reduction is in its own scope."""
    match node:
        case Lit() | ScalarVar() | Reduce():
            return ()
        case Load(_, indices):
            return indices
        case _:
            return tuple([kid for kid in node._children if isinstance(kid, Scalar)])


def _nothing(node: Scalar) -> None:
    return None


def order(
    roots: Sequence[Scalar],
    operands_of: Callable[[Scalar], tuple[Scalar, ...]],
    row_of: Callable[[Scalar], Any],  # Any: as in `OrderStep`
    literal: Callable[[Lit], V],
    known: Callable[[Scalar], V | None] = _nothing,
) -> Order[V]:
    """The order of some terms; what is `known` has its value already."""
    numbers: dict[Scalar, int] = {}
    steps: list[OrderStep] = []
    start: list[V | None] = []
    stack: list[Any] = list(reversed(roots))  # a term to visit, or one to leave and its operands
    while stack:
        node = stack.pop()
        if node.__class__ is tuple:
            node, kids = node
            if node in numbers:
                continue
        else:
            if node in numbers:
                continue
            if isinstance(node, Lit):
                numbers[node] = len(numbers)
                start.append(literal(node))
                continue
            given = known(node)
            if given is not None:
                numbers[node] = len(numbers)
                start.append(given)
                continue
            kids = operands_of(node)
            if kids:
                stack.append((node, kids))
                stack.extend(kids[::-1])
                continue
        number = numbers[node] = len(numbers)
        start.append(None)
        places = tuple([numbers[kid] for kid in kids])
        dtypes = tuple([dtype_of(kid) for kid in kids])
        steps.append(OrderStep(row_of(node), number, node, places, dtypes))
    return Order(tuple(steps), numbers, tuple(start), tuple([numbers[root] for root in roots]))
