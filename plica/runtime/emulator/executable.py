"""Emulated GPUs: a compiled model whose text for a GPU is run by a processor.

Emulated programs: the launches of a model for a GPU, one after another on a processor.

Memory, constants and launches are those of a GPU (`plica.runtime.cuda.step`); so are the results.
It is no way to be fast: every launch is done twice, in two orders of its threads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache, partial
from os import PathLike
from pathlib import Path
from typing import Final

import numpy as np

from plica.runtime.artefact import Artefact
from plica.runtime.cuda.open_program import OpenDeviceExecutable
from plica.runtime.cuda.step import ALIGNMENT, DeviceCopy, DeviceLaunch, DeviceProgram
from plica.runtime.device_executable import DeviceExecutable, DeviceKind, Sources, step_loader
from plica.runtime.emulator.gpu import GROUP, Bytes, EmulatedLaunch, launch, loaded, tile_words
from plica.runtime.error import ArtefactError, Diagnostic
from plica.runtime.executable import Executable
from plica.runtime.port import Array

_UNTIMED: Final = Diagnostic(
    "unsupported",
    "How long kernels take is not known of a GPU that a processor stands for.",
    expected="cuda, on a machine with such a GPU",
    suggestion="Compile for a GPU of this machine, or for the processor, and profile that.",
)


def gpu_emulation(functions: Callable[[], ctypes.CDLL] | None = None) -> DeviceKind:
    """A GPU of NVIDIA's that is not there; its functions may be compiled already."""
    return DeviceKind(
        step_loader(partial(EmulatedProgram, functions=functions)),
        "cuda",
        is_text=True,
        untimed=_UNTIMED,
    )


def emulation(artefact: Artefact, texts: Sources | None = None) -> DeviceExecutable:
    """A compiled model for a GPU of NVIDIA's that is not there."""
    return DeviceExecutable(artefact, texts, gpu_emulation())


def open_emulation(artefact: Artefact, texts: Sources | None = None) -> OpenDeviceExecutable:
    """The same where sizes are open: the text is compiled once, whatever they are."""
    (code,) = artefact.objects
    names = () if artefact.device is None else tuple(artefact.device.functions)

    @lru_cache(maxsize=1)
    def functions() -> ctypes.CDLL:
        return loaded(code.decode(), names)

    kind = gpu_emulation(functions)
    return OpenDeviceExecutable(artefact, lambda of: DeviceExecutable(of, texts, kind), texts)


def export_text(of: Executable, path: str | PathLike[str], name: str | None) -> None:
    """Writes the text to a file, preceded by its launches and their memory."""
    program = of.artefact.device
    assert isinstance(program, DeviceProgram)  # as the loader has checked
    layout = program.layout
    lines = [f"// {of.target}: {layout.size} bytes of memory; tensors and where they begin:"]
    constants = dict(layout.constants)
    for slot, at in enumerate(layout.places):
        where = f"constant {constants[slot]}" if slot in constants else f"byte {at}"
        lines.append(f"//   {slot}: {where}")
    lines.append(f"// inputs {list(layout.inputs)}, outputs {list(layout.outputs)}; in order:")
    for step in program.steps:
        if isinstance(step, DeviceCopy):
            lines.append(f"//   copy {step.size} bytes from {step.source} to {step.target}")
            continue
        scratch = [f"byte {at}" for at in layout.scratch[: step.scratch]]
        given = ", ".join([*map(str, step.slots), *scratch])
        lines.append(
            f"//   {step.function}({given}) grid {step.grid} block {step.block}"
            f" shared {step.shared}"
        )
    text = of.source()
    Path(path).write_text("\n".join([*lines, "", text]), encoding="utf-8")


def _elsewhere(
    artefact: Artefact, texts: Sources | None, kind: str, language: str, run: type[EmulatedProgram]
) -> DeviceExecutable:
    """A compiled model for a GPU that is elsewhere."""
    if texts is None:
        message = f"Nothing here loads {language}: the artefact is for another machine."
        hint = "Take it there, or compile the model again and export its text: exe.export(path)"
        raise ArtefactError(
            Diagnostic("other-machine", message, None, str(artefact.machine), "none", hint)
        )
    device = DeviceKind(step_loader(run), kind, export=export_text)
    return DeviceExecutable(artefact, texts, device)


