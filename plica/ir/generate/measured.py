"""Programs whose sizes become known while they run: parts chosen by elements, branches, loops.

>>> from random import Random
>>> module, inputs = measured_program(Random(3))
>>> str(module.main_function().params[0].name), len(inputs)
('x', 3)
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

import numpy as np

from plica.ir.graph.module import Module
from plica.ir.text.script import from_text

Array = np.ndarray[Any, Any]

PLAIN: Final = (
    "op.negative({v})",
    "op.absolute({v})",
    "op.maximum({v}, f32(0.5))",
    "{v} + {v}",
    "{v} * f32(0.5)",
    "{v} - op.sum({v}, axis=(0,), keepdims=True)",
    "op.cumsum({v}, axis=0)",
    "op.flip({v}, axis=(0,))",
    "op.where({v} > f32(0.25), {v}, op.negative({v}))",
    "op.transpose(op.transpose({v}) + f32(1.0))",
)
"""Operators that keep the shape of a matrix."""

MAX_TURNS: Final = 3
MAX_ROWS: Final = 5


class MeasuredText:
    """The lines of a program, and its current matrix with its number of rows."""

    def __init__(self, random: Random, width: int) -> None:
        self.random, self.width = random, width
        self.lines: list[str] = []
        self.dims: list[str] = []
        self.value, self.rows = "x", "n"
        self._names = 0

    def name(self) -> str:
        """A new name."""
        self._names += 1
        return f"v{self._names}"

    def let(self, text: str) -> str:
        """A new name for something."""
        name = self.name()
        self.lines.append(f"{name} = {text}")
        return name

    def measured(self, number: str) -> str:
        """A new dim that is a number."""
        dim = f"k{len(self.dims)}"
        self.dims.append(dim)
        self.lines.append(f'measure("{dim}", {number})')
        return dim

    def plain(self, value: str) -> str:
        """An operator on a matrix."""
        return self.random.choice(PLAIN).format(v=value)

    def operated(self) -> None:
        """An operator on the matrix."""
        self.value = self.let(self.plain(self.value))

    def rows_that_hold(self) -> None:
        """The rows whose sum is above a number."""
        least = self.random.choice((-1.0, 0.0, 0.5))
        sums = self.let(f"op.sum({self.value}, axis=(1,)) > f32({least})")
        found = self.let(f"op.argwhere({sums})")
        size = self.measured(f"{found}[1]")
        cut = f'op.slice(op.ravel({found}[0]), (0,), ("{size}",))'
        places = self.let(f'op.match_shape({cut}, ("{size}",))')
        self.value, self.rows = self.let(f"op.take({self.value}, {places}, axis=0)"), size

    def first_rows(self) -> None:
        """As many rows as an input says, at most all."""
        whole = f'op.dim_value("{self.rows}")'
        size = self.measured(f"op.minimum(op.maximum(count, i64(0)), {whole})")
        cut = f'op.slice({self.value}, (0,), ("{size}",), axes=(0,))'
        self.value = self.let(f'op.match_shape({cut}, ("{size}", {self.width}))')
        self.rows = size

    def branched(self) -> None:
        """A branch whose sides have different numbers of rows."""
        sides = (f'op.dim_value("2*{self.rows}")', f'op.dim_value("{self.rows}")')
        size, name = self.measured(f"{sides[0]} if chosen else {sides[1]}"), self.name()
        shape = f'("{size}", {self.width})'
        both = f"op.concat(({self.value}, {self.plain(self.value)}), axis=0)"
        self.lines += [
            "if chosen:",
            f"    {name} = op.match_shape({both}, {shape})",
            "else:",
            f"    {name} = op.match_shape({self.plain(self.value)}, {shape})",
        ]
        self.value, self.rows = name, size

    def looped(self) -> None:
        """A loop whose length is known when it runs."""
        turn, of = self.name(), f'Tensor[("{self.rows}", {self.width}), f32]'
        self.lines += [
            f"def {turn}(left: i64, y: {of}) -> {of}:",
            f"    return {turn}(left - 1, {self.plain('y')}) if left > 0 else y",
        ]
        self.value = self.let(f"{turn}(count, {self.value})")


STEPS: Final = (
    MeasuredText.operated,
    MeasuredText.rows_that_hold,
    MeasuredText.first_rows,
    MeasuredText.branched,
    MeasuredText.looped,
)


def measured_program(random: Random) -> tuple[Module, tuple[Any, ...]]:
    """A program that learns sizes while it runs, and values for its inputs."""
    width = random.randint(1, 3)
    text = MeasuredText(random, width)
    random.choice(STEPS[1:4])(text)
    for _ in range(random.randint(0, 3)):
        random.choice(STEPS)(text)
    of = f'Tensor[("{text.rows}", {width}), f32]'
    head = [
        f'@plica.function(dims="n {" ".join(text.dims)}")',
        f'def main(x: Tensor[("n", {width}), f32], count: i64, chosen: bool) -> {of}:',
    ]
    body = [f"    {each}" for each in (*text.lines, f"return {text.value}")]
    module = from_text("\n".join([*head, *body, ""]))
    rows = random.randint(0, MAX_ROWS)
    x = [random.randint(-8, 8) / 4 for _ in range(rows * width)]
    matrix = np.asarray(x, np.float32).reshape(rows, width)
    count, chosen = np.int64(random.randint(-1, MAX_TURNS)), np.bool_(random.random() < 0.5)
    return module, (matrix, count, chosen)
