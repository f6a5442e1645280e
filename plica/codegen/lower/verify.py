"""Verification on a pipeline: a kernel that is not shown to be right ends the compilation.

Before kernels are lowered that is: well formed, every access inside its buffer, and inside what the
blocks around it declare.  Index terms of 32 bits, which GPUs have at the end, are beyond the
prover.  No pipeline holds it by default: proofs take longer than lowering.

    pipeline.insert("verify-kernels", after="schedule")
"""

from __future__ import annotations

from typing import Final

from plica.core import CompilerBug
from plica.ir.loop.statement import Kernel
from plica.ir.loop.verify import well_formed
from plica.ir.passes import exact_pass
from plica.runtime.error import Diagnostic
from plica.schedule.certified import counts_narrowly
from plica.schedule.verify import in_bounds, regions_cover


def problems(kernel: Kernel) -> tuple[Diagnostic, ...]:
    """What is wrong with a kernel, or not shown to be right."""
    wrong = well_formed(kernel)
    if wrong or counts_narrowly(kernel):
        return wrong
    return (*in_bounds(kernel), *regions_cover(kernel))


def verified(kernel: Kernel) -> Kernel:
    """The kernel, if nothing is wrong with it."""
    for wrong in problems(kernel):
        raise CompilerBug(f"A kernel is not shown to be right.\n{wrong}")
    return kernel


VERIFY_KERNELS: Final = exact_pass(
    "verify-kernels", "Every access is shown to be inside its buffer.", verified, kind="lower"
)
