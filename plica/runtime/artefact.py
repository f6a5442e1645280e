"""Artefacts: all that a compiled model is, as data, and how it is written down.

    manifest.json     versions, target, interface, memory plan, digests of the other members
    code/N.o          object files; code/N.cubin for a GPU; code/0.wasm,
                      a module of WebAssembly; code/0.cl, OpenCL C; code/0.wgsl; code/0.hip;
                      code/0.metal; code/0.spv, a module of SPIR-V
    kernels.cu, program.c      the text that code for a GPU, or by a C compiler, was made from
    params.bin        constants, each at a multiple of 64
    derivation.json, traces.json, kernels.txt      where it comes from (`plica.runtime.record`)

Nothing is pickled and no path is taken from the file. `from_members(to_members(a))` is `a`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, TypeAlias

import numpy as np

from plica.runtime import interface
from plica.runtime.archive import FORMAT, Piece, check_format, check_members
from plica.runtime.error import damaged
from plica.runtime.interface import Interface
from plica.runtime.late import lazy_imports
from plica.runtime.port import Array
from plica.runtime.record import (
    CompilationRecord,
    bad_manifest,
    read_json,
    read_record,
    record_members,
    to_json,
)
from plica.runtime.typed_json import ClassVar, dataclass, plain, read

with lazy_imports(__name__):  # few artefacts are for a GPU
    from plica.runtime.cuda.open_step import OpenProgram, device_data, device_from_data
    from plica.runtime.cuda.step import DeviceProgram

__all__ = [
    "ALIGNMENT", "Artefact", "ArtefactMachine", "CompilationRecord", "StoredAllocation",
    "from_members", "to_members",
]  # fmt: skip

TRIPLE: Final = "nvptx64-nvidia-cuda"  # what LLVM calls a GPU of NVIDIA's
EMULATED: Final = "emulated-nvidia-cuda"
"""The triple of code for a GPU that a processor runs from its text."""

OPENCL_TRIPLE: Final = "opencl-unknown-unknown"
"""What devices of OpenCL are called here: LLVM has no name for what their drivers compile."""

WEBGPU_TRIPLE: Final = "webgpu-unknown-unknown"  # the same for devices of WebGPU
ROCM_TRIPLE: Final = "amdgcn-amd-amdhsa"
METAL_TRIPLE: Final = "air64-apple-macosx"
SPIRV_TRIPLE: Final = "spirv64-unknown-unknown"  # what LLVM, and for Metal Apple's, calls them

DEVICES: Final = {
    TRIPLE: "cuda", EMULATED: "cuda-emulator", OPENCL_TRIPLE: "opencl", WEBGPU_TRIPLE: "webgpu",
    ROCM_TRIPLE: "rocm", METAL_TRIPLE: "metal", SPIRV_TRIPLE: "spirv",
}  # fmt: skip
"""The targets that launch functions on devices, by triple."""

WASM: Final = "wasm32"  # the architecture that WebAssembly is to LLVM

CODE_SUFFIXES: Final = {
    WASM: "wasm", "nvptx64": "cubin", "opencl": "cl", "emulated": "cu", "webgpu": "wgsl",
    "amdgcn": "hip", "air64": "metal", "spirv64": "spv",
}  # fmt: skip
"""How the names of members with code end, by the architecture."""

ENTRY: Final = "plica_main"  # the function that native code is called by
SIZES: Final = "plica_sizes"  # the function that says how large tensors are, where sizes are open
USE: Final = "plica_profile_use"
"""The function that has native code note how long launches take (`plica.codegen.llvm.profile`)."""

PEAK: Final = "plica_peak"  # a function in it that operates as fast as one core can
ACCELERATED: Final = "accel.json"  # the member that artefacts with layers on an accelerator have
LISTS: Final = "lists.json"
"""The member that says which arrays of a program stand for lists and options."""

ALIGNMENT: Final = 64


@dataclass(frozen=True, slots=True)
class Launched:
    """A launch in the code: its kernel, and the operations and bytes of one run."""

    DAMAGED: ClassVar = "A launch in the artefact is damaged."

    kernel: str
    operations: int
    bytes: int


NotedCode: TypeAlias = tuple[tuple[Launched, ...], Callable[[int], None]]
"""The launches of a code, and a function that sets where it records their times."""


@dataclass(frozen=True, slots=True)
class ArtefactMachine:
    """The target of code: LLVM triple, processor name and features."""

    triple: str
    cpu: str
    features: tuple[str, ...]
    described: str = ""
    """What schedules were chosen by: vectors, caches, rates (`plica.runtime.machine`)."""

    @property
    def architecture(self) -> str:
        """The first part of the triple."""
        return self.triple.split("-", maxsplit=1)[0]

    def __str__(self) -> str:
        if (device := DEVICES.get(self.triple)) is not None:
            return device if self.cpu == "generic" else f"{device}:{self.cpu}"
        kind = "wasm" if self.architecture == WASM else "cpu"
        return f"{kind} ({self.triple}, {self.cpu})"


@dataclass(frozen=True, slots=True)
class StoredAllocation:
    """A value in the workspace: where, how large, from which step to which, and on which other."""

    DAMAGED: ClassVar = "The memory plan in the artefact is damaged."

    offset: int
    size: int
    born: int
    last: int
    view_of: int | None
    in_place_of: int | None


@dataclass(frozen=True, slots=True)
class Artefact:
    """A compiled model; its record is computed on demand."""

    interface: Interface
    machine: ArtefactMachine
    threads: int
    objects: tuple[bytes, ...]
    constants: tuple[Array, ...]
    workspace: int
    sources: tuple[str, ...]
    launches: tuple[Launched, ...]
    plan: tuple[StoredAllocation, ...]
    versions: tuple[tuple[str, str], ...]
    record: Callable[[], CompilationRecord]
    device: DeviceProgram | OpenProgram | None = None  # the launches, if the code is for a GPU
    text: str = ""  # the text that code was made from, where that is C or CUDA C++


def to_members(of: Artefact, with_record: bool = True) -> dict[str, bytes]:
    """The members of the archive an artefact is; the record can be left out where it is known."""
    return {name: b"".join(parts) for name, parts in member_pieces(of, with_record).items()}


def member_pieces(
    of: Artefact, with_record: bool = True, sealed: bool = True
) -> dict[str, Sequence[Piece]]:
    """The same members, each as the pieces it is made of: constants are not copied.

    Unless `sealed`, there are no digests of members: such an archive is read only as `checked`.
    """
    kind = CODE_SUFFIXES.get(of.machine.architecture, "o")
    members: dict[str, Sequence[Piece]] = {
        f"code/{number}.{kind}": (each,) for number, each in enumerate(of.objects)
    }
    if of.text:
        members["program.c" if of.device is None else "kernels.cu"] = (of.text.encode(),)
    members["params.bin"], places = packed(of.constants)
    if with_record:
        members |= {name: (data,) for name, data in record_members(of.record()).items()}
    device = {} if of.device is None else {"device": device_data(of.device)}
    manifest = {
        **device,
        "format": FORMAT,
        "versions": dict(of.versions),
        "target": {
            "triple": of.machine.triple,
            "cpu": of.machine.cpu,
            "features": list(of.machine.features),
            "machine": of.machine.described,
        },
        "threads": of.threads,
        "interface": interface.to_data(of.interface),
        "workspace": of.workspace,
        "sources": list(of.sources),
        "launches": plain(of.launches),
        "constants": places,
        "plan": plain(of.plan),
        "members": {name: _digest(parts) for name, parts in members.items()} if sealed else {},
    }
    return {"manifest.json": (to_json(manifest),), **members}


def _digest(parts: Sequence[Piece]) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(part)
    return whole.hexdigest()


def from_members(
    members: Mapping[str, Piece],
    record: Callable[[], CompilationRecord] | None = None,
    checked: bool = False,
) -> Artefact:
    """The artefact in an archive; nothing in it is believed before it is checked.

    `record` replaces the one in the archive; `checked` means that digests were verified before.
    """
    manifest = read_json(_texts_of(members), "manifest.json")
    match manifest:
        case {
            "format": int(number),
            "versions": dict(versions),
            "target": {"triple": str(triple), "cpu": str(cpu), "features": [*features]} as made_for,
            "threads": int(threads),
            "interface": interface_data,
            "workspace": int(workspace),
            "sources": [*sources],
            "launches": [*launches],
            "constants": [*places],
            "plan": [*plan],
            "members": dict(digests),
        }:
            pass
        case unknown:
            raise bad_manifest(unknown)
    check_format(number)
    if not checked:
        check_members(members, digests, "manifest.json")
    if not 0 <= workspace < 1 << 48 or not 1 <= threads < 1 << 16:
        raise damaged("The manifest of the artefact is damaged.", f"{workspace}, {threads}")
    objects = tuple([bytes(members[name]) for name in members if name.startswith("code/")])
    return Artefact(
        interface.from_data(interface_data),
        ArtefactMachine(triple, cpu, _texts(features), *_texts([made_for.get("machine", "")])),
        threads,
        objects,
        unpacked(members.get("params.bin", b""), places),
        workspace,
        _texts(sources),
        tuple([read(Launched, launch) for launch in launches]),
        tuple([read(StoredAllocation, each) for each in plan]),
        tuple(zip(_texts(versions), _texts(versions.values()), strict=True)),
        record or (lambda: read_record(_texts_of(members))),
        None if "device" not in manifest else device_from_data(manifest["device"]),
        bytes(members.get("kernels.cu", members.get("program.c", b""))).decode("utf-8", "replace"),
    )


def aligned_array(size: int) -> Array:
    """Bytes that begin at a multiple of 64."""
    padded = np.empty(size + ALIGNMENT, np.uint8)
    start = -padded.__array_interface__["data"][0] % ALIGNMENT
    return padded[start : start + size]


def packed(constants: Sequence[Array]) -> tuple[list[Piece], list[list[int]]]:
    """Constants one after another, each at a multiple of 64, and where they are."""
    places = []
    parts: list[Piece] = []
    end = 0
    for constant in constants:
        start = -(-end // ALIGNMENT) * ALIGNMENT
        parts += [bytes(start - end), constant.data]
        end = start + constant.nbytes
        places.append([start, constant.nbytes])
    return parts, places


def _texts_of(members: Mapping[str, Piece]) -> dict[str, bytes]:
    """The members that are texts."""
    return {name: bytes(data) for name, data in members.items() if name.endswith((".json", ".txt"))}


def unpacked(params: Piece, places: Sequence[object]) -> tuple[Array, ...]:
    """The constants in `packed` ones; nothing about their places is believed."""
    whole = np.frombuffer(params, np.uint8)
    if not whole.flags.writeable or whole.__array_interface__["data"][0] % ALIGNMENT:
        whole = aligned_array(len(params))
        whole[:] = np.frombuffer(params, np.uint8)
    found = []
    for place in places:
        match place:
            case [int(start), int(size)] if (
                start >= 0 and size >= 0 and start % ALIGNMENT == 0 and start + size <= len(params)
            ):
                found.append(whole[start : start + size])
            case _:
                raise damaged("A constant is outside of the artefact.", repr(place))
    return tuple(found)


def _texts(given: Any) -> tuple[str, ...]:  # Any: JSON
    found = tuple(given)
    if not all(isinstance(each, str) for each in found):
        raise damaged("The manifest of the artefact is damaged.", repr(given))
    return found


def version() -> str:
    """The version of Plica, which artefacts and records name as their compiler."""
    return str(import_module(__name__.partition(".")[0]).__version__)
