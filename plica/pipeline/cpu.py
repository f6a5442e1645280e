"""Native code for a processor: made, kept in the store, and loaded."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from os import PathLike
from typing import TYPE_CHECKING

import numpy as np
from attrs import evolve

from plica import __version__
from plica.codegen.dynamic import build as dynamic
from plica.codegen.llvm import toolchain
from plica.codegen.llvm.fold import fold, kernel_name, launches
from plica.codegen.llvm.unit import fingerprint, units
from plica.codegen.place import Plan
from plica.codegen.record import kernels
from plica.codegen.target import Target
from plica.codegen.work import operations
from plica.core.collector import paused
from plica.core.digest import digest
from plica.ir.graph import Const
from plica.ir.infer import infer
from plica.ir.module import Module
from plica.rewrite.contract import Contract
from plica.rewrite.pack import Pack
from plica.runtime import archive
from plica.runtime.artefact import (
    ALIGNMENT,
    Artefact,
    Machine,
    Record,
    Tenant,
    aligned_array,
    from_members,
    to_members,
)
from plica.runtime.error import ArtefactError, Diagnostic, UnsupportedError
from plica.runtime.executable import Executable
from plica.runtime.link import can_link
from plica.runtime.load import executable
from plica.runtime.port import Array
from plica.runtime.profile import Launched
from plica.runtime.store import Store, key_of, user_store
from plica.search.choice import table
from plica.search.record import Database

if TYPE_CHECKING:
    pass

from plica.pipeline.face import interface, names_of
from plica.pipeline.kept import COMPILED
from plica.pipeline.lowered import Lowered, lower, record
from plica.pipeline.option import read_records


def compiled_for_cpu(  # noqa: PLR0917  # all that decides what the code will be
    module: Module,
    machine: Target,
    count: int,
    kept: Contract,
    chosen: tuple[Pack, ...],
    wanted: tuple[str | Pack, ...],
    database: Database | str | PathLike[str] | None,
    cache: bool,
) -> Executable:
    """Native code for a module without objects, whose sizes may be open."""
    machine_ = evolve(machine, cores=count)
    records = None if database is None else read_records(database, machine_)
    found = "" if records is None else records.digest
    key = (module, machine, kept, chosen, count, found)
    same = COMPILED.get(key) if cache else None
    if same is not None:
        return same
    store = user_store() if cache and can_link() and module.main is not None else None
    later = lru_cache(maxsize=1)(partial(lower, module, kept, chosen, machine_, records))
    # What a user's own rules are made of has no digest.
    named_ = store is not None and all(isinstance(each, str) for each in wanted)
    names = names_of(module.main_function()) if named_ else ""
    where = f"{names} {wanted} {kept} {count} {machine!r} {found}"
    entry = key_of("module", digest(module), where, fingerprint()) if named_ else ""
    stored = store.get(entry) if store is not None and entry else None
    with paused():  # nothing the compiler makes is cyclic
        artefact = None if stored is None else reread(stored, lambda: record(later()))
        if artefact is not None:
            made = executable(artefact, texts=_texts(later, machine, tuned=records is not None))
        else:
            made = build(later(), machine, count, store)
            if store is not None and entry:
                store.put(entry, archive.pack(to_members(made.artefact, with_record=False)))
    if cache:
        COMPILED[key] = made
    return made


def compiled_with_objects(  # noqa: PLR0917  # as `compile`
    module: Module,
    machine: Target,
    contract: Contract,
    chosen: tuple[Pack, ...],
    database: object,
    cache: bool,
) -> Executable:
    """Native code of a program that is no graph: with data, recursion, functions as values."""
    if database is not None:
        message = "Schedules are tuned for programs without data and recursion only."
        raise UnsupportedError(Diagnostic("unsupported", message, None, "None", str(database)))
    key = ("objects", module, machine, contract, chosen)
    same = COMPILED.get(key) if cache else None
    if same is not None:
        return same
    store = user_store() if cache and can_link() else None
    with paused():
        lowered = dynamic.lower(infer(module), contract, chosen, machine)
        versions = (("plica", __version__),)
        made = dynamic.build(lowered, machine, machine.cores, store, versions)
    if cache:
        COMPILED[key] = made
    return made


def build(
    lowered: Lowered, target: Target, threads: int = 1, store: Store | None = None
) -> Executable:
    """Native code for a lowered module, loaded into this process."""
    program, plan = lowered.program, lowered.plan
    texts = _texts(lambda: lowered, target, tuned=bool(lowered.tuning))
    toolchain.check_host(target)
    if can_link():
        return executable(assemble(lowered, target, threads, store), texts=texts)
    native = toolchain.build(fold(program, plan, target, lowered.fused, lowered.signless), target)
    return Executable(
        native.address,
        interface(lowered.module.main_function(), program),
        constants=[aligned_bytes(each) for each in program.constants],
        workspace=plan.size if isinstance(plan, Plan) else 0,
        sources=[launch.source for launch in launches(program)],
        texts=texts,
        target=str(target),
        keep=native,
    )


def assemble(
    lowered: Lowered, target: Target, threads: int = 1, store: Store | None = None
) -> Artefact:
    """All that will be loaded, here or elsewhere: the target need not be this machine."""
    program, plan = lowered.program, lowered.plan
    return Artefact(
        interface(lowered.module.main_function(), program),
        Machine(target.triple, target.cpu, target.features),
        threads,
        units(program, plan, target, lowered.fused, store, lowered.signless).objects,
        tuple([aligned_bytes(each) for each in program.constants]),
        plan.size if isinstance(plan, Plan) else 0,
        tuple([launch.source for launch in launches(program)]),
        tuple(
            [
                Launched(
                    kernel_name(each.kernel, program),
                    operations(program.kernels[each.kernel]),
                    0 if program.dims else sum(program.slots[slot].bytes for slot in each.args),
                )
                for each in launches(program)
            ]
        ),
        tenants(plan) if isinstance(plan, Plan) else (),
        (("llvm", toolchain.llvm_version()), ("plica", __version__)),
        partial(record, lowered),
    )


def tenants(plan: Plan) -> tuple[Tenant, ...]:
    """Who lives where in the workspace."""
    return tuple(
        [
            Tenant(offset, each.size, each.born, each.last, each.view_of, each.in_place_of)
            for each, offset in zip(plan.memory.tenants, plan.memory.offsets, strict=True)
        ]
    )


def _texts(
    lowered: Callable[[], Lowered], target: Target, *, tuned: bool = False
) -> dict[str, Callable[[], str]]:
    """The code at each stage, made when somebody asks for it."""

    def llvm() -> str:
        of = lowered()
        return fold(of.program, of.plan, target, of.fused, of.signless)

    found = {
        "kernel": lambda: kernels(lowered().program),
        "llvm": llvm,
        "asm": lambda: toolchain.assembly(llvm(), target),
    }
    if tuned:
        found["tuning"] = lambda: table(lowered().tuning)
    return found


def reread(stored: bytes, later: Callable[[], Record]) -> Artefact | None:
    """The artefact in an entry of the store, None if the entry holds something else."""
    try:  # the store has compared digests
        return from_members(archive.unpack(stored, checked=True), later, checked=True)
    except ArtefactError:
        return None


def aligned_bytes(of: Const) -> Array:
    """The bytes of a constant at a multiple of 64, where they are if they are at one already."""
    found = np.frombuffer(of.data or b"\0", np.uint8)  # an empty one needs some address too
    if found.__array_interface__["data"][0] % ALIGNMENT == 0:
        return found
    copy = aligned_array(found.size)
    copy[:] = found
    return copy
