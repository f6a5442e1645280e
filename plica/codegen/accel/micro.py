"""Micro-operations: a loop nest around one operation becomes hardware loops and micro-operations.

>>> from plica.codegen.accel.vta import vta
>>> accesses = AffineAccess(0, (64, 0, 8, 1)), AffineAccess(0, (0, 1, 10, 1))
>>> nest = OperationNest("gemm", (4, 3, 8, 8), (*accesses, AffineAccess(0, (3, 1, 0, 0))))
>>> instructions = instructions_of(vta(), nest)
>>> [(i.values["iter_out"], i.values["iter_in"], len(i.places)) for i in instructions]
[(8, 8, 12)]
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations, product
from math import prod
from typing import Any

import numpy as np
from attrs import evolve, frozen

from plica.codegen.accel.check import recurs
from plica.codegen.accel.declaration import Accelerator, Reach, Sweep
from plica.codegen.accel.instruction import find
from plica.runtime.error import Diagnostic, Place, UnsupportedError

Array = np.ndarray[Any, Any]


@frozen
class AffineAccess:
    """The element of a scope that each iteration touches: a base, and a stride for each loop."""

    base: int
    strides: tuple[int, ...]


@frozen
class OperationNest:
    """Loops around an operation; the first access is written, the others are read."""

    operation: str
    extents: tuple[int, ...]
    accesses: tuple[AffineAccess, ...]
    given: tuple[tuple[str, int], ...] = ()


@frozen
class SweepInstruction:
    """An instruction: its operands by name, and the fields of each micro-operation by name."""

    values: dict[str, int]
    places: tuple[dict[str, int], ...]


def instructions_of(machine: Accelerator, nest: OperationNest) -> list[SweepInstruction]:
    """The instructions of a nest, in order; none if a loop has no iterations."""
    if 0 in nest.extents:
        return []
    merged = merge_loops(nest)
    sweep = find(machine, nest.operation).does
    assert isinstance(sweep, Sweep)
    for peeled in range(len(merged.extents) + 1):
        for order in _orders(merged, peeled, len(sweep.loops)):
            if (instructions := _in_order(machine, sweep, merged, order, peeled)) is not None:
                return instructions
    message = f"{nest.operation} cannot walk through its operands."
    hint, place = "Use smaller tiles.", Place(node=nest.operation)
    expected, shown = "strides that the fields hold", f"loops {merged.extents}"
    raise UnsupportedError(Diagnostic("unsupported", message, place, expected, shown, hint))


def merge_loops(nest: OperationNest) -> OperationNest:
    """The same iterations in the same order with fewer loops."""
    extents: list[int] = []
    strides: list[list[int]] = []  # a row for each loop
    for at, extent in enumerate(nest.extents):
        if extent == 1:
            continue
        row = [access.strides[at] for access in nest.accesses]
        if extents and strides[-1] == [stride * extent for stride in row]:
            extents[-1] *= extent
            strides[-1] = row
        else:
            extents.append(extent)
            strides.append(row)
    accesses = tuple(
        [
            AffineAccess(access.base, tuple([row[at] for row in strides]))
            for at, access in enumerate(nest.accesses)
        ]
    )
    return evolve(nest, extents=tuple(extents), accesses=accesses)


def reaches_of(sweep: Sweep) -> tuple[Reach, ...]:
    """The operands that the accesses of a nest are for: the one written, then others that are
    read."""
    written = (sweep.writes.base, sweep.writes.strides)
    reads = [read for read in sweep.reads if (read.base, read.strides) != written]
    return (sweep.writes, *reads)


def _orders(nest: OperationNest, peeled: int, depth: int) -> Iterator[tuple[int, ...]]:
    """Orders of the loops: first those `peeled` into instructions, then `depth` of hardware, then
    those of micro-operations, the fewest micro-operations first."""
    loops = range(len(nest.extents))
    stride = nest.accesses[0].strides
    reductions = [at for at in loops if stride[at] == 0]
    if len(reductions) < peeled:
        return
    first = tuple(reductions[:peeled])  # an instruction for each iteration
    left = [at for at in loops if at not in first]
    orders: list[tuple[int, tuple[int, ...]]] = []
    for hardware in permutations(left, min(depth, len(left))):
        # Loops over other elements of the output are innermost: no element recurs at once.
        inner = [at for at in left if at not in hardware]
        inner.sort(key=lambda at: (stride[at] != 0, at))
        orders.append((prod(nest.extents[at] for at in inner), (*first, *hardware, *inner)))
    yield from (order for _, order in sorted(orders))


def _in_order(
    machine: Accelerator, sweep: Sweep, nest: OperationNest, order: tuple[int, ...], peeled: int
) -> list[SweepInstruction] | None:
    """The instructions for one loop order, or None if a field or the latency forbids it."""
    depth = len(sweep.loops)
    fields = {field.name: field for field in machine.operation(nest.operation).operands}
    outer, hardware = order[:peeled], order[peeled : peeled + depth]
    inner = order[peeled + depth :]
    if not sweep.micro:
        outer, inner = (*outer, *inner), ()
    values = dict(nest.given)
    hardware = (*(-1,) * (depth - len(hardware)), *hardware)
    for name, at in zip(sweep.loops, hardware, strict=True):
        values[name] = nest.extents[at] if at >= 0 else 1
    reaches = reaches_of(sweep)
    for reach, access in zip(reaches, nest.accesses, strict=True):
        for name, at in zip(reach.strides, hardware, strict=True):
            values[name] = access.strides[at] if at >= 0 else 0
    if any(not fields[name].least <= value <= fields[name].most for name, value in values.items()):
        return None
    offsets = _offsets(nest, inner)
    if sweep.micro and len(offsets) > machine.scope(_micro_scope(machine)).depth:
        return None
    instructions: list[SweepInstruction] = []
    for peeled_offset in _offsets(nest, outer):
        base = [a.base + offset for a, offset in zip(nest.accesses, peeled_offset, strict=True)]
        if sweep.micro and machine.micro is not None:
            empty = {field.name: 0 for field in machine.micro.fields}
            places = tuple(
                [
                    {
                        **empty,
                        **{r.base: b + o for r, b, o in zip(reaches, base, offset, strict=True)},
                    }
                    for offset in offsets
                ]
            )
            limits = {field.name: field.most for field in machine.micro.fields}
            if any(value > limits[name] for place in places for name, value in place.items()):
                return None
            instructions.append(SweepInstruction(values, places))
        else:
            operands = {**values, **{r.base: b for r, b in zip(reaches, base, strict=True)}}
            if any(operands[r.base] > fields[r.base].most for r in reaches):
                return None
            instructions.append(SweepInstruction(operands, ()))
    if sweep.latency > 1 and recurs(_written(nest, hardware, offsets), sweep.latency):
        return None
    return instructions


def _micro_scope(machine: Accelerator) -> str:
    assert machine.micro is not None
    return machine.micro.scope


def _offsets(nest: OperationNest, loops: tuple[int, ...]) -> list[tuple[int, ...]]:
    """For each iteration of some loops, the offset of every access from its base."""
    return [
        tuple(
            [
                sum(access.strides[at] * i for at, i in zip(loops, iteration, strict=True))
                for access in nest.accesses
            ]
        )
        for iteration in product(*[range(nest.extents[at]) for at in loops])
    ]


def _written(
    nest: OperationNest, hardware: tuple[int, ...], offsets: list[tuple[int, ...]]
) -> Array:
    """The elements written, iteration by iteration."""
    elements = np.array([offset[0] for offset in offsets])
    for loop in reversed(hardware):
        if loop >= 0:
            steps = np.arange(nest.extents[loop]) * nest.accesses[0].strides[loop]
            elements = steps.reshape(-1, *(1,) * elements.ndim) + elements
    return elements.reshape(-1)
