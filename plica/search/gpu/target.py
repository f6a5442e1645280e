"""GPUs, as the search for schedules sees them.

The measurer for GPUs, and the policies that search for them.

Candidates are built in several processes and run in another, as for processors; builds need not
pause during timing, because the GPU has its own clock.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Final

from attrs import asdict

from plica.codegen.cuda.target import GpuTarget
from plica.codegen.cuda.toolchain import version
from plica.ir.loop import Kernel, Stages
from plica.schedule.trace import Trace
from plica.search.course import TuningSubject
from plica.search.measure import LocalMeasurer, TrialLimits
from plica.search.policy.fold import Policy
from plica.search.policy.model_free import Grid
from plica.search.policy.named import MODEL_FREE, unknown_policy
from plica.search.record.database import Database
from plica.search.sketch.gpu import gpu_form_named, gpu_space_of, gpu_space_of_kernel
from plica.search.space import Space
from plica.search.space_of import query_of
from plica.search.target import Tuning
from plica.search.task import Task

MAIN: Final = "from plica.search.gpu.worker import main; main()"

LIMITS: Final = TrialLimits(60.0, 120.0, memory=0, repeats=10, least=0.002, alone=False)
"""A reference may take the processor a while, the first time."""


def gpu_policy(name: str) -> Policy[Any]:  # an explorer's memory is its own affair
    """The GPU policy of this name; raises `InputError` if there is none.

    Spaces are short lists of forms, most promising first, and there is no learned model for GPUs:
    guided policies walk the list.
    """
    if name == "guided":
        return Policy(Grid(8))
    if name not in MODEL_FREE:
        raise unknown_policy(name, ("guided", *MODEL_FREE), " for GPUs")
    return Policy(MODEL_FREE[name]())


def gpu_measurer(target: GpuTarget, limits: TrialLimits | None = None) -> LocalMeasurer:
    """A measurer in processes of this machine, which has a GPU."""
    return LocalMeasurer(target, limits or LIMITS, main=MAIN)


def fingerprint(target: GpuTarget) -> str:
    """An architecture as a short text that tells it from others."""
    known = json.dumps([target.architecture, asdict(target.gpu)], sort_keys=True)
    return f"cuda-{target.architecture}-{hashlib.sha256(known.encode()).hexdigest()[:16]}"


def _compilers() -> tuple[tuple[str, str], ...]:
    return (("nvrtc", ".".join(map(str, version() or ()))),)


def _space(task: Task, target: GpuTarget) -> Space:
    return gpu_space_of(query_of(task), target.gpu)


def _untuned(task: Task, target: GpuTarget) -> tuple[Stages, Trace] | None:
    if not (space := _space(task, target)).sketches:
        return None
    return space.sketches[0].form, space.trace(space.default)


def _space_of_kernel(kernel: Kernel, target: GpuTarget) -> Space:
    return gpu_space_of_kernel(kernel, target.gpu)


def _form(name: str, task: Task, target: GpuTarget) -> Stages | None:
    return gpu_form_named(name, query_of(task), target.gpu)


def _policy(
    name: str, subjects: Sequence[TuningSubject], target: GpuTarget, database: Database
) -> Policy[Any]:  # what an explorer remembers is its own
    return gpu_policy(name)


CUDA: Final = Tuning(
    fingerprint, _compilers, _space, None, _untuned, _space_of_kernel, _form, gpu_measurer, _policy
)
