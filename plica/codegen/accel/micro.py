"""Micro-operations: a loop nest around one operation becomes hardware loops and micro-operations.

Loops of one turn go; neighbours that walk on evenly become one.  Of the others two (as many as the
hardware has) become its loops, and the rest is written out as micro-operations, as few as the
fields and the pipeline's latency allow.

>>> from plica.codegen.accel.vta import vta
>>> paths = Path(0, (64, 0, 8, 1)), Path(0, (0, 1, 10, 1)), Path(0, (3, 1, 0, 0))
>>> nest = OperationNest("gemm", (4, 3, 8, 8), paths)
>>> folded = fold_nest(vta(), nest)
>>> [(each.values["iter_out"], each.values["iter_in"], len(each.places)) for each in folded]
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
class Path:
    """Where a nest touches a scope: a base, and a stride for each loop."""

    base: int
    strides: tuple[int, ...]


@frozen
class OperationNest:
    """Loops around an operation; the first path is written, the others are read."""

    operation: str
    extents: tuple[int, ...]
    paths: tuple[Path, ...]
    given: tuple[tuple[str, int], ...] = ()


@frozen
class Folded:
    """One instruction: operands by name, and for each micro-operation its places by field."""

    values: dict[str, int]
    places: tuple[dict[str, int], ...]


def fold_nest(machine: Accelerator, nest: OperationNest) -> list[Folded]:
    """The instructions of a nest, in order; none where a loop has no turns."""
    if 0 in nest.extents:
        return []
    small = merged(nest)
    does = find(machine, nest.operation).does
    assert isinstance(does, Sweep)
    for peeled in range(len(small.extents) + 1):
        for order in _orders(small, peeled, len(does.loops)):
            if (found := _attempt(machine, does, small, order, peeled)) is not None:
                return found
    message = f"{nest.operation} cannot walk through its operands."
    hint = "Use smaller tiles."
    place = Place(node=nest.operation)
    shown = f"loops {small.extents}"
    raise UnsupportedError(
        Diagnostic("unsupported", message, place, "strides that the fields hold", shown, hint)
    )


def merged(nest: OperationNest) -> OperationNest:
    """The same turns in the same order with fewer loops."""
    extents: list[int] = []
    strides: list[list[int]] = []  # a row for each loop
    for at, extent in enumerate(nest.extents):
        if extent == 1:
            continue
        row = [path.strides[at] for path in nest.paths]
        if extents and all(
            above == own * extent for above, own in zip(strides[-1], row, strict=True)
        ):
            extents[-1] *= extent
            strides[-1] = row
        else:
            extents.append(extent)
            strides.append(row)
    paths = tuple(
        Path(path.base, tuple(row[at] for row in strides)) for at, path in enumerate(nest.paths)
    )
    return evolve(nest, extents=tuple(extents), paths=paths)


def reaches_of(does: Sweep) -> tuple[Reach, ...]:
    """What the paths of a nest are: what is written, then what is read elsewhere."""
    written = (does.writes.base, does.writes.strides)
    return (does.writes, *(each for each in does.reads if (each.base, each.strides) != written))


def _orders(nest: OperationNest, peeled: int, depth: int) -> Iterator[tuple[int, ...]]:
    """Ways to choose loops: those written out as instructions, then hardware's, then the rest."""
    loops = range(len(nest.extents))
    if peeled:  # an instruction for each turn of loops that write the same element again
        again = [at for at in loops if nest.paths[0].strides[at] == 0]
        if len(again) < peeled:
            return
        first = tuple(again[:peeled])
    else:
        first = ()
    left = [at for at in loops if at not in first]
    ways: list[tuple[int, tuple[int, ...]]] = []
    for hardware in permutations(left, min(depth, len(left))):
        rest = [at for at in left if at not in hardware]
        # What writes other elements goes innermost: no element recurs at once.
        rest.sort(key=lambda at: (nest.paths[0].strides[at] != 0, at))
        ways.append((prod(nest.extents[at] for at in rest), (*first, *hardware, *rest)))
    yield from (order for _, order in sorted(ways))


def _attempt(
    machine: Accelerator, does: Sweep, nest: OperationNest, order: tuple[int, ...], peeled: int
) -> list[Folded] | None:
    """The instructions of one choice of loops, None where a field or the latency forbids it."""
    depth = len(does.loops)
    fields = {field.name: field for field in machine.operation(nest.operation).operands}
    outside, hardware = order[:peeled], order[peeled : peeled + depth]
    inside = order[peeled + depth :]
    if not does.micro:
        outside, inside = (*outside, *inside), ()
    values = dict(nest.given)
    hardware = (*(-1,) * (depth - len(hardware)), *hardware)
    for word, at in zip(does.loops, hardware, strict=True):
        values[word] = nest.extents[at] if at >= 0 else 1
    reaches = reaches_of(does)
    for reach, path in zip(reaches, nest.paths, strict=True):
        for word, at in zip(reach.strides, hardware, strict=True):
            values[word] = path.strides[at] if at >= 0 else 0
    if any(not fields[word].least <= value <= fields[word].most for word, value in values.items()):
        return None
    shifts = _shifts(nest, inside)
    found: list[Folded] = []
    for turn in product(*(range(nest.extents[at]) for at in outside)):
        base = [
            path.base + sum(path.strides[at] * i for at, i in zip(outside, turn, strict=True))
            for path in nest.paths
        ]
        if does.micro and machine.micro is not None:
            empty = {field.name: 0 for field in machine.micro.fields}
            places = tuple(
                {**empty, **{r.base: b + s for r, b, s in zip(reaches, base, shift, strict=True)}}
                for shift in shifts
            )
            limits = {field.name: field.most for field in machine.micro.fields}
            if any(value > limits[name] for each in places for name, value in each.items()):
                return None
            found.append(Folded(values, places))
        else:
            full = {**values, **{r.base: b for r, b in zip(reaches, base, strict=True)}}
            if any(full[r.base] > fields[r.base].most for r in reaches):
                return None
            found.append(Folded(full, ()))
    if does.micro and len(shifts) > machine.scope(_micro_scope(machine)).depth:
        return None
    if does.latency > 1 and recurs(_written(nest, hardware, shifts), does.latency):
        return None
    return found


def _micro_scope(machine: Accelerator) -> str:
    assert machine.micro is not None
    return machine.micro.scope


def _shifts(nest: OperationNest, inside: tuple[int, ...]) -> list[tuple[int, ...]]:
    """How far each micro-operation is from the first, for every path."""
    return [
        tuple(
            sum(path.strides[at] * i for at, i in zip(inside, turn, strict=True))
            for path in nest.paths
        )
        for turn in product(*(range(nest.extents[at]) for at in inside))
    ]


def _written(
    nest: OperationNest, hardware: tuple[int, ...], shifts: list[tuple[int, ...]]
) -> Array:
    """The elements written, turn by turn."""
    at = np.array([shift[0] for shift in shifts])
    for loop in reversed(hardware):
        if loop >= 0:
            steps = np.arange(nest.extents[loop]) * nest.paths[0].strides[loop]
            at = steps.reshape(-1, *(1,) * at.ndim) + at
    return at.reshape(-1)
