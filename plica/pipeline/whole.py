"""The pipeline: from a module to something one can call.

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

Specialised executables: a model with open sizes, compiled for those of each call.

>>> import numpy as np
>>> import plica
>>> from plica.script import Tensor, f32
>>> @plica.function
... def doubled(x: Tensor[("n", 2), f32]) -> Tensor[("n", 2), f32]:
...     return x + x
>>> exe = at_call(doubled, plica.compile)
>>> exe(np.ones((1, 2), np.float32)), exe(np.ones((3, 2), np.float32)).shape
(array([[2., 2.]], dtype=float32), (3, 2))
>>> exe
<Specialised (x: Tensor[('n', 2), f32]) -> Tensor[('n', 2), f32], 2 compiled>

Not here: code that serves every size at once (`plica.runtime.open_executable`), which is made where
it can be.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeGuard, runtime_checkable

from attrs import evolve

from plica.analysis.statement import LoweringRefused
from plica.codegen import program_kind
from plica.codegen.backend import backend_of
from plica.frontend.offered import front_end_of
from plica.ir.driver import check_contracts
from plica.ir.graph import Module, attr
from plica.ir.loop.statement import Kernel
from plica.ir.type import infer
from plica.pipeline import option
from plica.pipeline.compiled import compiled
from plica.pipeline.extern_source import checked_externs, externs_of
from plica.runtime.error import Diagnostic, UnsupportedError
from plica.runtime.executable import Executable
from plica.runtime.host import cores
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.codegen.lower.kernel_call import check_called
    from plica.ir.text.script import Scripted, as_module
    from plica.pipeline.background import in_background
    from plica.pipeline.code_for_sizes import (
        Specialised,
        specialised,
        specialised_model,
        with_code_for_sizes,
    )
    from plica.pipeline.kernel_main import lone_kernel, with_donated, with_main
    from plica.pipeline.list_program import compile_lists
    from plica.pipeline.staged import compile_staged
    from plica.pipeline.torch_source import CodeForInputs, TorchExecutable, module_of_program
    from plica.rewrite.graph import find_pass

if TYPE_CHECKING:
    from onnx import ModelProto
    from torch.export import ExportedProgram
    from torch.nn import Module as TorchModule


Compile = Callable[[Module], Executable]


def at_call(
    of: Module | Scripted | Kernel | str | PathLike[str] | bytes | ModelProto | ReadModel,
    compiled: Compile,
) -> Module | Specialised:
    """The module meant, or, where something is open, what compiles it when it is called."""
    return program_at_call(of, compiled)[0]


def program_at_call(
    of: Module | Scripted | Kernel | str | PathLike[str] | bytes | ModelProto | ReadModel,
    compiled: Compile,
) -> tuple[Module | Specialised, program_kind.ProgramKind]:
    """The same, and how it is compiled."""
    if isinstance(of, Kernel):
        of = lone_kernel(of)
    if not (isinstance(of, str | bytes | PathLike | ReadModel) or hasattr(of, "opset_import")):
        module = with_main(as_module(of))  # which says what it wants where this is something else
    elif (reader := front_end_of(of)) is not None:
        module = reader.read(Path(of))  # type: ignore[arg-type]  # a front end reads paths
    else:
        model = read_once(of)
        if (read := model.module()) is None:
            return specialised_model(model, compiled), "open"
        module = read
    if (kind := program_kind.kind_of(module)) == "open":
        return specialised(module, compiled), kind
    return module, kind


def lists_of(of: Module | Specialised) -> tuple[Any, Any] | None:  # Any: what is compiled again
    """The input and output types of a program with lists; None for other programs."""
    if not isinstance(of, Module):
        return of.selector.lists
    lists = None if of.main is None else attr(of.main_function(), "lists")
    return None if lists is None else (of, lists)


def read_once(of: Any) -> Any:  # Any: what `at_call` takes
    """The model, read from its file now, so that it can be compiled several times."""
    if isinstance(of, str | bytes | PathLike) or hasattr(of, "opset_import"):
        if front_end_of(of) is not None:
            return of
        from plica.frontend.onnx.polymorphic_model import (
            ShapePolymorphicModel,  # not every program is such a model
        )

        return ShapePolymorphicModel(of)
    return of


@runtime_checkable
class ReadModel(Protocol):
    """An ONNX model that was read from its file (`plica.frontend.onnx.polymorphic_model`)."""

    @property
    def needed(self) -> Any:  # Any: the model's own
        """The inputs whose values decide shapes."""

    def module(self) -> Any:  # as above
        """The module, where nothing is open."""

    def at(self, given: Any) -> Any:  # as above
        """The module for some inputs."""

    @property
    def repeats_dims(self) -> bool:
        """Whether several axes of inputs have one open size."""

    def with_dims_apart(self, names: Collection[str]) -> Any:  # as above
        """The same model, in which each axis with one of these names is a separate dim."""


Compilable: TypeAlias = (
    "Module | Scripted | Kernel | str | PathLike[str] | ModelProto | TorchModule | ExportedProgram"
)


def compile_anew(mod: Compilable, **given: Any) -> Executable:  # Any: as `plica.compile` says
    """What `plica.compile` says, by the whole compiler."""
    return compile_with(option.CompileOptions(**given), mod)


def compile_with(options: option.CompileOptions, mod: Compilable) -> Executable:
    """The executable for whatever can be compiled."""
    if options.background:
        return _in_background(options, mod)
    request = _requested(options)
    again = partial(
        compile_with,
        evolve(options, target=request.target, machine=None, specialise=False, donate=()),
    )
    if is_torch_module(mod):
        return TorchExecutable(CodeForInputs(mod, again)).with_tier(request.tier)
    given = module_of_program(mod) if is_torch_program(mod) else mod
    if is_stablehlo(given):
        from plica.frontend.stablehlo import from_stablehlo

        given = from_stablehlo(given)
    if options.donate:
        given = with_donated(given, options.donate, request.backend)
    given = read_once(given)
    executable = _compiled_at_sizes(given, options, request, again)
    if isinstance(given, ReadModel) and given.repeats_dims:
        return executable.separating(lambda names: again(given.with_dims_apart(names)))
    return executable


def _compiled_at_sizes(
    given: Any,  # what `at_call` takes
    options: option.CompileOptions,
    request: option.Request,
    again: Callable[[Any], Executable],
) -> Executable:
    """The executable for anything but a module of torch."""
    module, kind = program_at_call(given, again)
    if (listed := lists_of(module)) is not None:
        return compile_lists(*listed, again)
    _check_calls(module if isinstance(module, Module) else module.selector.whole, request)
    if not isinstance(module, Module):
        module.with_tier(request.tier)
        return _opened(module, request, options.specialise, again)
    if kind == "staged":
        return _in_segments(module, request, again)
    return _of_known_sizes(module, options, request, again)


def _requested(options: option.CompileOptions) -> option.Request:
    """The validated request of the options."""
    option.check_options(options.threads, options.database)
    target = option.described_target(option.target_of(options.target), options.machine)
    backend = backend_of(target)
    backend.check_before(target, runs=True)
    wanted = option.packs_listed(options.packs)
    contract = option.contract_of(options.contract)
    pipeline = options.pipeline(backend)
    check_contracts(pipeline, contract)
    return option.Request(
        backend,
        target,
        cores() if options.threads is None else options.threads,
        contract,
        option.packs_of(wanted, contract),
        wanted,
        options.database,
        options.cache,
        pipeline,
        options.validate,
        option.schedules_of(options.schedules),
        checked_externs(options.externs),
        options.effort if options.passes is None else "own",
    )


def _check_calls(module: Module | None, request: option.Request) -> None:
    """Say now what no size could mend: calls of kernels and externs that cannot be."""
    if module is None:
        return
    if any(isinstance(value, Kernel) for value in module.values):
        check_called(module)
    externs_of(module, request.externs, request.backend.here(request.target))


def _of_known_sizes(
    module: Module,
    options: option.CompileOptions,
    request: option.Request,
    again: Callable[[Module], Executable],
) -> Executable:
    """The executable for a module without open sizes, by the road its backend has for it."""
    backend = request.backend
    if not backend.objects or not backend.here(request.target):  # nobody runs its segments here
        module = program_kind.without_loops(module)
    if backend.native:  # an accelerator: what it cannot do, this processor does
        here = option.CompileOptions(
            threads=options.threads,
            database=options.database,
            cache=options.cache,
            packs=options.packs,
            contract=options.contract,
        )
        return compiled(module, request, partial(compile_with, here))
    if not backend.objects:
        return _chosen_by_host(module, request, again) or compiled(module, request)
    if (static := program_kind.static_form(module)) is not None:
        return compiled(static, request)
    if program_kind.repeats(module):
        return _in_segments(
            module, request, again,
            written_out=lambda: compiled(program_kind.without_loops(module), request),
        )  # fmt: skip
    if options.database is not None:
        message = "Schedules are tuned for programs without data and recursion only."
        found = str(options.database)
        raise UnsupportedError(Diagnostic("unsupported", message, None, "None", found))
    dynamic = backend.with_objects()
    assert dynamic is not None
    return compiled(module, evolve(request, backend=dynamic, pipeline=options.pipeline(dynamic)))


def is_torch_module(of: object) -> TypeGuard[TorchModule]:
    """Whether something is a module of torch, which then is imported already."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(of, torch.nn.Module)


