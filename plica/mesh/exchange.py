"""Exchanges: the collectives that bring a value from one layout to another.

    split d  -> replicated    all_gather along d
    partial  -> replicated    all_reduce
    partial  -> split d       reduce_scatter along d
    split c  -> split d       all_to_all from c to d
    replicated -> split d     own_block along d, which moves nothing

>>> from plica.mesh.mesh import PARTIAL_SUM, split
>>> [each.op for each in exchanges((PARTIAL_SUM,), (split(0),))]
['reduce_scatter']
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import prod
from typing import Any, Final

from attrs import frozen

from plica.ir.graph.expression import Apply, Attrs, Expr
from plica.ir.graph.operator import find
from plica.ir.type import TensorType
from plica.mesh.mesh import REPLICATED, Layout, Mesh, Placement, sizes_of

STACK: Final = "stack_devices"
OWN: Final = "own_device"


@frozen
class MeshExchange:
    """A collective along one axis of a mesh."""

    op: str
    axis: int
    attributes: Attrs

    def bytes(self, held: float, size: int) -> float:
        """The bytes each device sends if it holds `held` bytes, by the best known algorithms."""
        match self.op:
            case "all_gather":
                return held * (size - 1)
            case "reduce_scatter" | "all_to_all":
                return held * (size - 1) / size
            case "all_reduce":
                return 2 * held * (size - 1) / size
            case "ring_shift":
                return held
        return 0.0


def bytes_of(of: TensorType) -> float:
    """The bytes of a tensor."""
    return float(prod(sizes_of(of)) * max(of.dtype.bits, 8) // 8)


@lru_cache(maxsize=1 << 12)
def exchanges(held: Layout, wanted: Layout) -> tuple[MeshExchange, ...]:
    """The collectives from one layout to another, in order.

    Blocks of a dim that several axes split are undone from the last axis on, and made again from
    the first: an axis is redone if one before it changes at the same dim.
    """
    cut = [{it.dim for it in pair if it.kind == "split"} for pair in zip(held, wanted, strict=True)]
    changed = [axis for axis, (a, b) in enumerate(zip(held, wanted, strict=True)) if a != b]
    touched = {dim for axis in changed for dim in cut[axis]}
    redone = [axis for axis, dims in enumerate(cut)
              if axis in changed or (dims & touched and min(changed) < axis)]  # fmt: skip
    dims = [dim for axis in redone for dim in cut[axis]]
    if len(set(dims)) == len(dims):  # no dim is cut twice: axes do not depend on one another
        direct = [each for axis in redone for each in _direct(axis, held[axis], wanted[axis])]
        return tuple(sorted(direct, key=lambda each: each.op == "all_gather"))
    undone = [each for axis in reversed(redone) for each in _direct(axis, held[axis], REPLICATED)]
    made = [each for axis in redone for each in _direct(axis, REPLICATED, wanted[axis])]
    return (*undone, *made)


def _direct(axis: int, held: Placement, wanted: Placement) -> Iterator[MeshExchange]:
    """The collective along one axis."""
    if held == wanted:
        return
    match held.kind, wanted.kind:
        case "split", "split":
            yield _exchange("all_to_all", axis, source=held.dim, target=wanted.dim)
        case "split", "replicated":
            yield _exchange("all_gather", axis, dim=held.dim)
        case "partial", "replicated":
            yield _exchange("all_reduce", axis, combiner=held.combiner)
        case "partial", "split":
            yield _exchange("reduce_scatter", axis, combiner=held.combiner, dim=wanted.dim)
        case "replicated", "split":
            yield _exchange("own_block", axis, dim=wanted.dim)
        case _:
            raise AssertionError(f"no collective leads from {held} to {wanted}")


def _exchange(op: str, axis: int, **attributes: Any) -> MeshExchange:
    return MeshExchange(op, axis, tuple(sorted(attributes.items())))


@lru_cache(maxsize=1 << 14)
def exchange_cost(sizes: tuple[int, ...], of: TensorType, held: Layout, wanted: Layout) -> float:
    """The bytes that each device sends to bring a tensor from one layout to another, over axes of
    some sizes."""
    if any(w.kind == "partial" and w != h for h, w in zip(held, wanted, strict=True)):
        return float("inf")
    return sum([sent for _, sent in sends(sizes, of, held, wanted)])


@lru_cache(maxsize=1 << 14)
def sends(
    sizes: tuple[int, ...], of: TensorType, held: Layout, wanted: Layout
) -> tuple[tuple[int, float], ...]:
    """The axis of each collective between two layouts, and the bytes that each device sends."""
    blocks = prod([size for it, size in zip(held, sizes, strict=True) if it.kind == "split"])
    local, found = bytes_of(of) / blocks, []
    for exchange in exchanges(held, wanted):
        size = sizes[exchange.axis]
        found.append((exchange.axis, exchange.bytes(local, size)))
        if exchange.op == "all_gather":
            local *= size
        elif exchange.op in {"reduce_scatter", "own_block"}:
            local /= size
    return tuple(found)


def relaid(value: Expr, mesh: Mesh, held: Layout, wanted: Layout) -> Expr:
    """A value of a device in another layout."""
    for exchange in exchanges(held, wanted):
        name, size = mesh.axes[exchange.axis]
        stack, own = find(STACK), find(OWN)
        assert stack is not None
        assert own is not None
        rows = stack(value, axis=name, devices=size)
        value = own(Apply(exchange.op, (rows,), exchange.attributes), axis=name)
    return value
