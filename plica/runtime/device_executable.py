"""Device executables: compiled models whose code something else than this processor runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from plica.runtime.artefact import Artefact, NotedCode
from plica.runtime.cuda.step import DeviceProgram
from plica.runtime.error import Diagnostic, UnsupportedError
from plica.runtime.executable import Executable, Exporter, refuse_library
from plica.runtime.port import Array

Sources = Mapping[str, Callable[[], str]]


class LoadedProgram(Protocol):
    """A program on a device: 0, or the number of the launch that failed."""

    def call(self, addresses: Sequence[int]) -> int: ...


class LoadSteps(Protocol):
    """Loads code, steps and constants, given the byte sizes of inputs and outputs and the required
    device features."""

    def __call__(
        self,
        code: bytes,
        program: DeviceProgram,
        constants: Sequence[Array],
        sizes: Sequence[int],
        features: Sequence[str],
        /,
    ) -> LoadedProgram: ...


@dataclass(frozen=True, slots=True)
class DeviceKind:
    """How one kind of device loads and shows a compiled model."""

    load: Callable[[Artefact], LoadedProgram]
    source: str = "llvm"  # the kind of source shown by default
    is_text: bool = False  # whether the code of an artefact is that source
    export: Exporter = refuse_library
    untimed: Diagnostic | None = None  # why launch times are meaningless here


def sizes_in_bytes(of: Artefact) -> list[int]:
    """The bytes of the inputs of an artefact, then of its outputs."""
    return [port.nbytes for port in (*of.interface.inputs, *of.interface.outputs)]


def step_loader(load: LoadSteps) -> Callable[[Artefact], LoadedProgram]:
    """Returns a loader for artefacts with one code and steps that launch its functions."""

    def loaded(of: Artefact) -> LoadedProgram:
        (code,) = of.objects
        assert isinstance(of.device, DeviceProgram)  # as the loader has checked
        return load(code, of.device, of.constants, sizes_in_bytes(of), of.machine.features)

    return loaded


class DeviceExecutable(Executable):
    """A compiled model on a device; calls from several threads are serialised."""

    def __init__(self, artefact: Artefact, texts: Sources | None, kind: DeviceKind) -> None:
        self.program, self._kind = kind.load(artefact), kind
        device = artefact.device
        steps = device if isinstance(device, DeviceProgram) else None
        known = {"kernel": lambda: artefact.record().kernels}
        if kind.is_text:
            known[kind.source] = lambda: artefact.objects[0].decode("utf-8", "replace")
        super().__init__(
            0,
            artefact.interface,
            workspace=artefact.workspace if steps is None else steps.layout.size,
            sources=artefact.sources,
            texts=texts or known,
            shown=kind.source,
            target=str(artefact.machine),
            artefact=artefact,
            export=kind.export,
        )

    def run(self, addresses: Sequence[int]) -> None:
        """Run the code on memory of the types of the inputs, then of the outputs, in order."""
        if code := self.program.call(addresses):
            raise self.failure(code)

    def _noting(self) -> tuple[NotedCode, ...]:
        self._check_timed()
        return super()._noting()

    def seconds(self, /, *args: object, **named: Any) -> Any:  # Any: as every executable's
        """Refuse: nothing measures how long the device works."""
        self._check_timed()
        return super().seconds(*args, **named)

    def _check_timed(self) -> None:
        if self._kind.untimed is not None:
            raise UnsupportedError(replace(self._kind.untimed, found=self._target))
