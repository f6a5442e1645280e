"""Artefact targets: the target of an artefact, from its record.

>>> import plica
>>> from plica.demo.cnn_script import cnn
>>> made = plica.compile(cnn, target="cpu:x86-64-v2", threads=1).artefact
>>> target_of_artefact(made).cpu
'x86-64-v2'
"""

from __future__ import annotations

from typing import Final

from plica.codegen.backend import AnyTarget, find_target
from plica.codegen.micro.core import CORES
from plica.codegen.wasm.target import EXTENSIONS, WasmTarget
from plica.runtime.artefact import DEVICES, WASM, Artefact, ArtefactMachine
from plica.runtime.error import ArtefactError, Diagnostic

GENERIC: Final = "generic"  # the processor of a device of which nothing more is known


def target_of_artefact(artefact: Artefact) -> AnyTarget:
    """The target that an artefact was compiled for."""
    machine = artefact.machine
    if (device := DEVICES.get(machine.triple)) is not None:
        return find_target(device if machine.cpu == GENERIC else f"{device}:{machine.cpu}")
    if machine.architecture == WASM:
        return _extended(machine)
    if machine.cpu in CORES and CORES[machine.cpu].triple == machine.triple:
        return find_target(f"micro:{machine.cpu}")
    if "cc" in dict(artefact.versions):
        return find_target("c")
    features = ",".join(machine.features)
    processor = f"triple={machine.triple} cpu={machine.cpu} {machine.described}"
    return find_target(f"cpu {processor} features={features}")


def _extended(machine: ArtefactMachine) -> WasmTarget:
    """WebAssembly with the extensions that an artefact requires."""
    for extension, features in EXTENSIONS.items():
        if features == machine.features:
            return WasmTarget(extension)
    message, found = "No target of WebAssembly has such extensions.", ", ".join(machine.features)
    expected = " or ".join(", ".join(each) for each in EXTENSIONS.values())
    raise ArtefactError(Diagnostic("bad-artefact", message, None, expected, found))
