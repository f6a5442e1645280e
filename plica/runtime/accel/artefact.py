"""Artefacts with parts on an accelerator: programs of a device, and native parts between them.

accel.json      versions, target, device, interface, steps, where constants lie, digests
accel.txt       the programs as assembly, for people
accel.bin       constants of launches, each at a multiple of 64
code/N.words    the instruction words of a program
code/N.micro    its micro-operations, eight bytes each
part/N/…        the members of a native artefact (`plica.runtime.artefact`)
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from plica.runtime import artefact as native, interface
from plica.runtime.accel import device
from plica.runtime.accel.device import AccelDevice
from plica.runtime.accel.functional import MICRO, MemorySpan
from plica.runtime.archive import check_format, check_members
from plica.runtime.artefact import Artefact
from plica.runtime.error import damaged
from plica.runtime.interface import Interface
from plica.runtime.port import Array
from plica.runtime.record import bad_manifest, read_json, to_json

FORMAT: Final = 1
NAME: Final = "accel.json"
_MAX_COUNT: Final = 1 << 20
_MAX_BYTES: Final = 1 << 32

INPUT, OUTPUT = "x", "y"  # the memories that a launch reads from and writes to


@dataclass(frozen=True, slots=True, eq=False)
class Coded:
    """A serialised program: words, micro-operations, memory sizes."""

    words: bytes
    micro: tuple[int, ...]
    rooms: tuple[MemorySpan, ...]


@dataclass(frozen=True, slots=True)
class NativePart:
    """A native part, with the values it takes and returns."""

    number: int
    takes: tuple[int, ...]
    gives: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cost:
    """The cycle simulator's result for one launch."""

    cycles: int
    turns: int
    operations: int
    moved: int


@dataclass(frozen=True, slots=True)
class ProgramLaunch:
    """A program run `batch` times over a value; its constants are by number, by room."""

    name: str
    program: int
    takes: int
    gives: int
    shape: tuple[int, ...]
    batch: int
    constants: tuple[tuple[str, int], ...]
    cost: Cost


Step: TypeAlias = NativePart | ProgramLaunch


