"""Given traces: user-written schedules for kernels of a program, by name.

plica.compile(model, schedules={"matmul": trace})
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from attrs import evolve

from plica.codegen.lower.extern_call import called_symbol
from plica.codegen.lower.kernel_call import all_written
from plica.codegen.program import Chunks, KernelOrigin, Launch, Program, kernel_name, plain_name
from plica.core import did_you_mean
from plica.ir.graph.expression import Call, Expr, Function
from plica.ir.loop import Block, Kernel, kernel_of, statements
from plica.rewrite.fuse.to_stages import alone, to_stages
from plica.runtime.error import Diagnostic, Place, UnsupportedError
from plica.schedule.do import DoBlock, record
from plica.schedule.problem import ScheduleRefused
from plica.schedule.replay import scheduled
from plica.schedule.trace import Trace

GivenSchedule: TypeAlias = Trace | DoBlock


def with_traces(program: Program, given: Mapping[str, GivenSchedule]) -> Program:
    """The program with some kernels scheduled as asked; a name that means none is refused."""
    kernels, origins = list(program.kernels), list(program.origins)
    for name, wish in given.items():
        number = kernel_meant(program, name)
        start = beginning(program, number)
        try:
            trace = wish if isinstance(wish, Trace) else record(wish, start).trace
            kernel = scheduled(trace, start)
        except ScheduleRefused as refused:
            refused.add_note(f"in the schedule of the kernel {kernel_name(number, program)}")
            raise
        kernels[number] = all_written(kernel, start) if _is_called(program, number) else kernel
        origins[number] = KernelOrigin(start, trace)
    return evolve(program, kernels=tuple(kernels), origins=tuple(origins)) if given else program


def kernel_meant(program: Program, name: str) -> int:
    """The number of the kernel that a name means; refused where it means none, or several."""
    every = range(len(program.kernels))
    names = [kernel_name(each, program) for each in every]
    if name in names:
        return names.index(name)
    found = [each for each in every if name in _spellings(program, each)]
    if len(found) == 1:
        return found[0]
    exists = ", ".join(names) or "no kernels"
    if found:
        message = f"The name {name!r} means several kernels."
        these = f"Take the name of one: {', '.join(names[each] for each in found)}."
        raise UnsupportedError(
            Diagnostic("unsupported", message, Place(node=name), "one kernel", exists, these)
        )
    hint = did_you_mean(name, (*names, *[word for at in every for word in _spellings(program, at)]))
    message = f"There is no kernel {name!r} to schedule."
    raise UnsupportedError(
        Diagnostic("unsupported", message, Place(node=name), exists, repr(name), hint)
    )


def beginning(program: Program, number: int) -> Kernel:
    """The kernel that a schedule starts from: its blocks, before any step."""
    origin = program.origins[number] if program.origins else None
    if origin is not None:
        return origin.kernel
    kernel = program.kernels[number]
    if (symbol := called_symbol(kernel)) is not None:
        message = f"The extern {symbol!r} has no loops to schedule."
        raise UnsupportedError(Diagnostic("unsupported", message, Place(node=symbol)))
    function = _function(_term(program, number))
    return kernel if function is None else kernel_of(to_stages(function).stages)


def _spellings(program: Program, number: int) -> set[str]:
    """What else a kernel may be called."""
    origin = program.origins[number] if program.origins else None
    kernel = program.kernels[number] if origin is None else origin.kernel
    labels = {str(each.label) for each in statements(kernel.body) if isinstance(each, Block)}
    return {plain_name(number, program), program.names[number], *labels}


def _launches(program: Program, number: int) -> list[Launch]:
    every = [step for steps in program.regions for step in steps if isinstance(step, Launch)]
    return [launch for launch in every if number in _run_by(launch)]


def _run_by(launch: Launch) -> tuple[int, ...]:
    if isinstance(launch, Chunks):
        return tuple([piece.kernel for piece in launch.pieces])
    return (launch.kernel,)


def _term(program: Program, number: int) -> Expr | None:
    return next((launch.term for launch in _launches(program, number)), None)


def _is_called(program: Program, number: int) -> bool:
    return any(launch.calls for launch in _launches(program, number))


def _function(term: Expr | None) -> Function | None:
    """The primitive function that a launch computes."""
    if term is None:
        return None
    function = term.callee if isinstance(term, Call) else alone(term)[0]
    return function if isinstance(function, Function) else None
