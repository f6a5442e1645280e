"""Facts of shapes: what the left side of a rule and its guard say, and the normal forms by them.

Each law by which a normal form is made is noted, so that a verdict can name it.

>>> facts = ShapeFacts()
>>> x, y = NamedShape("x"), NamedShape("y")
>>> facts.broadcast((x, y)) is facts.broadcast((y, facts.broadcast((x, SCALAR))))
True
>>> facts.learn_below(x, y)
>>> facts.broadcast((x, y)) is y, list(facts.theorems)
(True, ['a shape that another covers adds nothing to a broadcast'])
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from plica.rewrite.packs.axes import composed, remaining
from plica.rewrite.pattern import Derived, Hole
from plica.rewrite.prove.open_shape import (
    NOWHERE,
    SCALAR,
    AllAxes,
    AxesOf,
    AxisSet,
    BoundIndex,
    BroadcastShape,
    FlatIndex,
    KeptShape,
    MappedShape,
    NamedShape,
    OpenIndex,
    OpenShape,
    PermutedIndex,
    PermutedShape,
    ProjectedIndex,
    ReducedShape,
    ReshapedIndex,
    joined,
    parts_of,
)


class ShapeFacts:
    """What is known of shapes: which are equal, cover another, hold as many elements, broadcast
    together, or have the rank that a permutation has."""

    def __init__(self, theorems: dict[str, None] | None = None) -> None:
        self.theorems = {} if theorems is None else theorems
        """The laws by which normal forms were made."""
        self._same: dict[OpenShape, OpenShape] = {}
        self._below: set[tuple[OpenShape, OpenShape]] = set()
        self._together: set[frozenset[OpenShape]] = set()
        self._counts: dict[OpenShape, OpenShape] = {}
        self._ranked: set[tuple[OpenShape, Any]] = set()
        self._whole: set[tuple[Any, OpenShape]] = set()
        self.orderly: set[tuple[OpenShape, Any]] = set()
        """Shapes, and orders of their axes in which rows are in the same order."""
        self.prepended: set[tuple[OpenShape, OpenShape]] = set()
        """Shapes, and the same behind axes of size 1."""
        self.ones: set[AxesOf | AllAxes] = set()
        self.created: dict[tuple[OpenShape, AxisSet, OpenShape], OpenShape] = {}

    def use(self, law: str) -> None:
        """Notes a law by which a normal form was made."""
        self.theorems[law] = None

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

    def learn_all(self, attribute: Hole, shape: OpenShape) -> None:
        """The attribute names all axes of a shape."""
        self._whole.add((Hole(attribute.name), shape))

    def learn_prepended(self, shape: OpenShape, wide: OpenShape) -> None:
        """The wide shape is the other one behind axes of size 1."""
        self.prepended.add((shape, wide))
        self.learn_count(shape, wide)
        self.learn_below(shape, wide)

    def learn_created(self, small: OpenShape, wide: OpenShape, gone: AxisSet) -> None:
        """Along some axes of a shape, broadcasting reads one place: they are new, or of size 1."""
        part = self.created[wide, gone, small] = MappedShape("without", (wide, gone), small)
        self.learn_count(small, part)
        self.learn_below(part, self.reduced(wide, gone))
        self.learn_below(small, self.kept(wide, gone))

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
        return any(shape is not small and self.is_below(shape, large) for shape in above)

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
        if isinstance(order, Derived):
            found = self.permuted(shape, order)
            turned = found.of if isinstance(found, ReducedShape) else None
            return isinstance(turned, PermutedShape) and self.fits(turned.of, turned.order)
        if isinstance(shape, KeptShape):
            return self.fits(shape.of, order)
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
        if len(kept) < len(parts):
            self.use("a shape that another covers adds nothing to a broadcast")
        if len(kept) == 1:
            return kept[0]
        orders = {part.order for part in kept if isinstance(part, PermutedShape)}
        if len(orders) == 1 and all(isinstance(part, PermutedShape) for part in kept):
            (order,) = orders
            inner = [part.of for part in kept if isinstance(part, PermutedShape)]
            if all(self.fits(open_shape, order) for open_shape in inner):
                self.use("a transpose comes out of a broadcast")
                return PermutedShape(self.broadcast(inner), order)
        return BroadcastShape(tuple(sorted(kept, key=repr)))

    def project(self, index: OpenIndex, source: OpenShape, target: OpenShape) -> OpenIndex:
        """The place of `target` that is broadcast to a place of `source`."""
        if source is target:
            return index
        if target is SCALAR:
            return NOWHERE
        if isinstance(index, ProjectedIndex):
            self.use("a broadcast of a broadcast is one")
            return self.project(index.index, index.source, target)
        if isinstance(index, BoundIndex) and (source, index.gone, target) in self.created:
            self.use("along an axis that a broadcast makes all elements are one")
            return self.project(index.index, self.kept(source, index.gone), target)
        if isinstance(index, ReshapedIndex) and isinstance(less := index.source, ReducedShape):
            part = self.created.get((less.of, less.gone, target))
            if part is not None and source is self.kept(less.of, less.gone):
                self.use("along an axis that a broadcast makes all elements are one")
                return self.reshape(self.project(index.index, less, part), part, target)
        if isinstance(index, PermutedIndex) and (order := index.order) is not None:
            wide, narrow = PermutedShape(source, order), PermutedShape(target, order)
            if self._one_order(wide, narrow) is not None:
                self.use("a transpose comes out of a broadcast")
                return PermutedIndex(self.project(index.index, wide, narrow), order)
        return ProjectedIndex(index, source, target)

    def reshape(self, index: OpenIndex, source: OpenShape, target: OpenShape) -> OpenIndex:
        """The place of `target` at the row-major position of a place of `source`."""
        if source is target:
            return index
        if target is SCALAR:
            return NOWHERE
        if isinstance(index, FlatIndex):
            return index
        if (target, source) in self.prepended:
            self.use("axes of size 1 in front change no position")
            return self.project(index, source, target)
        if isinstance(index, ReshapedIndex):
            self.use("a reshape of a reshape is one")
            return self.reshape(index.index, index.source, target)
        if isinstance(index, BoundIndex) and index.of is source and _is_kept(source, target):
            narrow, wide = self.kept(source, index.gone), self.kept(target, index.gone)
            self.use("axes of size 1 that a reduction keeps change no position")
            return self.bound(self.reshape(index.index, narrow, wide), index.gone, target)
        return ReshapedIndex(index, source, target)

    # --- axes -------------------------------------------------------------------------------------

    def axes(self, attribute: Any, shape: OpenShape) -> AxesOf | AllAxes:
        """The axes that an attribute names in a shape."""
        if isinstance(attribute, Hole):
            attribute = Hole(attribute.name)  # whatever else is asked of it
        if isinstance(shape, KeptShape):
            return self.axes(attribute, shape.of)
        if (attribute, shape) in self._whole:
            return AllAxes(self.count_of(shape))
        return AxesOf(attribute, shape)

    def reduced(self, shape: OpenShape, gone: AxisSet) -> OpenShape:
        """A shape without some axes."""
        if any(isinstance(each, AllAxes) for each in gone):
            return SCALAR
        if isinstance(shape, ReducedShape):
            return ReducedShape(shape.of, joined(shape.gone, gone))
        return ReducedShape(shape, gone)

    def kept(self, shape: OpenShape, gone: AxisSet) -> OpenShape:
        """A shape in which some axes have the size 1."""
        if isinstance(shape, KeptShape):
            return KeptShape(shape.of, joined(shape.gone, gone))
        return KeptShape(shape, gone)

    def bound(self, index: OpenIndex, gone: AxisSet, shape: OpenShape) -> OpenIndex:
        """The place of a shape at a place of the kept one, and anywhere along some axes."""
        if any(isinstance(each, AllAxes) for each in gone):
            self.use("a reduction of all axes goes over positions, whatever the shape")
            return FlatIndex(self.count_of(shape))
        if isinstance(index, BoundIndex) and index.of is self.kept(shape, gone):
            self.use("a reduction of a reduction is one")
            return BoundIndex(index.index, joined(gone, index.gone), shape)
        return BoundIndex(index, gone, shape)

    def permuted(self, shape: OpenShape, order: Any) -> OpenShape:
        """A shape with its axes in another order."""
        if isinstance(order, Derived) and order.function is composed:
            inner, outer = order.args
            return self.permuted(self.permuted(shape, inner), outer)
        match shape:
            case PermutedShape(of, tuple() as inner) if isinstance(order, tuple):
                both = composed.compute(inner, order)
                return of if both == tuple(range(len(both))) else PermutedShape(of, both)
            case KeptShape(of, gone) if _are_of(gone, PermutedShape(of, order)):
                return KeptShape(PermutedShape(of, order), gone)
            case ReducedShape(of, (AxesOf(axes, PermutedShape(_, before) as wide),) as gone) if (
                order is remaining(before, axes, False) and wide.of is of
            ):
                return ReducedShape(wide, gone)
        return PermutedShape(shape, order)

    def permute(self, index: OpenIndex, order: Any, of: OpenShape) -> OpenIndex:
        """The place of a shape at a place of the permuted one."""
        if isinstance(order, Derived) and order.function is composed:
            inner, outer = order.args
            self.use("a transpose of a transpose is one")
            return self.permute(self.permute(index, outer, self.permuted(of, inner)), inner, of)
        if (of, order) in self.orderly:
            self.use("to move axes of size 1 changes no position")
            return self.reshape(index, self.permuted(of, order), of)
        match index:
            case PermutedIndex(whole, tuple() as outer) if isinstance(order, tuple):
                both = composed.compute(order, outer)
                self.use("a transpose of a transpose is one")
                return whole if both == tuple(range(len(both))) else PermutedIndex(whole, both)
            case BoundIndex(outer, gone, wide) if wide is PermutedShape(of, order):
                self.use("axes keep their names when they move")
                return self.bound(self.permute(outer, order, self.kept(of, gone)), gone, of)
            case ReshapedIndex(outer, ReducedShape(wide, (AxesOf(axes, _),) as gone), _) if (
                isinstance(of, KeptShape)
                and of.gone == gone
                and wide is PermutedShape(of.of, order)
            ):
                less = ReducedShape(of.of, gone)
                self.use("axes keep their names when they move")
                turned = self.permute(outer, remaining(order, axes, False), less)
                return self.reshape(turned, less, of)
        return PermutedIndex(index, order)


def _is_kept(a: OpenShape, b: OpenShape) -> bool:
    """Whether two shapes differ in axes of size 1 that a reduction left out or kept."""
    pair = (a, b) if isinstance(a, ReducedShape) else (b, a)
    match pair:
        case ReducedShape(of, gone), KeptShape(other, same):
            return of is other and gone == same
    return False


def _are_of(gone: AxisSet, shape: OpenShape) -> bool:
    return all(isinstance(each, AxesOf) and each.shape is shape for each in gone)
