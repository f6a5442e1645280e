"""The measurer for GPUs, and the policies that search for them.

Candidates are built in some processes and run in one other, as for processors; what is built need
not wait while something is timed, since the clock is that of the GPU.

>>> gpu_policy("guided").name
'grid/8'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from plica.codegen.cuda.target import GpuTarget
from plica.runtime.error import Diagnostic, InputError
from plica.search.measure import LocalMeasurer, TrialLimits
from plica.search.policy.descent import Descent
from plica.search.policy.fold import Policy
from plica.search.policy.genetic import Genetic
from plica.search.policy.grid import Grid
from plica.search.policy.uniform import Uniform

MAIN: Final = "from plica.search.gpu.worker import main; main()"

LIMITS: Final = TrialLimits(60.0, 120.0, memory=0, repeats=10, least=0.002, alone=False)
"""A reference may take the processor a while, the first time."""

# The spaces are short lists of forms, the most promising first, and nobody has learned what
# makes code fast on a GPU: what is guided elsewhere goes through the list.
# fmt: off
POLICIES: Final[Mapping[str, Callable[[], Policy[Any]]]] = {
    "guided":  lambda: Policy(Grid(8)),
    "grid":    lambda: Policy(Grid()),
    "descent": lambda: Policy(Descent()),
    "genetic": lambda: Policy(Genetic()),
    "random":  lambda: Policy(Uniform()),
}
# fmt: on


def gpu_policy(name: str) -> Policy[Any]:  # what an explorer remembers is its own
    """The policy with this name; raises `InputError` where GPUs have none."""
    if name in POLICIES:
        return POLICIES[name]()
    expected = f"one of {', '.join(POLICIES)}"
    message = f"There is no search policy {name!r} for GPUs."
    raise InputError(Diagnostic("unknown-policy", message, None, expected, name))


def gpu_measurer(target: GpuTarget, limits: TrialLimits | None = None) -> LocalMeasurer:
    """A measurer in processes of this machine, which has a GPU."""
    return LocalMeasurer(target, limits or LIMITS, main=MAIN)
