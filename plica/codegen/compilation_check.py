"""Checks between the passes of a pipeline, for tests, fuzzing and debugging; they name the pass
after which a check fails.
"""

from __future__ import annotations

from typing import Final

from plica.analysis.race import races
from plica.codegen.compilation import CompilationState
from plica.codegen.lower.verify import problems
from plica.ir.contract import Contract, exact
from plica.ir.graph.module import Module
from plica.ir.loop.statement import Kernel
from plica.ir.loop.verify import well_formed
from plica.ir.passes import Pass
from plica.ir.type import TensorType, known, type_of
from plica.rewrite.check.sample import FILLS, samples
from plica.rewrite.history import History
from plica.rewrite.rule_pass import HistoryChecks, contract_since
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):  # it draws on hypothesis, which few need
    from plica.rewrite.fuzz.difference import Meaning

MODULES = ("graph", "rules")  # the kinds of passes that make modules


FINITE_KINDS: Final = ("plain", "even", "halves")
"""Kinds of random data whose sums and products stay finite in any order."""


class StateChecks:
    """The checks of a state before and after a pass."""

    def __init__(self, prove: bool = False, meaning: bool = False) -> None:
        self._wrong = problems if prove else well_formed
        self._seen: set[Kernel] = set()
        self._meaning = meaning
        self._before: History | None = None

    def before(self, each: Pass, state: CompilationState) -> str | None:
        """Why a pass cannot take the state."""
        self._before = state.history
        return HistoryChecks().before(each, state.history) if each.kind in MODULES else None

    def after(self, each: Pass, state: CompilationState) -> str | None:
        """The defects after a pass; kernels that were checked before are skipped."""
        if each.kind in MODULES:
            wrong = HistoryChecks().after(each, state.history)
            return wrong or (self._moved(state.history) if self._meaning else None)
        if each.kind not in ("schedule", "lower"):
            return None
        for name, kernel in zip(state.program.names, state.program.kernels, strict=True):
            if kernel in self._seen:
                continue
            self._seen.add(kernel)
            for problem in (*self._wrong(kernel), *races(kernel)):
                return f"the kernel {name} is wrong.\n{problem}"
        return None

    def _moved(self, after: History) -> str | None:
        """How results differ by more than the contract of the steps since the last state."""
        before = self._before
        if before is None or before.module is after.module:
            return None
        kept = contract_since(before, after)
        reason = broken_contract(before.module, after.module, kept)
        return None if reason is None else f"the contract {kept} is broken: {reason}."


def broken_contract(before: Module, after: Module, contract: Contract, seed: int = 0) -> str | None:
    """How a module differs from another by more than a contract allows, on drawn inputs.

    Nothing is said of modules whose inputs are no tensors of known sizes.
    """
    types = [type_of(param) for param in before.main_function().params]
    sets = []
    for each in types:
        shape = [known(size) for size in each.shape] if isinstance(each, TensorType) else [None]
        if not isinstance(each, TensorType) or None in shape:
            return None
        sets.append((each.dtype, tuple([size for size in shape if size is not None])))
    fills = FILLS if contract is exact else FINITE_KINDS
    for inputs in samples(sets, seed, fills):
        if (reason := Meaning(before, tuple(inputs), contract).differs(after)) is not None:
            return reason
    return None
