"""The pipeline of programs with data, recursion and functions as values, on processors.

>>> DYNAMIC.names[0], DYNAMIC.names[-1]
('refuse-unsupported', 'emit-routines')
"""

from __future__ import annotations

from typing import Final

from plica.codegen.dynamic.assemble import emit_routines, refuse_unsupported, routines
from plica.codegen.dynamic.prepare import FIRST_ORDER, NAMED_KERNELS
from plica.codegen.lower.passes import LOWERING
from plica.codegen.lower.shared_passes import WIDE, WINOGRAD
from plica.ir.passes import Pass, Pipeline, exact_pass
from plica.rewrite.optimise import OPTIMISE

# fmt: off
DYNAMIC: Final = Pipeline((
    exact_pass("refuse-unsupported", "Refuse what routines cannot express.",
               refuse_unsupported),
    *OPTIMISE,          # to-dataflow … remove-dead: what is good on any machine
    *WIDE,              # widen, fold-widened: processors multiply f32
    *WINOGRAD,          # winograd, fold-winograd: where it pays on this one
    *FIRST_ORDER,       # settle … place-known: functions as values become data
    *NAMED_KERNELS,     # join-lets … to-anf: steps that call kernels
    Pass("routines",      "Translate functions to routines with reference counting.", routines,
         kind="schedule"),
    *LOWERING["cpu"],   # double-buffer … reuse: blocks become plain loops over flat buffers
    Pass("emit-routines", "Emit routines and kernels as machine code.",           emit_routines,
         kind="emit"),
))
# fmt: on

PIPELINES: Final = {"default": DYNAMIC, "fast": DYNAMIC.without("winograd", "fold-winograd"),
                "max": DYNAMIC}  # fmt: skip
