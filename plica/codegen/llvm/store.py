"""Stores: `buffer[indices] = value`, with run-time checks if only a condition keeps an index in
bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from plica.codegen.emit.contraction import accumulations
from plica.codegen.emit.scalar import Frame, OrderStep, Row, order
from plica.codegen.llvm.buffer_address import Size
from plica.codegen.llvm.evaluation_order import (
    StraightAccess,
    StraightStore,
    of_literal,
    recipe,
    straight_access,
)
from plica.codegen.llvm.lane import TRUE, LaneValue, valued
from plica.codegen.llvm.value import LlvmValues
from plica.core import CompilerBug
from plica.ir.loop import Buffer, Load, Reduce, Scalar, Store


class StoreEmitter:
    """Writes stores of terms into the function that its values are written into."""

    def __init__(self, values: LlvmValues) -> None:
        self.values = values
        self.lanes = values.lanes
        self.around = values.around
        self.access = values.access
        self._stores: dict[object, StraightStore | None] = {}

    def close(self) -> None:
        """Forget how stores are written, which refers back to this, as that of values does."""
        self._stores.clear()

    def write(self, of: Store) -> None:
        """A statement that stores."""
        self.store(of.buffer, of.indices, of.value)

    def store(self, buffer: Buffer, indices: Sequence[Scalar], value: Scalar) -> None:
        """`buffer[indices] = value`, checked if only a condition keeps it in bounds."""
        lanes, around = self.lanes, self.around
        key = buffer, indices, value
        if key not in self._stores:
            if self.values.fused:
                self.values.contracted |= accumulations(buffer, value)
            self._stores[key] = self._straight(buffer, indices, value)
        straight = self._stores[key]
        if straight is not None and self._is_ready(straight):
            (stored,) = self.values.results(straight.recipe, (value,))
            place = self._place_of(straight.target)
            self.access.store(buffer, place, stored, around.mask, True)
            return
        found = self.values.evaluate((value, *indices))
        # Nothing is stored in an empty buffer: the loops around do not run.
        unsure: list[tuple[Scalar, Size]] = []
        sound = True  # whether each index is inside without the constant it has in the end, too
        shape = self.access.places[buffer].shape
        for index, value_, size in zip(indices, found[1:], shape, strict=True):
            low, high = around.interval(index)
            if not 0 <= value_[2] <= low:
                sound = False
            if isinstance(size, int):
                if low >= 0 and high < size:
                    continue
                size = max(1, size)
            if not around.is_inside(index, size):
                unsure.append((index, size))
        if unsure and not around.facts:
            raise CompilerBug(f"A store to {buffer.name} may be outside of it.")
        at = self.access.linear(buffer, found[1:])
        if not unsure:
            self.access.store(buffer, at, found[0], around.mask, sound)
            return
        where = dict(zip(indices, found[1:], strict=True))
        fits = lanes.fit([(where[index], self.values.size_of(size)) for index, size in unsure])
        self.values.note(lanes.negated(fits))
        if not fits.is_uniform:
            self.access.store(buffer, at, found[0], lanes.both(around.mask, fits), sound)
            return
        with self.access.only_where(fits):
            self.access.store(buffer, at, found[0], around.mask, sound)

    def _straight(
        self, buffer: Buffer, indices: Sequence[Scalar], value: Scalar
    ) -> StraightStore | None:
        """A store whose copies differ in the numbers of addresses alone, None for another."""
        if (target := self._access(buffer, indices)) is None:
            return None
        loads: dict[Scalar, StraightAccess] = {}

        def row(node: Scalar) -> Row[LaneValue] | tuple[str, object]:
            if node in loads:
                return partial(self._straight_load, loads[node])
            return self.values.row(node)

        def operands_of(node: Scalar) -> tuple[Scalar, ...]:
            if isinstance(node, Load):
                access = self._access(node.buffer, node.indices)
                if access is not None and self._is_inside(access):
                    loads[node] = access
                    return ()
            return self.values.operands_of(node)

        found = order((value,), operands_of, row, of_literal)
        if any(isinstance(node, Reduce) for node in found.numbers):
            return None
        return StraightStore(recipe((value,), found, loads), tuple(loads.values()), target)

    def _access(self, buffer: Buffer, indices: Sequence[Scalar]) -> StraightAccess | None:
        place = self.access.places[buffer]
        return straight_access(buffer, indices, place.shape, place.strides)

    def _is_inside(self, of: StraightAccess) -> bool:
        """Whether an access is inside its buffer whatever the copy is."""
        known, boxes = self.around.vars, self.around.boxes
        plain = all(var in known and known[var].step is not None for var, _ in of.counts)
        return plain and all(index.is_inside(boxes) for index in of.indices)

    def _is_ready(self, of: StraightStore) -> bool:
        """Whether all places are inside whatever the copy is; then their registers are written."""
        around, lanes = self.around, self.lanes
        now = around.version, lanes.releases
        if of.since != now:
            of.since, every = now, (*of.loads, of.target)
            of.is_inside = all(map(self._is_inside, every))
            for access in every if of.is_inside else ():
                counts = dict(access.counts)
                inner = [var for var in around.vars if var in counts]  # loops, from the outermost
                apart = [(around.vars[v], around.boxes[v][1][1], counts[v]) for v in inner]
                written = [(value.text, count) for value, _, count in apart if value.text]
                access.text = lanes.total(written, "nsw ")
                access.most = sum([most * count for value, most, count in apart if value.text])
                copied = [each for each in apart if not each[0].text and each[0].is_uniform]
                access.copies = tuple([(most + 1, count) for _, most, count in copied if count])
        return of.is_inside

    def _place_of(self, access: StraightAccess) -> LaneValue:
        """How many elements a place is from the first, in this copy."""
        known, step, plus = self.around.vars, 0, access.number
        for var, count in access.counts:
            _, each, number = known[var]
            step += (each or 0) * count
            plus += number * count
        return valued((access.text, step, plus))

    def _straight_load(
        self, access: StraightAccess, step: OrderStep, frame: Frame[LaneValue]
    ) -> LaneValue:
        place = self._place_of(access)
        if place[1] == 0 and access.copies:
            beside = self.access.beside(access.buffer, place, access.most, access.copies)
            if beside is not None:
                return beside
        # A uniform address belongs to an active lane.
        needed = self.around.padding if place[1] else TRUE
        row = (0, 0)
        if place.step and place.step > 1 and needed == TRUE:
            row = access.beside(self.around.lane, self.around.boxes, self.around.vars)
        return self.access.load(access.buffer, place, needed, True, beside=row)
