"""Tensor expressions on whole arrays: every operator from the definition that it has.

An axis is a dimension of an array; a term has the dimensions of the axes that it depends on, and
what is combined is spread over those of both.  A load at `step * axis + start` is a slice, any
other one gathers; a sum of products is a dot.  So a dialect writes every operator without knowing
any.

Not here: graphs (`plica.frontend.whole_array.program`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from attrs import frozen

from plica.core import CompilerBug, Term, free_vars
from plica.frontend.whole_array.dialect import ArrayDialect, ArrayValue
from plica.frontend.whole_array.scalar import cast, refuse, scalar
from plica.ir.interpret.evaluate import keeps_order
from plica.ir.interpret.tape import Affine, affine, number
from plica.ir.loop import scalar as sc
from plica.ir.loop.combiner import MEANING
from plica.ir.loop.tensor import Compute, Prefix, as_reductions
from plica.ir.type.dtype import i64

Axes: TypeAlias = tuple[sc.ScalarVar, ...]


@frozen
class Spanned:
    """An array with a dimension for each of some axes."""

    value: ArrayValue
    axes: Axes


def write(d: ArrayDialect, of: Compute, args: Sequence[ArrayValue]) -> ArrayValue:
    """The result of a tensor expression on arrays."""
    shape = tuple([number(term) for term in of.shape])
    buffers = dict(zip(of.inputs, args, strict=True))
    if 0 in shape:
        return d.constant(np.zeros(shape, of.dtype.numpy), of.dtype)
    if keeps_order(of):
        return d.reshape(args[0], shape)
    scope = ExpressionWriter(d, None, dict(zip(of.axes, shape, strict=True)), buffers)
    return scope.over(scope.place(of.body), of.axes)


class ExpressionWriter:
    """The terms under some axes; what does not depend on them is written in the scope around."""

    def __init__(
        self, d: ArrayDialect, parent: ExpressionWriter | None, axes: Mapping[sc.ScalarVar, int],
        buffers: Mapping[sc.Buffer, ArrayValue],
    ) -> None:  # fmt: skip
        self.d, self.parent, self.axes, self.buffers = d, parent, axes, buffers
        self.extents: dict[sc.ScalarVar, int] = {**(parent.extents if parent else {}), **axes}
        self.placed: dict[Term, Spanned] = {}

    def place(self, root: sc.Scalar) -> Spanned:
        """A term as an array, after the operations that it still needs."""
        stack = [root]
        while stack:
            node = stack[-1]
            if node in self.placed:
                stack.pop()
                continue
            if self.parent is not None and free_vars(node).isdisjoint(self.axes):
                self.placed[node] = self.parent.place(node)
                continue
            kids = self.needs(node)
            if missing := [child for child in kids if child not in self.placed]:
                stack.extend(missing)
                continue
            stack.pop()
            self.placed[node] = self.add(node)
        return self.placed[root]

    def needs(self, node: sc.Scalar) -> list[sc.Scalar]:
        """The terms that are written before a node."""
        if isinstance(node, sc.Reduce | Prefix):
            return []
        if isinstance(node, sc.Load):
            _, general = self.split(node)
            return [node.indices[at] for at in general]
        return [child for child in node._children if isinstance(child, sc.Scalar)]

    def add(self, node: sc.Scalar) -> Spanned:
        """A node whose parts are written."""
        match node:
            case sc.Lit(value, dtype):
                return Spanned(self.d.constant(np.asarray(value, dtype.numpy), dtype), ())
            case sc.ScalarVar():
                if node not in self.extents:
                    raise CompilerBug(
                        f"A tensor expression uses {node.name}, which it does not bind."
                    )
                return Spanned(self.d.iota(self.extents[node]), (node,))
            case sc.Load():
                return self.load(node)
            case sc.Reduce():
                return self.reduce(node)
            case Prefix():
                return self.prefix(node)
            case sc.Cast(inner, dtype):
                given = self.placed[inner]
                return Spanned(cast(self.d, given.value, dtype), given.axes)
            case sc.Ramp() | sc.Broadcast() | sc.Shuffle():
                refuse(self.d, type(node).__name__, sc.dtype_of(node))
        row = sc.row_of(node)
        if row is None:
            raise CompilerBug(f"{type(node).__name__} has no row.")
        values, axes = self.together([self.placed[need] for need in self.needs(node)])
        return Spanned(scalar(self.d, row.name, *values), axes)

    # --- axes ------------------------------------------------------------------------------------

    def in_order(self, axes: Any) -> Axes:
        """Axes in the order of their scopes."""
        return tuple([extent for extent in self.extents if extent in axes])

    def together(self, parts: Sequence[Spanned]) -> tuple[list[ArrayValue], Axes]:
        """Arrays spread over the axes of all."""
        axes = self.in_order({axis for part in parts for axis in part.axes})
        return [self.over(part, axes, whole=False) for part in parts], axes

    def over(self, of: Spanned, axes: Axes, whole: bool = True) -> ArrayValue:
        """An array spread over axes."""
        if of.axes == axes:
            return of.value
        value = self.turned(of, tuple([axis for axis in axes if axis in of.axes]))
        shape = [self.extents[axis] for axis in axes]
        return self.d.spread(value, [axes.index(axis) for axis in axes if axis in of.axes], shape,
                             whole)  # fmt: skip

    def turned(self, of: Spanned, axes: Axes) -> ArrayValue:
        """An array with its axes in another order."""
        if of.axes == axes:
            return of.value
        return self.d.transpose(of.value, [of.axes.index(axis) for axis in axes])

    # --- loads -----------------------------------------------------------------------------------

    def split(self, node: sc.Load) -> tuple[dict[int, Affine], list[int]]:
        """The dimensions of a load that are sliced, and those that are gathered."""
        shape = [number(size) for size in node.buffer.shape]
        plain: dict[int, Affine] = {}
        seen: set[Term] = set()
        for at, (index, size) in enumerate(zip(node.indices, shape, strict=True)):
            found = affine(index)
            if found is None or len(found[1]) > 1 or not seen.isdisjoint(found[1]):
                continue
            low, high = self.reach(found)
            if max(-low, high - size + 1, 0) > 2 * size:
                continue  # hardly any of it is inside
            seen.update(found[1])
            plain[at] = found
        general = [at for at in range(len(shape)) if at not in plain]
        taken = frozenset[Term]().union(*[free_vars(node.indices[at]) for at in general])
        general += [at for at, (_, factors) in plain.items() if not taken.isdisjoint(factors)]
        return {at: each for at, each in plain.items() if at not in general}, sorted(general)

    def reach(self, index: Affine) -> tuple[int, int]:
        """The least and the greatest value of an index."""
        low = high = index[0]
        for axis, factor in index[1].items():
            assert isinstance(axis, sc.ScalarVar)
            last = factor * (self.extents[axis] - 1)
            low, high = low + min(last, 0), high + max(last, 0)
        return low, high

    def load(self, node: sc.Load) -> Spanned:
        """Slices along some dimensions, then what the others gather."""
        x = self.buffers[node.buffer]
        plain, general = self.split(node)
        if 0 in x.shape:  # behind a guard that never holds
            return Spanned(self.d.constant(np.zeros((), x.dtype.numpy), x.dtype), ())
        x = self.sliced(x, plain)
        axes = [axis for at in plain for axis in plain[at][1]]
        if not general:
            shape = [size for at, size in enumerate(x.shape) if plain[at][1]]
            value = self.d.reshape(x, shape) if len(shape) < len(x.shape) else x
            return self.ordered(value, axes)
        given = [self.placed[node.indices[at]] for at in general]
        spread = self.in_order({axis for spanned in given for axis in spanned.axes})
        shape = [self.extents[var] for var in spread]
        places = [cast(self.d, self.over(spanned, spread), i64) for spanned in given]
        columns = [self.d.reshape(place, (*shape, 1)) for place in places]
        at_places = columns[0] if len(columns) == 1 else self.d.join(columns, len(shape))
        value = self.d.gather(x, general, at_places)
        rest = [size for at, size in enumerate(x.shape) if at in plain and plain[at][1]]
        if len(value.shape) > len(shape) + len(rest):
            value = self.d.reshape(value, (*shape, *rest))
        return self.ordered(value, [*spread, *axes])

    def sliced(self, x: ArrayValue, plain: Mapping[int, Affine]) -> ArrayValue:
        """The slices of dimensions at affine indices, with zeros where they reach outside."""
        rank = len(x.shape)
        starts, steps, counts = [0] * rank, [1] * rank, list(x.shape)
        low, high = [0] * rank, [0] * rank
        for at, (start, factors) in plain.items():
            least, most = self.reach((start, factors))
            low[at], high[at] = max(-least, 0), max(most - x.shape[at] + 1, 0)
            starts[at], counts[at] = start + low[at], 1
            for axis, factor in factors.items():
                assert isinstance(axis, sc.ScalarVar)
                steps[at], counts[at] = factor or 1, self.extents[axis]
        if any((*low, *high)):
            x = self.d.pad(x, low, high)
        if any(starts) or counts != list(x.shape) or steps != [1] * rank:
            x = self.d.slice(x, starts, counts, steps)
        return x

    def ordered(self, value: ArrayValue, axes: Sequence[Any]) -> Spanned:
        found = self.in_order(set(axes))
        return Spanned(self.turned(Spanned(value, tuple(axes)), found), found)

    # --- reductions ------------------------------------------------------------------------------

    def inside(self, axes: Sequence[sc.ScalarVar], extents: Sequence[int]) -> ExpressionWriter:
        """The scope of a reduction."""
        return ExpressionWriter(self.d, self, dict(zip(axes, extents, strict=True)), self.buffers)

    def reduce(self, node: sc.Reduce) -> Spanned:
        """A dot where products are summed, a reduction elsewhere."""
        extents = [number(extent) for extent in node.extents]
        if 0 in extents:
            return self.add(MEANING[node.combiner][0](sc.dtype_of(node.body)))
        inner = self.inside(node.axes, extents)
        if (spanned := inner.dotted(node)) is not None:
            return spanned
        value = inner.place(node.body)
        axes = inner.in_order({*value.axes, *node.axes})
        whole = inner.over(value, axes)
        places = [at for at, axis in enumerate(axes) if axis in node.axes]
        rest = tuple([axis for axis in axes if axis not in node.axes])
        return Spanned(self.d.reduce(node.combiner, whole, places), rest)

    def dotted(self, node: sc.Reduce) -> Spanned | None:
        """A sum of products in which every axis of the sum is one of both factors."""
        if node.combiner != "sum" or not isinstance(node.body, sc.Mul):
            return None
        x, y = self.place(node.body.left), self.place(node.body.right)
        both = set(x.axes) & set(y.axes)
        if not both.issuperset(node.axes) or both >= {*x.axes, *y.axes}:
            return None
        common = tuple([var for var in self.in_order(both) if var not in node.axes])

        def pairs(axes: Sequence[sc.ScalarVar]) -> list[tuple[int, int]]:
            return [(x.axes.index(axis), y.axes.index(axis)) for axis in axes]

        value = self.d.dot(x.value, y.value, pairs(common), pairs(node.axes))
        own = [tuple([a for a in spanned.axes if a not in both]) for spanned in (x, y)]
        assert self.parent is not None
        return self.parent.ordered(value, (*common, *own[0], *own[1]))

    def prefix(self, node: Prefix) -> Spanned:
        """A running reduction along an axis, else a reduction for each place."""
        here, size = node.at, number(node.extent)
        if not isinstance(here, sc.ScalarVar) or here in free_vars(node.body):
            return self.place(as_reductions(node))
        if self.extents[here] != size:
            return self.place(as_reductions(node))
        inner = self.inside((node.axis,), (size,))
        value = inner.place(node.body)
        axes = inner.in_order({*value.axes, node.axis})
        along = axes.index(node.axis)
        array_value = self.d.running(node.combiner, inner.over(value, axes), along, node.reverse)
        if array_value is None:
            return self.place(as_reductions(node))
        if node.exclusive:
            array_value = self.shifted(array_value, along, node)
        renamed = tuple([here if axis is node.axis else axis for axis in axes])
        return self.ordered(array_value, renamed)

    def shifted(self, x: ArrayValue, axis: int, node: Prefix) -> ArrayValue:
        """Each place has what the one before it had, the first has the identity."""
        first = MEANING[node.combiner][0](x.dtype)
        assert isinstance(first, sc.Lit)
        edge = [1 if at == axis else size for at, size in enumerate(x.shape)]
        unit = self.d.constant(np.asarray(first.value, x.dtype.numpy), x.dtype)
        spread = self.d.spread(unit, (), edge)
        if x.shape[axis] == 1:
            return spread
        starts, counts = [0] * len(x.shape), list(x.shape)
        starts[axis], counts[axis] = int(node.reverse), x.shape[axis] - 1
        rest = self.d.slice(x, starts, counts, [1] * len(x.shape))
        return self.d.join([rest, spread] if node.reverse else [spread, rest], axis)
