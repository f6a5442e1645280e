"""Conflicts: which instructions of different units touch the same element, and one writes it.

>>> from plica.codegen.accel.instruction import instruction
>>> from plica.codegen.accel.vta import vta
>>> load = instruction(vta(), "load.inp", y_size=1, x_size=4)
>>> gemm = instruction(vta(), "gemm", uop_end=1, iter_out=1, iter_in=1)
>>> code = (load, gemm)
>>> [(each.first, each.second, each.kind, each.space) for each in conflicts(vta(), Stream(code))]
[(0, 1, 'RAW', 'inp')]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

import numpy as np
from attrs import frozen

from plica.codegen.accel.declaration import Accelerator
from plica.codegen.accel.footprint import Array, ByteRows, Footprint, Patch, footprints
from plica.codegen.accel.instruction import Stream
from plica.codegen.accel.order import units_of

Kind: TypeAlias = Literal["RAW", "WAR", "WAW", "END"]
Atoms: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]

MEMORY = "memory"


@frozen
class InstructionConflict:
    """`second` must follow `first`, the last instruction of its unit that it depends on in this
    way."""

    first: int
    second: int
    kind: Kind
    space: str


class Tracker:
    """The last accesses to each atom while a stream is scanned in order."""

    def __init__(self, machine: Accelerator, stream: Stream, known: list[Footprint]) -> None:
        self.units = units_of(machine, stream.code)
        self.count = len(machine.units)
        self.atoms, self.names = _atoms(machine, self.units, known)
        self.wrote = [[-1] * self.count for _ in self.names]
        self.read = [[-1] * self.count for _ in self.names]

    def visit(self, at: int) -> list[tuple[int, int, Kind, int]]:
        """What instruction `at` conflicts with: unit, its last instruction, how, and on what."""
        reads, writes = self.atoms[at]
        unit = self.units[at]
        found: list[tuple[int, int, Kind, int]] = []
        for atom in reads:
            row = self.wrote[atom]
            for other in range(self.count):
                if row[other] >= 0 and other != unit:
                    found.append((other, row[other], "RAW", atom))
            self.read[atom][unit] = at
        for atom in writes:
            row, seen = self.wrote[atom], self.read[atom]
            for other in range(self.count):
                if other != unit:
                    if row[other] >= 0:
                        found.append((other, row[other], "WAW", atom))
                    if seen[other] >= 0:
                        found.append((other, seen[other], "WAR", atom))
            row[unit] = at
        return found


def conflicts(
    machine: Accelerator, stream: Stream, known: list[Footprint] | None = None
) -> Iterator[InstructionConflict]:
    """For each instruction, the latest of every other unit that it must follow."""
    tracker = Tracker(machine, stream, footprints(machine, stream) if known is None else known)
    last = [-1] * tracker.count
    for at, instruction in enumerate(stream.code):
        latest: dict[int, tuple[int, Kind, int]] = {}
        for unit, first, kind, atom in tracker.visit(at):
            if unit not in latest or first > latest[unit][0]:
                latest[unit] = first, kind, atom
        if instruction.name == machine.finish:
            for unit in range(tracker.count):
                if unit != tracker.units[at] and last[unit] >= 0:
                    latest[unit] = last[unit], "END", -1
        for unit in sorted(latest):
            first, kind, atom = latest[unit]
            yield InstructionConflict(first, at, kind, tracker.names[atom] if atom >= 0 else "")
        last[tracker.units[at]] = at


def _atoms(
    machine: Accelerator, units: list[int], known: list[Footprint]
) -> tuple[list[Atoms], list[str]]:
    """The atoms that each instruction reads and writes, and the space of each atom."""
    users: dict[str, set[int]] = {}
    changed: set[str] = set()
    patches: dict[str, dict[Patch, None]] = {}
    for footprint, unit in zip(known, units, strict=True):
        for patch in footprint.reads:
            users.setdefault(patch.space, set()).add(unit)
            patches.setdefault(patch.space, {})[patch] = None
        for patch in footprint.writes:
            users.setdefault(patch.space, set()).add(unit)
            patches.setdefault(patch.space, {})[patch] = None
            changed.add(patch.space)
    names: list[str] = []
    of: dict[Patch, tuple[int, ...]] = {}
    for space, some in patches.items():
        if len(users[space]) < 2 or space not in changed:
            of.update(dict.fromkeys(some, ()))
            continue
        label = _labels(machine.scope(space).depth, list(some))
        for patch in some:
            of[patch] = tuple((np.unique(label[patch.elements]) + len(names)).tolist())
        names += [space] * (int(label.max()) + 1)
    memo: dict[Footprint, Atoms] = {}
    for footprint in known:
        if footprint not in memo:
            reads = tuple(atom for patch in footprint.reads for atom in of[patch])
            memo[footprint] = reads, tuple(atom for patch in footprint.writes for atom in of[patch])
    found = [memo[footprint] for footprint in known]
    for at, atoms in _in_memory(units, known, len(names)):
        reads, writes = found[at]
        rows = known[at].memory
        if rows is not None and rows.writes:
            found[at] = reads, (*writes, *atoms)
        else:
            found[at] = (*reads, *atoms), writes
        names += [MEMORY] * (max(atoms) + 1 - len(names))
    return found, names


def _labels(depth: int, patches: list[Patch]) -> Array:
    """A number for each element, the same where the same patches hold it."""
    label = np.zeros(depth, np.int64)
    for start in range(0, len(patches), 32):
        for patch in patches[start : start + 32]:
            label *= 2
            label[patch.elements] += 1
        label = np.unique(label, return_inverse=True)[1]
    return label


def _in_memory(
    units: list[int], known: list[Footprint], first: int
) -> Iterator[tuple[int, list[int]]]:
    """Atoms of memory, for the instructions that meet what another unit writes."""
    touching = [(at, each.memory) for at, each in enumerate(known) if each.memory is not None]
    if len({units[at] for at, _ in touching}) < 2 or not any(rows.writes for _, rows in touching):
        return
    start = np.array([rows.start for _, rows in touching])
    end = np.array([rows.end for _, rows in touching])
    writes = np.array([rows.writes for _, rows in touching])
    unit = np.array([units[at] for at, _ in touching])
    writing = np.flatnonzero(writes)
    meets = np.zeros(len(touching), bool)
    low, high = start[writing].min(), end[writing].max()
    for each in np.flatnonzero((start < high) & (end > low)):
        if writes[each]:
            some = np.flatnonzero(unit != unit[each])
        else:
            some = writing[unit[writing] != unit[each]]
        meets[each] = bool(((start[some] < end[each]) & (end[some] > start[each])).any())
    if not (chosen := [touching[each] for each in np.flatnonzero(meets)]):
        return
    spans = [_spans(rows) for _, rows in chosen]
    bounds = np.unique(np.concatenate([part.ravel() for part in spans]))
    for (at, _), part in zip(chosen, spans, strict=True):
        places = np.searchsorted(bounds, part)
        atoms = np.concatenate([np.arange(a, b) for a, b in places.tolist()])
        yield at, (np.unique(atoms) + first).tolist()


def _spans(rows: ByteRows) -> Array:
    starts = rows.start + np.arange(rows.rows) * rows.stride
    return np.stack([starts, starts + rows.size], axis=1)
