"""Emulated: executables whose code is for another machine, run by an emulator of it."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Final

from plica.runtime.artefact import Artefact
from plica.runtime.c_machine import UNSUPPORTED_STATUS
from plica.runtime.device_executable import DeviceExecutable, DeviceKind, Sources
from plica.runtime.error import ArtefactError, Diagnostic, EvaluationError, UnsupportedError
from plica.runtime.executable import export_library
from plica.runtime.port import Port

MAX_SECONDS: Final = 600.0  # the timeout of an emulated program
HEADER: Final = 16  # bytes before the outputs


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """A tool's exit status and output."""

    status: int
    text: str


def check_tool(name: str, package: str) -> None:
    """Refuse a machine that lacks a tool; the error says what installs it."""
    if shutil.which(name) is None:
        message, hint = f"There is no {name} here.", f"apt-get install {package}"
        raise UnsupportedError(
            Diagnostic("missing-tool", message, None, name, "nothing of that name", hint)
        )


def tool_output(
    words: Sequence[str], folder: Path, package: str, seconds: float = MAX_SECONDS
) -> ToolAnswer:
    """Run a tool in a folder; where it is missing, the error says what installs it."""
    check_tool(words[0], package)
    try:
        done = subprocess.run(
            list(words), cwd=folder, capture_output=True, text=True, errors="replace",
            timeout=seconds, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        message = f"{words[0]} does not come to an end."
        raise EvaluationError(
            Diagnostic("missing-tool", message, None, f"{seconds:g} s at most")
        ) from error
    return ToolAnswer(done.returncode, done.stdout + done.stderr)


class EmulatedModel:
    """A model that an emulator runs: `program` is made at the first call."""

    def __init__(
        self, artefact: Artefact, program: Callable[[], bytes], command: Sequence[str], package: str
    ) -> None:
        self._artefact, self._interface = artefact, artefact.interface
        self._program, self._command, self._package = program, tuple(command), package
        self.note = 0
        """The nonce that the program wrote last."""

    @property
    def answer_bytes(self) -> int:
        """How many bytes the program writes."""
        return HEADER + sum(_bytes(port) for port in self._interface.outputs)

    def entry(self) -> tuple[int, object]:
        """An address at which C calls the model, and what must live as long as it does."""
        count = len(self._interface.inputs) + len(self._interface.outputs)

        def main(table: int) -> int:
            return self.call([at or 0 for at in (ctypes.c_void_p * count).from_address(table)])

        function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(main)
        return ctypes.cast(function, ctypes.c_void_p).value or 0, function

    def call(self, addresses: Sequence[int]) -> int:
        """Runs the model on arrays of this process; returns its status, 0 on success."""
        inputs, outputs = self._interface.inputs, self._interface.outputs
        given = [_memory(at, port) for at, port in zip(addresses, inputs, strict=False)]
        written = self._answer(b"".join(map(bytes, given)))
        if len(written) != self.answer_bytes:
            message, found = "The program gave no whole result.", f"{len(written)} bytes"
            expected = f"{self.answer_bytes} bytes of outputs"
            raise EvaluationError(Diagnostic("device-fault", message, None, expected, found))
        code, self.note = memoryview(written[:HEADER]).cast("q")
        if code == UNSUPPORTED_STATUS:
            message = "The artefact uses instructions that the machine does not have."
            has, found = str(self._artefact.machine), " ".join(self._command)
            raise ArtefactError(Diagnostic("other-machine", message, None, has, found))
        at = HEADER
        for place, port in zip(addresses[len(inputs) :], outputs, strict=True):
            memory = _memory(place, port)
            ctypes.memmove(memory, written[at : at + len(memory)], len(memory))
            at += len(memory)
        return int(code)

    def _answer(self, given: bytes) -> bytes:
        """The output file of the program."""
        wanted = self.answer_bytes
        program = self._program()
        with tempfile.TemporaryDirectory(prefix="plica-") as name:
            folder = Path(name)
            (folder / "program").write_bytes(program)
            os.chmod(folder / "program", 0o755)
            (folder / "inputs.bin").write_bytes(given)
            done = tool_output(self._command, folder, self._package)
            result = folder / "outputs.bin"
            made = result.read_bytes() if result.is_file() else b""
        if len(made) != wanted:
            message = f"The program gave no result in {self._command[0]}."
            said = " / ".join(done.text.splitlines()[-4:])
            found = f"{len(made)} bytes, status {done.status}" + (f", {said}" if said else "")
            raise EvaluationError(
                Diagnostic("missing-tool", message, None, f"{wanted} bytes of outputs", found)
            )
        return made


def _bytes(port: Port) -> int:
    return prod(port.shape) * port.numpy.itemsize


def _memory(at: int, port: Port) -> ctypes.Array[ctypes.c_char]:
    return (ctypes.c_char * _bytes(port)).from_address(at)


def emulated_executable(program: EmulatedModel, of: Artefact, texts: Sources) -> DeviceExecutable:
    """A compiled model that an emulator runs."""
    return DeviceExecutable(of, texts, DeviceKind(lambda _: program, export=export_library))
