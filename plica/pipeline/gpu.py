"""Code for a GPU: made, kept in the store, and loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from plica import __version__
from plica.codegen.cuda.target import GpuTarget
from plica.codegen.cuda.toolchain import version as nvrtc_version
from plica.codegen.cuda.unit import cubins, unit
from plica.codegen.llvm.unit import fingerprint
from plica.codegen.place import Plan
from plica.codegen.record import kernels
from plica.core.collector import paused
from plica.core.digest import digest
from plica.ir.module import Module
from plica.rewrite.contract import Contract
from plica.rewrite.pack import Pack
from plica.runtime import archive
from plica.runtime.artefact import (
    Artefact,
    Machine,
    to_members,
)
from plica.runtime.cuda.code import TRIPLE as CUDA_TRIPLE
from plica.runtime.cuda.program import CudaExecutable
from plica.runtime.cuda.step import DeviceProgram
from plica.runtime.cuda.step import arranged as arranged_on_device
from plica.runtime.executable import Executable
from plica.runtime.load import executable
from plica.runtime.store import Store, key_of, user_store
from plica.search.choice import Records, table

if TYPE_CHECKING:
    pass

from plica.pipeline.cpu import aligned_bytes, reread, tenants
from plica.pipeline.face import interface, names_of
from plica.pipeline.kept import COMPILED
from plica.pipeline.lowered import Lowered, lower, record


def compiled_for_gpu(  # noqa: PLR0917  # as above
    module: Module,
    target: GpuTarget,
    contract: Contract,
    packs: tuple[Pack, ...],
    wanted: Sequence[str | Pack],
    records: Records | None,
    cache: bool,
) -> Executable:
    """The same for a GPU: what is kept is the artefact of the module, and the code of its text."""
    found = "" if records is None else records.digest
    key = (module, target, contract, packs, 0, found)
    same = COMPILED.get(key) if cache else None
    if same is not None:
        return same
    store = user_store() if cache else None
    later = lru_cache(maxsize=1)(partial(lower, module, contract, packs, target, records))
    entry = ""
    if store is not None and all(isinstance(each, str) for each in wanted):
        names = names_of(module.main_function())
        where = f"{names} {wanted} {contract} {target!r} {found} {nvrtc_version()}"
        entry = key_of("gpu-module", digest(module), where, fingerprint())
    stored = store.get(entry) if store is not None and entry else None
    with paused():
        artefact = None if stored is None else reread(stored, lambda: record(later()))
        if artefact is None:
            artefact = assemble_for_gpu(later(), target, store)
            if store is not None and entry:
                store.put(entry, archive.pack(to_members(artefact, with_record=False)))
    made = executable(artefact, texts=_texts(later, artefact, tuned=records is not None))
    if cache:
        COMPILED[key] = made
    return made


def on_gpu(lowered: Lowered, target: GpuTarget) -> CudaExecutable:
    """Code for a GPU, loaded onto the one of this machine."""
    artefact = assemble_for_gpu(lowered, target)
    texts = _texts(lambda: lowered, artefact, tuned=bool(lowered.tuning))
    return CudaExecutable(artefact, texts=texts)


def assemble_for_gpu(lowered: Lowered, target: GpuTarget, store: Store | None = None) -> Artefact:
    """All that will be loaded onto a GPU, here or elsewhere: none need be here."""
    program, plan = lowered.program, lowered.plan
    assert isinstance(plan, Plan)  # sizes are known on a GPU
    made = unit(program, target.gpu)
    layout = arranged_on_device(
        [slot.bytes for slot in program.slots],
        [slot.space for slot in program.slots],
        plan.where,
        plan.size,
        made.scratch,
    )
    codes = cubins(made, target.architecture, fused=lowered.fused, store=store)
    return Artefact(
        interface(lowered.module.main_function(), program),
        Machine(CUDA_TRIPLE, target.architecture, ()),
        1,
        codes,
        tuple([aligned_bytes(each) for each in program.constants]),
        plan.size,
        (),
        made.launched,
        tenants(plan),
        (("nvrtc", ".".join(map(str, nvrtc_version() or ()))), ("plica", __version__)),
        partial(record, lowered),
        DeviceProgram(made.steps, layout),
        made.text,
    )


def _texts(
    lowered: Callable[[], Lowered], artefact: Artefact, *, tuned: bool
) -> dict[str, Callable[[], str]]:
    """The code at each stage."""
    found = {"kernel": lambda: kernels(lowered().program), "cuda": lambda: artefact.text}
    if tuned:
        found["tuning"] = lambda: table(lowered().tuning)
    return found
