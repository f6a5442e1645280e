"""Linearising: the passes of a page from primitive functions to a program and its memory plan."""

from __future__ import annotations

from typing import Final

from attrs import evolve

from plica.codegen.lower.group import ready
from plica.codegen.lower.linearise import sequence
from plica.codegen.memory_plan import workspace_plan
from plica.codegen.open_memory_plan import AnyPlan, plan_open_memory
from plica.codegen.program import Program
from plica.codegen.road import Job
from plica.ir.graph.module import Module
from plica.ir.passes import Pass


def linearise(module: Module, job: Job) -> Program:
    """The program of a module: its kernels scheduled for the machine of the job, in order."""
    return sequence(module, evolve(job.scheduler, ready=ready(module, job)), job.built)


def plan_memory(program: Program) -> AnyPlan:
    """Where each value of a program lies."""
    return plan_open_memory(program) if program.dims else workspace_plan(program)


SCHEDULE: Final = Pass(
    "schedule", "Each kernel has its loops, by tuning or by default, and its turn.",
    linearise, kind="schedule",
)  # fmt: skip

PLAN: Final = Pass(
    "plan-memory", "Values share one arena as far as they are not alive at once.",
    plan_memory, kind="plan",
)  # fmt: skip
