"""Vectorised runs: a nest of loops at once over arrays, bits and refusals as one by one.

The loops that the stored place depends on are *spread*: their iterations touch different elements,
so they are computed together. The others are *rows*: they update each element in order, one
rounding after the other. Any case not shown to be equivalent - two iterations at one place, an
index out of bounds, an undefined element - falls back to the plain machine before anything is
stored.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.statement import For, Kernel, Store
>>> from plica.ir.interpret.kernel import run_kernel
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, y, i = buffer("x", (100,), f32), buffer("y", (100,), f32), axis("i")
>>> double = Kernel((), (x, y), 1, For(i, x.shape[0], "serial", Store(y, (i,), x[i] * 2)))
>>> given = np.arange(100, dtype=np.float32)
>>> bool((run_kernel(double, (given,))[0] == run_kernel(double, (given,), sweeping=False)[0]).all())
True
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any, Final

import numpy as np

from plica.core import Term, free_vars, map_bottom_up, substitute
from plica.ir.interpret.array_arithmetic import Array, binary
from plica.ir.interpret.lane import fold
from plica.ir.interpret.race import KernelRun
from plica.ir.interpret.storage import Storage
from plica.ir.interpret.store_nest import StoreNest, nest
from plica.ir.interpret.tape import Tape, play
from plica.ir.loop.memory_scope import scope
from plica.ir.loop.scalar import Add, Buffer, Lit, Load, Max, Min, Mul, Scalar, Select, dtype_of
from plica.ir.loop.statement import THREADS, TRUE, For
from plica.ir.type import bool_

MIN_POINTS: Final = 16  # a nest of fewer points is faster one by one
MAX_POINTS: Final = 1 << 22
"""The maximum number of points of a nest, limited by memory; inner loops may still be nests."""

_FOLDS: Final[dict[type[Scalar], str]] = {Add: "sum", Mul: "prod", Max: "max", Min: "min"}
_find: Final = lru_cache(maxsize=4096)(nest)


def swept(loop: For, extent: int, machine: KernelRun) -> bool:
    """Run a loop at once if that can be done, and say whether it was."""
    if (store_nest := _find(loop)) is None:
        return False
    extents = [extent]
    for inner in store_nest.loops[1:]:
        size = inner.extent
        extents.append(
            int(size.value) if isinstance(size, Lit) else machine.values(inner, (size,))[0]
        )
    points = prod(extents)
    if not MIN_POINTS <= points <= MAX_POINTS or min(extents) <= 0:
        return False
    buffers = dict.fromkeys([store_nest.buffer, *[load.buffer for load in store_nest.loads]])
    storages = {buffer: machine.env[buffer] for buffer in buffers}
    if not _can_sweep(store_nest, extents, storages, machine):
        return False
    unsure = tuple([b for b, each in storages.items() if each.written.find(0) >= 0])
    if any(not buffer.shape and buffer is not store_nest.buffer for buffer in unsure):
        return False  # one element, and it is undefined
    noting = bool(machine.watchers)
    plan = _plan(store_nest, tuple(extents), unsure, noting)
    return plan is not None and plan.run(storages, machine)


def _can_sweep(
    of: StoreNest, extents: list[int], storages: dict[Buffer, Storage], machine: KernelRun
) -> bool:
    if tags := [loop.kind for loop in of.loops if loop.kind in THREADS]:
        if machine.launch is not None or len(set(tags)) != len(tags):
            return False
        if any(scope(storage.buffer.scope).reach != "all" for storage in storages.values()):
            return False
    target = storages[of.buffer]
    for buffer, storage in storages.items():
        if storage.root is target.root and buffer is not of.buffer:
            return False
        if machine.watchers and of.hidden_loads and not storage.constant:
            return False
    return bool(target.items.dtype == dtype_of(of.value).numpy)


@lru_cache(maxsize=512)
def _plan(
    of: StoreNest, extents: tuple[int, ...], unsure: tuple[Buffer, ...], noting: bool
) -> _Plan | None:
    """The arrays of a nest, or None if its shape does not allow a sweep."""
    sizes = {loop.var: size for loop, size in zip(of.loops, extents, strict=True)}
    unordered = [
        loop.var for loop in of.loops if loop.kind not in ("serial", "unrolled", "virtual")
    ]
    spread = frozenset[Term]().union(*[free_vars(index) for index in of.indices])
    rows = [var for var in sizes if var not in spread] if of.reads_itself else []
    if of.reads_itself:
        if any(sizes[var] > 1 for var in rows if var in unordered):
            return None
        if of.update is None and prod(sizes[var] for var in rows) > 1:
            return None
    order = [*rows, *[var for var in sizes if var not in rows]]
    return _Plan(
        of,
        {var: sizes[var] for var in order},
        len(rows),
        any(sizes[var] > 1 for var in unordered),
        unsure,
        noting,
    )


class _Plan:
    """A nest at known extents: what to compute, and how to store it."""

    def __init__(  # noqa: PLR0917  # what a plan is made of
        self,
        of: StoreNest,
        sizes: dict[Any, int],
        rows: int,
        unordered: bool,
        unsure: tuple[Buffer, ...],
        noting: bool,
    ) -> None:
        self.nest = of
        self.shape = tuple(sizes.values())
        self.rows = rows
        self.unordered = unordered
        self.noting = noting
        self.folded = of.update is not None
        tape = Tape(None, sizes)
        stand_ins: dict[Term, Term] = {}
        self.outer: list[tuple[Term, int, Any]] = []
        for var in of.outer:
            holder = Buffer(var.name, (), var.dtype, "variable")
            stand_ins[var] = Load(holder, ())
            self.outer.append((var, tape.buffer(holder), var.dtype.numpy))

        def place(term: Scalar) -> tuple[int, int]:
            return tape.place(substitute(_sure(term, unsure), stand_ins))

        self.guard = place(of.guard)
        self.inside = place(of.inside)
        self.indices = [place(index) for index in of.indices]
        self.value = place(of.update[1] if of.update is not None else of.value)
        self.reset = None if of.reset is None else place(of.reset)
        self.start = None if of.start is None else place(of.start)
        self.reads: list[tuple[Buffer, list[int]]] = []
        if noting:
            for load in of.loads:
                if load.buffer is not of.buffer:
                    places = [place(index)[0] for index in load.indices]
                    self.reads.append((load.buffer, places))
        wanted = dict.fromkeys(each.buffer for each in of.loads)
        self.buffers = [(buffer, tape.buffer(buffer)) for buffer in wanted]
        self.marks = [(each, tape.buffer(_marks(each))) for each in unsure if each in wanted]
        kept = [self.guard, self.inside, *self.indices, self.value]
        kept += [each for each in (self.reset, self.start) if each is not None]
        keep = [slot for pair in kept for slot in pair]
        keep += [slot for _, slots in self.reads for slot in slots]
        self.template, self.steps = tape.template, tape.released(*keep)

    def run(self, storages: dict[Buffer, Storage], machine: KernelRun) -> bool:
        """Compute and store; False where the plain machine must look."""
        slots = self.template.copy()
        for var, slot, dtype in self.outer:
            slots[slot] = np.asarray(machine.env[var], dtype)
        for buffer, slot in self.buffers:
            slots[slot] = np.ascontiguousarray(storages[buffer].whole())
        for buffer, slot in self.marks:
            slots[slot] = np.ascontiguousarray(storages[buffer].marks()).view(np.bool_)
        play(self.steps, slots)

        guard = slots[self.guard[0]]
        if slots[self.guard[1]] is not None or not np.all(slots[self.inside[0]]):
            return False
        if slots[self.inside[1]] is not None:
            return False
        open_ = True if self.nest.guard is TRUE or bool(np.all(guard)) else guard
        target = storages[self.nest.buffer]
        places = self.places(slots, open_, target)
        if places is None or not self.is_sound(slots, self.value[1], open_):
            return False
        if self.folded:
            done = self.fold(slots, open_, places, target)
        else:
            done = self.scatter(slots, open_, places, target)
        if done is None:
            return False
        if machine.watchers:
            self.note(slots, done, storages, machine)
        return True

    def is_sound(self, slots: list[Any], marks: int, open_: Any) -> bool:
        """Whether no load outside or of something undefined counts."""
        if (found := slots[marks]) is None:
            return True
        return not bool(np.any((found != 0) & open_))

    def places(self, slots: list[Any], open_: Any, target: Storage) -> Any:
        """The stored addresses, or None if some are out of bounds."""
        at: Any = np.int64(target.offset)
        for (slot, marks), size, step in zip(
            self.indices, target.shape, target.strides, strict=True
        ):
            index = slots[slot]
            if not self.is_sound(slots, marks, open_):
                return None
            bad = (index < 0) | (index >= size)
            if np.any(bad):
                if np.any(bad & open_):
                    return None
                index = np.clip(index, 0, max(0, size - 1))
            at = at + index.astype(np.int64) * step
        return at

    def scatter(self, slots: list[Any], open_: Any, places: Any, target: Storage) -> Any:
        """Store values that do not depend on one another, in the order of the loops."""
        at = np.broadcast_to(places, self.shape).reshape(-1)
        value = np.broadcast_to(slots[self.value[0]], self.shape).reshape(-1)
        if open_ is not True:
            chosen = np.broadcast_to(open_, self.shape).reshape(-1)
            at, value = at[chosen], value[chosen]
        if (self.unordered or self.nest.reads_itself) and not _is_distinct(at, target):
            return None
        target.items[at] = value
        np.frombuffer(target.written, np.uint8)[at] = 1
        return at

    def fold(self, slots: list[Any], open_: Any, places: Any, target: Storage) -> Any:
        """Take the rows into the elements, one after the other."""
        across = self.shape[self.rows :]
        lanes, count = prod(across), prod(self.shape[: self.rows])

        def laid(value: Any) -> Array:
            return np.broadcast_to(value, self.shape).reshape(count, lanes)

        at = np.broadcast_to(np.asarray(places), self.shape)[(0,) * self.rows].reshape(-1)
        if not _is_distinct(at, target):
            return None
        marks = np.frombuffer(target.written, np.uint8)
        total: Any = target.items[at]
        defined = marks[at] != 0
        rows = laid(slots[self.value[0]])
        gates = None if open_ is True else laid(open_)
        resets = starts = None
        if self.reset is not None and self.start is not None:
            if slots[self.reset[1]] is not None:
                return None
            resets, starts = laid(slots[self.reset[0]]), laid(slots[self.start[0]])
            if gates is not None:
                resets = resets & gates
            found = slots[self.start[1]]
            if found is not None and np.any((laid(found) != 0) & resets):
                return None
        kind, _, swapped = self.nest.update  # type: ignore[misc]  # it is folded
        touched: Any = np.ones(lanes, bool) if gates is None else gates.any(axis=0)
        if gates is None and (resets is None or (resets[0].all() and not resets[1:].any())):
            if resets is not None and starts is not None:
                total = starts[0]
            elif not defined.all():
                return None
            if kind in _FOLDS:
                combine = fold(_FOLDS[kind], dtype_of(self.nest.value).is_float)
                total = combine(total, rows)
            else:
                total = _in_turn(binary(kind), total, rows, swapped)
        else:
            function = binary(kind)
            for number in range(count):
                if resets is not None and starts is not None and resets[number].any():
                    total = np.where(resets[number], starts[number], total)
                    defined = defined | resets[number]
                gate = None if gates is None else gates[number]
                if not np.all(defined if gate is None else defined | ~gate):
                    return None
                row = rows[number]
                new = function(row, total) if swapped else function(total, row)
                total = new if gate is None else np.where(gate, new, total)
        at, total = at[touched], np.asarray(total)[touched]
        target.items[at] = total
        marks[at] = 1
        return at

    def note(
        self, slots: list[Any], done: Any, storages: dict[Buffer, Storage], machine: KernelRun
    ) -> None:
        """Reports the touched elements to enclosing loops.

        Guarded reads are reported as if they happened: see Note [Sweeps] in
        `plica.ir.interpret.kernel`.
        """
        for buffer, places in self.reads:
            storage = storages[buffer]
            if storage.constant:
                continue
            at: Any = np.int64(storage.offset)
            fine: Any = True
            for slot, size, step in zip(places, storage.shape, storage.strides, strict=True):
                index = slots[slot]
                fine = fine & (index >= 0) & (index < size)
                at = at + index * step
            at, fine = np.broadcast_arrays(at, fine)
            for each in np.unique(at[fine]).tolist():
                for watcher in machine.watchers:
                    watcher.read(storage, each)
        target = storages[self.nest.buffer]
        for each in np.unique(done).tolist():
            for watcher in machine.watchers:
                if self.nest.reads_itself:
                    watcher.read(target, each)
                watcher.write(target, each)


def _in_turn(function: Any, total: Any, rows: Array, swapped: bool) -> Any:
    for row in rows:
        total = function(row, total) if swapped else function(total, row)
    return total


def _is_distinct(places: Array, target: Storage) -> bool:
    seen = np.zeros(len(target.written), bool)
    seen[places] = True
    return int(np.count_nonzero(seen)) == places.size


def _marks(of: Buffer) -> Buffer:
    return Buffer(of.name, of.shape, bool_, "written")


def _sure(term: Scalar, unsure: tuple[Buffer, ...]) -> Scalar:
    """Loads of buffers that are not written everywhere become loads outside where undefined."""

    def guarded(node: Term) -> Term:
        if not isinstance(node, Load) or node.buffer not in unsure:
            return node
        beyond = Load(node.buffer, node.buffer.shape)
        return Select(Load(_marks(node.buffer), node.indices), node, beyond)

    return term if free_vars(term).isdisjoint(unsure) else map_bottom_up(guarded, term)
