"""GPUs, as the search for schedules sees them."""

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
from plica.search.gpu.measurer import gpu_measurer, gpu_policy
from plica.search.policy.fold import Policy
from plica.search.record.database import Database
from plica.search.sketch.gpu import gpu_form_named, gpu_space_of, gpu_space_of_kernel
from plica.search.space import Space
from plica.search.space_of import query_of
from plica.search.target import Tuning
from plica.search.task import Task


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
