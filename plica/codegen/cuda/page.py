"""The page of NVIDIA's GPUs: from a module to cubins that NVRTC made.

Every effort has this page: NVRTC's own levels change nothing that was measured.

>>> "barriers" in GPU.names, "winograd" in GPU.names
(True, False)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from attrs import evolve

from plica.codegen.cuda.assemble import emit_cuda
from plica.codegen.lower.page import APART, PLAN, grouping, plan_memory
from plica.codegen.lower.passes import LOWERING
from plica.codegen.road import Job
from plica.ir.graph.expression import Function
from plica.ir.passes import Pass, Pipeline
from plica.rewrite.fuse import FusionLimits
from plica.rewrite.fuse.to_stages import to_stages
from plica.rewrite.layout import channels_last
from plica.rewrite.optimise import OPTIMISE
from plica.rewrite.pack import Pack
from plica.rewrite.packs.byte_product import few_bits_for
from plica.rewrite.rule_pass import Setting, rules
from plica.schedule.collapse import collapsed
from plica.schedule.default.gpu.choose import chained
from plica.schedule.default.gpu.cost import LAUNCH, STREAM
from plica.schedule.default.gpu.few_bit_product import MOST_ROWS
from plica.schedule.default.gpu.gate import gates_of
from plica.schedule.default.gpu.key_parts import in_key_parts
from plica.schedule.default.gpu.machine import Gpu
from plica.schedule.default.gpu.operand import NARROW


def is_chained(function: Function) -> bool:
    """Whether one kernel does two products and the softmax between them."""
    whole = collapsed(to_stages(function).stages, free=True)
    return chained(whole) is not None or next(in_key_parts(whole, Gpu()), None) is not None


def is_gated(function: Function) -> bool:
    """Whether one kernel does a product and what is made of its parts."""
    return gates_of(collapsed(to_stages(function).stages, free=True)) is not None


TILED: Final = FusionLimits(
    tiles=True, chains=is_chained, gates=is_gated, row_bytes=1 << 24, columns=True, joins=False,
    open_rows=True,
)  # fmt: skip
"""Products read narrow floats as they lie, softmax may stand between two in one kernel, and what is
made of parts of one with it; rows may be long, and lie along any axes."""


def few_bits_on(setting: Setting) -> Sequence[Pack]:
    """Weights of few bits as they are, where few rows are multiplied by more of them than all
    processors read in the time that a launch takes."""
    gpu = setting.machine if isinstance(setting, Job) else None
    if not isinstance(gpu, Gpu):
        return ()
    return (few_bits_for(LAUNCH * STREAM * gpu.processors, MOST_ROWS, NARROW),)


FEW_BITS: Final = rules(
    "few-bits", "Weights of few bits are read as such where reading is most of it.", few_bits_on
)
"""What must see how a model restores numbers, before constants are computed."""

CHANNELS_LAST: Final = Pass(
    "channels-last", "Tiles read neighbouring channels at once.", channels_last
)

BRANCHED: Final = evolve(PLAN, run=partial(plan_memory, branches=True))

GPU: Final = Pipeline((
    *OPTIMISE.insert(FEW_BITS, after="packs"),  # to-dataflow … remove-dead: good on any machine
    CHANNELS_LAST,
    rules("view", "Products read what is cut out, widened and turned where it lies.", "views"),
    *grouping(TILED),   # infer, resolve, decompose, fuse: operators become primitive functions
    APART,              # primitive functions become kernels of threads, in order
    *LOWERING["gpu"],   # allreduce … narrow: blocks become loops of threads
    BRANCHED,           # values have their place in the arena, so that branches share none
    Pass("emit-cuda", "Kernels become CUDA C++, and that cubins.", emit_cuda, kind="emit"),
))  # fmt: skip

PAGES: Final = {"default": GPU, "fast": GPU, "max": GPU}
