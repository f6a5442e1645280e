"""Tasks: the distinct kernels of a model, and how often each occurs.

    Task ::= Task(function, facts, weight, name)

A task is the unit of tuning: a fused group of operators with the facts known at compile time: which
inputs are constant, and the float contract. Two equal groups are one task with twice the weight.

>>> from plica.codegen.llvm.toolchain import host
>>> from plica.ir.text.script import from_text
>>> found = tasks(from_text(TWICE), DEFAULT_CONTRACT, (), host())
>>> [(each.name, each.weight) for each in found]
[('matmul', 2)]
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final

from attrs import evolve, frozen

from plica.codegen.backend import AnyTarget, backend_of
from plica.codegen.compilation import Job, grouped
from plica.codegen.lower.scheduled import untuned
from plica.codegen.lower.step import launched
from plica.codegen.lower.workload import Equality, workload
from plica.codegen.program_kind import without_loops
from plica.core import digest
from plica.ir.contract import Contract
from plica.ir.graph import Call, Const, Expr, Function, Module
from plica.ir.loop.stages import Stages, from_kernel
from plica.ir.loop.statement import Kernel
from plica.ir.passes import Pipeline
from plica.ir.type import infer
from plica.rewrite.fuse.to_stages import alone, to_stages
from plica.rewrite.history import begun
from plica.rewrite.optimise import DEFAULT_CONTRACT
from plica.rewrite.pack import Pack
from plica.schedule.form import Facts

__all__ = ["DEFAULT_CONTRACT", "KernelTask", "Task", "task_of", "tasks", "tasks_of"]


@frozen(eq=False, slots=False)
class Task:
    """Work that occurs a number of times, and facts about its inputs."""

    function: Function
    facts: Facts
    weight: int = 1
    name: str = ""

    @property
    def stages(self) -> Stages:
        """The stages to compute."""
        return to_stages(self.function).stages

    @cached_property
    def key(self) -> str:
        """The digest of the work, by which its records are found."""
        return workload(self.function, self.facts)

    def key_by(self, equality: Equality, constants: Sequence[Const] = ()) -> str:
        """The key by another equality of works."""
        return workload(self.function, self.facts, equality, constants)


@frozen(eq=False, slots=False)
class KernelTask:
    """A user's kernel: no input is constant, and the order of sums is kept."""

    kernel: Kernel
    name: str = ""
    weight: int = 1

    @property
    def facts(self) -> Facts:
        """Nothing is known about its inputs."""
        return Facts((False,) * self.kernel.inputs)

    @property
    def stages(self) -> Stages:
        """The stages to compute."""
        return from_kernel(self.kernel)

    @cached_property
    def key(self) -> str:
        """The digest of the kernel, by which its records are found."""
        return digest(self.kernel)


def tasks(
    module: Module,
    contract: Contract,
    packs: Sequence[Pack],
    target: AnyTarget,
    pipeline: Pipeline | None = None,
) -> tuple[Task, ...]:
    """The tasks of a module as a pipeline, by default the target's, would compile it."""
    backend = backend_of(target)
    job = Job(contract, tuple(packs), target, backend.machine(target))
    history = grouped(pipeline or backend.pipeline(), begun(infer(without_loops(module))), job)
    return tasks_of(history.module, target, contract)


def tasks_of(module: Module, target: AnyTarget, contract: Contract) -> tuple[Task, ...]:
    """The tasks of a module whose operators are grouped already."""
    found: dict[str, Task] = {}
    for step in launched(module.main_function().body):
        one = task_of(step, target, contract)
        known = found.get(one.key)
        found[one.key] = one if known is None else evolve(known, weight=known.weight + 1)
    return tuple(found.values())


def task_of(step: Expr, target: AnyTarget, contract: Contract) -> Task:
    """The task of one step of a program: an operator, or a group of them."""
    function, args = alone(step) if not isinstance(step, Call) else (step.callee, step.args)
    assert isinstance(function, Function)
    backend = backend_of(target)
    scheduler = backend.scheduler(backend.machine(target), contract, untuned)
    return Task(function, scheduler.facts(function, args), 1, to_stages(function).source)


TWICE: Final = """
import plica
from plica import op
from plica.script import Tensor, f32

@plica.function
def main(x: Tensor[(8, 8), f32], y: Tensor[(8, 8), f32]) -> Tensor[(8, 8), f32]:
    return op.matmul(op.matmul(x, y), y)
"""
"""A module for examples."""
