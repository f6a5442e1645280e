"""Lowered modules: everything known before code is made for a machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from plica.codegen.cuda.target import GpuTarget
from plica.codegen.llvm.fold import AnyPlan
from plica.codegen.lower.prepare import grouped, prepared
from plica.codegen.lower.scheduled import machine_of
from plica.codegen.lower.sequence import sequence
from plica.codegen.open_place import place_open
from plica.codegen.place import place
from plica.codegen.program import Program
from plica.codegen.record import recorded
from plica.codegen.target import Target
from plica.ir.module import Module
from plica.ir.need import needs
from plica.rewrite.contract import Contract, exact, fused, reassociates, signless_zero
from plica.rewrite.derivation import Derivation
from plica.rewrite.history import History
from plica.rewrite.optimise import DEFAULT_CONTRACT
from plica.rewrite.pack import Pack
from plica.runtime.artefact import (
    Record,
)
from plica.schedule.default import Machine as ScheduleMachine
from plica.schedule.default.gpu import Gpu
from plica.search.choice import Choices, Records, Row, choices
from plica.search.task import tasks_of

if TYPE_CHECKING:
    pass


@frozen
class Lowered:
    """Everything known before native code is made: a value, the same wherever it is computed."""

    module: Module
    derivation: Derivation
    program: Program
    plan: AnyPlan
    final: Module
    """The module that was sequenced."""
    fused: bool = False
    """Whether `a * b + c` may be rounded once."""
    signless: bool = False
    """Whether a zero may have another sign."""
    asked: str = ""
    """The contract within which rules were used."""
    packs: tuple[str, ...] = ()
    """The names of the packs that were asked for."""
    tuning: tuple[Row, ...] = ()
    """Which kernels have a schedule of a tuning database, and why others have none."""


def lower(
    module: Module,
    contract: Contract = DEFAULT_CONTRACT,
    packs: Sequence[Pack] = (),
    target: Target | GpuTarget | None = None,
    records: Records | None = None,
) -> Lowered:
    """The program of a module and its memory plan; with a target, scheduled for it.

    Where there are records of tuning, they come before rules of thumb.
    """
    machine = machine_of(target) if isinstance(target, Target) else None
    history = grouped(prepared(module, contract, packs, machine))
    return evolve(
        arranged(history, target, contract, records),
        fused=contract >= fused,
        signless=contract >= signless_zero,
        asked=str(contract),
        packs=tuple([each.name for each in packs]),
    )


def sequenced(
    history: History, target: Target | GpuTarget | None = None, contract: Contract = exact
) -> Lowered:
    """The program of an inferred module, as it is, and its memory plan."""
    return arranged(grouped(history), target, contract)


def arranged(
    history: History,
    target: Target | GpuTarget | None,
    contract: Contract,
    records: Records | None = None,
) -> Lowered:
    """The program of a module that went through all passes, and its memory plan."""
    machine: ScheduleMachine | Gpu | None = None
    if target is not None:
        machine = target.gpu if isinstance(target, GpuTarget) else machine_of(target)
    found = Choices({}, ())
    if records is not None and machine is not None:
        found = choices(tasks_of(history.module, machine, contract), records, machine)
    program = sequence(
        history.module,
        machine,
        reassociates=contract >= reassociates,
        approximates=contract > reassociates,
        chosen=found.chosen,
    )
    source = history.derivation.source
    assert isinstance(source, Module)
    if program.dims:
        program = evolve(program, needs=needs(source))
    plan = place_open(program) if program.dims else place(program)
    whole = Lowered(source, history.derivation, program, plan, history.module)
    return evolve(whole, tuning=found.rows)


def record(lowered: Lowered) -> Record:
    """Where the code of a lowered module comes from."""
    of = lowered
    return recorded(of.derivation, of.final, of.program, of.asked, of.packs)
