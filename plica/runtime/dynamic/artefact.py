"""Artefacts of dynamic programs: object files, constants, and the forms of inputs and outputs.

    dynamic.json    format, versions, target, threads, face, endings, where constants lie, digests
    params.bin      the constants, each at a multiple of 64
    code/N.o        object files

Nothing in a file is believed before it is checked.  Loading needs numpy and the standard library.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

from plica.runtime.archive import check_format, check_members
from plica.runtime.artefact import ArtefactMachine, packed, unpacked
from plica.runtime.dynamic import form
from plica.runtime.dynamic.form import DynamicInterface
from plica.runtime.error import damaged
from plica.runtime.port import Array
from plica.runtime.record import bad_manifest, read_json, to_json
from plica.runtime.typed_json import ClassVar, dataclass, plain, read

FORMAT: Final = 1
NAME: Final = "dynamic.json"


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a program may end without a result: a code, a sentence, and where."""

    DAMAGED: ClassVar = "The manifest of the artefact is damaged."

    code: str
    message: str
    node: str | None = None
    expected: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class DynamicArtefact:
    """A compiled program over objects, as data."""

    interface: DynamicInterface
    machine: ArtefactMachine
    threads: int
    objects: tuple[bytes, ...]
    constants: tuple[Array, ...]
    endings: tuple[Ending, ...]
    versions: tuple[tuple[str, str], ...]


def is_dynamic(members: Mapping[str, bytes]) -> bool:
    """Whether an archive contains a dynamic program."""
    return NAME in members


def to_members(of: DynamicArtefact) -> dict[str, bytes]:
    """The members of the archive that an artefact is."""
    members = {f"code/{number}.o": each for number, each in enumerate(of.objects)}
    params, places = packed(of.constants)
    members["params.bin"] = b"".join(params)
    machine = of.machine
    manifest = {
        "format": FORMAT,
        "versions": dict(of.versions),
        "target": [machine.triple, machine.cpu, list(machine.features)],
        "threads": of.threads,
        "face": form.to_data(of.interface),
        "endings": plain(of.endings),
        "constants": places,
        "members": {name: hashlib.sha256(data).hexdigest() for name, data in members.items()},
    }
    return {NAME: to_json(manifest), **members}


def from_members(members: Mapping[str, bytes]) -> DynamicArtefact:
    """The artefact in an archive."""
    manifest = read_json(members, NAME)
    match manifest:
        case {
            "format": int(number),
            "versions": dict(versions),
            "target": [str(triple), str(cpu), [*features]],
            "threads": int(threads),
            "face": interface_data,
            "endings": [*endings],
            "constants": [*places],
            "members": dict(digests),
        } if 1 <= threads < 1 << 16:
            pass
        case unknown:
            raise bad_manifest(unknown)
    check_format(number, FORMAT)
    check_members(members, digests, NAME)
    words = [*features, *versions, *versions.values()]
    if not all(isinstance(word, str) for word in words):
        raise damaged("The manifest of the artefact is damaged.")
    return DynamicArtefact(
        form.from_data(interface_data),
        ArtefactMachine(triple, cpu, tuple(features)),
        threads,
        tuple([members[name] for name in members if name.startswith("code/")]),
        unpacked(members.get("params.bin", b""), places),
        tuple([read(Ending, ending) for ending in endings]),
        tuple(sorted(versions.items())),
    )
