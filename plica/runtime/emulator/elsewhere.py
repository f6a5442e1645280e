"""GPUs elsewhere: models as text for machines whose drivers nothing here speaks to.

Who has just compiled one may call it: the processor runs the text, which says whether it is right
and nothing of its time.  A model that was saved is not loaded: it is taken where its GPU is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path

from plica.runtime.artefact import Artefact
from plica.runtime.cuda.step import DeviceCopy, DeviceProgram
from plica.runtime.device_executable import DeviceExecutable
from plica.runtime.emulator.program import EmulatedProgram, MetalProgram
from plica.runtime.error import ArtefactError, Diagnostic

Sources = Mapping[str, Callable[[], str]]


class GpuElsewhere(DeviceExecutable):
    """A compiled model for a GPU that is elsewhere."""

    def __init__(
        self,
        artefact: Artefact,
        texts: Sources | None,
        kind: str,
        language: str,
        run: type[EmulatedProgram],
    ) -> None:
        if texts is None:
            message = f"Nothing here loads {language}: the artefact is for another machine."
            hint = "Take it there, or compile the model again and export its text: exe.export(path)"
            raise ArtefactError(
                Diagnostic("other-machine", message, None, str(artefact.machine), "none", hint)
            )
        super().__init__(artefact, texts, kind, run)
        assert isinstance(artefact.device, DeviceProgram)  # as the loader has checked
        self._kind, self._program = kind, artefact.device

    def source(self, kind: str = "") -> str:
        """The code at one stage: the kernels, or the text for a GPU."""
        return super().source(kind or self._kind)

    def export(self, path: str | PathLike[str], name: str | None = None) -> None:
        """The text as a file, which begins with what is launched on which places in memory."""
        layout = self._program.layout
        lines = [f"// {self.target}: {layout.size} bytes of memory; tensors and where they begin:"]
        constants = dict(layout.constants)
        for slot, at in enumerate(layout.places):
            where = f"constant {constants[slot]}" if slot in constants else f"byte {at}"
            lines.append(f"//   {slot}: {where}")
        lines.append(f"// inputs {list(layout.inputs)}, outputs {list(layout.outputs)}; in order:")
        for step in self._program.steps:
            if isinstance(step, DeviceCopy):
                lines.append(f"//   copy {step.size} bytes from {step.source} to {step.target}")
                continue
            scratch = [f"byte {at}" for at in layout.scratch[: step.scratch]]
            given = ", ".join([*map(str, step.slots), *scratch])
            lines.append(
                f"//   {step.function}({given}) grid {step.grid} block {step.block}"
                f" shared {step.shared}"
            )
        text = self.source(self._kind)
        Path(path).write_text("\n".join([*lines, "", text]), encoding="utf-8")


def hip(artefact: Artefact, texts: Sources | None = None) -> GpuElsewhere:
    """A model as HIP C++."""
    return GpuElsewhere(artefact, texts, "hip", "HIP", EmulatedProgram)


def metal(artefact: Artefact, texts: Sources | None = None) -> GpuElsewhere:
    """A model as Metal Shading Language."""
    return GpuElsewhere(artefact, texts, "metal", "Metal", MetalProgram)
