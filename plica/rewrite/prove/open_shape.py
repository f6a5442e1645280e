"""Open shapes and indices: tensors of any rank and any sizes, as terms with laws.

    OpenShape ::= NamedShape(name) | BroadcastShape(parts) | PermutedShape(of, order)
                | MappedShape(operator, attrs, of) | ReducedShape(of, gone) | KeptShape(of, gone)
    OpenIndex ::= RootIndex(shape) | NoIndex | ProjectedIndex(index, source, target)
                | PermutedIndex(index, order) | ReshapedIndex(index, source, target)
                | MappedIndex(index, operator, attrs, of) | BoundIndex(index, gone, of)
                | FlatIndex(of)
    AxisSet   ::= some of AxesOf(attribute, shape) | AllAxes(of)
                | Contracted(operator, attributes, shapes)

Nothing here has a rank.  `ProjectedIndex` is the place that broadcasting reads: aligned at the last
axis, 0 along axes of size 1.  `ReshapedIndex` keeps the row-major position.  `MappedIndex` is the
place that an operator which only moves elements reads; nothing is known of it but that it depends
on the index, the attributes and the shape.  `BoundIndex` is the place that a reduction reads: along
the axes in `gone` it is bound by the reduction, along the others it is a place of the `KeptShape`,
in which those axes have the size 1.  A set of axes keeps its name when the axes move.

What is known of shapes, and normal forms by it, are `plica.rewrite.prove.shape_facts`.

>>> parts_of(BroadcastShape((NamedShape("x"), NamedShape("y")))) == parts_of(NamedShape("x"))
False
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

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


@attrs.frozen(eq=False)
class AxesOf(Term):
    """The axes that an attribute names in a shape; the same axes before a transpose."""

    attribute: Any  # Any: as above
    shape: OpenShape


@attrs.frozen(eq=False)
class AllAxes(Term):
    """All axes of a shape, of which only the number of its elements matters."""

    of: OpenShape


@attrs.frozen(eq=False)
class Contracted(Term):
    """What an operator combines at each place of its result: a window, an inner axis."""

    operator: str
    attributes: Any  # Any: what the operator's record declares, with holes
    shapes: tuple[OpenShape, ...]

    @property
    def result(self) -> OpenShape:
        """The shape that is left."""
        return MappedShape(self.operator, (self.attributes, self.shapes), SCALAR)


AxisSet: TypeAlias = tuple[AxesOf | AllAxes | Contracted, ...]


@attrs.frozen(eq=False)
class ReducedShape(OpenShape):
    """A shape without some axes."""

    of: OpenShape
    gone: AxisSet


@attrs.frozen(eq=False)
class KeptShape(OpenShape):
    """A shape in which some axes have the size 1."""

    of: OpenShape
    gone: AxisSet


@attrs.frozen(eq=False)
class BoundIndex(OpenIndex):
    """The place of `of` at a place of the kept shape, and anywhere along the axes in `gone`."""

    index: OpenIndex
    gone: AxisSet
    of: OpenShape


@attrs.frozen(eq=False)
class FlatIndex(OpenIndex):
    """Any row-major position of the shapes with this number of elements."""

    of: OpenShape


SCALAR: Final = BroadcastShape(())
ROOT: Final = RootIndex()
NOWHERE: Final = NoIndex()


def unpermuted(shape: OpenShape) -> OpenShape:
    """The shape of which another is a transpose."""
    while isinstance(shape, PermutedShape):
        shape = shape.of
    return shape


def differing(first: AxisSet, second: AxisSet) -> AxisSet:
    """The axes in an odd number of sets, of which each is said by some."""
    return tuple(sorted({*first} ^ {*second}, key=repr))


def joined(first: AxisSet, second: AxisSet) -> AxisSet:
    """The union of sets of axes."""
    return tuple(sorted({*first, *second}, key=repr))


def parts_of(shape: OpenShape) -> tuple[OpenShape, ...]:
    """The shapes that broadcast to a shape."""
    return shape.parts if isinstance(shape, BroadcastShape) else (shape,)
