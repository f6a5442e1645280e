"""Device programs: the launches of a compiled model on a device with its own memory."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from plica.codegen.cuda.code import KernelCode
from plica.codegen.memory_plan import WorkspacePlan
from plica.codegen.operation_count import operations
from plica.codegen.program import Choose, Copy, Launch, Program, kernel_name
from plica.runtime.artefact import Launched
from plica.runtime.cuda.step import DeviceCopy, DeviceLaunch, DeviceStep, SlotLayout, arranged
from plica.runtime.error import Diagnostic, UnsupportedError
from plica.runtime.verify import COPY


@frozen
class Unit:
    """The text of a program, its steps, and the bytes of scratch memory they share."""

    text: str
    steps: tuple[DeviceStep, ...]
    scratch: tuple[int, ...]
    launched: tuple[Launched, ...] = ()  # what each step does, for profiles
    sources: tuple[str, ...] = ()  # the operators of each step
    results: tuple[int, ...] = ()  # how many of the last slots of each step are written
    parts: tuple[str, ...] = ()  # the text in parts that are compiled apart

    def layout(self, program: Program, plan: WorkspacePlan) -> SlotLayout:
        """Where the slots of the program and the scratch memory lie."""
        sizes = [slot.bytes for slot in program.slots]
        spaces = [slot.space for slot in program.slots]
        return arranged(sizes, spaces, plan.where, plan.size, self.scratch)


def unit_of(
    program: Program, codes: Sequence[KernelCode], text: str, parts: tuple[str, ...] = ()
) -> Unit:
    """The steps of a program without choices, whose kernels have these codes in a text."""
    check_unconditional(program)
    steps: list[DeviceStep] = []
    launched: list[Launched] = []
    sources: list[str] = []
    most: list[int] = []
    results: list[int] = []
    for step in program.regions[program.entry]:
        if isinstance(step, Copy):
            size = program.slots[step.source].bytes
            steps.append(DeviceCopy(step.source, step.target, size))
            launched.append(Launched(COPY, 0, 2 * size))
            sources.append(COPY)
            results.append(1)
            continue
        assert isinstance(step, Launch)
        code = codes[step.kernel]
        for number, size in enumerate(code.scratch):  # launches follow one another: they share it
            most[number : number + 1] = [max(size, *most[number : number + 1], 0)]
        steps += [
            DeviceLaunch(
                e.function, e.grid, e.block, e.shared, step.args, len(code.scratch), e.maps
            )
            for e in code.launches
        ]
        count, kernel = len(code.launches), program.kernels[step.kernel]
        size = sum(program.slots[slot].bytes for slot in step.args)
        launched += [Launched(kernel_name(step.kernel, program), operations(kernel), size)] * count
        sources += [step.source] * count
        results += [len(step.args) - kernel.inputs] * count
    return Unit(
        text, tuple(steps), tuple(most), tuple(launched), tuple(sources), tuple(results), parts
    )


def overlapping(program: Program, plan: WorkspacePlan) -> set[int]:
    """The kernels of which two buffers are one in some launch."""
    return {
        step.kernel
        for step in program.regions[program.entry]
        if isinstance(step, Launch)
        and len({_place(s, program, plan) for s in step.args}) < len(step.args)
    }


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
