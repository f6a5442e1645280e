"""Validation of what a pipeline made: every kernel of a program beside its stages."""

from __future__ import annotations

from typing import Any

from plica.codegen.backend import AnyTarget, backend_of
from plica.codegen.compilation import Arranged, Job
from plica.codegen.program import Program
from plica.ir.contract import Contract
from plica.ir.passes import Pipeline
from plica.pipeline.compiled import job_for, pipeline_of
from plica.runtime.error import Diagnostic, UnsupportedError
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):  # few ask for it
    from plica.codegen.validation import Bench, ValidatedKernel, validated
    from plica.search.choice import Records


def hold_to_stages(
    of: Arranged[Any, Any],  # Any: as the pipeline makes it
    contract: Contract,
    pipeline: Pipeline,
    job: Job,
) -> tuple[ValidatedKernel, ...]:
    """What is shown of each kernel; raises `ValidationFailed` where one is wrong."""
    if not isinstance(of.program, Program):
        message = "Only programs whose steps all launch kernels are validated."
        found = "layers on an accelerator, or a program with data and recursion"
        hint = "Leave validate out; plica debug and plica fuzz compare such programs as wholes."
        raise UnsupportedError(Diagnostic("unsupported", message, None, "kernels", found, hint))
    backend = backend_of(job.target)
    entry = backend.entry(job.target) if backend.entry and backend.here(job.target) else None
    bench = Bench(contract, of.fused, pipeline.of("lower").passes, entry)
    return validated(of.program, job.scheduler, bench)


def validate_for(
    of: Arranged[Any, Any],  # as above
    contract: Contract,
    target: AnyTarget,
    records: Records | None = None,
) -> tuple[ValidatedKernel, ...]:
    """The same for what was lowered by the pipeline of a target, which need not be this machine."""
    return hold_to_stages(of, contract, pipeline_of(target), job_for(target, contract, (), records))
