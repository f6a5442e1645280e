"""The measurer for GPUs, and the policies that search for them.

Candidates are built in several processes and run in another, as for processors; builds need not
pause during timing, because the GPU has its own clock.

>>> gpu_policy("guided").name
'grid/8'
"""

from __future__ import annotations

from typing import Any, Final

from plica.codegen.cuda.target import GpuTarget
from plica.search.measure import LocalMeasurer, TrialLimits
from plica.search.policy.fold import Policy
from plica.search.policy.model_free import Grid
from plica.search.policy.named import MODEL_FREE, unknown_policy

MAIN: Final = "from plica.search.gpu.worker import main; main()"

LIMITS: Final = TrialLimits(60.0, 120.0, memory=0, repeats=10, least=0.002, alone=False)
"""A reference may take the processor a while, the first time."""


def gpu_policy(name: str) -> Policy[Any]:  # an explorer's memory is its own affair
    """The GPU policy of this name; raises `InputError` if there is none.

    Spaces are short lists of forms, most promising first, and there is no learned model for GPUs:
    guided policies walk the list.
    """
    if name == "guided":
        return Policy(Grid(8))
    if name not in MODEL_FREE:
        raise unknown_policy(name, ("guided", *MODEL_FREE), " for GPUs")
    return Policy(MODEL_FREE[name]())


def gpu_measurer(target: GpuTarget, limits: TrialLimits | None = None) -> LocalMeasurer:
    """A measurer in processes of this machine, which has a GPU."""
    return LocalMeasurer(target, limits or LIMITS, main=MAIN)
