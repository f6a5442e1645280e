"""The pipeline: from a module to something one can call.

The page of the target says what happens on the way (`plica.codegen.llvm.page`): the graph is
optimised, with the rules a user asks for, its operators are grouped into kernels, each kernel takes
its schedule from a tuning database or by default; then come lowering, the memory plan, emission.

>>> import numpy as np
>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Function, Var
>>> from plica.ir.graph.module import module
>>> from plica.ir.type.term import tensor
>>> x = Var(Name("x"), tensor((3,), "f32"))
>>> main = Var(Name("main"), None)
>>> exe = compile_anew(module({main: Function((), (), (x,), None, x * 2.0)}, main))
>>> exe(np.array([1, 2, 3], np.float32))
array([2., 4., 6.], dtype=float32)
>>> exe.inputs[0].type
'Tensor[(3,), f32]'
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, cast

from attrs import evolve

from plica.analysis.statement import LoweringRefused
from plica.codegen.backend import AnyTarget, backend_of
from plica.codegen.program_kind import is_staged, static_form
from plica.ir.graph.expression import attr
from plica.ir.graph.module import Module
from plica.ir.loop.statement import Kernel
from plica.ir.passes import Pipeline
from plica.ir.type.infer import infer
from plica.pipeline.compiled import compiled
from plica.pipeline.extern_source import GivenExtern, checked_externs, externs_of
from plica.pipeline.option import (
    check_options,
    contract_of,
    described_target,
    packs_of,
    schedules_of,
    target_of,
)
from plica.pipeline.request import Request, chosen_page
from plica.pipeline.shape_specialisation import Specialised, at_call, lists_of, read_once
from plica.rewrite.contract import Contract
from plica.rewrite.pack import Pack
from plica.runtime.error import Diagnostic, UnsupportedError, wrong_argument
from plica.runtime.executable import Executable
from plica.runtime.host import cores
from plica.runtime.late import late
from plica.runtime.machine import MachineDescription
from plica.runtime.open_executable import OpenExecutable
from plica.runtime.record import KernelTrace

if TYPE_CHECKING:
    from onnx import ModelProto
    from torch.export import ExportedProgram
    from torch.nn import Module as TorchModule

    from plica.codegen.given_trace import GivenSchedule
    from plica.codegen.lower.kernel_call import check_called
    from plica.ir.text.script import Scripted
    from plica.pipeline.background import BackgroundExecutable
    from plica.pipeline.donated import with_donated
    from plica.pipeline.list_program import compile_lists
    from plica.pipeline.staged import compile_staged
    from plica.pipeline.torch_source import TorchExecutable, module_of_program
    from plica.rewrite.graph import find_pass
    from plica.search.record import RecordSource
else:  # few compile kernels, or in the background
    check_called = late("plica.codegen.lower.kernel_call:check_called")
    BackgroundExecutable = late("plica.pipeline.background:BackgroundExecutable")
    compile_lists = late("plica.pipeline.list_program:compile_lists")
    compile_staged = late("plica.pipeline.staged:compile_staged")
    TorchExecutable = late("plica.pipeline.torch_source:TorchExecutable")
    module_of_program = late("plica.pipeline.torch_source:module_of_program")
    find_pass = late("plica.rewrite.graph:find_pass")
    with_donated = late("plica.pipeline.donated:with_donated")


Compilable: TypeAlias = (
    "Module | Scripted | Kernel | str | PathLike[str] | ModelProto | TorchModule | ExportedProgram"
)


def compile_anew(  # noqa: PLR0917  # the public surface says so
    mod: Compilable,
    target: str | AnyTarget = "cpu",
    threads: int | None = None,
    database: RecordSource | str | PathLike[str] | None = None,
    cache: bool = True,
    packs: str | Pack | Sequence[str | Pack] = (),
    contract: Contract | str | None = None,
    *,
    passes: Pipeline | None = None,
    disabled: str | Sequence[str] = (),
    effort: str = "default",
    validate: bool = False,
    schedules: Mapping[str, GivenSchedule | KernelTrace] | None = None,
    background: bool = False,
    specialise: bool = False,
    externs: Mapping[str, GivenExtern] | None = None,
    machine: str | MachineDescription | None = None,
    donate: str | Sequence[str] = (),
) -> Executable:
    """What `plica.compile` says, by the whole compiler."""
    if background:
        return _in_background(
            mod, target=target, threads=threads, database=database, cache=cache, packs=packs,
            contract=contract, passes=passes, disabled=disabled, effort=effort,
            schedules=schedules, specialise=specialise, externs=externs, validate=validate,
            machine=machine, donate=donate,
        )  # fmt: skip
    check_options(threads, database)
    if not isinstance(cache, bool):
        raise wrong_argument("The cache is used or not.", "True or False", cache)
    goal = described_target(target_of(target), machine)
    backend = backend_of(goal)
    if not isinstance(packs, str | Pack | Iterable):
        raise wrong_argument("These are no rule packs.", "packs, or their names", packs)
    wanted = (packs,) if isinstance(packs, str | Pack) else tuple(packs)
    kept = contract_of(contract)
    page = chosen_page(backend, passes, disabled, effort)
    count = cores() if threads is None else threads
    request = Request(
        backend, goal, count, kept, packs_of(wanted, kept), wanted, database, cache, page,
        validate, schedules_of(schedules), checked_externs(externs),
        effort if passes is None else "own",
    )  # fmt: skip
    again = partial(
        compile_anew, target=goal, threads=threads, database=database, cache=cache, packs=packs,
        contract=contract, passes=passes, disabled=disabled, effort=effort, validate=validate,
        schedules=schedules, externs=externs,
    )  # fmt: skip
    if is_torch_module(mod):
        return TorchExecutable(mod, again, request.tier)
    given = module_of_program(mod) if is_torch_program(mod) else mod
    if donate:
        given = with_donated(given, donate, backend)
    module = at_call(cast("Any", given), again)  # nothing of torch is left
    if (listed := lists_of(module)) is not None:
        return compile_lists(*listed, again)
    source = module.whole if isinstance(module, Specialised) else module
    if source is not None:  # what no size could mend is said now
        if any(isinstance(each, Kernel) for each in source.values):
            check_called(source)
        externs_of(source, request.externs, backend.here(goal))
    if isinstance(module, Module) and is_staged(module):
        driver = partial(backend.driver, goal)
        return compile_staged(module, again, driver, updates=backend.updates).told(request.tier)
    if isinstance(module, Specialised):
        module.told(request.tier)
        return _opened(module, request, specialise, again)
    if backend.native:
        native = partial(compile_anew, threads=threads, database=database, cache=cache, packs=packs,
                         contract=contract)  # fmt: skip
        return compiled(module, request, native)
    if not backend.objects:
        return _chosen_by_host(module, request, again) or compiled(module, request)
    if (static := static_form(module)) is not None:
        return compiled(static, request)
    if database is not None:
        message = "Schedules are tuned for programs without data and recursion only."
        raise UnsupportedError(Diagnostic("unsupported", message, None, "None", str(database)))
    dynamic = backend.with_objects()
    assert dynamic is not None
    page = chosen_page(dynamic, passes, disabled, effort)
    return compiled(module, evolve(request, backend=dynamic, page=page))


def is_torch_module(of: object) -> TypeGuard[TorchModule]:
    """Whether something is a module of torch, which then is imported already."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(of, torch.nn.Module)


