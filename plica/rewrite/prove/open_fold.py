"""Open folds: reductions over sets of axes of tensors of any shape."""

from __future__ import annotations

from typing import Any

import attrs

from plica.ir.loop.scalar import Combiner, Scalar
from plica.rewrite.prove.open_shape import AxisSet, OpenIndex, OpenShape


@attrs.frozen(eq=False)
class OpenFold:
    """A reduction: what is combined, where, along which axes of which sizes, in which order."""

    combiner: Combiner
    place: OpenIndex
    gone: AxisSet
    sizes: OpenShape
    order: OpenShape | None
    may_be_empty: bool  # whether it is an extreme that has a value for no terms, too
    body: Scalar

    @property
    def domain(self) -> tuple[Any, ...]:
        """What two reductions of the same terms agree in."""
        return (self.gone, self.sizes, self.order, self.may_be_empty)
