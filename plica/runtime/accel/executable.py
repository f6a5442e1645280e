"""Executables with accelerator parts: native code and device programs, interleaved."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import NoReturn

import numpy as np

from plica.runtime.accel.artefact import INPUT, OUTPUT, AccelArtefact, ProgramLaunch, to_members
from plica.runtime.accel.device import decoded
from plica.runtime.accel.functional import AccelProgram, Simulator
from plica.runtime.artefact import Artefact
from plica.runtime.error import Diagnostic, UnsupportedError, damaged
from plica.runtime.executable import Executable
from plica.runtime.port import Array
from plica.runtime.profile import Profile, ProfileRow

Native = Callable[[Artefact], Executable]


@dataclass(frozen=True, slots=True)
class Cycles:
    """A launch in a call: its cycles on the device, and in which part of them it multiplies."""

    name: str
    cycles: int
    utilisation: float


@dataclass(frozen=True, slots=True)
class AccelProfile(Profile):
    """A profile whose launch rows come from the cycle simulator, in cycles.

    Rows of native kernels are measured.
    """

    launches: tuple[Cycles, ...] = ()

    @property
    def cycles(self) -> int:
        """Cycles of the device in one call."""
        return sum(launch.cycles for launch in self.launches)

    def __str__(self) -> str:
        width = max([6, *(len(launch.name) for launch in self.launches)])
        lines = [Profile.__str__(self), "", f"{'launch':{width}}      cycles  multiplying"]
        for launch in self.launches:
            lines.append(f"{launch.name:{width}}  {launch.cycles:10d}  {launch.utilisation:10.1%}")
        lines.append(f"{'total':{width}}  {self.cycles:10d}")
        return "\n".join(lines)


class AccelExecutable(Executable):
    """A compiled model, some of whose layers run on an accelerator."""

    def __init__(
        self,
        whole: AccelArtefact,
        native: Native,
        texts: Mapping[str, Callable[[], str]] | None = None,
    ) -> None:
        found: dict[str, Callable[[], str]] = {
            "kernel": lambda: "\n".join([part.record().kernels for part in whole.parts]),
            "tuning": lambda: _tuning(whole),
            **(texts or {}),
            "accel": lambda: whole.text,
            "placement": lambda: whole.placement,
        }
        super().__init__(0, whole.interface, texts=found, target=whole.target, shown="accel")
        self.whole = whole
        self._parts = [native(artefact) for artefact in whole.parts]
        self._simulators = [
            Simulator(
                AccelProgram(
                    whole.device, decoded(whole.device, program.words), program.micro, program.rooms
                )
            )
            for program in whole.programs
        ]
        self._held = [
            self._elements(step) for step in whole.steps if isinstance(step, ProgramLaunch)
        ]

    def _elements(self, of: ProgramLaunch) -> dict[str, Array]:
        """The constants of a launch, as elements."""
        rooms = {span.name: span for span in self.whole.programs[of.run.program].rooms}
        found = {}
        for name, number in of.constants:
            memory = self.whole.device.memory(rooms[name].memory)
            data = self.whole.constants[number]
            if data.nbytes != rooms[name].elements * memory.bytes:
                raise damaged("A constant of a launch has another size.", name)
            found[name] = data.view(memory.dtype).reshape(-1, *memory.shape)
        given = self.whole.device.memory(rooms[OUTPUT].memory)
        if math.prod(of.shape) != of.run.batch * rooms[OUTPUT].elements * math.prod(given.shape):
            raise damaged("What a launch gives has another size.", of.name)
        return found

    def __call__(self, /, *args: object, **named: object) -> Array | tuple[Array, ...]:
        """Run the model; inputs by position or by name."""
        self._calls.add()
        return self._run(self._arrays(args, named), lambda part, given: self._parts[part](*given))

    def _run(
        self, arrays: list[Array], native: Callable[[int, list[Array]], Array | tuple[Array, ...]]
    ) -> Array | tuple[Array, ...]:
        values: dict[int, Array] = dict(enumerate(arrays))
        number = 0
        for step in self.whole.steps:
            if isinstance(step, ProgramLaunch):
                taken = values[step.run.takes]
                values[step.run.gives] = self._launch(step, self._held[number], taken)
                number += 1
            else:
                given = [values[take] for take in step.takes]
                made = native(step.number, given)
                whole = made if isinstance(made, tuple) else (made,)
                values |= dict(zip(step.gives, whole, strict=True))
        seen: set[int] = set()
        outputs = []
        for output in self.whole.outputs:
            outputs.append(values[output].copy() if output in seen else values[output])
            seen.add(output)
        return outputs[0] if self._interface.single else tuple(outputs)

    def _launch(self, of: ProgramLaunch, held: Mapping[str, Array], data: Array) -> Array:
        """The output of a layer: one run of its program per image of the batch."""
        simulator = self._simulators[of.run.program]
        rooms = {span.name: span.memory for span in self.whole.programs[of.run.program].rooms}
        array = np.empty(of.shape, self.whole.device.memory(rooms[OUTPUT]).dtype)
        batch = of.run.batch
        for into, one in zip(array.reshape(batch, -1), data.reshape(batch, -1), strict=True):
            into[:] = simulator.run({INPUT: one, **held})[OUTPUT].reshape(-1)
        return array

    def profile(
        self,
        *args: object,
        runs: int = 10,
        peak: float | None = None,
        bandwidth: float | None = None,
        **named: object,
    ) -> AccelProfile:
        """The time of a call by part: native kernels measured, launches simulated."""
        rows: dict[int, list[ProfileRow]] = {}

        def native(number: int, given: list[Array]) -> Array | tuple[Array, ...]:
            part = self._parts[number]  # equal parts may be one object
            found = part.profile(*given, runs=runs, peak=peak or 0.0, bandwidth=bandwidth or 0.0)
            rows[number] = [replace(row, kernel=f"part{number}.{row.kernel}") for row in found.rows]
            return part(*given)

        self._run(self._arrays(args, named), native)
        every: list[ProfileRow] = []
        cycles: list[Cycles] = []
        clock = self.whole.megahertz * 1e6
        for step in self.whole.steps:
            if not isinstance(step, ProgramLaunch):
                every += rows[step.number]
                continue
            cost, batch = step.cost, step.run.batch
            total = cost.cycles * batch
            seconds = total / clock * runs
            every.append(
                ProfileRow(step.name, runs, seconds, cost.operations * batch, cost.moved * batch)
            )
            cycles.append(Cycles(step.name, total, cost.turns / max(1, cost.cycles)))
        seconds = sum(row.seconds for row in every)
        return AccelProfile(tuple(every), runs, seconds, peak, bandwidth, launches=tuple(cycles))

    def source(self, kind: str | None = None) -> str:
        """The code at one stage: `accel` is assembly, `placement` says what runs where."""
        return super().source(kind)

    @property
    def artefact(self) -> Artefact:
        """It has several: those of its native parts are `exe.whole.parts`."""
        raise _several("one artefact of native code")

    def members(self) -> dict[str, bytes]:
        """The members of the archive that this is written as."""
        return to_members(self.whole)

    def export(self, path: str | os.PathLike[str], name: str | None = None) -> NoReturn:
        """Refused: a library cannot hold the device."""
        raise _several("a shared library")


def _tuning(whole: AccelArtefact) -> str:
    """The layers of an artefact and their cycles; how they were tiled is not part of it."""
    launches = [step for step in whole.steps if isinstance(step, ProgramLaunch)]
    lines = [f"{whole.target}: {len(launches)} layers"]
    lines += [f"  {launch.name}: {launch.cost.cycles} cycles" for launch in launches]
    return "\n".join(lines) + "\n"


def _several(what: str) -> UnsupportedError:
    message = f"A model with layers on an accelerator is not {what}."
    hint = "exe.save writes all of it; exe.whole holds it as data."
    return UnsupportedError(Diagnostic("unsupported", message, suggestion=hint))


def executable(
    whole: AccelArtefact,
    native: Callable[..., Executable],
    threads: int | None = None,
    texts: Mapping[str, Callable[[], str]] | None = None,
) -> AccelExecutable:
    """The artefact made callable; `native` makes its native parts callable."""
    return AccelExecutable(whole, partial(native, threads=threads), texts)