def hip(artefact: Artefact, texts: Sources | None = None) -> DeviceExecutable:
    """A model as HIP C++."""
    return _elsewhere(artefact, texts, "hip", "HIP", EmulatedProgram)


def metal(artefact: Artefact, texts: Sources | None = None) -> DeviceExecutable:
    """A model as Metal Shading Language."""
    return _elsewhere(artefact, texts, "metal", "Metal", MetalProgram)


# --- emulated programs -------------------------------------------------------------------------


class EmulatedProgram:
    """A program for blocks of threads; its text is compiled when it is called first."""

    def __init__(
        self, code: bytes, program: DeviceProgram, constants: Sequence[Array], sizes: Sequence[int],
        features: Sequence[str] = (), *, functions: Callable[[], ctypes.CDLL] | None = None,
    ) -> None:  # fmt: skip
        self._given = functions
        self._text, self._program, self._sizes = code.decode(), program, tuple(sizes)
        self._held = [np.ascontiguousarray(constant) for constant in constants]
        self._failed = np.zeros(max(len(program.steps), 1), np.int32)

    @cached_property
    def _functions(self) -> ctypes.CDLL:
        return loaded(self._text, self._program.functions) if self._given is None else self._given()

    def _shape(self, of: DeviceLaunch) -> EmulatedLaunch:
        """The threads of a launch."""
        return of

    def _more(self, number: int) -> list[int]:
        """The arguments of a launch besides tensors."""
        return []

    def call(self, addresses: Sequence[int]) -> int:
        """Run on arrays of this process; 0, or the number of the launch that failed."""
        layout = self._program.layout
        memory: Bytes = np.full(layout.size + ALIGNMENT, 0xFF, np.uint8)
        memory = memory[-memory.ctypes.data % ALIGNMENT :][: layout.size]
        places = [memory.ctypes.data + at for at in layout.places]
        for slot, number in layout.constants:
            places[slot] = self._held[number].ctypes.data
        moves = [*zip((*layout.inputs, *layout.outputs), addresses, self._sizes, strict=True)]
        for slot, room, size in moves[: len(layout.inputs)]:
            ctypes.memmove(places[slot], room, size)
        self._failed[:] = 0
        for number in range(len(self._program.steps)):
            self._do(number, places, memory)
        for slot, room, size in moves[len(layout.inputs) :]:
            ctypes.memmove(room, places[slot], size)
        return int(self._failed.argmax()) + 1 if self._failed.any() else 0

    def _do(self, number: int, places: list[int], memory: Bytes) -> None:
        step = self._program.steps[number]
        if isinstance(step, DeviceCopy):
            ctypes.memmove(places[step.target], places[step.source], step.size)
            return
        scratch = self._program.layout.scratch[: step.scratch]
        addresses = [places[slot] for slot in step.slots]
        addresses += [memory.ctypes.data + at for at in scratch]
        maps = [tile_words(tile_map, addresses[tile_map.argument]) for tile_map in step.maps]
        held = [ctypes.addressof(each) for each in maps]
        given = [*addresses, *step.numbers, *held, *self._more(number)]
        launch(self._functions, self._shape(step), given, [memory])


class _Items:
    """A launch of items, in groups of threads."""

    def __init__(self, of: DeviceLaunch) -> None:
        self.function, self.block = of.function, (min(GROUP, of.grid[0]), 1, 1)
        self.grid = (-(-of.grid[0] // self.block[0]), 1, 1)


class MetalProgram(EmulatedProgram):
    """A program for items, which say where an index was outside."""

    def _shape(self, of: DeviceLaunch) -> EmulatedLaunch:
        return _Items(of)

    def _more(self, number: int) -> list[int]:
        self._number = np.full(1, number, np.int32)
        return [self._failed.ctypes.data, self._number.ctypes.data]
