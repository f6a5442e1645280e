"""Replay: applying a trace is a fold of pure steps over a kernel.

The same trace on the same module gives the same digest, in any process.  A step that is illegal
raises `ScheduleRefused`, which names the step, the precondition and the place.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Final

from attrs import evolve, frozen
from pyrsistent import PMap, pmap

from plica.analysis.site import Site, distinct, map_of
from plica.core import Name
from plica.core.collector import paused
from plica.ir.graph.expression import Var
from plica.ir.graph.module import Module, module
from plica.ir.loop.memory_scope import scope
from plica.ir.loop.scalar import ScalarVar
from plica.ir.loop.statement import Alloc, Block, For, Kernel, statements
from plica.runtime.error import Diagnostic, InputError, Place
from plica.runtime.late import lazy_imports
from plica.schedule.handle import Handle, Output, sort_of
from plica.schedule.instruction import Instruction, Sampling, Scene
from plica.schedule.problem import Problem, ScheduleRefused
from plica.schedule.trace import Program, Step, Trace, check_traces, handles, is_decision

with lazy_imports(__name__):  # needed where a step is refused
    from plica.ir.text.script import as_module
    from plica.schedule.problem import RefusalPlace


GONE_STEP: Final = -1  # the index of a name that no loop and no block can have
NO_OUTPUTS: Final[PMap[Handle, Output]] = pmap()
NO_TAKERS: Final[PMap[Handle, str]] = pmap()


@frozen(eq=False)
class ReplayState:
    """A kernel being scheduled, the objects of handles, and the number of steps taken."""

    kernel: Kernel
    outputs: PMap[Handle, Output] = NO_OUTPUTS
    steps: int = 0
    late: bool = False
    ended: bool = False
    takers: PMap[Handle, str] = NO_TAKERS
    """The step that removed a handle's object, and its results."""
    latest: tuple[Handle, ...] = ()
    """The handles that the last step gave."""

    @property
    def scene(self) -> Scene:
        return Scene(self.kernel, self.outputs, self.late, self.ended)


def begin(kernel: Kernel) -> ReplayState:
    """The state before the first step; undeclared memory scopes are refused."""
    for stmt in statements(kernel.body):
        if isinstance(stmt, Alloc):
            scope(stmt.buffer.scope)
    for param in kernel.params:
        scope(param.scope)
    return ReplayState(distinct(kernel))


def taken(state: ReplayState, step: Step) -> ReplayState | Problem:
    """The state after a step, or why it is illegal."""
    scene, instruction = state.scene, step.instruction
    problem = scene.missing(instruction) or instruction.check(scene) or undecided(step)
    if problem is None and isinstance(instruction, Sampling) and step.decision is not None:
        problem = instruction.accepts(scene, step.decision)
    if problem is not None:
        return explained(problem, instruction, state)
    edited = scene.after(instruction)
    given = edited.outputs if step.decision is None else step.decision
    gone = {} if edited.kernel is state.kernel else buried(state, edited.kernel)
    outputs = state.outputs.update(gone) if gone else state.outputs
    takers = _takers(state, gone, instruction.kind, given)
    latest = tuple([Handle(state.steps, n, sort_of(output)) for n, output in enumerate(given)])
    for handle, output in zip(latest, given, strict=True):
        outputs = outputs.set(handle, output)
    ended = state.ended or instruction.ends_sampling
    return ReplayState(edited.kernel, outputs, state.steps + 1, state.late, ended, takers, latest)


def explained(problem: Problem, instruction: Instruction, state: ReplayState) -> Problem:
    """The problem, with the step that removed the requested object."""
    if problem.precondition != "alive":
        return problem
    gone = [handle for handle in handles(instruction) if handle in state.takers]
    return evolve(problem, found=state.takers[gone[0]]) if gone else problem


def _takers(
    state: ReplayState, gone: Mapping[Handle, Output], kind: str, given: Sequence[Output]
) -> PMap[Handle, str]:
    if not gone:
        return state.takers
    names = [str(each.name if isinstance(each, ScalarVar) else each) for each in given]
    gave = f"; it gave {', '.join(names)}" if names else ""
    said = f"step {state.steps} ({kind}) took it{gave}"
    takers: PMap[Handle, str] = state.takers.update(dict.fromkeys(gone, said))
    return takers


def undecided(step: Step) -> Problem | None:
    """A step that samples without a decision, or one that does not and has it."""
    kind, decision = step.instruction.kind, step.decision
    if isinstance(step.instruction, Sampling):
        if decision is None:
            return Problem("decided", kind, "a decision in the trace", "a step without one")
        if not is_decision(decision):
            return Problem(
                "decided", kind, "a decision that is a tuple of integers", repr(decision)
            )
    elif decision is not None:
        return Problem("decided", kind, "no decision: it samples nothing", repr(decision))
    return None


