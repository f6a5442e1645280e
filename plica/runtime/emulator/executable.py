"""Emulated GPUs: a compiled model whose launches run one after another on a processor.

Memory, constants and launches are those of a GPU (`plica.runtime.cuda.step`); so are the results.
It is no way to be fast: every launch is done twice, in two orders of its threads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from functools import cached_property
from os import PathLike

import numpy as np

from plica.runtime.artefact import Artefact
from plica.runtime.cuda.step import ALIGNMENT, DeviceCopy, DeviceLaunch, DeviceStep
from plica.runtime.emulator.gpu import Bytes, launch, loaded, tile_words
from plica.runtime.error import Diagnostic, UnsupportedError
from plica.runtime.executable import Executable


class GpuEmulation(Executable):
    """A compiled model for a GPU that is not there."""

    def __init__(
        self, artefact: Artefact, texts: Mapping[str, Callable[[], str]] | None = None
    ) -> None:
        assert artefact.device is not None
        self._program = artefact.device
        super().__init__(
            0,
            artefact.interface,
            workspace=self._program.layout.size,
            sources=artefact.sources,
            texts=texts
            or {"kernel": lambda: artefact.record().kernels, "cuda": lambda: artefact.text},
            target=str(artefact.machine),
            artefact=artefact,
        )
        self._held = [np.ascontiguousarray(each) for each in artefact.constants]
        self._main = self._emulate

    @cached_property
    def _functions(self) -> ctypes.CDLL:
        launches = [each for each in self._program.steps if isinstance(each, DeviceLaunch)]
        return loaded(self.artefact.text, {each.function: each for each in launches}.values())

    def source(self, kind: str = "cuda") -> str:
        """The code at one stage: the kernels, or CUDA C++."""
        return super().source(kind)

    def export(self, path: str | PathLike[str], name: str | None = None) -> None:
        """Refuse: a library for C is code of a processor."""
        message, hint = "Libraries for C are made for processors.", "Save the artefact instead."
        raise UnsupportedError(Diagnostic("unsupported", message, None, "cpu", self._target, hint))

    def _emulate(self, table: int) -> int:
        """All steps over memory of their own; the arrays are where the table says."""
        layout, ports = self._program.layout, self._interface
        rooms = (ctypes.c_void_p * (len(ports.inputs) + len(ports.outputs))).from_address(table)
        memory: Bytes = np.full(layout.size + ALIGNMENT, 0xFF, np.uint8)
        memory = memory[-memory.ctypes.data % ALIGNMENT :][: layout.size]
        places = [memory.ctypes.data + at for at in layout.places]
        for slot, number in layout.constants:
            places[slot] = self._held[number].ctypes.data
        for slot, room, port in zip(layout.inputs, rooms, ports.inputs, strict=False):
            ctypes.memmove(places[slot], room or 0, port.nbytes)
        for each in self._program.steps:
            self._do(each, places, memory)
        for slot, room, port in zip(
            layout.outputs, rooms[len(ports.inputs) :], ports.outputs, strict=True
        ):
            ctypes.memmove(room or 0, places[slot], port.nbytes)
        return 0

    def _do(self, step: DeviceStep, places: list[int], memory: Bytes) -> None:
        if isinstance(step, DeviceCopy):
            ctypes.memmove(places[step.target], places[step.source], step.size)
            return
        scratch = self._program.layout.scratch[: step.scratch]
        addresses = [places[slot] for slot in step.slots]
        addresses += [memory.ctypes.data + at for at in scratch]
        maps = [tile_words(each, addresses[each.argument]) for each in step.maps]
        given = [*addresses, *[ctypes.addressof(each) for each in maps]]
        launch(self._functions, step.function, given, [memory])
