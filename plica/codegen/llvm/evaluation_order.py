"""Evaluation order: what of writing terms does not depend on where, worked out once.

>>> from plica.core.name import Name
>>> x = ScalarVar(Name("x"), f32)
>>> y = ScalarVar(Name("y"), f32)
>>> added = x + x * y
>>> parts(added, frozenset({added})) == (x, y, x), parts(added, frozenset()) == (x, x * y)
(True, True)
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from attrs import frozen

from plica.analysis.constant_bound import Bounds, Interval, bounds, linear
from plica.codegen.emit.contraction import factors, nearest_integer
from plica.codegen.emit.scalar import Order, operands
from plica.codegen.llvm.dialect import literal
from plica.codegen.llvm.lane import LaneValue, constant
from plica.ir.loop import MEANING, ScalarVar, scalar as sc
from plica.ir.type import f32, i64

__all__ = [
    "EvaluationOrder", "ScalarVar", "StraightAccess", "StraightStore", "f32", "of_literal", "parts",
    "recipe", "straight_access",
]  # fmt: skip


@frozen(eq=False)
class EvaluationOrder:
    """The parts of some terms in order, and how their intervals are found."""

    order: Order[LaneValue]
    bounds: Bounds


def parts(node: sc.Scalar, contracted: frozenset[sc.Scalar]) -> tuple[sc.Scalar, ...]:
    """The operands of an operation; three for fused multiply-add, all summands for index sums, the
    float for a conversion to a small integer."""
    if (form := linear(node)) is not None:
        return form[2]
    if (nearest := nearest_integer(node)) is not None:
        return (nearest.value,)
    product = factors(node, contracted)
    return operands(node) if product is None else product


@frozen(eq=False)
class StraightIndex:
    """An index that is a sum of a number and of variables, each a given number of times."""

    number: int
    counts: tuple[tuple[ScalarVar, int], ...]
    size: int
    stride: int

    def is_inside(self, boxes: Mapping[ScalarVar, tuple[str, Interval]]) -> bool:
        """Whether it is in bounds for all copies, with and without the final offset."""
        most = self.number
        for var, count in self.counts:
            low, high = boxes[var][1]
            if count < 0 or low < 0:
                return False
            most += count * high
        return self.number >= 0 and most < self.size


class StraightAccess:
    """An access at a sum of variables: `text` is the register part, at most `most`; `copies` are
    the extents and strides of copied loops."""

    __slots__ = ("buffer", "copies", "counts", "indices", "most", "number", "text")

    def __init__(self, buffer: sc.Buffer, indices: Sequence[StraightIndex]) -> None:
        self.buffer, self.indices, self.text = buffer, indices, ""
        self.most = 0
        self.copies: tuple[tuple[int, int], ...] = ()
        self.number = sum(index.number * index.stride for index in indices)
        counts: dict[ScalarVar, int] = {}
        for index in indices:
            for var, count in index.counts:
                counts[var] = counts.get(var, 0) + count * index.stride
        self.counts = tuple(counts.items())

    def beside(
        self,
        lane: ScalarVar | None,
        boxes: Mapping[ScalarVar, tuple[str, Interval]],
        values: Mapping[ScalarVar, LaneValue],
    ) -> tuple[int, int]:
        """How many elements of a row are before, and behind, those of a copy of the loops, if all
        are inside: of a variable that is a number in this copy, that number counts."""
        *above, row = self.indices
        if any(var is lane for index in above for var, _ in index.counts):
            return 0, 0
        low = high = row.number
        for var, count in row.counts:
            here = values[var].number
            least, most = boxes[var][1] if here is None else (here, here)
            low, high = low + count * least, high + count * most
        return low, row.size - 1 - high


class StraightStore:
    """A store that is inside its buffer, as some of its loads are, in all copies of a loop.

    `since` says for which registers it was found to be so.
    """

    __slots__ = ("is_inside", "loads", "recipe", "since", "target")

    def __init__(
        self, recipe: EvaluationOrder, loads: Sequence[StraightAccess], target: StraightAccess
    ) -> None:
        self.recipe, self.loads, self.target = recipe, loads, target
        self.since, self.is_inside = (-1, -1), False


def straight_access(
    buffer: sc.Buffer,
    indices: Sequence[sc.Scalar],
    shape: Sequence[object],
    strides: Sequence[object],
) -> StraightAccess | None:
    """An access to a buffer of static shape at a sum of variables, or None."""
    places: list[StraightIndex] = []
    for index, size, stride in zip(indices, shape, strides, strict=True):
        form = linear(index)
        if isinstance(index, sc.Lit):
            form = int(index.value), (), ()
        elif isinstance(index, ScalarVar):
            form = 0, (1,), (index,)
        if form is None or not isinstance(size, int) or not isinstance(stride, int):
            return None
        number, times, terms = form
        variables = [term for term in terms if isinstance(term, ScalarVar)]
        if len(variables) < len(terms):
            return None
        counts = tuple(zip(variables, times, strict=True))
        places.append(StraightIndex(number, counts, size, stride))
    return StraightAccess(buffer, places)


def of_literal(node: sc.Lit) -> LaneValue:
    """The value of a literal."""
    if node.dtype is i64:
        return constant(int(node.value))
    return LaneValue(literal(node.value, node.dtype))


def start_of(node: sc.Reduce) -> LaneValue:
    """The initial value of a reduction."""
    start, _ = MEANING[node.combiner]
    first = start(sc.dtype_of(node))
    assert isinstance(first, sc.Lit)
    return of_literal(first)


def recipe(
    roots: Sequence[sc.Scalar], order: Order[LaneValue], inside: Container[sc.Scalar] = ()
) -> EvaluationOrder:
    """The recipe of terms whose parts are ordered; some loads are unconditional."""
    nodes = [number for number in order.numbers if number not in inside]
    return EvaluationOrder(order, bounds(_asked(roots, nodes)))


def _asked(roots: Sequence[sc.Scalar], nodes: Iterable[sc.Scalar]) -> list[sc.Scalar]:
    """The terms whose intervals matter: indices, and operands of comparisons and divisions."""
    scalars = [root for root in roots if sc.dtype_of(root) is i64]
    for node in nodes:
        if isinstance(node, sc.Load):
            scalars += node.indices
        elif isinstance(node, (*sc.COMPARISON, sc.FloorDiv, sc.FloorMod)):
            scalars += [kid for kid in operands(node) if sc.dtype_of(kid).is_integer]
    return scalars
