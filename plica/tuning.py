"""The face of tuning: `plica.tune(model, target, trials)`.

Schedules are searched for on this machine, and every trial is in the database before it counts; a
run that was stopped goes on where it was.  `plica.compile(model, database=…)` then takes the best.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from os import PathLike
from typing import TYPE_CHECKING, TypeAlias

from attrs import evolve

from plica.codegen.accel.target import AccelTarget
from plica.codegen.cuda.target import GpuTarget
from plica.codegen.llvm import toolchain
from plica.codegen.target import Target
from plica.frontend.specialised import Specialised, at_call
from plica.ir.graph import Var
from plica.ir.loop import Kernel
from plica.ir.module import Module
from plica.ir.script import Scripted, as_module
from plica.pipeline import compile, contract_of, packs_of, target_of
from plica.rewrite.contract import Contract
from plica.rewrite.pack import Pack
from plica.runtime.cuda import code
from plica.runtime.cuda.driver import device
from plica.runtime.error import Diagnostic, UnsupportedError
from plica.runtime.host import cores
from plica.search.measure import Limits
from plica.search.pool.measurer import PoolMeasurer
from plica.search.record import Database
from plica.search.tune import USUAL, How, Tuned, tuned_kernel, tuned_module

if TYPE_CHECKING:
    from onnx import ModelProto


AnyTarget: TypeAlias = Target | GpuTarget | AccelTarget


def tune(  # noqa: PLR0917  # the public surface says so
    mod: Module | Kernel | Scripted | str | PathLike[str] | ModelProto,
    target: str | Target | GpuTarget | AccelTarget = "cpu",
    trials: int = 64,
    database: Database | str | PathLike[str] = "tune.db",
    seed: int = 0,
    progress: bool = True,
    *,
    threads: int | None = None,
    packs: str | Pack | Sequence[str | Pack] = (),
    contract: Contract | str | None = None,
    policy: str = USUAL,
    seconds: float | None = None,
    pool: str | None = None,
) -> Tuned:
    """Search for fast schedules of a model's kernels, or of one kernel: so many trials, or so many
    seconds, in all.

    The model, the machine, `threads`, `packs` and `contract` are as for `plica.compile`, which
    takes the best of the `database`.  The same `seed` proposes the same candidates; a search that
    was stopped goes on if it is asked for again.  With the address of a `pool` of devices,
    candidates are measured there.
    """
    asked = target_of(target)
    if isinstance(asked, AccelTarget) and pool is None:
        how = How(trials, seed, progress, policy, seconds)
        return _layers(mod, asked, how, database)
    machine = _machine(asked, trials, pool)
    if pool is None:
        _check_here(machine)
    kept = contract_of(contract)
    wanted = (packs,) if isinstance(packs, str | Pack) else tuple(packs)
    chosen = packs_of(wanted, kept)
    subject = written_kernel(mod)
    module = None if subject is not None else at_call(mod, compile)  # type: ignore[arg-type]  # no kernel
    if isinstance(module, Specialised):
        message = "A model with open sizes has no kernels to tune before it is called."
        hint = "Give its sizes: plica.from_onnx(path, dims={'batch': 1})."
        raise UnsupportedError(
            Diagnostic("unsupported", message, None, "known sizes", repr(module), hint)
        )
    count = cores() if threads is None else threads
    where = machine if isinstance(machine, GpuTarget) else evolve(machine, cores=count)
    how = How(trials, seed, progress, policy, seconds)
    opened = nullcontext(database) if isinstance(database, Database) else Database(database)
    there: AbstractContextManager[PoolMeasurer | None] = nullcontext()
    if pool is not None:
        assert isinstance(where, Target)  # of those a pool has, that was checked
        there = PoolMeasurer(pool, where, Limits(threads=count))
    with opened as into, there as measurer:
        if subject is not None:
            name, kernel = subject
            return tuned_kernel(kernel, name, where, into, how, measurer)
        assert module is not None
        return tuned_module(module, kept, chosen, where, into, how, measurer)


def _layers(
    mod: object, target: AccelTarget, how: How, database: Database | str | PathLike[str]
) -> Tuned:
    """Tilings for the integer layers of a model, by the cycles of a simulator."""
    from plica.search.accel.layers import tuned_layers  # as `plica.pipeline.on_accelerator`

    for each in _too_few(how.trials):
        raise UnsupportedError(each)
    module = None if written_kernel(mod) is not None else at_call(mod, compile)  # type: ignore[arg-type]  # no kernel
    if module is None or isinstance(module, Specialised):
        message = "For an accelerator the layers of a model of known sizes are tuned."
        raise UnsupportedError(Diagnostic("unsupported", message, None, "a model", repr(mod)[:80]))
    opened = nullcontext(database) if isinstance(database, Database) else Database(database)
    with opened as into:
        return tuned_layers(module, target, into, how)


def written_kernel(of: object) -> tuple[str, Kernel] | None:
    """The kernel that somebody wrote, and its name: a kernel, or a module with nothing else."""
    if isinstance(of, Kernel):
        return "kernel", of
    if not isinstance(of, Module | Scripted):
        return None
    values = [*as_module(of).items()]
    match values:
        case [(Var(name), Kernel() as kernel)]:
            return str(name), kernel
        case _:
            return None


def _check_here(machine: Target | GpuTarget) -> None:
    """Refuse a machine on which nothing can be measured from here."""
    if isinstance(machine, GpuTarget):
        code.check(machine.architecture, device().architecture)
    else:
        toolchain.check_host(machine)


def _too_few(trials: object) -> list[Diagnostic]:
    """What is wrong with a number of trials."""
    if type(trials) is int and trials >= 1:
        return []
    message = "The number of trials must be at least 1."
    return [Diagnostic("unsupported", message, None, "1 or more", repr(trials))]


def _machine(machine: AnyTarget, trials: int, pool: str | None) -> Target | GpuTarget:
    """The machine, if schedules are searched for such, and so many trials."""
    wrong = []
    if not isinstance(machine, Target | GpuTarget):
        message = "Schedules are searched for processors and for GPUs."
        wrong.append(Diagnostic("unsupported", message, None, "cpu or cuda", str(machine)))
    elif pool is not None and not isinstance(machine, Target):
        message = "The devices of a pool are processors."
        hint = "Tune on the machine with the GPU: leave the pool out."
        wrong.append(Diagnostic("unsupported", message, None, "cpu", str(machine), hint))
    wrong += _too_few(trials)
    if wrong:
        raise UnsupportedError(wrong[0], *wrong[1:])
    assert isinstance(machine, Target | GpuTarget)
    return machine
