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
from typing import Final, TypeAlias

import numpy as np

from plica.runtime import artefact as native, interface
from plica.runtime.accel.device import AccelDevice
from plica.runtime.accel.functional import MICRO, MemorySpan
from plica.runtime.archive import check_format, check_members
from plica.runtime.artefact import Artefact
from plica.runtime.error import damaged
from plica.runtime.interface import Interface
from plica.runtime.port import Array
from plica.runtime.record import bad_manifest, read_json, to_json
from plica.runtime.typed_json import Annotated, ClassVar, dataclass, plain, read

FORMAT: Final = 1
NAME: Final = "accel.json"
_MAX_COUNT: Final = 1 << 20
_MAX_BYTES: Final = 1 << 32

Count: TypeAlias = Annotated[int, range(_MAX_COUNT)]
Positive: TypeAlias = Annotated[int, range(1, _MAX_COUNT)]
Work: TypeAlias = Annotated[int, range(1 << 62)]

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

    WORD: ClassVar = "part"

    number: Count
    takes: tuple[Count, ...]
    gives: tuple[Count, ...]


@dataclass(frozen=True, slots=True)
class Cost:
    """The cycle simulator's result for one launch."""

    cycles: Work
    turns: Work
    operations: Work
    moved: Work


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """A program run `batch` times over a value."""

    program: Count
    takes: Count
    gives: Count
    batch: Positive


@dataclass(frozen=True, slots=True)
class ProgramLaunch:
    """A run of a program, which gives a value of a shape; its constants are by number, by room."""

    WORD: ClassVar = "launch"

    name: str
    run: ProgramRun
    shape: tuple[Positive, ...]
    constants: tuple[tuple[str, Count], ...]
    cost: Cost


Step: TypeAlias = NativePart | ProgramLaunch


@dataclass(frozen=True, slots=True)
class _Written:
    """A step as it is read."""

    DAMAGED: ClassVar = "A step of the artefact is damaged."

    step: Step


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
        "device": plain(of.device),
        "interface": interface.to_data(of.interface),
        "programs": [plain(program.rooms) for program in of.programs],
        "steps": plain(of.steps),
        "outputs": list(of.outputs),
        "constants": places,
        "parts": len(of.parts),
        "members": {name: hashlib.sha256(data).hexdigest() for name, data in members.items()},
    }
    return {NAME: to_json(manifest), **members}


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
    machine, seen = read(AccelDevice, data), interface.from_data(interface_data)
    coded = tuple([_coded(members, machine, at, program) for at, program in enumerate(programs)])
    constants = native.unpacked(members.get("accel.bin", b""), places)
    parts = tuple([_part(members, at) for at in range(count)])
    known = set(range(len(seen.inputs)))
    done = tuple([_step(step, known, coded, parts, len(constants)) for step in steps])
    if len(outputs) != len(seen.outputs) or not all(
        type(output) is int and output in known for output in outputs
    ):
        raise damaged("The outputs of the artefact are damaged.", repr(outputs))
    return AccelArtefact(
        module, target, megahertz, machine, seen, coded, done, tuple(outputs), constants, parts,
        _text(members, "accel.txt"), _text(members, "placement.txt"),
        tuple([(str(name), str(value)) for name, value in versions.items()]),
    )  # fmt: skip


def _text(members: Mapping[str, bytes], name: str) -> str:
    return members.get(name, b"").decode(errors="replace")


def _coded(members: Mapping[str, bytes], machine: AccelDevice, at: int, given: object) -> Coded:
    words, micro = members.get(f"code/{at}.words"), members.get(f"code/{at}.micro")
    if words is None or micro is None or len(micro) % 8 or not isinstance(given, list):
        raise damaged("A program in the artefact is damaged.", str(at))
    bytes_of = {memory.name: memory.bytes for memory in machine.memories}
    rooms = [read(MemorySpan, span) for span in given]
    for span in rooms:
        if (span.at + span.elements) * bytes_of.get(span.memory, _MAX_BYTES + 1) > _MAX_BYTES:
            raise damaged(span.DAMAGED, repr(span))
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


def _step(
    given: object,
    known: set[int],
    programs: Sequence[Coded],
    parts: Sequence[Artefact],
    constants: int,
) -> Step:
    """A step of known values, programs, parts and constants; what it gives is known from now on."""
    step = read(_Written, [given]).step
    match step:
        case NativePart(number, takes, gives):
            right = number in range(len(parts)) and (len(takes), len(gives)) == (
                len(parts[number].interface.inputs),
                len(parts[number].interface.outputs),
            )
        case ProgramLaunch(_, run):
            takes, gives = (run.takes,), (run.gives,)
            spans = programs[run.program].rooms if run.program in range(len(programs)) else ()
            rooms = {INPUT, OUTPUT, *[room for room, _ in step.constants]}
            right = rooms <= {span.name for span in spans} and all(
                number < constants for _, number in step.constants
            )
    if not right or not known.issuperset(takes):
        raise damaged(_Written.DAMAGED, repr(given)[:80])
    known.update(gives)
    return step
