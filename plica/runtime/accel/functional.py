"""The functional simulator: the exact effect of a device program on memory.

    Program ::= Program(device, code, micro, rooms)       rooms: where tensors lie in main memory

>>> from plica.runtime.accel.device import AccelDevice, Bits, CopyOperands, DeviceMemory
>>> both = [InstructionKind(n, (("at", Bits(1, 3)), ("n", Bits(4, 4))), ((Bits(0, 1), out),), (),
...     RowCopy("m", bool(out), CopyOperands(0, 0, 1))) for n, out in (("in", 0), ("out", 1))]
>>> toy = AccelDevice("toy", 8, (DeviceMemory("m", 8, (), "int8"),), tuple(both), "-", None)
>>> program = AccelProgram(toy, ((0, (0, 2)),), (), (MemorySpan("x", "m", 0, 2),))
>>> Simulator(program).run({"x": np.array([7, 8], np.int8)})["x"]
array([7, 8], dtype=int8)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

import numpy as np

from plica.runtime.accel.device import (
    AccelDevice,
    Code,
    DeviceMemory,
    DeviceSweep,
    InstructionKind,
    RowCopy,
)
from plica.runtime.accel.formula import ContractionStep, evaluate
from plica.runtime.accel.geometry import CopyBox, Turns, box, out_of_range, turns
from plica.runtime.element import wrong_element
from plica.runtime.error import Diagnostic, InputError, Place
from plica.runtime.port import Array
from plica.runtime.typed_json import Annotated, ClassVar, dataclass

MICRO: Final = "micro"  # the name of the memory that holds the micro-operations


@dataclass(frozen=True, slots=True)
class MemorySpan:
    """Elements of a memory's kind in main memory, from the element `at` on."""

    DAMAGED: ClassVar = "A tensor of a program is damaged."

    name: str
    memory: str
    at: Annotated[int, range(1 << 32)]
    elements: Annotated[int, range(1 << 32)]


