"""Backends of devices whose driver compiles a text: what those of OpenCL and WebGPU share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from attrs import frozen

from plica.codegen.backend import AnyTarget, Backend
from plica.codegen.code_artefact import CodeTexts, Later, artefact_of, sized
from plica.codegen.compilation import Job, Lowered
from plica.codegen.cuda.code import KernelCode
from plica.codegen.device_program import Unit, check_unconditional, overlapping, unit_of
from plica.codegen.emit.dialect import Dialect
from plica.codegen.lower.passes import LOWERING
from plica.codegen.lower.processor import machine_of
from plica.codegen.lower.shared_passes import APART, PLAN, SCATTER, WHOLE, WIDE, WINOGRAD, grouping
from plica.codegen.memory_plan import WorkspacePlan, workspace_plan
from plica.codegen.native import called_back, program_of
from plica.codegen.program import Program, kernel_name
from plica.codegen.target import Target
from plica.ir.loop.statement import Kernel
from plica.ir.passes import Pass, Pipeline
from plica.rewrite.optimise import OPTIMISE
from plica.runtime.artefact import Artefact, ArtefactMachine
from plica.runtime.cuda.step import DeviceProgram

BEFORE_TEXT: Final = (
    *OPTIMISE,  # to-dataflow … remove-dead: what is good on any machine
    *WIDE,  # widen, fold-widened: f32 is what every device multiplies
    *WINOGRAD,  # winograd, fold-winograd: where it pays
    SCATTER,  # values are put at places one by one
    *grouping(WHOLE),  # infer, resolve, decompose, fuse: operators become primitive functions
    *APART,  # stages, forms, template, lowerable, schedule: kernels, in order
    *LOWERING["cpu"],  # double-buffer … reuse: blocks become plain loops over flat buffers
    PLAN,  # values have their place in the arena
)


class RunProgram(Protocol):
    """A program on a device, which is called with the addresses of arrays."""

    def call(self, addresses: Sequence[int], /) -> int:
        """0, or the number of the launch that failed."""


@frozen
class DeviceLanguage:
    """A language that drivers compile, and what runs it."""

    name: str
    title: str
    source: str
    """The kind of source that `exe.source` knows its text by."""
    triple: str
    kernel_code: Callable[[Kernel, str, bool, bool], KernelCode]
    """The functions of a kernel: its name, whether buffers are apart, and products fused."""
    joined: Callable[[Sequence[KernelCode]], str]
    needs: Callable[[str], tuple[str, ...]]
    """The extensions a text requires."""
    run: Callable[[bytes, DeviceProgram, Sequence[Any], Sequence[int], Sequence[str]], RunProgram]
    described: Callable[[Any], Target]  # Any: a target is its backend's own
    """A processor that schedules take a device for."""
    version: Callable[[Any], str] = lambda target: "generic"
    """The target in an artefact."""
    code: Callable[[str], bytes] = str.encode
    """The text as passed to the device."""

    def unit_of(self, program: Program, plan: WorkspacePlan, fused: bool) -> Unit:
        """The text of a program, and what it launches."""
        check_unconditional(program)
        overlap = overlapping(program, plan)
        codes = [
            self.kernel_code(kernel, kernel_name(number, program), number not in overlap, fused)
            for number, kernel in enumerate(program.kernels)
        ]
        return unit_of(program, codes, self.joined(codes))

    def lowered_unit(self, lowered: Lowered) -> Unit:
        """The same for lowered code; open sizes are refused."""
        return self.unit_of(
            lowered.program, sized(lowered, f"Code for {self.title}"), lowered.fused
        )

    def emit(self, lowered: Lowered, job: Job) -> Artefact:
        """All that will be loaded onto a device, here or elsewhere: none need be here."""
        made, plan = self.lowered_unit(lowered), sized(lowered, self.title)
        machine = ArtefactMachine(self.triple, self.version(job.target), self.needs(made.text))
        return artefact_of(
            lowered, job, machine, (self.code(made.text),), sources=made.sources,
            launched=made.launched, device=_steps(made, lowered.program, plan),
        )  # fmt: skip

    def text(self, lowered: Later, job: Job, artefact: object = None) -> str:
        """The text of a lowered module."""
        return self.lowered_unit(lowered()).text

    def encode(self, kernel: Kernel, target: AnyTarget) -> str:
        """The text of one kernel."""
        program = program_of(kernel)
        return self.unit_of(program, workspace_plan(program), fused=False).text

    def entry(self, program: Program, plan: WorkspacePlan, fused: bool) -> tuple[int, Any]:
        """Code of a program on a device, as a function of this process."""
        made = self.unit_of(program, plan, fused)
        sizes = [slot.bytes for slot in (*program.space("input"), *program.space("output"))]
        run = self.run(
            self.code(made.text), _steps(made, program, plan), (), sizes, self.needs(made.text)
        )
        return called_back(run.call, len(sizes))


def _steps(of: Unit, program: Program, plan: WorkspacePlan) -> DeviceProgram:
    return DeviceProgram(of.steps, of.layout(program, plan))


def device_backend(  # noqa: PLR0917  # a language, and the record of its target
    of: DeviceLanguage,
    about: str,
    parse: Callable[[str], AnyTarget],
    dialect: Dialect[Any],
    missing: Callable[[], str],
    spellings: tuple[str, ...] = (),
) -> Backend:
    """The backend of devices that a language is for."""
    why = f"Kernels become {of.title}."
    texts = CodeTexts({of.source: of.text})
    pipeline = Pipeline((*BEFORE_TEXT, Pass(f"emit-{of.name}", why, of.emit, kind="emit")))
    return Backend(
        of.name,
        about,
        parse,
        {
            "default": pipeline,
            "fast": pipeline.without("winograd", "fold-winograd"),
            "max": pipeline,
        },
        texts.build,
        texts.texts,
        machine=lambda target: machine_of(of.described(target)),
        dialect=dialect,
        encode=of.encode,
        missing=missing,
        loads=True,
        threaded=False,
        library="Libraries for C are made for processors.",
        entry=lambda target: of.entry,
        spellings=spellings,
    )