def is_torch_program(of: object) -> TypeGuard[ExportedProgram]:
    """Whether something is a program that torch exported."""
    exported = sys.modules.get("torch.export")
    return exported is not None and isinstance(of, exported.ExportedProgram)


def is_stablehlo(of: object) -> bool:
    """Whether something is the text of StableHLO, or what JAX exports."""
    if isinstance(of, str):
        return "func.func" in of and "{" in of
    return callable(getattr(of, "mlir_module", None))


def _in_background(options: option.CompileOptions, mod: Any) -> Executable:  # Any: as `compile`
    """What answers with fast code until that of the effort is made."""
    if options.passes is not None or options.effort == "fast":
        message = "In the background the code of a better effort than fast is made."
        found = "passes" if options.passes is not None else "effort='fast'"
        expected = "an effort, and no pipeline of one's own"
        raise UnsupportedError(Diagnostic("unsupported", message, None, expected, found))
    source = read_once(mod)  # a file may change meanwhile
    better = evolve(options, background=False)
    first = compile_with(evolve(better, effort="fast"), source)
    return in_background(first, partial(compile_with, better, source))


def _in_segments(
    module: Module,
    request: option.Request,
    again: Callable[[Module], Executable],
    *,
    chooses: bool = True,
    written_out: Callable[[], Executable] | None = None,
) -> Executable:
    """The segments of a program that learns sizes while it runs, or repeats some of it; those of a
    program that chooses, where their code does not.  `written_out` makes the same without loops."""
    driver, updates = partial(request.backend.driver, request.target), request.backend.updates
    executable = compile_staged(
        module, again, driver, chooses=chooses, updates=updates, written_out=written_out
    )
    return executable.with_tier(request.tier)


