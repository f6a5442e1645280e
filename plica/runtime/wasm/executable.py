"""Executables of WebAssembly: a compiled model in wasmtime, with the face of every other."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from plica.runtime.artefact import Artefact
from plica.runtime.elf import damaged
from plica.runtime.error import Diagnostic, UnsupportedError
from plica.runtime.executable import Executable
from plica.runtime.wasm.instance import WasmInstance

PAGE_FILES: Final = ("plica-runtime.js", "plica-runtime.d.ts")
"""What a page needs beside an artefact, in this folder."""


class WasmExecutable(Executable):
    """A compiled model in an engine of WebAssembly; calls from several threads take turns."""

    def __init__(
        self, artefact: Artefact, texts: Mapping[str, Callable[[], str]] | None = None
    ) -> None:
        if len(artefact.objects) != 1:
            raise damaged("The artefact holds no single module of WebAssembly.")
        face = artefact.interface
        super().__init__(
            0,
            face,
            workspace=artefact.workspace,
            sources=artefact.sources,
            texts=texts or {"kernel": lambda: artefact.record().kernels},
            target=str(artefact.machine),
            artefact=artefact,
        )
        sizes = [port.nbytes for port in (*face.inputs, *face.outputs)]
        self._instance = WasmInstance(
            artefact.objects[0], sizes, len(face.inputs), artefact.constants, artefact.workspace
        )

    def run(self, addresses: Sequence[int]) -> None:
        """Run the code on memory of the types of the inputs, then of the outputs, in order."""
        if code := self._instance.call(addresses):
            raise self.failure(code)

    def export(self, path: str | os.PathLike[str], name: str | None = None) -> None:
        """What a page or Node needs: the artefact, and beside it the runtime with its typings."""
        export_page(self, path)


def export_page(of: Executable, path: str | os.PathLike[str]) -> None:
    """The artefact of a model, and beside it what loads it in a page."""
    if Path(path).suffix not in ("", ".plica"):
        message = "What a page loads is an artefact, and the runtime beside it."
        found = os.fspath(path)
        raise UnsupportedError(Diagnostic("unsupported", message, None, ".plica", found))
    of.save(path)
    for each in PAGE_FILES:
        text = Path(__file__).with_name(each).read_bytes()
        Path(path).with_name(each).write_bytes(text)
