"""The front: `plica.compile`, which asks the store before it imports the compiler."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from os import PathLike
from typing import Any, Final, Never

from plica.pipeline.model_query import query_of
from plica.runtime.error import PlicaError, wrong_argument
from plica.runtime.executable import Executable
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.codegen.backend import AnyTarget
    from plica.codegen.given_trace import GivenSchedule
    from plica.core.collector import paused
    from plica.ir.contract import Contract
    from plica.ir.passes import Pipeline
    from plica.pipeline.extern_source import GivenExtern
    from plica.pipeline.known_model import keep, known
    from plica.pipeline.whole import Compilable, compile_anew
    from plica.pipeline.worker_pool import begin
    from plica.rewrite.pack import Pack
    from plica.runtime.machine import MachineDescription
    from plica.runtime.record import KernelTrace
    from plica.search.record import RecordSource


def compile(  # noqa: PLR0917  # the public surface says so
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
    **unknown: Never,
) -> Executable:
    """Native code for a module, a kernel, an ONNX model (a path, or a `ModelProto`), a program
    that torch exported, or a module of torch, which is exported when it is called.

    With open sizes, one code serves every size (`plica.runtime.open_executable`). Sizes that become
    known during the run split the code into segments (`plica.runtime.staged`). What even that
    cannot express is compiled at the call, once for each choice of the deciding values, and cached
    (`plica.pipeline.code_for_sizes`; `exe.stats.at_call` counts these compilations). The code uses
    the given number of `threads`, by default all cores of this process. With `cache`, a module with
    a live executable in this process is shared, and earlier artefacts come from the user's store
    (`plica.runtime.store`). The rules of the `packs`, by name or as objects, rewrite the module
    before Plica's own. Only rules within the `contract` apply (default `approx(1e-4)`), and
    products are rounded before they are added unless the contract is `fused` or looser. With a
    tuning `database` (`plica.tune`), each kernel takes the best schedule recorded for this machine;
    `exe.tuning` says which and why.

    The `effort` chooses the pipeline of passes that leads to the code (`plica explain --passes`):
    `fast` is compiled sooner and runs slower, `max` is the default's pipeline today.  `passes` is a
    pipeline of one's own, an edited `plica.pipeline.pipeline_of(target)`, and passes that are
    `disabled`, by name, are left out of either.

    `validate` checks each kernel against its stages (`plica.codegen.validation`): it runs on
    sampled inputs, its accesses are proved in bounds, and store entries are recomputed. Wrong
    kernels are refused by name. This takes several times as long.

    A kernel is compiled unchanged: buffers it reads are inputs, buffers it writes are outputs, and
    its loops are kept. `schedules` applies a trace to a kernel of a model, by the name shown in
    profiles. `externs` gives the implementation of each symbol that a program calls: a library or a
    Python function (`plica.pipeline.extern_source`).

    In the `background` better code is made while that of the effort `fast` answers already
    (`plica.pipeline.background`); `exe.tier` says which does.  With `specialise` a model with open
    sizes gets code for just the sizes of a call when it is first called with them.

    `machine` selects the parameters for default schedules: a row of the table by name
    (`plica.codegen.machine_table`), `"measured"` for the result of `plica doctor --measure`, or a
    `plica.runtime.machine.MachineDescription`. The default is the measured description if there is
    one and the target is this machine, else the row of the target's processor.

    Inputs to `donate`, by name, are updated in place: the result that replaces elements of such an
    input is written over it, and nothing else of it is read or written for that.
    """
    if unknown:
        raise _no_option(next(iter(unknown)), unknown)
    options: dict[str, Any] = {  # Any: as `compile_anew` takes each
        "target": target, "threads": threads, "database": database, "cache": cache,
        "packs": packs, "contract": contract, "passes": passes, "disabled": disabled,
        "effort": effort, "validate": validate, "schedules": schedules, "background": background,
        "specialise": specialise, "externs": externs, "machine": machine,
        "donate": _names(donate),
    }  # fmt: skip
    for name in _SWITCHES:
        if not isinstance(options[name], bool):
            raise wrong_argument(f"The option {name} is on or off.", "True or False", options[name])
    if not isinstance(effort, str):
        raise wrong_argument("The effort is a word.", "default, fast or max", effort)
    if (wanted := query_of(mod, options)) is None:
        _begin_workers(mod, target)
        with paused():  # all that is imported would be traced again and again
            return compile_anew(mod, **options)
    if (executable := known(wanted, compile_anew)) is None:
        _begin_workers(mod, target)
        with paused():
            executable = compile_anew(mod, **options)
        keep(wanted, executable)
    return executable


def _begin_workers(mod: object, target: object) -> None:
    """Let another process load the compiler while this one does, for workers to be forked from."""
    if "plica.pipeline.whole" not in sys.modules:
        begin(mod, target)


_SWITCHES: Final = ("cache", "validate", "background", "specialise")


def _names(given: object) -> tuple[str, ...]:
    """The names of inputs to donate."""
    names = ((given,) if given else ()) if isinstance(given, str) else given
    if isinstance(names, Iterable):
        told = tuple(names)
        if all(isinstance(each, str) for each in told):
            return told
    raise wrong_argument("Inputs are donated by name.", "names of inputs", given)


def _no_option(name: str, given: Mapping[str, object]) -> PlicaError:
    """The refusal of an unknown option; names the options of `from_onnx` if it is one of those."""
    from inspect import signature

    names = [each for each in signature(compile).parameters if each not in ("mod", "unknown")]
    near = get_close_matches(name, names, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else None
    if name in ("dims", "fixed"):
        hint = f"Read the model first: plica.compile(plica.from_onnx(model, {name}={{...}}))."
    message = f"plica.compile has no option {name!r}."
    return wrong_argument(message, ", ".join(names), given[name], hint)
