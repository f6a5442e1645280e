"""The public function of tuning: `plica.tune(model, target, trials)`.

Schedules are searched on this machine, and every trial is in the database before it counts; a
stopped run continues where it was. `plica.compile(model, database=…)` then uses the best.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from math import inf
from os import PathLike
from typing import TYPE_CHECKING, Final

from attrs import evolve

from plica.codegen.backend import AnyTarget, backend_of
from plica.core.deadline import DeadlinePassed, check_deadline, deadline
from plica.ir.contract import Contract
from plica.ir.graph.expression import Var
from plica.ir.graph.module import Module
from plica.ir.loop.statement import Kernel
from plica.ir.passes import Pipeline
from plica.ir.text.script import Scripted, as_module
from plica.pipeline import compile, contract_of, packs_of, target_of
from plica.pipeline.option import check_options, packs_listed
from plica.pipeline.whole import at_call
from plica.rewrite.pack import Pack
from plica.runtime.error import Diagnostic, UnsupportedError
from plica.runtime.executable import Executable
from plica.runtime.host import cores
from plica.runtime.selecting_executable import SelectingExecutable
from plica.search.distinct import SpaceSize, space_sizes
from plica.search.graph_form import GraphForm
from plica.search.graph_search import GraphTuned, tuned_graph
from plica.search.in_place import database_of, held
from plica.search.measure import TrialLimits
from plica.search.pool.measurer import PoolMeasurer
from plica.search.record import Database, fingerprint, versions
from plica.search.target import tuning_of
from plica.search.tune import not_by_kernels, tuned_kernel, tuned_module, without
from plica.search.tuned import DEFAULT_POLICY, Tuned, TuneOptions

if TYPE_CHECKING:
    from onnx import ModelProto

MAX_SEED: Final = (1 << 63) - 1  # the largest seed that a record can hold
RESERVED_COMPILES: Final = 4
"""The time reserved at the end of a search, in compile times of the untuned program: for compiling
it, the tuned one twice, and comparing them."""


def tune(  # noqa: PLR0917  # the public surface says so
    mod: Module | Kernel | Scripted | str | PathLike[str] | ModelProto,
    target: str | AnyTarget = "cpu",
    trials: int = 64,
    database: Database | str | PathLike[str] = "tune.db",
    seed: int = 0,
    progress: bool = True,
    *,
    threads: int | None = None,
    packs: str | Pack | Sequence[str | Pack] = (),
    contract: Contract | str | None = None,
    policy: str = DEFAULT_POLICY,
    seconds: float | None = None,
    pool: str | None = None,
    graph: bool = False,
) -> Tuned:
    """Search for fast schedules of a model's kernels, or of one kernel: a given number of trials,
    or this many seconds, in all.

    The model, the machine, `threads`, `packs` and `contract` are as for `plica.compile`, which uses
    the best of the `database`. The same `seed` proposes the same candidates; a stopped search
    continues when called again. With the address of a `pool` of devices, candidates are measured
    there. With `graph` the graph passes are chosen first (`plica.search.graph_search`), by timing
    whole programs alternately on this machine.
    """
    start = time.monotonic()
    asked = target_of(target)
    how = TuneOptions(trials, seed, progress, policy, seconds)
    if tuning_of(asked).whole is not None and pool is None:
        return _whole(mod, asked, how, database)
    _check(asked, how, pool)
    end = inf if seconds is None else start + seconds
    check_options(threads, None)
    if pool is None:
        backend_of(asked).check_here(asked)
    kept = contract_of(contract)
    wanted = packs_listed(packs)
    chosen = packs_of(wanted, kept)
    subject = written_kernel(mod)
    module = None if subject is not None else at_call(mod, compile)
    if isinstance(module, SelectingExecutable):
        raise _open_sizes(module)
    if graph and (subject is not None or pool is not None or not tuning_of(asked).in_place):
        raise _no_graph(asked)
    count = cores() if threads is None else threads
    where = backend_of(asked).with_threads(asked, count)
    opened = nullcontext(database) if isinstance(database, Database) else Database(database)
    there: AbstractContextManager[PoolMeasurer | None] = nullcontext()
    if pool is not None:
        there = PoolMeasurer(pool, where, TrialLimits(threads=count))
    with opened as into, there as measurer:
        how = without(how, start)
        if subject is not None:
            name, kernel = subject
            return tuned_kernel(kernel, name, where, into, how, measurer)
        assert module is not None
        if pool is not None or not tuning_of(asked).in_place:
            return tuned_module(module, kept, chosen, where, into, how, measurer)
        compiled = partial(_compiled, module, asked, count, wanted, kept)
        pipeline, forms = backend_of(asked).pipeline(), GraphTuned()
        if graph:
            start = time.monotonic()
            forms = tuned_graph(
                module, kept, chosen, where, partial(_in_form, compiled, pipeline), versions(where),
                how.seconds,
            )  # fmt: skip
            for record in forms.records:
                into.put(record)
            pipeline = forms.form.pipeline(pipeline) or pipeline
            how = without(how, start)
        how, untuned, holds = _with_time_for(partial(compiled, database_of(forms.records)), how)
        tuned = tuned_module(module, kept, chosen, where, into, how, measurer, pipeline)
        if holds:
            with suppress(DeadlinePassed), deadline(end):
                tuned = held(
                    module, tuned, compiled, into, fingerprint(where), versions(where), untuned,
                    forms.records,
                )  # fmt: skip
        return evolve(tuned, graph=str(forms)) if graph else tuned


def spaces(
    mod: Module | Scripted | str | PathLike[str] | ModelProto,
    target: str | AnyTarget = "cpu",
    most: int = 64,
    *,
    threads: int | None = None,
    packs: str | Pack | Sequence[str | Pack] = (),
    contract: Contract | str | None = None,
) -> Iterator[SpaceSize]:
    """How many distinct candidates, `most` at most, a search has for each kernel of a model."""
    check_options(threads, None)
    asked, kept = target_of(target), contract_of(contract)
    module = at_call(mod, compile)
    if isinstance(module, SelectingExecutable):
        raise _open_sizes(module)
    where = backend_of(asked).with_threads(asked, cores() if threads is None else threads)
    return space_sizes(module, kept, packs_of(packs_listed(packs), kept), where, most)


def _open_sizes(of: object) -> UnsupportedError:
    """The refusal of a model whose sizes are not known."""
    message = "A model with open sizes has no kernels to tune before it is called."
    hint = "Give its sizes: plica.from_onnx(path, dims={'batch': 1})."
    return UnsupportedError(Diagnostic("unsupported", message, None, "known sizes", repr(of), hint))


def _in_form(
    compiled: Callable[..., Executable], pipeline: Pipeline, form: GraphForm
) -> Executable:
    """A model compiled in a form, with default schedules."""
    return compiled(Database(), form.pipeline(pipeline))


def _no_graph(target: AnyTarget) -> UnsupportedError:
    """The refusal of a search over the graph where whole programs cannot be timed here."""
    message = "The passes over a graph are chosen for models, by programs that run here."
    hint = "Leave `graph` out: schedules of kernels are searched without it."
    found = target.describe()
    return UnsupportedError(Diagnostic("unsupported", message, None, "a model on cpu", found, hint))


def _with_time_for(
    compiled: Callable[[], Executable], how: TuneOptions
) -> tuple[TuneOptions, Executable | None, bool]:
    """The options with time reserved for validating results in the network, the untuned program,
    which this compiles, and whether to validate: at least half of the time is for the search."""
    if how.seconds is None:
        return how, None, True
    start = time.monotonic()
    try:
        with deadline(start + how.seconds / (2 * RESERVED_COMPILES)):
            untuned = compiled()
            check_deadline()
    except DeadlinePassed:
        return without(how, start), None, False
    took = time.monotonic() - start
    return evolve(how, seconds=how.seconds - RESERVED_COMPILES * took), untuned, True


def _compiled(  # noqa: PLR0917  # as `tune`
    module: Module,
    target: AnyTarget,
    threads: int,
    packs: Sequence[str | Pack],
    contract: Contract,
    database: Database,
    passes: Pipeline | None = None,
) -> Executable:
    """A model compiled with the records of a database, for once."""
    executable = compile(
        module, target, threads=threads, packs=packs, contract=contract, database=database,
        cache=False, passes=passes,
    )  # fmt: skip
    assert isinstance(executable, Executable)
    return executable


def _whole(
    mod: object, target: AnyTarget, how: TuneOptions, database: Database | str | PathLike[str]
) -> Tuned:
    """A model tuned as one, where its target says how: tilings of the layers of an accelerator."""
    searched = tuning_of(target).whole
    assert searched is not None  # that was asked
    if wrong := _wrong_options(how):
        raise UnsupportedError(wrong[0], *wrong[1:])
    module = None if written_kernel(mod) is not None else at_call(mod, compile)  # type: ignore[arg-type]  # no kernel
    if module is None or isinstance(module, SelectingExecutable):
        message = "For an accelerator the layers of a model of known sizes are tuned."
        raise UnsupportedError(Diagnostic("unsupported", message, None, "a model", repr(mod)[:80]))
    opened = nullcontext(database) if isinstance(database, Database) else Database(database)
    with opened as into:
        return searched(module, target, into, how)


def written_kernel(of: object) -> tuple[str, Kernel] | None:
    """The user's kernel and its name: a kernel, or the main one of a module."""
    if isinstance(of, Kernel):
        return "kernel", of
    if not isinstance(of, Module | Scripted):
        return None
    whole = as_module(of)
    match [(name, value) for name, value in whole.items() if whole.main in (None, name)]:
        case [(Var(name), Kernel() as kernel)]:
            return str(name), kernel
        case _:
            return None


