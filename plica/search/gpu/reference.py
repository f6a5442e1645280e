"""References of work for a GPU: what the processor beside it computes, on small integers.

Little work is done by its plain nest.  What would take that long is done by the kernel that rules
of thumb make for the processor, on all of its cores: other code, and the same exact sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from attrs import evolve

from plica.codegen.llvm import toolchain
from plica.codegen.lower.fused import fused
from plica.codegen.lower.passes import lower
from plica.codegen.lower.scheduled import machine_of, scheduled
from plica.codegen.native import shape_of
from plica.codegen.work import operations
from plica.ir.loop import Kernel
from plica.runtime.host import cores
from plica.runtime.port import Array
from plica.schedule.default import Packing
from plica.search.measure.build import Loaded, objects_of
from plica.search.measure.job import Job
from plica.search.measure.reference import DRAWS, ENOUGH, Reference, drawn, finite, poisoned

MUCH: Final = 1 << 30
"""Operations that a plain nest takes too long for."""

_kept: dict[str, Reference] = {}


def gpu_reference_of(job: Job) -> Reference:
    """The reference of the work of a job; that of the last work is kept."""
    if job.work not in _kept:
        _kept.clear()
        _kept[job.work] = _reference(job)
    return _kept[job.work]


def _reference(job: Job) -> Reference:
    plain, kernel, packings = _code(job)
    host = evolve(toolchain.host(), cores=cores())
    code = Loaded(objects_of(kernel, host, job.reassociates), host.cores)
    best: tuple[float, Reference] | None = None
    for draw in DRAWS:
        random = np.random.default_rng(0)
        inputs = [
            drawn(random, shape_of(each), each.dtype, draw) for each in plain.params[: plain.inputs]
        ]
        outputs = kernel.params[plain.inputs :]
        made = [poisoned(shape_of(each), each.dtype.numpy) for each in outputs]
        code.run([*_laid_out(inputs, packings), *made])
        share = finite(made[-1])
        if best is None or share > best[0]:
            best = share, Reference(tuple(inputs), made[-1])
        if share >= ENOUGH:
            break
    assert best is not None
    return best[1]


def _code(job: Job) -> tuple[Kernel, Kernel, tuple[Packing, ...]]:
    """The plain kernel, the one that is run, and how that wants its inputs packed."""
    of = job.function
    if isinstance(of, Kernel):
        plain = lower(of, "cpu")
        return plain, plain, ()
    plain = fused(of).kernel
    if operations(plain) < MUCH or not job.reassociates:
        return plain, plain, ()
    machine = machine_of(evolve(toolchain.host(), cores=cores()))
    made = scheduled(of, job.constant, machine, True)
    if made is None or made.derived:
        return plain, plain, ()
    return plain, lower(made.kernel, "cpu"), made.packings


def _laid_out(inputs: Sequence[Array], packings: Sequence[Packing]) -> list[Array]:
    arrays = list(inputs)
    for each in packings:
        arrays[each.input] = np.ascontiguousarray(each.apply(arrays[each.input]))
    return arrays
