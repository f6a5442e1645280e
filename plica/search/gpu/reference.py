"""GPU references: results of the host processor on small integers.

Little work is done by its plain nest.  What would take that long is done by the kernel that rules
of thumb make for the processor, on all of its cores: other code, and the same exact sums.
"""

from __future__ import annotations

from typing import Final

from attrs import evolve

from plica.codegen.llvm import toolchain
from plica.codegen.lower.processor import machine_of
from plica.codegen.operation_count import operations
from plica.ir.contract import reassociates
from plica.ir.loop.stages import from_kernel
from plica.runtime.host import cores
from plica.schedule.default import Machine, default_trace, formed
from plica.schedule.form import Facts
from plica.schedule.trace import Trace
from plica.search.measure.build import Loaded, built
from plica.search.measure.job import MeasureJob
from plica.search.measure.reference import Reference, drawn_reference, plain_nest, prepared
from plica.search.sketch_rule import hoisted_kernel

MUCH: Final = 1 << 30  # operations that a plain nest takes too long for

_kept: dict[str, Reference] = {}


def gpu_reference_of(job: MeasureJob) -> Reference:
    """The reference of a job's work; the latest one is cached."""
    if job.about not in _kept:
        _kept.clear()
        _kept[job.about] = _reference(job)
    return _kept[job.about]


def _reference(job: MeasureJob) -> Reference:
    host = evolve(toolchain.host(), cores=cores())
    beside = _on_processor(job, host.describe(), machine_of(host))
    code = Loaded(built(beside).objects, host.cores)
    return drawn_reference(job.work, code, beside.kernel, lambda inputs: prepared(inputs, beside))


def _on_processor(job: MeasureJob, target: str, machine: Machine) -> MeasureJob:
    """The same work as a job for the processor, with its default schedule if the work is large."""
    whole = plain_nest(job.work)
    plain = evolve(job, form=from_kernel(whole), trace=Trace(()), target=target)
    if operations(whole) < MUCH or not job.reassociates:
        return plain
    if (found := formed(job.work, Facts(job.constant, contract=reassociates), machine)) is None:
        return plain
    trace = default_trace(hoisted_kernel(found.stages, job.constant).kernel, machine)
    return plain if trace is None else evolve(plain, form=found.stages, trace=trace)
