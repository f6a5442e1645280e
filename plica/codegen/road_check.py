"""Checks between the passes of a page, for tests, fuzzing and whoever looks for a mistake.

After a graph pass the module is well formed, well typed, and in the forms that the pass declares;
after a pass over kernels each is well formed, no thread meddles with what is another's, and no two
iterations of a parallel loop meet at an element that one of them writes.  Where
proofs are asked for, every access is also shown to be inside its buffer and inside what the blocks
around it declare, which takes seconds a kernel.  The pass after which this is not so is named.
"""

from __future__ import annotations

from plica.analysis.race import races
from plica.codegen.lower.verify import problems
from plica.codegen.road import RoadState
from plica.ir.loop.statement import Kernel
from plica.ir.loop.verify import well_formed
from plica.ir.passes import Pass
from plica.rewrite.rule_pass import HistoryChecks

MODULES = ("graph", "rules", "stages", "forms")
"""The kinds of passes that make modules."""


class StateChecks:
    """What must hold between passes; with `prove` all that can be shown of kernels."""

    def __init__(self, prove: bool = False) -> None:
        self._wrong = problems if prove else well_formed
        self._seen: set[Kernel] = set()

    def before(self, each: Pass, state: RoadState) -> str | None:
        """Why a pass cannot take the state."""
        return HistoryChecks().before(each, state.history) if each.kind in MODULES else None

    def after(self, each: Pass, state: RoadState) -> str | None:
        """What a pass has broken; kernels that were looked at before are not looked at again."""
        if each.kind in MODULES:
            return HistoryChecks().after(each, state.history)
        if each.kind not in ("schedule", "lower"):
            return None
        for name, kernel in zip(state.program.names, state.program.kernels, strict=True):
            if kernel in self._seen:
                continue
            self._seen.add(kernel)
            for wrong in (*self._wrong(kernel), *races(kernel)):
                return f"the kernel {name} is wrong.\n{wrong}"
        return None