def buried(state: ReplayState, after: Kernel) -> dict[Handle, Output]:
    """The handles whose loop or block a step removes.

    Their names are free again, and a later step may reuse one for another loop.
    """
    there, here = map_of(state.kernel), map_of(after)
    lost = there.loops.keys() - here.loops.keys(), there.blocks.keys() - here.blocks.keys()
    if not any(lost):
        return {}
    gone: dict[Handle, Output] = {}
    for handle, output in state.outputs.items():
        if isinstance(output, ScalarVar):
            if output in lost[0]:
                gone[handle] = ScalarVar(Name(str(output.name), GONE_STEP), output.dtype)
        elif isinstance(output, Name) and output in lost[1]:
            gone[handle] = Name(str(output), GONE_STEP)
    return gone


def states(trace: Trace, kernel: Kernel) -> Iterator[ReplayState]:
    """The state after each step; raises `ScheduleRefused` at the first that is illegal."""
    state = begin(kernel)
    for number, step in enumerate(trace.steps):
        if isinstance(after := taken(state, step), Problem):
            raise refused_step(after, step.instruction, number, state)
        state = after
        yield state


def refused_step(
    problem: Problem,
    instruction: Instruction,
    number: int,
    state: ReplayState,
    line: Place | None = None,
) -> ScheduleRefused:
    """The error of an illegal step; `line` is the do-block's line."""
    place = partial(_place_of, problem, instruction, state.scene)  # found when somebody asks
    return ScheduleRefused(problem, instruction.kind, number, line, place)


def _place_of(problem: Problem, instruction: Instruction, scene: Scene) -> RefusalPlace:
    """The object of a refusal: one it names, or else the step's arguments."""
    said = set(re.findall(r"[\w.]+", problem.where))
    named: list[Site[For] | Site[Block]] = [
        *[site for var, site in scene.map.loops.items() if str(var.name) in said],
        *[site for label, site in scene.map.blocks.items() if str(label) in said],
    ]
    return RefusalPlace(scene.kernel, tuple(named) or tuple(_given(instruction, scene))[:1])


def _given(instruction: Instruction, scene: Scene) -> Iterator[Site[For] | Site[Block]]:
    """The loops and blocks that a step was given, and that are still there."""
    for handle in instruction._children:
        found = scene.outputs.get(handle) if isinstance(handle, Handle) else None
        if isinstance(found, ScalarVar) and found in scene.map.loops:
            yield scene.map.loops[found]
        elif isinstance(found, Name) and found in scene.map.blocks:
            yield scene.map.blocks[found]


def scheduled(trace: Trace, kernel: Kernel) -> Kernel:
    """The kernel after all steps of a trace."""
    with paused():
        return deque(chain((begin(kernel),), states(trace, kernel)), maxlen=1)[0].kernel


def replay(trace: Trace, program: Program, kernel: str | None = None) -> Module:
    """The module with its kernel (the one of that name) scheduled by the trace."""
    check_traces(trace)
    whole, name, found = kernel_of(program, kernel)
    return with_kernel(whole, name, scheduled(trace, found))


def kernel_of(program: Program, name: str | None = None) -> tuple[Module, Var, Kernel]:
    """The kernel of a program, with its module; the name is optional if there is only one
    kernel."""
    if isinstance(program, Kernel):
        var = Var(Name(name or "kernel"), None)
        return module({var: program}), var, program
    whole = as_module(program)
    kernels = {
        str(var.name): (var, value)
        for var, value in whole.items()
        if isinstance(var, Var) and isinstance(value, Kernel)
    }
    if name is None and len(kernels) == 1:
        ((var, value),) = kernels.values()
        return whole, var, value
    if name is not None and name in kernels:
        return whole, *kernels[name]
    raise InputError(
        Diagnostic(
            "unbound-name",
            "The module has not exactly one kernel, so its name must be given."
            if name is None
            else f"The module has no kernel {name!r}.",
            expected=f"one of {', '.join(kernels)}" if kernels else "a module with a kernel",
            found=name or f"{len(kernels)} kernels",
        )
    )


def with_kernel(whole: Module, name: Var, kernel: Kernel) -> Module:
    """The module with another kernel under a name."""
    values = tuple(kernel if var is name else value for var, value in whole.items())
    return Module(whole.names, values, whole.main)