def is_torch_program(of: object) -> TypeGuard[ExportedProgram]:
    """Whether something is a program that torch exported."""
    exported = sys.modules.get("torch.export")
    return exported is not None and isinstance(of, exported.ExportedProgram)


def _in_background(
    mod: Any,
    passes: Pipeline | None,
    effort: str,
    **options: Any,  # Any: as `compile`
) -> Executable:
    """What answers with fast code until that of the effort is made."""
    if passes is not None or effort == "fast":
        message = "In the background the code of a better effort than fast is made."
        found = "passes" if passes is not None else "effort='fast'"
        expected = "an effort, and no page of one's own"
        raise UnsupportedError(Diagnostic("unsupported", message, None, expected, found))
    source = read_once(mod)  # a file may change meanwhile
    first = compile_anew(source, effort="fast", **options)
    return BackgroundExecutable(first, partial(compile_anew, source, effort=effort, **options))


def _chosen_by_host(
    module: Module, request: Request, again: Callable[[Module], Executable]
) -> Executable | None:
    """The segments of a program that chooses, where code for the target does not; None where there
    is nothing left to choose, or the target does it."""
    backend = request.backend
    if backend.chooses or not is_staged(module, chooses=False):
        return None
    decided = find_pass("fold-constants")(find_pass("evaluate-partially")(infer(module)))
    if not is_staged(decided, chooses=False):
        return None
    driver = partial(backend.driver, request.target)
    made = compile_staged(decided, again, driver, chooses=False, updates=backend.updates)
    return made.told(request.tier)


def _opened(
    module: Specialised,
    request: Request,
    specialise: bool,
    again: Callable[[Module], Executable],
) -> Executable:
    """One code for every size, where it can be made, beside what is compiled at a call."""
    if module.whole is not None and (made := _chosen_by_host(module.whole, request, again)):
        return made
    if module.whole is None or not request.backend.opens(request.target):
        return module
    try:
        opened = compiled(module.whole, request)
    except (UnsupportedError, LoweringRefused):
        if request.schedules or attr(module.whole.main_function(), "donated"):
            raise
        return module  # some operator of it, or the schedule of a kernel, must know its sizes
    assert isinstance(opened, OpenExecutable)
    return opened.beside(lambda: module, eager=specialise)
