"""The pipeline of NVIDIA's GPUs: from a module to cubins that NVRTC made.

Every effort has this pipeline: NVRTC's own levels change nothing that was measured.

>>> "barriers" in GPU.names, "winograd" in GPU.names
(True, False)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from attrs import evolve

from plica.codegen.compilation import Job
from plica.codegen.cuda.assemble import emit_cuda
from plica.codegen.lower.passes import LOWERING
from plica.codegen.lower.shared_passes import APART, GROUP, PLAN, plan_memory
from plica.ir.contract import reassociates
from plica.ir.graph.expression import Function
from plica.ir.passes import Pass, Pipeline
from plica.ir.type import f32
from plica.rewrite.fuse import FusionLimits, fuse
from plica.rewrite.fuse.to_stages import to_stages
from plica.rewrite.history import History
from plica.rewrite.layout import channels_last
from plica.rewrite.optimise import OPTIMISE
from plica.rewrite.pack import Pack
from plica.rewrite.packs import find_pack, may_apply
from plica.rewrite.packs.byte_product import few_bits_for
from plica.rewrite.rule_pass import Setting, rules
from plica.rewrite.strategy import innermost
from plica.schedule.collapse import collapsed
from plica.schedule.default.gpu.attention_form import PARTS_CONTRACT, chained, in_key_parts
from plica.schedule.default.gpu.cost import LAUNCH, STREAM
from plica.schedule.default.gpu.few_bit_product import MOST_ROWS
from plica.schedule.default.gpu.gate import gates_of
from plica.schedule.default.gpu.machine import Gpu
from plica.schedule.default.gpu.narrow_read import NARROW


def is_chained(function: Function, *, parts: bool = True) -> bool:
    """Whether one kernel does two products and the softmax between them; those of f32 only where
    they may be multiplied in `parts`."""
    whole = collapsed(to_stages(function).stages, free=True)
    chain = chained(whole)
    if chain is not None and (parts or chain.dtype is not f32):
        return True
    return next(in_key_parts(whole, Gpu()), None) is not None


def is_gated(function: Function) -> bool:
    """Whether one kernel combines a product with operations on its slices."""
    return gates_of(collapsed(to_stages(function).stages, free=True)) is not None


def are_columns(_: Function) -> bool:
    """Whether rows may lie along any axes in one kernel: they always may."""
    return True


TILED: Final = FusionLimits(
    tiles=True, chains=is_chained, gates=is_gated, row_bytes=1 << 24, columns=are_columns,
    joins=False, open_rows=True,
)  # fmt: skip
"""Products read narrow floats directly, softmax may be fused between two products, and slices with
their product; rows may be long, and along any axes."""


EXACTLY_TILED: Final = evolve(TILED, chains=partial(is_chained, parts=False))
"""The same where products of f32 are those of f32."""


def with_functions(history: History, setting: Setting) -> History:
    """Operators as functions, which are as large as forms within the contract make kernels of."""
    limits = TILED if setting.contract >= PARTS_CONTRACT else EXACTLY_TILED
    return history.made(FUSE, fuse(history.module, limits))


FUSE: Final = evolve(GROUP.find("fuse"), run=with_functions, kind="rules")


def few_bits_on(setting: Setting) -> Sequence[Pack]:
    """Low-bit weights stay packed if few rows are multiplied by more of them than all processors
    read in a launch latency."""
    gpu = setting.machine if isinstance(setting, Job) else None
    if not isinstance(gpu, Gpu):
        return ()
    return (few_bits_for(LAUNCH * STREAM * gpu.processors, MOST_ROWS, NARROW),)


FEW_BITS: Final = rules(
    "few-bits", "Keep weights of few bits packed in memory-bound products.", few_bits_on,
    about=("multiply",),
)  # fmt: skip
"""What must see how a model restores numbers, before constants are computed."""


def with_sorting(history: History, setting: Setting) -> History:
    """Rows in order at once, where the job is for a GPU, which has a form of that."""
    gpu = setting.machine if isinstance(setting, Job) else None
    if not isinstance(gpu, Gpu) or not may_apply("sorting", history.module):
        return history
    return history.under(find_pack("sorting").within(setting.contract), by=innermost)


SORTING: Final = Pass(
    "sorting", "Sort rows cooperatively by the threads of a block.", with_sorting, kind="rules"
)


def with_channels_last(history: History, setting: Setting) -> History:
    """Convolutions with channels last, where the contract lets their sums change order."""
    if setting.contract < reassociates:
        return history
    return history.made(CHANNELS_LAST, channels_last(history.module), reassociates)


CHANNELS_LAST: Final = Pass(
    "channels-last",
    "Convert convolutions to channels-last layout.",
    with_channels_last,
    kind="rules",
)

BRANCHED: Final = evolve(PLAN, run=partial(plan_memory, branches=True))

GPU: Final = Pipeline((
    *OPTIMISE.insert(FEW_BITS, after="packs"),  # to-dataflow … remove-dead: good on any machine
    CHANNELS_LAST,
    rules("view", "Let products read slices, casts and transposes in place.", "views"),
    SORTING,            # rows are sorted by a block each
    *GROUP.replace("fuse", FUSE),  # infer … fuse: operators become primitive functions
    *APART,             # stages, forms, template, lowerable, schedule: kernels of threads
    *LOWERING["gpu"],   # allreduce … narrow-indices: blocks become loops of threads
    BRANCHED,           # values have their place in the arena, so that branches share none
    Pass("emit-cuda", "Emit CUDA C++ and compile it to cubins.", emit_cuda, kind="emit"),
))  # fmt: skip

PIPELINES: Final = {"default": GPU, "fast": GPU, "max": GPU}
