"""Tasks: the distinct kernels of a model, and how often each occurs.

    Task ::= Task(function, constant, reassociates, weight, name)

A task is what tuning is about: a fused group of operators, which of what it reads is known when the
program is compiled, and whether its sums may be joined in another order.  Two groups that do the
same are one task of twice the weight.

>>> from plica.codegen.llvm.toolchain import host
>>> from plica.ir.script import from_text
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
from plica.codegen.lower.fused import alone, fused
from plica.codegen.lower.step import steps_below
from plica.codegen.lower.workload import workload
from plica.codegen.road import Job, grouped
from plica.core.digest import digest
from plica.ir.graph import Call, Expr, Function, If
from plica.ir.infer import infer
from plica.ir.loop import Kernel
from plica.ir.module import Module
from plica.rewrite.contract import Contract, reassociates
from plica.rewrite.history import begun
from plica.rewrite.optimise import DEFAULT_CONTRACT
from plica.rewrite.pack import Pack
from plica.search.target import tuning_of

__all__ = ["DEFAULT_CONTRACT", "KernelTask", "Task", "task_of", "tasks", "tasks_of"]


@frozen(eq=False, slots=False)
class Task:
    """Some work that occurs so many times; `constant` says which of what it reads is known."""

    function: Function
    constant: tuple[bool, ...]
    reassociates: bool
    weight: int = 1
    name: str = ""
    bytes_: tuple[int, ...] = ()
    """Which of what it reads are constants of i32 that hold numbers of 8 bits."""
    approximates: bool = False
    """Whether more than the order of sums may differ."""

    @cached_property
    def key(self) -> str:
        """The digest of the work, by which its records are found."""
        return workload(
            self.function, self.constant, self.reassociates, self.bytes_, self.approximates
        )


@frozen(eq=False, slots=False)
class KernelTask:
    """A kernel as somebody wrote it; its sums stay in their order."""

    function: Kernel
    name: str = ""
    weight: int = 1

    @property
    def constant(self) -> tuple[bool, ...]:
        """Nothing is known of what it reads."""
        return (False,) * self.function.inputs

    @property
    def reassociates(self) -> bool:
        """Its terms are added as they come."""
        return False

    @cached_property
    def key(self) -> str:
        """The digest of the kernel, by which its records are found."""
        return digest(self.function)


def tasks(
    module: Module, contract: Contract, packs: Sequence[Pack], target: AnyTarget
) -> tuple[Task, ...]:
    """The tasks of a module as it would be compiled, those of most weight as they come."""
    backend = backend_of(target)
    job = Job(contract, tuple(packs), target, backend.machine(target))
    history = grouped(backend.page(), begun(infer(module)), job)
    return tasks_of(history.module, target, contract)


def tasks_of(module: Module, target: AnyTarget, contract: Contract) -> tuple[Task, ...]:
    """The tasks of a module whose operators are grouped already."""
    found: dict[str, Task] = {}
    for step in steps_below(module.main_function().body):
        if isinstance(step, If):
            continue
        one = task_of(step, target, contract)
        known = found.get(one.key)
        found[one.key] = one if known is None else evolve(known, weight=known.weight + 1)
    return tuple(found.values())


def task_of(step: Expr, target: AnyTarget, contract: Contract) -> Task:
    """The task of one step of a program: an operator, or a group of them."""
    function, args = alone(step) if not isinstance(step, Call) else (step.callee, step.args)
    assert isinstance(function, Function)
    whole = fused(function)
    reads = [args[each] for each in whole.reads]
    constant, bytes_ = tuning_of(target).facts(reads, target)
    free, loose = contract >= reassociates, contract > reassociates
    return Task(function, constant, free, 1, whole.source, bytes_, loose)


TWICE: Final = """
import plica
from plica import op
from plica.script import Tensor, f32

@plica.function
def main(x: Tensor[(8, 8), f32], y: Tensor[(8, 8), f32]) -> Tensor[(8, 8), f32]:
    return op.matmul(op.matmul(x, y), y)
"""
"""A module for examples."""
