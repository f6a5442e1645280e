"""The scalar fold: the parts of terms are written in order, each by its row.

    row     writes a part from the values of its operands, and gives its value
    nest    does so with scopes inside: it yields terms, and is sent the frame they were written in

A frame is a scope while it is written: the values of its parts so far.  `within` gives the order of
the terms in an inner scope, in which what is known around it need not be written again.

>>> from plica.codegen.emit.order import operands, order
>>> from plica.ir.loop.tensor import axis
>>> i = axis("i")
>>> rows = {ScalarVar: lambda step, frame: "i",
...         Add: lambda step, frame: "({} + {})".format(*frame.operands(step))}
>>> made = order((i + 1,), operands, lambda node: rows[type(node)], lambda lit: str(lit.value))
>>> fold(made).results
['(i + 1)']
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, Generic, TypeAlias

from plica.codegen.emit.order import Order, OrderStep, V
from plica.ir.loop.scalar import Add, Scalar, ScalarVar

__all__ = ["Add", "Frame", "Nest", "Row", "ScalarVar", "Walk", "Within", "fold", "nest"]


class Frame(Generic[V]):
    """A scope that is being written; `outer` is the one it stands in."""

    __slots__ = ("checked", "found", "order", "outer", "rest")

    def __init__(self, order: Order[V], outer: Frame[V] | None) -> None:
        self.order, self.outer = order, outer
        self.found: list[Any] = list(order.start)  # Any: a value, None before it is written
        self.rest = iter(order.steps)
        self.checked: dict[Scalar, V] = {}
        """What had to be checked while it was written, and whether all was well."""

    @property
    def results(self) -> list[V]:
        """The values of the terms that were asked for."""
        found = self.found
        return [found[root] for root in self.order.roots]

    def operands(self, step: OrderStep) -> list[V]:
        """The values of the operands of a part."""
        found = self.found
        return [found[kid] for kid in step[3]]

    def value(self, node: Scalar) -> V | None:
        """The value of a part that is written here already."""
        number = self.order.numbers.get(node)
        return None if number is None else self.found[number]


Row: TypeAlias = Callable[[OrderStep, Frame[V]], V]
Walk: TypeAlias = Generator[Sequence[Scalar], Frame[V], V]
Nest: TypeAlias = Callable[[OrderStep, Frame[V]], "Walk[V]"]
Within: TypeAlias = Callable[[Sequence[Scalar], Frame[V]], Order[V]]
"""The order of terms inside a frame, in which what is visible from there is known."""


_NESTED: Final = "_NESTED"


def nest(of: Nest[V]) -> tuple[str, Nest[V]]:
    """What stands for a row where a part has scopes inside."""
    return _NESTED, of


def fold(of: Order[V], within: Within[V] | None = None) -> Frame[V]:
    """Write the parts of terms; the frame in which all are written."""
    frame = Frame(of, None)
    open_: list[tuple[int, Walk[V]]] = []
    while True:
        found = frame.found
        for step in frame.rest:
            row, number = step[0], step[1]
            if row.__class__ is not tuple:
                found[number] = row(step, frame)
                continue
            walk = row[1](step, frame)
            inner = _advanced(walk, None, number, frame, within)
            if inner is not None:
                open_.append((number, walk))
                frame = inner
                break
        else:
            if not open_:
                return frame
            number, walk = open_.pop()
            outer = frame.outer
            assert outer is not None
            inner = _advanced(walk, frame, number, outer, within)
            if inner is not None:
                open_.append((number, walk))
            frame = inner or outer


def _advanced(
    walk: Walk[V],
    answer: Frame[V] | None,
    number: int,
    frame: Frame[V],
    within: Within[V] | None,
) -> Frame[V] | None:
    """The scope that a nest asks for next; None where it gave its value."""
    try:
        asked = walk.send(answer)  # type: ignore[arg-type]  # None begins a walk
    except StopIteration as done:
        frame.found[number] = done.value
        return None
    assert within is not None  # who has nests says what is known inside
    return Frame(within(asked, frame), frame)
