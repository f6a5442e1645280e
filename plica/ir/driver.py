"""The driver: a pipeline of passes is run, watched, and checked between passes where that is asked.

>>> from plica.ir.passes import Pass, Pipeline
>>> more = Pass("more", "One more.", lambda number: number + 1)
>>> drive(Pipeline((more,)), 1, lambda each, number: each.run(number))
2

Law: instruments see states and cannot change them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from plica.core import CompilerBug
from plica.core.deadline import check_deadline
from plica.ir.contract import Contract
from plica.ir.graph.check import check
from plica.ir.graph.module import Module
from plica.ir.passes import Pass, PassError, Pipeline, has_form
from plica.ir.type import infer
from plica.runtime.error import Diagnostic, PlicaError

S = TypeVar("S")

Step: TypeAlias = Callable[[Pass, S], S]  # how a pass changes a state


class PassBroke(CompilerBug):
    """A check between passes failed: the pass that is to blame is named."""

    def __init__(self, guilty: str, message: str) -> None:
        super().__init__(message)
        self.guilty = guilty


class Instrument(Protocol):
    """Somebody who watches: told before and after each pass, asked nothing."""

    def before(self, each: Pass, state: Any) -> None:  # Any: the state of whatever is driven
        """A pass is about to run."""

    def after(self, each: Pass, state: Any) -> None:  # as above
        """A pass has run."""


class Checks(Protocol):
    """Says what is wrong with a state before or after a pass, None if nothing is."""

    def before(self, each: Pass, state: Any) -> str | None:  # Any: the state of what is driven
        """Why a pass cannot take a state."""

    def after(self, each: Pass, state: Any) -> str | None:  # as above
        """What a pass has broken."""


class PassTiming:
    """How long each pass took, by a clock that is given: this room has none."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.seconds: list[tuple[str, float]] = []
        self._began = 0.0

    def before(self, each: Pass, state: object) -> None:
        self._began = self.clock()

    def after(self, each: Pass, state: object) -> None:
        self.seconds.append((each.name, self.clock() - self._began))

    @property
    def total(self) -> float:
        return sum(seconds for _, seconds in self.seconds)

    def __str__(self) -> str:
        lines = [f"{self.total:9.4f} s  pipeline"]
        lines += [f"{seconds:9.4f} s    {name}" for name, seconds in self.seconds]
        return "\n".join(lines)


class PrintIR:
    """The module after each pass that changed it, as text handed to `write`."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self.write = write
        self._was: object = None

    def before(self, each: Pass, state: object) -> None:
        self._was = state

    def after(self, each: Pass, state: object) -> None:
        if state is self._was:
            self.write(f"# {each.name}: nothing changed")
        else:
            self.write(f"# after {each.name}\n{state}")


def drive(
    pipeline: Pipeline,
    state: S,
    step: Step[S],
    instruments: Sequence[Instrument] = (),
    checks: Checks | None = None,
) -> S:
    """The state after all passes; with checks, a `PassBroke` names the pass that did."""
    check_requirements(pipeline)
    changed: set[str] = set()
    for pass_ in pipeline:
        check_deadline()
        if pass_.if_changed and pass_.if_changed not in changed:
            continue
        wrong = None if checks is None else checks.before(pass_, state)
        if wrong is not None:
            raise PassBroke(pass_.name, f"Before {pass_.name}: {wrong}")
        for watcher in instruments:
            watcher.before(pass_, state)
        made = step(pass_, state)
        for watcher in instruments:
            watcher.after(pass_, made)
        wrong = None if checks is None else checks.after(pass_, made)
        if wrong is not None:
            raise PassBroke(pass_.name, f"After {pass_.name}: {wrong}")
        if made is not state:
            changed.add(pass_.name)
        state = made
    return state


def run(
    pipeline: Pipeline, module: Module, instruments: Sequence[Instrument] = (), debug: bool = False
) -> Module:
    """The module after all passes, which are of the kind `graph`.

    In debug mode each pass must keep the module well formed and well typed, and give the normal
    forms it declares; otherwise a `CompilerBug` names it.
    """
    return drive(pipeline, module, apply, instruments, ModuleChecks() if debug else None)


def apply(each: Pass, module: Module) -> Module:
    """The module after a pass over modules."""
    made = each.run(module)
    if not isinstance(made, Module):
        raise CompilerBug(f"The pass {each.name} gave a {type(made).__name__}, not a module.")
    return made


class ModuleChecks:
    """Well formed, well typed, and in the normal forms that a pass takes and gives."""

    def before(self, each: Pass, state: Module) -> str | None:
        """The form that a pass declares to take, and that is not there."""
        missing = [name for name in each.before if not has_form(name, state)]
        return f"the module is not in the form {missing[0]!r}." if missing else None

    def after(self, each: Pass, state: Module) -> str | None:
        """What a pass has broken."""
        if wrong := check(state):
            return f"the module is not well formed.\n{wrong[0]}"
        try:
            infer(state)
        except PlicaError as error:
            return f"the module is not well typed.\n{error}"
        missing = [name for name in each.after if not has_form(name, state)]
        return f"the module is not in the form {missing[0]!r}." if missing else None


def check_requirements(pipeline: Pipeline) -> None:
    """Refuse a pipeline in which a pass lacks one that it needs before it."""
    seen: set[str] = set()
    missing: list[Diagnostic] = []
    for pass_ in pipeline:
        for name in pass_.requires:
            if name not in seen:
                where = "comes after it" if name in pipeline.names else "is not in the pipeline"
                message = f"The pass {pass_.name} requires {name}, which {where}."
                missing.append(Diagnostic("missing-pass", message))
        seen.add(pass_.name)
    if missing:
        raise PassError(*missing)


def check_contracts(pipeline: Pipeline, asked: Contract) -> None:
    """Refuse a pipeline with passes that declare a looser contract than the one asked for."""
    loose = [
        loose_pass(pass_.name, pass_.contract, asked)
        for pass_ in pipeline
        if not pass_.takes_contract and not pass_.contract <= asked
    ]
    if loose:
        raise PassError(*loose)


def loose_pass(name: str, kept: Contract, asked: Contract) -> Diagnostic:
    """A pass moves floats further than the contract asked for lets it."""
    message = f"The pass {name} does not keep the contract {asked}."
    hint = (
        f"Compile with contract='{kept}' or leave the pass out; if it does keep {asked}, say so: "
        f"Pass(..., contract={asked})."
    )
    return Diagnostic("loose-pass", message, None, str(asked), str(kept), hint)
