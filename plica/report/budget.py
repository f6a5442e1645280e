"""Error budgets: how much float error a compile was granted, what it declares, and what it used.

    error_budget(model, inputs)      granted, declared and used: in all, by graph step, by kernel

- granted    the contract that was asked for
- declared   the join of the contracts of what was done: of rules and passes by stage of the graph;
             of a kernel those of its form, of the steps of its schedule, and of contraction to fma
- used       measured on inputs: how far the interpreter's outputs move from one stage of the graph
             to the next; how far a kernel is from the interpreter on the same operands

Differences are relative to the greatest number, as `approx(rel)` is.  Law: what an `exact` entry
used is 0.

>>> print(BudgetEntry("rules", "graph", "algebra-add-zero", exact, 3, 0.0))
graph   exact               used 0        rules: algebra-add-zero
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from attrs import frozen

from plica.bench.peer import difference
from plica.codegen.backend import backend_of
from plica.codegen.program import launches
from plica.ir.contract import APPROX, Contract, exact, fused, join
from plica.ir.interpret.interpreter import interpret
from plica.report.compare import compare, values_of
from plica.report.stage import stages
from plica.report.study import StudiedModel
from plica.runtime.port import Array
from plica.schedule.form import installed
from plica.schedule.trace_contract import trace_contract

Level: TypeAlias = Literal["graph", "kernel"]


@frozen
class BudgetEntry:
    """A stage of the graph, or a kernel: what was done, what that declares, and what it used."""

    name: str
    level: Level
    what: str
    declared: Contract
    steps: int
    used: float

    def __str__(self) -> str:
        used = f"{self.used:.1e}" if self.used else "0"
        return f"{self.level:6}  {self.declared!s:18}  used {used:8} {self.name}: {self.what}"


@frozen
class ErrorBudget:
    """What a compile was granted, what all it did declares, and what the outputs used."""

    granted: Contract
    used: float
    entries: tuple[BudgetEntry, ...]

    @property
    def declared(self) -> Contract:
        """The strictest contract that everything that was done keeps."""
        return join(entry.declared for entry in self.entries)

    @property
    def share(self) -> float | None:
        """The part of the grant that was used; None where the grant is no number."""
        return self.used / self.granted.rel if self.granted.level == APPROX else None

    @property
    def overspent(self) -> tuple[str, ...]:
        """What used more than it declares, or all of it more than was granted."""
        found = [entry.name for entry in self.entries if not within(entry.used, entry.declared)]
        return (*found, *(() if within(self.used, self.granted) else ("outputs",)))

    def __str__(self) -> str:
        share = "" if self.share is None else f", {self.share:.1%} of it"
        head = f"granted {self.granted}, declared {self.declared}, used {self.used:.1e}{share}"
        return "\n".join([head, *[str(entry) for entry in self.entries]])


def within(used: float, contract: Contract) -> bool:
    """Whether a measured difference is one that a contract allows; a change of order or of the
    rounding of products has no bound of its own."""
    if contract.level == APPROX:
        return used <= contract.rel
    return used == 0.0 if contract < fused else used < 1.0


def error_budget(
    of: StudiedModel, inputs: Sequence[Array], progress: Callable[[str], None] = lambda word: None
) -> ErrorBudget:
    """The budget of a compiled model, measured on inputs."""
    entries = list(_graph(of, inputs, progress))
    compared = compare(of, inputs, 1.0, progress=progress)
    declared = kernel_contracts(of)
    launched = launches(of.lowered.program)
    for each in compared.kernels:
        kernel, what = launched[each.number].kernel, ", ".join(each.nodes or each.operators)
        origin = of.lowered.program.origins[kernel]
        steps = 0 if origin is None else len(origin.trace)
        entries.append(
            BudgetEntry(each.source, "kernel", what, declared[kernel], steps, each.difference)
        )
    return ErrorBudget(of.contract, compared.output, tuple(entries))


def _graph(
    of: StudiedModel, inputs: Sequence[Array], progress: Callable[[str], None]
) -> list[BudgetEntry]:
    derivation = of.lowered.derivation
    contracts = {step.rule.name: step.rule.contract for step in derivation.steps}
    found: list[BudgetEntry] = []
    before: list[Array] | None = None
    for stage in stages(derivation):
        progress(f"interpreting the graph after {stage.name}")
        now = values_of(interpret(stage.module, *inputs))
        if before is not None:
            names = [name for name, _ in stage.rules] or [stage.name]
            steps = sum(count for _, count in stage.rules) or 1
            declared = join(contracts[name] for name in names)
            used = difference(now, before)
            found.append(BudgetEntry(stage.name, "graph", ", ".join(names), declared, steps, used))
        before = now
    return found


def kernel_contracts(of: StudiedModel) -> tuple[Contract, ...]:
    """What each kernel declares: its form, its schedule, and whether products are contracted."""
    program, tables = of.lowered.program, backend_of(of.target).tables
    forms = {form.name: form.contract for form in (*tables.forms, *installed())}
    contracted = fused if of.lowered.fused else exact
    return tuple([
        contracted if origin is None else join((
            forms.get(origin.form, exact), trace_contract(origin.trace, origin.kernel), contracted,
        ))
        for origin in program.origins
    ])  # fmt: skip
