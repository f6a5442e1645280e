"""Models as code: the artefact of a lowered model, its texts at each stage, its executable.

    Lowered, objects --artefact_of--> Artefact --executable--> Executable

What a target adds is a machine, its objects, and the texts that it makes on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import frozen

from plica.codegen.backend import Texts
from plica.codegen.compilation import Job, Lowered, emitted, record
from plica.codegen.interface import aligned_bytes, interface, tenants
from plica.codegen.memory_plan import WorkspacePlan
from plica.codegen.operation_count import operations
from plica.codegen.program import Launch, Program, kernel_name, launches, moved_bytes
from plica.ir.passes import Pipeline
from plica.runtime.artefact import Artefact, ArtefactMachine, Launched
from plica.runtime.error import Diagnostic, UnsupportedError
from plica.runtime.executable import Executable
from plica.runtime.late import lazy_imports
from plica.runtime.load import executable
from plica.runtime.port import Array

with lazy_imports(__name__):
    from plica.codegen.choices import table
    from plica.codegen.record import kernels

if TYPE_CHECKING:
    from plica.runtime.cuda.open_step import OpenProgram
    from plica.runtime.cuda.step import DeviceProgram

Later: TypeAlias = "Callable[[], Lowered]"
"""Lowers a model; the result is known already where code was made of it."""


def artefact_of(
    lowered: Lowered,
    job: Job,
    machine: ArtefactMachine,
    objects: tuple[bytes, ...],
    *,
    versions: tuple[tuple[str, str], ...] = (),
    sources: Sequence[str] | None = None,
    launched: Sequence[Launched] | None = None,
    constants: tuple[Array, ...] | None = None,
    threads: int = 1,
    device: DeviceProgram | OpenProgram | None = None,
    text: str = "",
) -> Artefact:
    """All that will be loaded, here or elsewhere: the target need not be this machine.

    `sources` and `launched` say what runs, where that is not one function for each launch;
    `constants` are given where code stores them differently.
    """
    program, plan = lowered.program, lowered.plan
    if constants is None:
        constants = tuple([aligned_bytes(constant) for constant in program.constants])
    if sources is None:
        sources = [launch.source for launch in launches(program)]
    if launched is None:
        launched = [_launched(launch, program) for launch in launches(program)]
    fixed = plan if isinstance(plan, WorkspacePlan) else None
    return Artefact(
        interface(lowered.module.main_function(), program), machine, threads, objects, constants,
        0 if fixed is None else fixed.size, tuple(sources), tuple(launched),
        () if fixed is None else tenants(fixed), (*versions, *job.versions),
        partial(record, lowered), device, text,
    )  # fmt: skip


def _launched(of: Launch, program: Program) -> Launched:
    """A launch, and its work; with open sizes that is unknown."""
    name = kernel_name(of.kernel, program)
    if program.dims:
        return Launched(name, 0, 0)
    return Launched(name, operations(program.kernels[of.kernel]), moved_bytes(of, program))


def sized(lowered: Lowered, what: str) -> WorkspacePlan:
    """The memory plan of a model whose sizes are known; open ones are refused."""
    if isinstance(lowered.plan, WorkspacePlan):
        return lowered.plan
    message = f"{what} is made for sizes that are known; those of this model are open."
    hint = "Give the model its sizes, or compile it for 'cpu'."
    named = ", ".join(str(dim.name) for dim in lowered.program.dims)
    raise UnsupportedError(Diagnostic("unsupported", message, None, "numbers", named, hint))


@frozen(eq=False)
class CodeTexts:
    """The texts of code, by the kinds that `exe.source` knows them by, and how code is loaded."""

    code: Mapping[str, Callable[[Later, Job, Any], str]]  # Any: an artefact where there is one

    def texts(self, lowered: Later, job: Job, artefact: Artefact | None = None) -> Texts:
        """The code at each stage, computed on demand."""
        code = {kind: partial(make, lowered, job, artefact) for kind, make in self.code.items()}
        tuned = {} if job.chooser is None else {"tuning": lambda: table(lowered().tuning)}
        return {"kernel": lambda: kernels(lowered().program), **code, **tuned}

    def build(self, pipeline: Pipeline, lowered: Lowered, job: Job) -> Executable:
        """Code of a lowered model, made callable."""
        artefact = emitted(pipeline, lowered, job)
        return executable(artefact, texts=self.texts(lambda: lowered, job, artefact))


def text_of_artefact(lowered: Later, job: Job, artefact: Artefact) -> str:
    """The text that code was made of, where artefacts hold it."""
    return artefact.text
