"""The pages of processors: from a module to objects that LLVM made.

    PAGES["default"]    all that is known to pay
    PAGES["fast"]       code soon rather than fast code: no Winograd, and LLVM improves less
    PAGES["max"]        as the default; searching costs more than compiling may (`plica.tune`)

>>> CPU.kinds
('graph', 'rules', 'schedule', 'lower', 'plan', 'emit')
"""

from __future__ import annotations

from typing import Final

from plica.codegen.llvm.assemble import EmitLlvm
from plica.codegen.lower.page import GROUP, PLAN, SCATTER, SCHEDULE, WIDE, WINOGRAD
from plica.codegen.lower.passes import LOWERING
from plica.ir.passes import Pass, Pipeline
from plica.rewrite.optimise import OPTIMISE


def _emit(level: int) -> Pass:
    why = "Kernels and the steps between them become machine code."
    return Pass("emit-llvm", why, EmitLlvm(level), kind="emit")


CPU: Final = Pipeline((
    *OPTIMISE,          # to-dataflow … remove-dead: what is good on any machine
    *WIDE,              # widen, fold-widened: processors multiply f32
    *WINOGRAD,          # winograd, fold-winograd: where it pays on this one
    SCATTER,            # values are put at places one by one, as a processor goes through them
    *GROUP,             # infer, resolve, decompose, fuse: operators become primitive functions
    SCHEDULE,           # primitive functions become scheduled kernels, in order
    *LOWERING["cpu"],   # double-buffer … reuse: blocks become plain loops over flat buffers
    PLAN,               # values have their place in the arena
    _emit(level=2),
))  # fmt: skip

FAST: Final = CPU.without("winograd", "fold-winograd").replace("emit-llvm", _emit(level=1))

PAGES: Final = {"default": CPU, "fast": FAST, "max": CPU}
