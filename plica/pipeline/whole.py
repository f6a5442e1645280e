"""The pipeline: from a module to something one can call.

First the graph is optimised, with the rules a user asks for, and its operators are grouped into
kernels (`plica.codegen.lower.prepare`).  Each kernel takes its schedule from a tuning database or
from rules of thumb.  Then come the memory plan, the fold into LLVM, the toolchain.

>>> import numpy as np
>>> from plica.core.name import Name
>>> from plica.ir.graph import Function, Var
>>> from plica.ir.module import module
>>> from plica.ir.type import tensor
>>> x = Var(Name("x"), tensor((3,), "f32"))
>>> main = Var(Name("main"), None)
>>> exe = compile(module({main: Function((), (), (x,), None, x * 2.0)}, main))
>>> exe(np.array([1, 2, 3], np.float32))
array([2., 4., 6.], dtype=float32)
>>> exe.inputs[0].type
'Tensor[(3,), f32]'
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING

from attrs import evolve

from plica.codegen.accel.target import AccelTarget
from plica.codegen.cuda.target import GpuTarget
from plica.codegen.dynamic.decide import static_form
from plica.codegen.target import Target
from plica.frontend.specialised import Specialised, at_call
from plica.ir.module import Module
from plica.ir.script import Scripted
from plica.rewrite.contract import Contract
from plica.rewrite.pack import Pack
from plica.runtime.error import UnsupportedError
from plica.runtime.executable import Executable
from plica.runtime.host import cores
from plica.runtime.link import can_link
from plica.runtime.open_executable import OpenExecutable
from plica.search.record import Database

if TYPE_CHECKING:
    from onnx import ModelProto


from plica.pipeline.accel import on_accelerator
from plica.pipeline.cpu import compiled_for_cpu, compiled_with_objects
from plica.pipeline.gpu import compiled_for_gpu
from plica.pipeline.kept import COMPILED
from plica.pipeline.option import check_options, contract_of, packs_of, read_records, target_of


def compile(  # noqa: PLR0917  # the public surface says so
    mod: Module | Scripted | str | PathLike[str] | ModelProto,
    target: str | Target | GpuTarget | AccelTarget = "cpu",
    threads: int | None = None,
    database: Database | str | PathLike[str] | None = None,
    cache: bool = True,
    packs: str | Pack | Sequence[str | Pack] = (),
    contract: Contract | str | None = None,
) -> Executable:
    """Native code for a module, or for an ONNX model: a path, or a `ModelProto`.

    Where a size is open, one code serves every size (`plica.runtime.open_executable`).  Where a
    shape depends on the values of inputs, the code is made when it is called, once for each choice
    of them, and kept (`plica.frontend.specialised`).
    The code runs on so many `threads`, as many as this process has cores if none are given.  With
    `cache` a module that is still compiled somewhere in this process is shared, and what was made
    before is taken from the store of this user (`plica.runtime.store`).  The rules of the `packs`,
    by name or as they are, rewrite the module first, then Plica's own; only rules within the
    `contract` are used (`approx(1e-4)` if none is given), and the code rounds products before they
    are added unless it is `fused` or looser.  From a tuning `database` (`plica.tune`) each kernel
    takes the best schedule that was found for this machine; `exe.tuning` says which and why.
    """
    check_options(threads, database)
    machine = target_of(target)
    wanted = (packs,) if isinstance(packs, str | Pack) else tuple(packs)
    kept = contract_of(contract)
    chosen = packs_of(wanted, kept)
    later_on = partial(
        compile,
        target=machine,
        threads=threads,
        database=database,
        cache=cache,
        packs=packs,
        contract=contract,
    )
    module = at_call(mod, later_on)
    if isinstance(module, Specialised):
        whole = module.whole
        if whole is None or not isinstance(machine, Target) or not can_link():
            return module
        count = cores() if threads is None else threads
        try:
            opened = compiled_for_cpu(whole, machine, count, kept, chosen, wanted, database, cache)
        except UnsupportedError:
            return module  # some operator of it must know its sizes
        assert isinstance(opened, OpenExecutable)
        return opened.beside(module)
    if isinstance(machine, AccelTarget):
        key = (module, machine, kept, chosen, threads)
        shared = cache and database is None  # what a database holds changes
        same = COMPILED.get(key) if shared else None
        if same is None:
            same = on_accelerator(module, machine, partial(later_on, target="cpu"), database)
            if shared:
                COMPILED[key] = same
        return same
    if isinstance(machine, GpuTarget):
        known_ = None if database is None else read_records(database, machine)
        return compiled_for_gpu(module, machine, kept, chosen, wanted, known_, cache)
    count = cores() if threads is None else threads
    machine_ = evolve(machine, cores=count)
    static = static_form(module)
    if static is None:
        return compiled_with_objects(module, machine_, kept, chosen, database, cache)
    module = static
    return compiled_for_cpu(module, machine, count, kept, chosen, wanted, database, cache)
