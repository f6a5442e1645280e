"""Tensor expressions over tensors in other layouts, derived by rewriting their indices.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.layout import permuted
>>> from plica.ir.loop.tensor import buffer, compute
>>> x, y = buffer("x", (2, 3), f32), buffer("y", (3, 2), f32)
>>> doubled = compute((x,), x.shape, lambda i, j: x[i, j] * 2)
>>> there = laid(doubled, (permuted((1, 0)),), permuted((1, 0)), (y,))
>>> there is compute((y,), y.shape, lambda i, j: y[i, j] * 2)
True
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

from plica.core import Name, Term, all_of, post_order, rebuild
from plica.ir.loop.layout import Layout
from plica.ir.loop.scalar import Buffer, Load, Reduce, Scalar, ScalarVar, index
from plica.ir.loop.tensor import Compute, axis
from plica.ir.type.dim import quotient

Parts: TypeAlias = tuple[Scalar, ...]


def laid(
    of: Compute, inputs: Sequence[Layout], result: Layout, buffers: Sequence[Buffer]
) -> Compute:
    """The expression over `buffers`, which hold its inputs in their layouts.

    The result must be a whole number of blocks along every axis.
    """
    shape = result.shape_of(of.shape)
    assert shape is not None, "the result has blocks that do not divide it"
    axes = tuple(axis("i", number) for number in range(len(shape)))
    stored = dict(zip(of.inputs, zip(inputs, buffers, strict=True), strict=True))
    return _Rewriting(of, stored, result, axes).run(shape)


class _Rewriting:
    """The indices of one expression, rewritten."""

    def __init__(
        self,
        of: Compute,
        stored: dict[Buffer, tuple[Layout, Buffer]],
        result: Layout,
        axes: tuple[ScalarVar, ...],
    ) -> None:
        self.of = of
        self.stored = stored
        self.axes = axes
        self.parts: dict[tuple[Scalar, tuple[int, ...]], Parts] = {}  # of an index, by its blocks
        self.become: dict[Term, Term] = {}
        self.split: dict[ScalarVar, tuple[tuple[ScalarVar, ...], tuple[int, ...]]] = {}
        for number, whole in enumerate(result.logical(axes)):
            places = tuple(axes[position] for position in result.positions(number))
            self._learn(of.axes[number], whole, result.blocks(number), places)
        self._split_sums()

    def _learn(self, old: ScalarVar, new: Scalar, blocks: tuple[int, ...], parts: Parts) -> None:
        self.become[old] = new
        if blocks:
            self.parts[new, blocks] = parts

    def _split_sums(self) -> None:
        """The axes of sums that run over a blocked axis of an input."""
        sums = all_of(Reduce, self.of.body)
        extents: dict[ScalarVar, list[Scalar]] = {}
        for reduction in sums:
            for var, extent in zip(reduction.axes, reduction.extents, strict=True):
                extents.setdefault(var, []).append(extent)
        loads = all_of(Load, self.of.body)
        for load in loads:
            if load.buffer not in self.stored:
                continue
            layout, _ = self.stored[load.buffer]
            for number, at in enumerate(load.indices):
                blocks = layout.blocks(number)
                if isinstance(at, ScalarVar) and at in extents and blocks:
                    self._split_sum(at, extents[at], blocks)

    def _split_sum(self, var: ScalarVar, extents: list[Scalar], blocks: tuple[int, ...]) -> None:
        size = math.prod(blocks)
        if var in self.split or any(quotient(extent, index(size)) is None for extent in extents):
            return
        hint, number = var.name
        names = [Name(f"{hint}{'o' * (len(blocks) - at)}", number) for at in range(len(blocks) + 1)]
        inner = tuple(ScalarVar(name, var.dtype) for name in names)
        whole: Scalar = inner[0]
        for block, place in zip(blocks, inner[1:], strict=True):
            whole = whole * block + place if block > 1 else whole
        self.split[var] = inner, blocks
        self._learn(var, whole, blocks, inner)

    def run(self, shape: tuple[Scalar, ...]) -> Compute:
        """The whole expression; no variable of it is bound twice in different senses."""
        memo: dict[Term, Any] = {}
        for node in post_order(self.of.body):
            if node in self.become:
                memo[node] = self.become[node]
            elif isinstance(node, Load) and node.buffer in self.stored:
                layout, buffer = self.stored[node.buffer]
                indices = [memo[scalar] for scalar in node.indices]
                memo[node] = Load(buffer, layout.places(indices, self._cut))
            elif isinstance(node, Reduce) and any(var in self.split for var in node.axes):
                memo[node] = self._sum(node, memo)
            elif type(node).variable:
                memo[node] = node
            else:
                memo[node] = rebuild(node, tuple([memo[kid] for kid in node._children]))
        buffers = tuple(buffer for _, buffer in self.stored.values())
        return Compute(buffers, self.axes, shape, memo[self.of.body])

    def _cut(self, at: Scalar, blocks: tuple[int, ...]) -> Parts | None:
        return self.parts.get((at, blocks))

    def _sum(self, node: Reduce, memo: dict[Term, Any]) -> Reduce:
        axes: list[ScalarVar] = []
        extents: list[Scalar] = []
        for var, extent in zip(node.axes, node.extents, strict=True):
            if var not in self.split:
                axes.append(var)
                extents.append(memo[extent])
                continue
            inner, blocks = self.split[var]
            outer = quotient(extent, index(math.prod(blocks)))
            assert outer is not None
            axes += inner
            extents += [outer, *map(index, blocks)]
        return Reduce(node.combiner, tuple(axes), tuple(extents), memo[node.body], node.runs)
