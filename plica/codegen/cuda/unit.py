"""Units: a program as code for a GPU, with what is launched on which memory.

All kernels of a program are one text, compiled once.  A launch names a function, and the slots it
works on: the runtime knows where these lie.  The code of a text is kept in the store of the user.
"""

from __future__ import annotations

from attrs import frozen

from plica.codegen.cuda.fold import Code, fold, joined
from plica.codegen.cuda.toolchain import Cubin, compiled
from plica.codegen.program import Copy, Launch, Program
from plica.codegen.work import operations
from plica.runtime.cuda.program import DeviceCopy, DeviceLaunch, DeviceStep
from plica.runtime.error import Diagnostic, UnsupportedError
from plica.runtime.profile import Launched


@frozen
class Unit:
    """The text of a program, its steps, and the bytes of scratch memory they share."""

    text: str
    steps: tuple[DeviceStep, ...]
    scratch: tuple[int, ...]
    launched: tuple[Launched, ...] = ()
    """What each step does, for profiles."""


def unit(program: Program) -> Unit:
    """The text and the steps of a program without choices."""
    if len(program.regions) > 1 or program.thunks:
        message = "Choices inside a model are not made on GPUs yet."
        hint = "Compile for 'cpu'."
        raise UnsupportedError(Diagnostic("unsupported", message, None, "no branches", None, hint))
    codes: list[Code] = []
    for number, kernel in enumerate(program.kernels):
        codes.append(
            fold(kernel, f"k{number}_{_word(program.names[number])}", program.names[number])
        )
    steps: list[DeviceStep] = []
    launched: list[Launched] = []
    most: list[int] = []
    for step in program.regions[program.entry]:
        if isinstance(step, Copy):
            size = program.slots[step.source].bytes
            steps.append(DeviceCopy(step.source, step.target, size))
            launched.append(Launched("copy", 0, 2 * size))
            continue
        assert isinstance(step, Launch)
        code = codes[step.kernel]
        for number, size in enumerate(code.scratch):  # launches follow one another: they share it
            most[number : number + 1] = [max(size, *most[number : number + 1], 0)]
        steps += [
            DeviceLaunch(e.function, e.grid, e.block, e.shared, step.args, len(code.scratch))
            for e in code.launches
        ]
        done = operations(program.kernels[step.kernel])
        size = sum(program.slots[slot].bytes for slot in step.args)
        launched += [Launched(e.function, done, size) for e in code.launches]
    return Unit(joined(codes), tuple(steps), tuple(most), tuple(launched))


def cubin(of: Unit, architecture: str, *, fused: bool) -> Cubin:
    """The code of a unit."""
    return compiled(of.text, architecture, fused=fused)


def _word(name: str) -> str:
    return "".join([each if each.isalnum() and each.isascii() else "_" for each in name])[:40]
