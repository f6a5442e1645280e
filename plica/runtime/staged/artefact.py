"""Artefacts of staged programs: the program, and an archive for each segment.

staged.json     format, interface, program, how many segments there are, their digests
driver.o        the function that runs loops, where some are run by native code
segment/N       the artefact of a segment, an archive as `plica.runtime.archive` packs it
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

from plica.runtime import archive, interface
from plica.runtime.artefact import to_members as artefact_members
from plica.runtime.error import damaged
from plica.runtime.executable import Executable
from plica.runtime.interface import Interface, dims_of
from plica.runtime.record import bad_manifest, read_json, to_json
from plica.runtime.staged.program import StepBlock, check_program
from plica.runtime.typed_json import plain, read

FORMAT: Final = 3
NAME: Final = "staged.json"
DRIVER: Final = "driver.o"


def is_staged(members: Mapping[str, bytes]) -> bool:
    """Whether an archive contains a staged program."""
    return NAME in members


def to_members(
    of: Interface, program: StepBlock, segments: Sequence[Executable], driver: bytes = b""
) -> dict[str, bytes]:
    """The members of the archive that a program is; a segment that cannot be written refuses."""
    packed = {
        f"segment/{number}": archive.pack(artefact_members(segment.artefact))
        for number, segment in enumerate(segments)
    }
    packed |= {DRIVER: driver} if driver else {}
    manifest = {
        "format": FORMAT,
        "interface": interface.to_data(of),
        "program": plain(program),
        "segments": len(segments),
        "members": {name: hashlib.sha256(data).hexdigest() for name, data in packed.items()},
    }
    return {NAME: to_json(manifest), **packed}


def from_members(
    members: Mapping[str, bytes],
) -> tuple[Interface, StepBlock, list[dict[str, bytes]], bytes]:
    """The interface, the program, the members of each segment's own archive, and the driver."""
    match read_json(members, NAME):
        case {
            "format": int(number),
            "interface": interface_data,
            "program": program,
            "segments": int(count),
            "members": dict(digests),
        } if 0 <= count < len(members):
            pass
        case unknown:
            raise bad_manifest(unknown)
    archive.check_format(number, FORMAT)
    archive.check_members(members, digests, NAME)
    segments = {f"segment/{at}" for at in range(count)}
    if (named := members.keys() - {DRIVER, NAME}) != segments:
        found, expected = ", ".join(sorted(named)), f"{count} segments"
        raise damaged("The segments of the artefact are not those of its program.", found, expected)
    parts = [archive.unpack(members[f"segment/{at}"]) for at in range(count)]
    known, steps = interface.from_data(interface_data), read(StepBlock, program)
    check_program(steps, len(known.inputs), [dim.name for dim in dims_of(known)], count)
    return known, steps, parts, members.get(DRIVER, b"")
