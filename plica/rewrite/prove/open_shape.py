"""Open shapes and indices: tensors of any rank and any sizes, as terms with laws.

    OpenShape ::= NamedShape(name) | BroadcastShape(parts) | PermutedShape(of, order)
                | MappedShape(operator, attrs, of)
    OpenIndex ::= RootIndex(shape) | NoIndex | ProjectedIndex(index, source, target)
                | PermutedIndex(index, order) | ReshapedIndex(index, source, target)
                | MappedIndex(index, operator, attrs, of)

Nothing here has a rank.  `ProjectedIndex` is the place that broadcasting reads: aligned at the last
axis, 0 along axes of size 1.  `ReshapedIndex` keeps the row-major position.  `MappedIndex` is the
place that an operator which only moves elements reads; nothing is known of it but that it depends
on the index, the attributes and the shape.

What the left side of a rule and its guard say of shapes is a set of `ShapeFacts`; normal forms
depend on them.

>>> facts = ShapeFacts()
>>> x, y = NamedShape("x"), NamedShape("y")
>>> facts.broadcast((x, y)) is facts.broadcast((y, facts.broadcast((x, SCALAR))))
True
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import attrs

from plica.core import Term


class OpenShape(Term):
    """A shape of any rank."""


class OpenIndex(Term):
    """A place in a tensor of such a shape."""


@attrs.frozen(eq=False)
class NamedShape(OpenShape):
    """The shape of what fills a hole, or an attribute that is a shape."""

    name: str


@attrs.frozen(eq=False)
class BroadcastShape(OpenShape):
    """What shapes broadcast to; of none, the shape of a scalar."""

    parts: tuple[OpenShape, ...]


@attrs.frozen(eq=False)
class PermutedShape(OpenShape):
    """A shape with its axes in another order."""

    of: OpenShape
    order: Any  # Any: a hole or a tuple of axes


@attrs.frozen(eq=False)
class MappedShape(OpenShape):
    """The shape an operator gives, which depends on its attributes and argument shape alone."""

    operator: str
    attributes: Any  # Any: what the operator's record declares, with holes
    of: OpenShape


@attrs.frozen(eq=False)
class RootIndex(OpenIndex):
    """Any place of the result."""


@attrs.frozen(eq=False)
class NoIndex(OpenIndex):
    """The one place of a scalar."""


@attrs.frozen(eq=False)
class ProjectedIndex(OpenIndex):
    """The place of `target` that is broadcast to a place of `source`."""

    index: OpenIndex
    source: OpenShape
    target: OpenShape


@attrs.frozen(eq=False)
class PermutedIndex(OpenIndex):
    """The place that a transpose reads."""

    index: OpenIndex
    order: Any  # Any: as above


@attrs.frozen(eq=False)
class ReshapedIndex(OpenIndex):
    """The place of `target` at the row-major position of a place of `source`."""

    index: OpenIndex
    source: OpenShape
    target: OpenShape


@attrs.frozen(eq=False)
class MappedIndex(OpenIndex):
    """The place of `of` that an operator which only moves elements reads."""

    index: OpenIndex
    operator: str
    attributes: Any  # Any: as above
    of: OpenShape


SCALAR: Final = BroadcastShape(())
ROOT: Final = RootIndex()
NOWHERE: Final = NoIndex()


class ShapeFacts:
    """What is known of shapes: which are equal, cover another, hold as many elements, broadcast
    together, or have the rank that a permutation has."""

    def __init__(self) -> None:
        self._same: dict[OpenShape, OpenShape] = {}
        self._below: set[tuple[OpenShape, OpenShape]] = set()
        self._together: set[frozenset[OpenShape]] = set()
        self._counts: dict[OpenShape, OpenShape] = {}
        self._ranked: set[tuple[OpenShape, Any]] = set()

    # --- what is learnt ---------------------------------------------------------------------------

    def learn_same(self, a: OpenShape, b: OpenShape) -> None:
        """Two shapes are equal; of shapes without a name nothing is learnt."""
        a, b = self.named(a), self.named(b)
        if a is not b and isinstance(a, NamedShape) and isinstance(b, NamedShape):
            self._same[a] = b

    def learn_below(self, small: OpenShape, large: OpenShape) -> None:
        """Broadcasting `small` with `large` gives `large`."""
        self._below.add((small, large))
        self.learn_together((small, large))

    def learn_together(self, shapes: Iterable[OpenShape]) -> None:
        """The shapes broadcast together."""
        parts = [part for shape in shapes for part in parts_of(shape)]
        self._together |= {frozenset((a, b)) for a in parts for b in parts}
        for a in parts:
            for b in parts:
                if (inner := self._one_order(a, b)) is not None:
                    self.learn_together(inner)

    def learn_count(self, a: OpenShape, b: OpenShape) -> None:
        """Two shapes have equally many elements."""
        a, b = self.count_of(a), self.count_of(b)
        if a is not b:
            self._counts[b] = a

    def learn_rank(self, shape: OpenShape, order: Any) -> None:
        """The permutation names each axis of the shape by its number."""
        self._ranked.add((shape, order))

    # --- what is known ----------------------------------------------------------------------------

    def named(self, shape: OpenShape) -> OpenShape:
        """The one shape that stands for all that equal a named one."""
        while shape in self._same:
            shape = self._same[shape]
        return shape

    def is_below(self, small: OpenShape, large: OpenShape) -> bool:
        """Whether broadcasting `small` with `large` is known to give `large`."""
        if small is large or small is SCALAR:
            return True
        if isinstance(small, BroadcastShape):
            return all(self.is_below(part, large) for part in small.parts)
        if isinstance(large, BroadcastShape) and any(self.is_below(small, p) for p in large.parts):
            return True
        if (inner := self._one_order(small, large)) is not None and self.is_below(*inner):
            return True
        above = [b for a, b in self._below if a is small]
        return any(each is not small and self.is_below(each, large) for each in above)

    def _one_order(self, a: OpenShape, b: OpenShape) -> tuple[OpenShape, OpenShape] | None:
        """The shapes of one rank that one permutation turns into these."""
        if not isinstance(a, PermutedShape) or not isinstance(b, PermutedShape):
            return None
        fit = a.order is b.order and self.fits(a.of, a.order) and self.fits(b.of, a.order)
        return (a.of, b.of) if fit else None

    def is_together(self, a: OpenShape, b: OpenShape) -> bool:
        """Whether two shapes are known to broadcast together."""
        return all(
            self.is_below(p, q) or self.is_below(q, p) or self._are_known(p, q)
            for p in parts_of(a)
            for q in parts_of(b)
        )

    def _are_known(self, a: OpenShape, b: OpenShape) -> bool:
        """Parts of shapes that broadcast together do, too."""
        wide_a = [a, *[large for small, large in self._below if small is a]]
        wide_b = [b, *[large for small, large in self._below if small is b]]
        return any(
            frozenset((p, q)) in self._together
            for i in wide_a for j in wide_b for p in parts_of(i) for q in parts_of(j)
        )  # fmt: skip

    def is_same_count(self, a: OpenShape, b: OpenShape) -> bool:
        """Whether two shapes are known to have equally many elements."""
        return self.count_of(a) is self.count_of(b)

    def count_of(self, shape: OpenShape) -> OpenShape:
        """The one shape that stands for all with as many elements."""
        if isinstance(shape, PermutedShape):
            return self.count_of(shape.of)
        while shape in self._counts:
            shape = self._counts[shape]
        return shape

    def fits(self, shape: OpenShape, order: Any) -> bool:
        """Whether the permutation is known to name each axis of the shape by its number."""
        if isinstance(shape, BroadcastShape):
            return bool(shape.parts) and all(self.fits(part, order) for part in shape.parts)
        return (shape, order) in self._ranked

    # --- normal forms -----------------------------------------------------------------------------

    def broadcast(self, shapes: Iterable[OpenShape]) -> OpenShape:
        """What shapes broadcast to."""
        parts = list(dict.fromkeys(part for shape in shapes for part in parts_of(shape)))
        kept = [
            part for at, part in enumerate(parts)
            if not any(self.is_below(part, each) and not (self.is_below(each, part) and at < i)
                       for i, each in enumerate(parts) if each is not part)
        ]  # fmt: skip
        if len(kept) == 1:
            return kept[0]
        orders = {part.order for part in kept if isinstance(part, PermutedShape)}
        if len(orders) == 1 and all(isinstance(part, PermutedShape) for part in kept):
            (order,) = orders
            inner = [part.of for part in kept if isinstance(part, PermutedShape)]
            if all(self.fits(each, order) for each in inner):
                return PermutedShape(self.broadcast(inner), order)
        return BroadcastShape(tuple(sorted(kept, key=repr)))

    def project(self, index: OpenIndex, source: OpenShape, target: OpenShape) -> OpenIndex:
        """The place of `target` that is broadcast to a place of `source`."""
        if source is target:
            return index
        if target is SCALAR:
            return NOWHERE
        if isinstance(index, ProjectedIndex):
            return self.project(index.index, index.source, target)
        if isinstance(index, PermutedIndex) and (order := index.order) is not None:
            wide, narrow = PermutedShape(source, order), PermutedShape(target, order)
            if self._one_order(wide, narrow) is not None:
                return PermutedIndex(self.project(index.index, wide, narrow), order)
        return ProjectedIndex(index, source, target)

    def reshape(self, index: OpenIndex, source: OpenShape, target: OpenShape) -> OpenIndex:
        """The place of `target` at the row-major position of a place of `source`."""
        if source is target:
            return index
        if target is SCALAR:
            return NOWHERE
        if isinstance(index, ReshapedIndex):
            return self.reshape(index.index, index.source, target)
        return ReshapedIndex(index, source, target)


def parts_of(shape: OpenShape) -> tuple[OpenShape, ...]:
    """The shapes that broadcast to a shape."""
    return shape.parts if isinstance(shape, BroadcastShape) else (shape,)
