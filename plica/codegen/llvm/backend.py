"""The backend of processors: native code by LLVM, for programs without objects."""

from __future__ import annotations

from functools import partial
from typing import Final

from attrs import evolve

from plica.codegen.backend import Backend
from plica.codegen.code_artefact import CodeTexts, Later
from plica.codegen.compilation import Job, Lowered, emitted
from plica.codegen.interface import aligned_bytes, interface
from plica.codegen.llvm import toolchain
from plica.codegen.llvm.dialect import LLVM
from plica.codegen.llvm.fold import fold
from plica.codegen.llvm.passes import PIPELINES
from plica.codegen.llvm.processor import find_target
from plica.codegen.lower.processor import machine_of
from plica.codegen.memory_plan import WorkspacePlan
from plica.codegen.program import launches
from plica.codegen.target import OTHERS, Target
from plica.ir.loop.statement import Kernel
from plica.ir.passes import Pipeline
from plica.runtime.executable import Executable
from plica.runtime.host import can_run, features, lacking
from plica.runtime.late import lazy_imports
from plica.runtime.link import can_link
from plica.runtime.load import executable

with lazy_imports(__name__):
    from plica.codegen.emulated_entry import cross_entry
    from plica.codegen.llvm.repeat import repeat_object
    from plica.codegen.memory_plan import workspace_plan
    from plica.codegen.native import Entry, llvm_entry, program_of
    from plica.runtime.cross import check_cross, cross_lacking, cross_tools_missing


def build(pipeline: Pipeline, lowered: Lowered, job: Job) -> Executable:
    """Native code for a lowered module, loaded into this process; in QEMU where this processor
    cannot run it."""
    texts = TEXTS.texts(lambda: lowered, job)
    if not can_run(job.target.architecture, job.target.features):
        check_cross(job.target.triple)
        return executable(emitted(pipeline, lowered, job), texts=texts)
    toolchain.check_host(job.target)
    if can_link():
        return executable(emitted(pipeline, lowered, job), texts=texts, externs=job.externs)
    program, plan = lowered.program, lowered.plan
    native = toolchain.build(_llvm(lambda: lowered, job), job.target)
    return Executable(
        native.address,
        interface(lowered.module.main_function(), program),
        constants=[aligned_bytes(constant) for constant in program.constants],
        workspace=plan.size if isinstance(plan, WorkspacePlan) else 0,
        sources=[launch.source for launch in launches(program)],
        texts=texts,
        target=str(job.target),
        keep=native,
    )


def _llvm(lowered: Later, job: Job, artefact: object = None) -> str:
    of = lowered()
    return fold(of.program, of.plan, job.target, of.fused, of.signless)


TEXTS: Final = CodeTexts({
    "llvm": _llvm,
    "asm": lambda lowered, job, _: toolchain.assembly(_llvm(lowered, job), job.target),
    "joined": lambda lowered, job, _: "\n".join(lowered().program.joined),
    "passed-over": lambda lowered, job, _: "\n".join(lowered().program.passed_over),
})  # fmt: skip


def _kernel_text(kernel: Kernel, target: Target) -> str:
    program = program_of(kernel)
    return fold(program, workspace_plan(program), target)


def with_threads(target: Target, threads: int) -> Target:
    """The processor with another number of cores at work."""
    return evolve(target, cores=threads)


def _opens(target: Target) -> bool:
    return can_link() and target.triple == toolchain.host().triple


def _here(target: Target) -> bool:
    if target.triple != toolchain.host().triple:
        return False
    return not lacking(target.architecture, target.features, features())


def _why_not(target: Target) -> str:
    """Of another kind of processor what QEMU says; of this kind, what this one lacks."""
    if target.architecture != toolchain.host().architecture:
        return cross_tools_missing(target.architecture) or cross_lacking(
            target.architecture, find_target(target).features
        )
    lacks = lacking(target.architecture, find_target(target).features, features())
    return f"This processor has no {', '.join(lacks)}." if lacks else ""


def _entry(target: Target) -> Entry:
    if target.architecture != toolchain.host().architecture:
        return partial(cross_entry, target=target)
    return partial(llvm_entry, target=target)


CPU: Final = Backend(
    "cpu",
    "Processors, by LLVM: cpu, cpu:NAME, or one described in full, cpu triple=… features=…",
    find_target,
    PIPELINES,
    build,
    TEXTS.texts,
    machine=machine_of,
    dialect=LLVM,
    encode=_kernel_text,
    settled=find_target,
    described=Target.described,
    with_threads=with_threads,
    check_here=toolchain.check_host,
    why_not=_why_not,
    keeps=can_link,
    opens=_opens,
    driver=repeat_object,
    here=_here,
    updates=True,
    externs=True,
    tuning="plica.search.cpu:CPU",
    entry=_entry,
    objects="plica.codegen.dynamic.objects:OBJECTS",
    spellings=("cpu", *OTHERS),
)
