"""Open units: GPU code whose launches are computed from open sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from attrs import frozen

from plica.codegen.cuda.code import KernelCode, KernelLaunch
from plica.codegen.cuda.fold import RowSteps, fold, joined
from plica.codegen.cuda.limit import check
from plica.codegen.cuda.unit import parts_of, write_sources
from plica.codegen.device_program import check_unconditional
from plica.codegen.interface import size_text
from plica.codegen.open_memory_plan import OpenPlan
from plica.codegen.program import Chunks, Copy, Launch, Program, RowKernel, kernel_name
from plica.core import Term, substitute
from plica.ir.graph.shape_specialisation import named
from plica.ir.loop.scalar import Scalar, index
from plica.ir.type import dim
from plica.runtime.artefact import Launched
from plica.runtime.cuda import open_step
from plica.runtime.verify import COPY
from plica.schedule.default.gpu.machine import Gpu


@frozen
class OpenUnit:
    """The text of a program, whole and in parts that are compiled apart, and what it launches."""

    text: str
    parts: tuple[str, ...]
    program: open_step.OpenProgram
    launched: tuple[Launched, ...]
    sources: tuple[str, ...]


def open_unit(
    program: Program,
    plan: OpenPlan,
    gpu: Gpu,
    whole: Callable[[Sequence[KernelCode]], str] = joined,
    folder: str = "",
) -> OpenUnit:
    """The text and the steps of a program without choices, for any sizes."""
    check_unconditional(program)
    maker = _Maker(program, gpu, folder)
    steps: list[open_step.OpenStep] = []
    launched: list[Launched] = []
    sources: list[str] = []
    for step in program.regions[program.entry]:
        if isinstance(step, Copy):
            steps.append(open_step.OpenCopy(step.source, step.target))
            launched.append(Launched(COPY, 0, 0))
            sources.append(COPY)
            continue
        assert isinstance(step, Launch)
        made = maker.rows(step) if isinstance(step, Chunks) else maker.launches(step)
        steps += made
        # With open sizes the amount of work is unknown.
        launched += [Launched(kernel_name(step.kernel, program), 0, 0)] * len(made)
        sources += [step.source] * len(made)
    slots = tuple([
        open_step.OpenSlot(slot.space, size_text(slot.size),
                 plan.where.get(number, 0) if slot.space == "temporary" else 0)
        for number, slot in enumerate(program.slots)
    ])  # fmt: skip
    sizes = [size for slot in program.slots for size in slot.shape if not isinstance(size, int)]
    made_of = open_step.OpenProgram(
        tuple([named(var) for var in program.dims]),
        slots,
        tuple([size_text(scalar) for scalar in plan.arenas]),
        tuple(steps),
        tuple(dict.fromkeys(size_text(scalar) for scalar in (*sizes, *program.needs))),
    )
    codes = [*maker.codes.values()]
    write_sources(codes)
    return OpenUnit(whole(codes), parts_of(codes, whole), made_of, tuple(launched), tuple(sources))


class _Maker:
    """The code of kernels, each written once for each way it is launched."""

    def __init__(self, program: Program, gpu: Gpu, folder: str) -> None:
        self.program, self.gpu, self.folder = program, gpu, folder
        self.codes: dict[tuple[int, RowSteps | None], KernelCode] = {}

    def code(self, number: int, rows: RowSteps | None = None) -> KernelCode:
        """The code of a kernel; for rows it has another name, because it takes one more
        argument."""
        key = number, rows
        if key not in self.codes:
            kernel, word = self.program.kernels[number], self.program.names[number]
            name = kernel_name(number, self.program)
            if rows is not None:
                name = f"{name}_rows_{sum(n == number for n, _ in self.codes)}"
            kernel_code = self.codes[key] = fold(kernel, name, word, rows, self.folder)
            check(kernel_code.launches, self.gpu, word)
        return self.codes[key]

    def launches(self, step: Launch) -> list[open_step.OpenStep]:
        """The launches of a kernel with their size arguments."""
        code, kernel = self.code(step.kernel), self.program.kernels[step.kernel]
        given = dict[Term, Scalar](zip(kernel.dims, step.sizes, strict=True))
        told = tuple([size_text(size) for size in step.sizes])
        least = tuple([size_text(scalar) for scalar in step.least])
        return [
            open_step.OpenLaunch(
                launch.function,
                _grid(launch, given),
                launch.block,
                launch.shared,
                step.args,
                told,
                least,
                code.scratch,
                launch.maps,
            )
            for launch in code.launches
        ]

    def rows(self, step: Chunks) -> list[open_step.OpenStep]:
        """The launch of a kernel that treats rows alike."""
        pieces = tuple([self.piece(piece) for piece in step.pieces])
        least = tuple([size_text(scalar) for scalar in step.least])
        return [open_step.RowLaunch(size_text(step.rows), pieces, least)]

    def piece(self, of: RowKernel) -> open_step.RowPiece:
        """The functions for a given number of rows."""
        scratch = fold(self.program.kernels[of.kernel], "kernel").scratch
        code = self.code(of.kernel, RowSteps(of.size, of.steps, scratch))
        functions = [
            open_step.RowFunction(e.function, e.grid, e.block, e.shared) for e in code.launches
        ]
        return open_step.RowPiece(of.size, of.args, scratch, tuple(functions))


def _grid(of: KernelLaunch, given: Mapping[Term, Scalar]) -> tuple[str, str, str]:
    """The blocks of a launch, over dims of the program."""
    x, y, z = of.grid
    across = index(x) if of.blocks is None else dim(substitute(of.blocks, dict(given)))
    return size_text(across), str(y), str(z)