@dataclass(frozen=True, slots=True, eq=False)
class AccelProgram:
    """Code, its micro-operations, and where everything is in main memory."""

    device: AccelDevice
    code: Code
    micro: tuple[int, ...]
    rooms: tuple[MemorySpan, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Iterations with a common operand: `written[r, m] += left[m] * right[r]`."""

    left: Array
    right: Array
    written: Array
    apart: bool


@dataclass(slots=True, eq=False)
class _Swept:
    """The analysis of a sweep: its iterations, the elements written, and how it is executed."""

    turns: Turns
    written: Array
    groups: list[_Group] | None = None
    parts: list[Any] | None = None  # Any: slices, or places


class Simulator:
    """A program one can run."""

    def __init__(self, program: AccelProgram) -> None:
        self.program = program
        self.held = {memory.name: memory for memory in program.device.memories}
        self.boxes: dict[tuple[int, tuple[int, ...]], CopyBox | None] = {}
        self.sweeps: dict[tuple[int, tuple[int, ...], bytes], _Swept] = {}
        sizes = [(span.at + span.elements) * self.held[span.memory].bytes for span in program.rooms]
        self.used = max(sizes, default=0)

    def run(
        self, tensors: Mapping[str, Array], order: Sequence[int] | None = None
    ) -> dict[str, Array]:
        """All tensors after the program has run; those not given begin as zeros."""
        program = self.program
        state = _State(self)
        known = [memory_span.name for memory_span in program.rooms]
        for name in tensors:
            if name not in known:
                near = get_close_matches(name, known, n=1)
                hint = f"Did you mean '{near[0]}'?" if near else None
                message = f"The stream has no tensor {name!r}."
                raise InputError(Diagnostic("input-unknown", message, None, None, name, hint))
        for span in program.rooms:
            whole = state.view(span.memory)[span.at : span.at + span.elements]
            if span.name == MICRO:
                whole[: len(program.micro)] = program.micro
            elif span.name in tensors:
                given = np.asarray(tensors[span.name])
                if given.size != whole.size:
                    place, wanted = Place(node=span.name), str(whole.shape)
                    message = f"The tensor {span.name!r} has the wrong size."
                    raise InputError(
                        Diagnostic("input-shape", message, place, wanted, str(given.shape))
                    )
                if given.dtype != whole.dtype:  # a cast would cut numbers off without a word
                    what, wanted = f"The tensor {span.name!r}", str(whole.dtype)
                    raise InputError(wrong_element(what, span.name, wanted, str(given.dtype)))
                whole[...] = given.reshape(whole.shape)
        kinds, finish = program.device.kinds, program.device.finish
        for at in range(len(program.code)) if order is None else order:
            number, operands = program.code[at]
            state.step(number, operands)
            if kinds[number].name == finish:  # the host reads memory now
                break
        return {
            span.name: state.view(span.memory)[span.at : span.at + span.elements].copy()
            for span in program.rooms
        }


class _State:
    """The memories as a program runs; local to `run`."""

    def __init__(self, of: Simulator) -> None:
        self.of = of
        self.device = of.program.device
        self.scopes = {
            each.name: np.zeros((each.depth, *each.shape), each.dtype) for each in of.held.values()
        }
        whole = math.lcm(*(memory.bytes for memory in of.held.values()))
        self.memory = np.zeros(-(-of.used // whole) * whole, np.uint8)
        self.views: dict[str, Array] = {}

    def view(self, name: str) -> Array:
        """Main memory as elements of a memory's kind."""
        if (found := self.views.get(name)) is None:
            kind = self.of.held[name]
            found = self.views[name] = self.memory.view(kind.dtype).reshape(-1, *kind.shape)
        return found

    def step(self, number: int, operands: tuple[int, ...]) -> None:
        """Execute one instruction."""
        kind = self.device.kinds[number]
        if isinstance(does := kind.does, RowCopy):
            memory = self.of.held[does.memory]
            key = (number, operands)
            if key not in self.of.boxes:
                self.of.boxes[key] = box(
                    does, memory, self.of.held[does.lying].bytes, operands, kind.name
                )
            if (known := self.of.boxes[key]) is not None:
                self.copy(kind, does, memory, known)
        elif isinstance(does, DeviceSweep):
            words: Array | None = None
            if does.micro and self.device.micro is not None:
                first, last = (operands[each] for each in does.micro)
                words = self.scopes[self.device.micro[0]][first:last].astype(np.int64)
            sort = (number, operands, b"" if words is None else words.tobytes())
            if (swept := self.of.sweeps.get(sort)) is None:
                found = turns(self.device, does, operands, words, kind.name)
                depth = self.of.held[does.writes.memories[0]].depth
                swept = self.of.sweeps[sort] = _Swept(found, distinct(found.written, depth))
            if len(swept.written):
                self.sweep(kind, does, operands, swept)

    def copy(self, kind: InstructionKind, does: RowCopy, memory: DeviceMemory, of: CopyBox) -> None:
        if of.end > self.of.used:
            raise out_of_range(kind.name, "memory", of.end - 1, self.of.used)
        held, size = self.scopes[does.memory], self.of.held[does.lying].bytes
        start, width = of.start // size, of.size // size
        at = (start + np.arange(of.rows) * (of.stride // size))[:, None] + np.arange(width)
        main = self.view(does.lying)
        top, _, left, _ = of.pads
        tall, wide = of.shape(size)
        there = held[of.at : of.at + tall * wide].reshape(tall, wide, *memory.shape)
        if does.out:
            main[at] = there
            return
        if any(of.pads):
            there[...] = 0
        there[top : top + of.rows, left : left + width] = main[at]

    def sweep(
        self, kind: InstructionKind, does: DeviceSweep, operands: tuple[int, ...], known: _Swept
    ) -> None:
        target = self.scopes[does.writes.memories[0]]
        product = does.formula.product
        if product is not None and does.reads[0].memories[0] == does.writes.memories[0]:
            self.contract(does, known, product, target)
        else:
            words = [name for name, _ in kind.operands]
            given = dict(zip(words, operands, strict=True))
            if known.parts is None:
                known.parts = _parts(does, known.turns)
            for some in known.parts:
                inputs = [
                    self.scopes[reach.memories[0]][at[some]]
                    for reach, at in zip(does.reads, known.turns.read, strict=True)
                ]
                result = evaluate(does.formula, inputs, given)
                target[known.turns.written[some]] = result.astype(target.dtype)
        for name in does.writes.memories[1:]:
            other = self.scopes[name]
            other[known.written] = target[known.written].astype(other.dtype)

    def contract(
        self, does: DeviceSweep, known: _Swept, product: ContractionStep, target: Array
    ) -> None:
        a, b = product.operands
        if known.groups is None:
            known.groups = _grouped(known.turns.written, known.turns.read[a], known.turns.read[b])
        left = self.scopes[does.reads[a].memories[0]]
        right = self.scopes[does.reads[b].memories[0]]
        x, y, z = product.subscripts
        inner = [letter for letter in x if letter in y]
        free = [letter for letter in x if letter not in y]
        rest = [letter for letter in y if letter not in x]
        of_left = (0, *(1 + x.index(letter) for letter in free + inner))
        of_right = (*(1 + y.index(letter) for letter in inner), 0,
                    *(1 + y.index(letter) for letter in rest))  # fmt: skip
        spread = ["m", *free, "r", *rest]
        # Letters of axes are lower case from a on; no element has enough axes to use m and r.
        back = [spread.index(letter) for letter in ("r", "m", *z)]
        for group in known.groups:
            some = left[group.left].transpose(of_left).astype(product.dtype)
            other = right[group.right].transpose(of_right).astype(product.dtype)
            depth = math.prod(other.shape[: len(inner)])
            made = some.reshape(-1, depth) @ other.reshape(depth, -1)
            shaped = made.reshape(
                *some.shape[: 1 + len(free)], *other.shape[len(inner) :]
            ).transpose(back)
            if group.apart:
                target[group.written] += shaped.astype(target.dtype)
            else:
                np.add.at(target, group.written, shaped.astype(target.dtype))


def distinct(at: Array, depth: int) -> Array:
    """The elements among many, sorted: quicker than sorting them."""
    mask = np.zeros(depth, bool)
    mask[at] = True
    return np.flatnonzero(mask)


def _grouped(written: Array, left: Array, right: Array) -> list[_Group]:
    """Iterations grouped by operands: first by the right one, then those with equal left ones."""
    by = np.argsort(right, kind="stable")
    cuts = np.flatnonzero(np.diff(right[by])) + 1
    alike: dict[bytes, tuple[Array, list[int], list[Array]]] = {}
    for some in np.split(by, cuts):
        lefts = left[some]
        _, rights, targets = alike.setdefault(lefts.tobytes(), (lefts, [], []))
        rights.append(int(right[some[0]]))
        targets.append(written[some])
    groups: list[_Group] = []
    for lefts, rights, targets in alike.values():
        places = np.stack(targets)
        apart = len(np.unique(places)) == places.size
        groups.append(_Group(lefts, np.array(rights), places, apart))
    return groups


def _parts(does: DeviceSweep, of: Turns) -> list[Any]:
    """Splits the iterations into parts without dependences inside a part."""
    written = of.written
    count = len(written)
    places = [
        at
        for reach, at in zip(does.reads, of.read, strict=True)
        if reach.memories[0] in does.writes.memories and at is not written
    ]
    others = [at for at in places if not np.array_equal(at, written)]
    if len(np.unique(written)) == count and not any(np.isin(at, written).any() for at in others):
        return [slice(None)]
    if any(np.isin(at, written).any() for at in others):
        return [slice(at, at + 1) for at in range(count)]
    nth = np.zeros(count, np.int64)
    seen: dict[int, int] = {}
    for turn, place in enumerate(written.tolist()):
        nth[turn] = seen[place] = seen.get(place, -1) + 1
    return [np.flatnonzero(nth == step) for step in range(int(nth.max()) + 1)]
