"""The loop-carried tensors of a loop of unknown length, including the tensors that represent
optionals, whose sizes may change per iteration."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import attrs

from plica.frontend.measured import ZERO
from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.ragged import as_option, held, item
from plica.frontend.onnx.value import OptionValue, TensorValue
from plica.ir.graph.expression import Expr, Tuple


class LoopCarriedValues:
    """The values that a loop carries, without the sequences that it appends to."""

    def __init__(self, node: OnnxNode, values: Sequence[TensorValue]) -> None:
        self._node, self._values = node, list(values)
        self._given: list[TensorValue] = list(values)  # what a turn gives for them

    @property
    def start(self) -> list[Expr]:
        """The tensors that stand for them before the first turn."""
        return [part for value in self._values for part in _parts(value)]

    def of(self, flat: Sequence[Expr]) -> list[TensorValue]:
        """The values that tensors stand for."""
        rest, made = iter(flat), list[TensorValue]()
        for value in self._values:
            if isinstance(value, OptionValue):
                made.append(attrs.evolve(value, expr=Tuple(tuple(islice(rest, len(value.parts))))))
            else:
                made.append(TensorValue(next(rest)))
        return made

    def after(self, given: Sequence[TensorValue]) -> list[Expr]:
        """The tensors that represent an iteration's results."""
        self._given = list(given)
        return [part for value in map(self._alike, self._values, given) for part in _parts(value)]

    def _alike(self, before: TensorValue, value: TensorValue) -> TensorValue:
        """An iteration's result, as an optional if one is carried."""
        if not isinstance(before, OptionValue):
            return value
        made = as_option(self._node.place, value, before.holds_list)
        if made.word != before.word:
            self._node.malformed("A loop carries values of one type.", before.word, made.word)
        return made

    def open_ranks(self) -> bool:
        """Leaves the ranks of optionals open that an iteration changes; returns whether there are
        any."""
        changed = False
        for at, (before, given) in enumerate(zip(self._values, self._given, strict=True)):
            if not isinstance(before, OptionValue) or before.rank is None:
                continue
            after = self._alike(before, given)
            if isinstance(after, OptionValue) and after.rank != before.rank:
                self._values[at] = attrs.evolve(before, rank=None)
                changed = True
        return changed

    def ended(self, flat: Sequence[Expr]) -> list[Expr | TensorValue]:
        """The final values: if iterations return an optional's content, that; a loop without
        iterations on an empty optional is refused."""
        made: list[Expr | TensorValue] = []
        for end, given in zip(self.of(flat), self._given, strict=True):
            if not isinstance(end, OptionValue) or isinstance(given, OptionValue):
                made.append(end)
            elif end.holds_list:
                made.append(held(self._node, end))
            else:
                made.append(item(self._node, held(self._node, end), ZERO))
        return made


def _parts(of: TensorValue) -> tuple[Expr, ...]:
    return of.parts if isinstance(of, OptionValue) else (of.expr,)