def _chosen_by_host(
    module: Module, request: option.Request, again: Callable[[Module], Executable]
) -> Executable | None:
    """The segments of a program whose choices run on the host because the target's code cannot
    choose; None if there is no choice left, or the target can."""
    backend = request.backend
    if backend.chooses or not program_kind.is_staged(module, chooses=False):
        return None
    decided = find_pass("fold-constants")(find_pass("evaluate-partially")(infer(module)))
    if not program_kind.is_staged(decided, chooses=False):
        return None
    return _in_segments(decided, request, again, chooses=False)


def _opened(
    module: Specialised,
    request: option.Request,
    specialise: bool,
    again: Callable[[Module], Executable],
) -> Executable:
    """One code for every size, where possible, with per-call compilation as the alternative."""
    if (whole := module.selector.whole) is None:
        return module
    if (executable := _chosen_by_host(whole, request, again)) is not None:
        return executable
    if not request.backend.opens(request.target):
        return module
    static = program_kind.static_form(
        whole
    )  # functions and recursion that no input decides are gone
    try:
        opened = compiled(whole if static is None else static, request)
    except (UnsupportedError, LoweringRefused):
        if request.schedules or attr(whole.main_function(), "donated"):
            raise
        return module  # some operator of it, or the schedule of a kernel, must know its sizes
    return with_code_for_sizes(opened, module, specialise)
