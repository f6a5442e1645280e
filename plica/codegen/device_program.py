"""Device programs: the launches of a compiled model on a device with its own memory."""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen

from plica.codegen.memory_plan import WorkspacePlan
from plica.codegen.operation_count import operations
from plica.codegen.program import Choose, Copy, Launch, Program, kernel_name
from plica.ir.loop.statement import Kernel
from plica.runtime.artefact import Launched
from plica.runtime.cuda.step import DeviceCopy, DeviceLaunch, DeviceProgram, DeviceStep, arranged
from plica.runtime.error import Diagnostic, UnsupportedError
from plica.runtime.verify import COPY


@frozen
class ItemFunction:
    """A function of a kernel, and how many work items run it."""

    name: str
    items: int


@frozen
class DeviceKernel:
    """The text of a kernel's functions, its launches, bytes of scratch, and what else it needs."""

    text: str
    launches: tuple[ItemFunction, ...]
    scratch: tuple[int, ...]
    helpers: frozenset[str] = frozenset()


@frozen
class DeviceUnit:
    """The text of a program, and what it launches on which memory."""

    text: str
    program: DeviceProgram
    launched: tuple[Launched, ...]
    sources: tuple[str, ...]


def unit(
    program: Program,
    plan: WorkspacePlan,
    kernel_code: Callable[[Kernel, str, bool], DeviceKernel],
    joined: Callable[[list[DeviceKernel]], str],
) -> DeviceUnit:
    """A program without choices; `kernel_code` is told whether a kernel's buffers are disjoint."""
    check_unconditional(program)
    overlap = {
        step.kernel
        for step in program.regions[program.entry]
        if isinstance(step, Launch)
        and len({_place(s, program, plan) for s in step.args}) < len(step.args)
    }
    codes = [
        kernel_code(kernel, kernel_name(number, program), number not in overlap)
        for number, kernel in enumerate(program.kernels)
    ]
    steps: list[DeviceStep] = []
    launched: list[Launched] = []
    sources: list[str] = []
    most: list[int] = []
    for step in program.regions[program.entry]:
        if isinstance(step, Copy):
            size = program.slots[step.source].bytes
            steps.append(DeviceCopy(step.source, step.target, size))
            launched.append(Launched(COPY, 0, 2 * size))
            sources.append(COPY)
            continue
        assert isinstance(step, Launch)
        code = codes[step.kernel]
        for number, size in enumerate(code.scratch):  # launches follow one another: they share it
            most[number : number + 1] = [max(size, *most[number : number + 1], 0)]
        done = operations(program.kernels[step.kernel])
        moved = sum(program.slots[slot].bytes for slot in step.args)
        for each in code.launches:
            grid = (each.items, 1, 1)
            steps.append(DeviceLaunch(each.name, grid, (1, 1, 1), 0, step.args, len(code.scratch)))
            launched.append(Launched(kernel_name(step.kernel, program), done, moved))
            sources.append(step.source)
    layout = arranged(
        [slot.bytes for slot in program.slots],
        [slot.space for slot in program.slots],
        plan.where,
        plan.size,
        most,
    )
    made = DeviceProgram(tuple(steps), layout)
    return DeviceUnit(joined(codes), made, tuple(launched), tuple(sources))


def check_unconditional(program: Program) -> None:
    """Refuses programs with run-time decisions, naming them."""
    choices = sum(isinstance(step, Choose) for steps in program.regions for step in steps)
    if not choices and not program.thunks:
        return
    inside = [
        step.source
        for number, steps in enumerate(program.regions)
        if number != program.entry
        for step in steps
        if isinstance(step, Launch)
    ]
    named = ", ".join(dict.fromkeys(inside)) or "no operators"
    message = f"Choices inside a model are not made on GPUs: it chooses whether to run {named}."
    hint = "Compile for 'cpu', or choose outside of the model."
    found = f"{choices} choices"
    raise UnsupportedError(Diagnostic("unsupported", message, None, "no choices", found, hint))


def _place(slot: int, program: Program, plan: WorkspacePlan) -> tuple[str, int]:
    of = program.slots[slot]
    return of.space, plan.where[slot] if of.space == "temporary" else of.index