@dataclass(frozen=True, slots=True, eq=False)
class AccelArtefact:
    """A compiled model, some of whose layers run on an accelerator."""

    module: str  # the digest of the model
    target: str
    megahertz: int
    device: AccelDevice
    interface: Interface
    programs: tuple[Coded, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    constants: tuple[Array, ...]
    parts: tuple[Artefact, ...]
    text: str
    placement: str  # which layers run where, and why
    versions: tuple[tuple[str, str], ...]


def to_members(of: AccelArtefact) -> dict[str, bytes]:
    """The members of the archive that an artefact is."""
    members = {"accel.txt": of.text.encode(), "placement.txt": of.placement.encode()}
    params, places = native.packed(of.constants)
    members["accel.bin"] = b"".join(params)
    for at, program in enumerate(of.programs):
        members[f"code/{at}.words"] = program.words
        members[f"code/{at}.micro"] = np.array(program.micro, "<u8").tobytes()
    for at, part in enumerate(of.parts):
        inside = native.to_members(part)
        members |= {f"part/{at}/{name}": data for name, data in inside.items()}
    manifest = {
        "format": FORMAT,
        "versions": dict(of.versions),
        "module": of.module,
        "target": of.target,
        "megahertz": of.megahertz,
        "device": device.to_data(of.device),
        "interface": interface.to_data(of.interface),
        "programs": [
            [[span.name, span.memory, span.at, span.elements] for span in program.rooms]
            for program in of.programs
        ],
        "steps": [_to_data(step) for step in of.steps],
        "outputs": list(of.outputs),
        "constants": places,
        "parts": len(of.parts),
        "members": {name: hashlib.sha256(data).hexdigest() for name, data in members.items()},
    }
    return {NAME: to_json(manifest), **members}


def _to_data(of: Step) -> object:
    if isinstance(of, NativePart):
        return ["part", of.number, list(of.takes), list(of.gives)]
    cost = [of.cost.cycles, of.cost.turns, of.cost.operations, of.cost.moved]
    held = [list(constant) for constant in of.constants]
    where = [of.program, of.takes, of.gives, of.batch]
    return ["launch", of.name, where, list(of.shape), held, cost]


def from_members(members: Mapping[str, bytes]) -> AccelArtefact:
    """The artefact in an archive."""
    manifest = read_json(members, NAME)
    match manifest:
        case {"format": int(number)} if number > FORMAT:
            check_format(number, FORMAT)
        case {
            "format": int(),
            "versions": dict(versions),
            "module": str(module),
            "target": str(target),
            "megahertz": int(megahertz),
            "device": data,
            "interface": interface_data,
            "programs": [*programs],
            "steps": [*steps],
            "outputs": [*outputs],
            "constants": [*places],
            "parts": int(count),
            "members": dict(digests),
        } if 0 < megahertz < _MAX_COUNT and 0 <= count < _MAX_COUNT:
            pass
        case unknown:
            raise bad_manifest(unknown)
    check_members(members, digests, NAME)
    machine, seen = device.from_data(data), interface.from_data(interface_data)
    coded = tuple([_coded(members, machine, at, program) for at, program in enumerate(programs)])
    constants = native.unpacked(members.get("accel.bin", b""), places)
    parts = tuple([_part(members, at) for at in range(count)])
    reader = _Reader(len(seen.inputs), coded, parts, constants)
    read = tuple([reader.step(step) for step in steps])
    if len(outputs) != len(seen.outputs) or not all(reader.is_known(output) for output in outputs):
        raise damaged("The outputs of the artefact are damaged.", repr(outputs))
    return AccelArtefact(
        module, target, megahertz, machine, seen, coded, read, tuple(outputs), constants, parts,
        _text(members, "accel.txt"), _text(members, "placement.txt"),
        tuple([(str(name), str(value)) for name, value in versions.items()]),
    )  # fmt: skip


def _text(members: Mapping[str, bytes], name: str) -> str:
    return members.get(name, b"").decode(errors="replace")


def _coded(members: Mapping[str, bytes], machine: AccelDevice, at: int, given: object) -> Coded:
    words, micro = members.get(f"code/{at}.words"), members.get(f"code/{at}.micro")
    if words is None or micro is None or len(micro) % 8 or not isinstance(given, list):
        raise damaged("A program in the artefact is damaged.", str(at))
    rooms: list[MemorySpan] = []
    bytes_of = {each.name: each.bytes for each in machine.memories}
    for each in given:
        match each:
            case [str(name), str(memory), int(first), int(elements)] if (
                memory in bytes_of
                and first >= 0 <= elements
                and (first + elements) * bytes_of[memory] <= _MAX_BYTES
            ):
                rooms.append(MemorySpan(name, memory, first, elements))
            case _:
                raise damaged("A tensor of a program is damaged.", repr(each))
    found = tuple([int(each) for each in np.frombuffer(micro, "<u8")])
    if any(span.name == MICRO and span.elements < len(found) for span in rooms):
        raise damaged("The micro-operations of a program are damaged.", str(at))
    return Coded(words, found, tuple(rooms))


def _part(members: Mapping[str, bytes], at: int) -> Artefact:
    start = f"part/{at}/"
    inside = {
        name.removeprefix(start): data for name, data in members.items() if name.startswith(start)
    }
    return native.from_members(inside)


def _numbers(given: Sequence[object]) -> tuple[int, ...]:
    """The values, checked to be numbers."""
    return tuple([each for each in given if isinstance(each, int)])


class _Reader:
    """What a step may refer to: known values, programs, parts, constants."""

    def __init__(
        self,
        inputs: int,
        programs: Sequence[Coded],
        parts: Sequence[Artefact],
        constants: Sequence[Array],
    ) -> None:
        self.known = set(range(inputs))
        self.programs, self.parts, self.constants = programs, parts, constants

    def is_known(self, value: object) -> bool:
        return type(value) is int and value in self.known

    def step(self, given: object) -> Step:
        match given:
            case ["part", int(number), [*takes], [*gives]] if (
                0 <= number < len(self.parts)
                and all(map(self.is_known, takes))
                and all(type(each) is int and 0 <= each < _MAX_COUNT for each in gives)
                and len(takes) == len(self.parts[number].interface.inputs)
                and len(gives) == len(self.parts[number].interface.outputs)
            ):
                taken, given_ = _numbers(takes), _numbers(gives)
                self.known.update(given_)
                return NativePart(number, taken, given_)
            case [
                "launch",
                str(name),
                [int(program), int(takes), int(gives), int(batch)],
                [*shape],
                [*held],
                [int(cycles), int(turns), int(operations), int(moved)],
            ] if (
                0 <= program < len(self.programs)
                and takes in self.known
                and 0 <= gives < _MAX_COUNT
                and 0 < batch < _MAX_COUNT
                and all(type(each) is int and 0 < each < _MAX_COUNT for each in shape)
                and min(cycles, turns, operations, moved) >= 0
                and {INPUT, OUTPUT} <= {span.name for span in self.programs[program].rooms}
            ):
                constants = tuple([self.constant(each, self.programs[program]) for each in held])
                self.known.add(gives)
                cost = Cost(cycles, turns, operations, moved)
                sizes = _numbers(shape)
                return ProgramLaunch(name, program, takes, gives, sizes, batch, constants, cost)
        raise damaged("A step of the artefact is damaged.", repr(given)[:80])

    def constant(self, given: object, program: Coded) -> tuple[str, int]:
        match given:
            case [str(room), int(number)] if 0 <= number < len(self.constants) and room in [
                memory_span.name for memory_span in program.rooms
            ]:
                return room, number
        raise damaged("A constant of a launch is damaged.", repr(given))
