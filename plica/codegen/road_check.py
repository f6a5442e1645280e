"""Checks between the passes of a page, for tests, fuzzing and whoever looks for a mistake.

After a graph pass the module is well formed, well typed, and in the forms that the pass declares;
after a pass over kernels each is well formed, every access is shown to be inside its buffer, and
blocks touch what they declare.  The pass after which this is not so is named.
"""

from __future__ import annotations

from plica.codegen.road import State
from plica.ir.loop import Kernel
from plica.ir.passes import Pass
from plica.ir.verify import well_formed
from plica.rewrite.rule_pass import HistoryChecks
from plica.schedule.verify import in_bounds, regions_cover


class StateChecks:
    """Modules are well formed and typed; kernels well formed, in bounds, true to their regions."""

    def __init__(self) -> None:
        self._seen: set[Kernel] = set()

    def before(self, each: Pass, state: State) -> str | None:
        """Why a pass cannot take the state."""
        if each.kind in ("graph", "rules", "stages", "forms"):
            return HistoryChecks().before(each, state.history)
        return None

    def after(self, each: Pass, state: State) -> str | None:
        """What a pass has broken; kernels that were looked at before are not looked at again."""
        if each.kind in ("graph", "rules", "stages", "forms"):
            return HistoryChecks().after(each, state.history)
        if each.kind not in ("schedule", "lower"):
            return None
        for name, kernel in zip(state.program.names, state.program.kernels, strict=True):
            if kernel in self._seen:
                continue
            self._seen.add(kernel)
            for wrong in (*well_formed(kernel), *in_bounds(kernel), *regions_cover(kernel)):
                return f"the kernel {name} is wrong.\n{wrong}"
        return None
