"""WebAssembly programs: a compiled model in wasmtime, and the files a web page needs to load it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from plica.runtime.artefact import Artefact
from plica.runtime.device_executable import DeviceExecutable, DeviceKind, Sources, sizes_in_bytes
from plica.runtime.error import Diagnostic, UnsupportedError, damaged
from plica.runtime.executable import Executable
from plica.runtime.wasm.instance import WasmInstance

PAGE_FILES: Final = ("plica-runtime.js", "plica-runtime.d.ts")
"""Files that a web page needs besides the artefact, in this folder."""


def _instance(of: Artefact) -> WasmInstance:
    """The module of an artefact in an engine."""
    if len(of.objects) != 1:
        raise damaged("The artefact holds no single module of WebAssembly.")
    inputs = len(of.interface.inputs)
    return WasmInstance(of.objects[0], sizes_in_bytes(of), inputs, of.constants, of.workspace)


def export_page(of: Executable, path: str | os.PathLike[str], name: str | None = None) -> None:
    """Writes the artefact of a model and its loader for web pages."""
    if Path(path).suffix not in ("", ".plica"):
        message = "What a page loads is an artefact, and the runtime beside it."
        found = os.fspath(path)
        raise UnsupportedError(Diagnostic("unsupported", message, None, ".plica", found))
    of.save(path)
    for file in PAGE_FILES:
        text = Path(__file__).with_name(file).read_bytes()
        Path(path).with_name(file).write_bytes(text)


def wasm(artefact: Artefact, texts: Sources | None = None) -> DeviceExecutable:
    """A compiled model on a device; calls from several threads are serialised."""
    return DeviceExecutable(artefact, texts, _KIND)


_KIND: Final = DeviceKind(_instance, export=export_page)