def _wrong_options(how: TuneOptions) -> list[Diagnostic]:
    """All errors in numbers and names of the options."""
    trials, seed, seconds, policy = how.trials, how.seed, how.seconds, how.policy
    is_time = type(seconds) in (int, float) and 0 < seconds < inf if seconds is not None else True
    # fmt: off
    checks = (
        (type(trials) is int and trials >= 1,
         "The number of trials must be at least 1.", "1 or more", trials),
        (type(seed) is int and -MAX_SEED <= seed <= MAX_SEED,
         "A seed is a whole number of 64 bits.", f"{-MAX_SEED} to {MAX_SEED}", seed),
        (is_time,
         "The time for a search must be more than 0 seconds.", "seconds, or None", seconds),
        (isinstance(policy, str),
         "A search policy is given by its name.", "a text", policy),
    )
    # fmt: on
    return [
        Diagnostic("unsupported", message, None, expected, repr(found))
        for is_right, message, expected, found in checks
        if not is_right
    ]


def _check(target: AnyTarget, how: TuneOptions, pool: str | None) -> None:
    """Refuses targets that are not tuned per kernel, or not on a pool, and meaningless options."""
    wrong: list[Diagnostic] = []
    if tuning_of(target).space is None:
        wrong += not_by_kernels(target).diagnostics
    elif pool is not None and not tuning_of(target).pools:
        message = "The devices of a pool are processors."
        hint = "Tune on the machine with the GPU: leave the pool out."
        found = target.describe()
        wrong.append(Diagnostic("unsupported", message, None, "cpu", found, hint))
    wrong += _wrong_options(how)
    if wrong:
        raise UnsupportedError(wrong[0], *wrong[1:])
