"""Assembling for processors: the last pass of their page, from a plan to an artefact of objects."""

from __future__ import annotations

from functools import partial

from attrs import frozen

from plica.codegen.interface import aligned_bytes, interface, tenants
from plica.codegen.llvm import toolchain
from plica.codegen.llvm.unit import units
from plica.codegen.memory_plan import WorkspacePlan
from plica.codegen.operation_count import operations
from plica.codegen.program import kernel_name, launches, moved_bytes
from plica.codegen.road import Job, Lowered, record
from plica.runtime.artefact import Artefact, ArtefactMachine, Launched


@frozen
class EmitLlvm:
    """Objects of all kernels, which LLVM improves so much: 2 as usual, 1 to be done soon."""

    level: int = 2

    def __call__(self, lowered: Lowered, job: Job) -> Artefact:
        """All that will be loaded, here or elsewhere: the target need not be this machine."""
        program, plan, target = lowered.program, lowered.plan, job.target
        made = units(
            program,
            plan,
            target,
            lowered.fused,
            job.store,
            lowered.signless,
            self.level,
            job.workers,
        )
        return Artefact(
            interface(lowered.module.main_function(), program),
            ArtefactMachine(target.triple, target.cpu, target.features, target.machine),
            job.threads,
            made.objects,
            tuple([aligned_bytes(each) for each in program.constants]),
            plan.size if isinstance(plan, WorkspacePlan) else 0,
            tuple([launch.source for launch in launches(program)]),
            tuple(
                [
                    Launched(
                        kernel_name(each.kernel, program),
                        operations(program.kernels[each.kernel]),
                        0 if program.dims else moved_bytes(each, program),
                    )
                    for each in launches(program)
                ]
            ),
            tenants(plan) if isinstance(plan, WorkspacePlan) else (),
            (("llvm", toolchain.llvm_version()), *job.versions),
            partial(record, lowered),
        )
