"""The backend of AMD's GPUs: HIP C++ over the schedules and the fold of threads.

>>> "barriers" in PIPELINE.names, PIPELINE.names[-1]
(True, 'emit-hip')

>>> parse("rocm:gfx942").gpu.processors, str(parse("rocm"))
(304, 'rocm:gfx90a')
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Final

from attrs import evolve, frozen

from plica.codegen.backend import Backend
from plica.codegen.code_artefact import CodeTexts, text_of_artefact
from plica.codegen.compilation import Job, Lowered
from plica.codegen.cuda.assemble import assembled
from plica.codegen.cuda.dialect import CUDA
from plica.codegen.cuda.fold import fold
from plica.codegen.cuda.passes import CHANNELS_LAST
from plica.codegen.cuda.scheduled import threads
from plica.codegen.lower.passes import LOWERING
from plica.codegen.lower.shared_passes import APART, PLAN, WHOLE, WIDE, grouping
from plica.codegen.rocm.prelude import joined
from plica.codegen.rocm.toolchain import assembly
from plica.codegen.target import SpelledTarget, unknown_target
from plica.ir.passes import Pass, Pipeline
from plica.rewrite.optimise import OPTIMISE
from plica.runtime.artefact import ROCM_TRIPLE, Artefact
from plica.runtime.emulator.gpu import missing
from plica.schedule.default.gpu import Gpu
from plica.schedule.default.gpu.choose import GPU_FORMS, TEMPLATES
from plica.schedule.form import ScheduleTables

PROCESSORS: Final = {"gfx90a": 110, "gfx942": 304, "gfx1030": 80, "gfx1100": 96, "gfx1201": 64}
"""Compute units of the largest machines of an architecture."""

SHARED_BYTES: Final = 64 * 1024  # what a work group has of local data share, on all of them
SPELLINGS: Final = ("rocm", *[f"rocm:{processor}" for processor in PROCESSORS])


@frozen
class RocmTarget(SpelledTarget):
    """An architecture of AMD's GPUs."""

    architecture: str = "gfx90a"

    backend: ClassVar[str] = "rocm"

    @property
    def gpu(self) -> Gpu:
        """What schedules ask for.  Threads exchange values in groups of 32: wavefronts are one such
        group or two."""
        return Gpu(PROCESSORS[self.architecture], shared=SHARED_BYTES)

    def __str__(self) -> str:
        return f"rocm:{self.architecture}"


def parse(text: str) -> RocmTarget:
    """The target that a text means."""
    if text.strip() not in SPELLINGS:
        raise unknown_target(text, SPELLINGS)
    architecture = text.strip().partition(":")[2]
    return RocmTarget(architecture) if architecture else RocmTarget()


NVIDIA: Final = frozenset(
    ["online-softmax", "online-softmax-parts", "online-softmax-wgmma", "split-online-softmax",
     "wgmma-tiles", "wgmma-boxes", "tensor-core-tiles", "tensor-core-parts"]
)  # fmt: skip
"""Forms whose intrinsics are instructions of NVIDIA's."""

THREADS: Final = ScheduleTables(
    tuple([form for form in GPU_FORMS if form.name not in NVIDIA]),
    {name: each for name, each in TEMPLATES.items() if name not in NVIDIA},
)


def emit_hip(lowered: Lowered, job: Job) -> Artefact:
    """All that a machine with such a GPU needs: the text, what is launched, and the weights."""
    return assembled(
        lowered, job, ROCM_TRIPLE, lambda made: (made.text.encode(),),
        whole=partial(joined, fused=lowered.fused),
    )  # fmt: skip


PIPELINE: Final = Pipeline((
    *OPTIMISE,          # to-dataflow … remove-dead: what is good on any machine
    CHANNELS_LAST,
    *WIDE,              # widen, fold-widened: f32 is what every GPU multiplies
    *grouping(WHOLE),   # infer, resolve, decompose, fuse: operators become primitive functions
    *APART,             # stages, forms, template, lowerable, schedule: kernels of threads
    *LOWERING["gpu"],   # allreduce … narrow-indices: blocks become loops of threads
    PLAN,               # values have their place in the arena
    Pass("emit-hip", "Kernels become HIP C++.", emit_hip, kind="emit"),
))  # fmt: skip


TEXTS: Final = CodeTexts(
    {
        "hip": text_of_artefact,
        "amdgcn": lambda lowered, job, artefact: assembly(artefact.text, artefact.machine.cpu),
    }
)


BACKEND: Final = Backend(
    "rocm",
    "AMD's GPUs, as HIP C++ to be taken there: rocm, or an architecture, rocm:gfx942",
    parse,
    {"default": PIPELINE, "fast": PIPELINE, "max": PIPELINE},
    TEXTS.build,
    TEXTS.texts,
    machine=lambda target: target.gpu,
    tables=THREADS,
    schedules=threads,
    lowering=LOWERING["gpu"],
    dialect=evolve(CUDA, name="hip"),
    encode=lambda kernel, target: joined((fold(kernel, "kernel"),), fused=False),
    missing=missing,
    threaded=False,
    library="Libraries for C are made for processors.",
    spellings=SPELLINGS,
)
