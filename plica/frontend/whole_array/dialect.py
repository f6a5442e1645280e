"""Array dialects: what a format of whole-array operations offers to have programs written in it.

A dialect appends operations and gives names to their results.  The words of `apply` and `compare`
are those of StableHLO; everything that Plica's scalars mean besides is spelled out with them by
`plica.frontend.whole_array.scalar`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from attrs import frozen

from plica.ir.graph.expression import Apply
from plica.ir.loop.scalar import Combiner
from plica.ir.type.dtype import DType, f32, f64

Array: TypeAlias = "np.ndarray[Any, Any]"
Block: TypeAlias = "Callable[[Sequence[ArrayValue]], Sequence[ArrayValue]]"
"""Appends the operations of a region, from its arguments to its results."""


@frozen
class ArrayValue:
    """The result of an operation: its name in the text, its sizes and its dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: DType


class ArrayDialect(ABC):
    """A format that programs are written in."""

    name: str  # what the format is called in refusals

    @abstractmethod
    def constant(self, of: Array, dtype: DType) -> ArrayValue:
        """An array that is known."""

    @abstractmethod
    def iota(self, size: int) -> ArrayValue:
        """0, 1, 2, … of dtype i64."""

    @abstractmethod
    def spread(
        self, x: ArrayValue, axes: Sequence[int], shape: Sequence[int], whole: bool = True
    ) -> ArrayValue:
        """x along some axes of a shape, in order, the same along the others.

        Without `whole` its size along the others may stay 1, where the dialect broadcasts.
        """

    @abstractmethod
    def reshape(self, x: ArrayValue, shape: Sequence[int]) -> ArrayValue:
        """The elements of x in another shape."""

    @abstractmethod
    def transpose(self, x: ArrayValue, order: Sequence[int]) -> ArrayValue:
        """x with its axes in another order."""

    @abstractmethod
    def slice(
        self, x: ArrayValue, starts: Sequence[int], counts: Sequence[int], steps: Sequence[int]
    ) -> ArrayValue:
        """A slice of x: start, count and step along each axis; steps may be negative."""

    @abstractmethod
    def pad(self, x: ArrayValue, low: Sequence[int], high: Sequence[int]) -> ArrayValue:
        """x with zeros around it."""

    @abstractmethod
    def gather(self, x: ArrayValue, axes: Sequence[int], places: ArrayValue) -> ArrayValue:
        """x at places along some axes, the other axes whole and last.

        The last axis of `places` has an index for each of the axes; an index outside is clamped.
        """

    @abstractmethod
    def join(self, parts: Sequence[ArrayValue], axis: int) -> ArrayValue:
        """Arrays one after the other."""

    @abstractmethod
    def apply(self, word: str, *values: ArrayValue) -> ArrayValue:
        """An elementwise operation on arrays of one dtype."""

    @abstractmethod
    def compare(self, word: str, x: ArrayValue, y: ArrayValue) -> ArrayValue:
        """EQ, NE, LT, LE, GT or GE."""

    @abstractmethod
    def select(self, condition: ArrayValue, x: ArrayValue, y: ArrayValue) -> ArrayValue:
        """x where the condition holds, y elsewhere."""

    @abstractmethod
    def convert(self, x: ArrayValue, dtype: DType) -> ArrayValue:
        """Another dtype; what does not fit into it may become anything."""

    @abstractmethod
    def bitcast(self, x: ArrayValue, dtype: DType) -> ArrayValue:
        """The same bits in a dtype of that width."""

    def signbit(self, x: ArrayValue) -> ArrayValue:
        """Whether floats have the sign of negative ones, zeros included."""
        wide = x if x.dtype in (f32, f64) else self.convert(x, f32)
        code = self.bitcast(wide, DType(f"i{wide.dtype.bits}"))
        zero = self.constant(np.zeros((), code.dtype.numpy), code.dtype)
        return self.compare("LT", code, self.spread(zero, (), x.shape))

    @abstractmethod
    def reduce(self, how: Combiner, x: ArrayValue, axes: Sequence[int]) -> ArrayValue:
        """Elements combined along some axes."""

    @abstractmethod
    def running(self, how: Combiner, x: ArrayValue, axis: int, reverse: bool) -> ArrayValue | None:
        """Elements combined up to each place of an axis, or from it on; None where it cannot."""

    @abstractmethod
    def dot(
        self, x: ArrayValue, y: ArrayValue, batch: Sequence[tuple[int, int]],
        sums: Sequence[tuple[int, int]],
    ) -> ArrayValue:  # fmt: skip
        """A sum of products: pairs of axes in common, those summed, then the others of x and y."""

    @abstractmethod
    def branch(self, condition: ArrayValue, then: Block, orelse: Block) -> list[ArrayValue]:
        """The results of the block that a condition chooses."""

    @abstractmethod
    def loop(self, start: Sequence[ArrayValue], test: Block, step: Block) -> list[ArrayValue]:
        """Values that a block changes as long as a test holds."""

    def direct(self, node: Apply, args: Sequence[ArrayValue]) -> ArrayValue | None:
        """An operator that the dialect has itself, None where its definition is written."""
        return None
