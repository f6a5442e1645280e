"""The front of the pipeline: `plica.compile`, which asks the store before it imports the compiler.

A model file that was compiled before is loaded as an artefact is (`plica.pipeline.known_model`);
everything else goes down the whole pipeline (`plica.pipeline.whole`).
"""

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

    Where a size is open, one code serves every size (`plica.runtime.open_executable`).  Where a
    size becomes known while the program runs, code in segments does (`plica.runtime.staged`); what
    even that cannot do is compiled when it is called, once for each choice of the values that
    decide, and kept (`plica.pipeline.code_for_sizes`; `exe.stats.at_call` counts it).  The code
    runs on a given number of `threads`, as many as this process has cores if none are given.  With
    `cache` a module that is still compiled somewhere in this process is shared, and what was made
    before is taken from the store of this user (`plica.runtime.store`).  The rules of the `packs`,
    by name or as they are, rewrite the module first, then Plica's own; only rules within the
    `contract` are used (`approx(1e-4)` if none is given), and the code rounds products before they
    are added unless it is `fused` or looser.  From a tuning `database` (`plica.tune`) each kernel
    takes the best schedule that was found for this machine; `exe.tuning` says which and why.

    The `effort` chooses the pipeline of passes that leads to the code (`plica explain --passes`):
    `fast` is compiled sooner and runs slower, `max` is the default's pipeline today.  `passes` is a
    pipeline of one's own, an edited `plica.pipeline.pipeline_of(target)`, and passes that are
    `disabled`, by name, are left out of either.

    With `validate` each kernel is held to its stages (`plica.codegen.validation`): it runs on
    sampled inputs, its accesses are proved to be inside their buffers, and whatever the store holds
    is made again.  What is wrong is refused by name; this takes several times as long.

    A kernel is compiled as it stands: what it reads it takes, what it writes it gives, and its
    loops are those it has.  `schedules` puts a trace on one kernel of a model, by the name that a
    profile shows, and `externs` says who serves the symbols that a program calls: a library, or a
    Python function (`plica.pipeline.extern_source`).

    In the `background` better code is made while that of the effort `fast` answers already
    (`plica.pipeline.background`); `exe.tier` says which does.  With `specialise` a model with open
    sizes gets code for just the sizes of a call when it is first called with them.

    `machine` says what default schedules of processors are chosen by: a name of the table
    (`plica.codegen.machine_table`), `"measured"` for what `plica doctor --measure` found, or a
    `plica.runtime.machine.MachineDescription`.  If none is given it is what was measured here, if
    that was done and the target is this machine, else the row of the target's processor.

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
    if (found := known(wanted, compile_anew)) is None:
        _begin_workers(mod, target)
        with paused():
            found = compile_anew(mod, **options)
        keep(wanted, found)
    return found


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
    """The refusal of an option that there is not; those of `from_onnx` are said there."""
    from inspect import signature

    names = [each for each in signature(compile).parameters if each not in ("mod", "unknown")]
    near = get_close_matches(name, names, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else None
    if name in ("dims", "fixed"):
        hint = f"Read the model first: plica.compile(plica.from_onnx(model, {name}={{...}}))."
    message = f"plica.compile has no option {name!r}."
    return wrong_argument(message, ", ".join(names), given[name], hint)
