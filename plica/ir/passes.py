"""Passes: named functions from modules to modules, and pipelines of them as data.

A pass says why it exists and which normal forms it takes and gives; a pipeline is a list that
prints, compares, composes and is edited.  Running one is a fold; with `debug` every module on the
way is checked and inferred again, and the pass that broke it is named.

>>> from attrs import evolve
>>> nothing = Pass("nothing", "An example.", lambda module: module)
>>> twice = Pipeline((nothing,)) + Pipeline((evolve(nothing, name="again"),))
>>> print(twice)
nothing  An example.
again    An example.

Laws: `(a + b) + c == a + (b + c)`, and running them gives the same; instruments see modules and
cannot change them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final, Protocol, TypeAlias

from attrs import field, frozen

from plica.core.diagnostic import CompilerBug, did_you_mean
from plica.core.fold import post_order
from plica.ir.check import check
from plica.ir.graph import Call, Constructor, Function, Var
from plica.ir.infer import infer
from plica.ir.module import Module
from plica.runtime.error import Diagnostic, PlicaError

Run: TypeAlias = Callable[[Module], Module]
Form: TypeAlias = Callable[[Module], bool]


class PassError(PlicaError):
    """A pipeline cannot be what was asked for: a name is unknown, or a required pass is missing."""


_forms: Final[dict[str, Form]] = {}


def form(name: str, holds: Form) -> None:
    """Declare a normal form that passes may take or give."""
    if name in _forms:
        raise ValueError(f"There is a normal form {name} already.")
    _forms[name] = holds


def forms() -> tuple[str, ...]:
    """The names of all normal forms, sorted."""
    return tuple(sorted(_forms))


@frozen
class Pass:
    """A transformation; `before` and `after` name the normal forms it takes and gives.

    `requires` names passes that must come earlier in any pipeline that holds this one.
    """

    name: str
    why: str
    run: Run = field(eq=False)  # two passes are one if they say the same of themselves
    requires: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        for name in (*self.before, *self.after):
            if name not in _forms:
                raise _unknown("normal form", name, forms())

    def __call__(self, module: Module) -> Module:
        return self.run(module)


def function_pass(
    name: str, why: str, rewrite: Callable[[Function], Function], **declared: tuple[str, ...]
) -> Pass:
    """A pass that treats every graph function by itself; the names keep their types."""

    def over(module: Module) -> Module:
        values = tuple(
            rewrite(value) if isinstance(value, Function) else value for value in module.values
        )
        return Module(module.names, values, module.main)

    return Pass(name, why, over, **declared)


@frozen
class Pipeline:
    """Passes in order, each name once."""

    passes: tuple[Pass, ...] = ()

    def __attrs_post_init__(self) -> None:
        seen: set[str] = set()
        for each in self.passes:
            if each.name in seen:
                message = f"The pass {each.name} is in the pipeline twice."
                raise PassError(Diagnostic("duplicate-name", message))
            seen.add(each.name)

    def __add__(self, other: Pipeline) -> Pipeline:
        return Pipeline(self.passes + other.passes)

    def __iter__(self) -> Iterator[Pass]:
        return iter(self.passes)

    def __len__(self) -> int:
        return len(self.passes)

    def __str__(self) -> str:
        width = max((len(each.name) for each in self.passes), default=0)
        return "\n".join(_line(each, width) for each in self.passes)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.passes)

    def find(self, name: str) -> Pass:
        """The pass of that name."""
        for each in self.passes:
            if each.name == name:
                return each
        raise _unknown("pass", name, self.names)

    def without(self, *names: str) -> Pipeline:
        """The same pipeline less some of its passes."""
        for name in names:
            self.find(name)
        return Pipeline(tuple(each for each in self.passes if each.name not in names))

    def only(self, *names: str) -> Pipeline:
        """Those of its passes, in its order."""
        for name in names:
            self.find(name)
        return Pipeline(tuple(each for each in self.passes if each.name in names))

    def insert(self, new: Pass, *, before: str | None = None, after: str | None = None) -> Pipeline:
        """The same pipeline with one more pass, at the end or beside another."""
        at = len(self.passes)
        if before is not None:
            at = self.names.index(self.find(before).name)
        elif after is not None:
            at = self.names.index(self.find(after).name) + 1
        return Pipeline((*self.passes[:at], new, *self.passes[at:]))

    def replace(self, name: str, new: Pass) -> Pipeline:
        """The same pipeline with another pass in the place of one."""
        old = self.find(name)
        return Pipeline(tuple(new if each is old else each for each in self.passes))

    def until(self, name: str) -> Pipeline:
        """The passes up to one, that one included."""
        return Pipeline(self.passes[: self.names.index(self.find(name).name) + 1])


class Instrument(Protocol):
    """Somebody who watches: told before and after each pass, asked nothing."""

    def before(self, each: Pass, module: Module) -> None: ...

    def after(self, each: Pass, module: Module) -> None: ...


class Timing:
    """How long each pass took, by a clock that is given: this room has none."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.seconds: list[tuple[str, float]] = []
        self._began = 0.0

    def before(self, each: Pass, module: Module) -> None:
        self._began = self.clock()

    def after(self, each: Pass, module: Module) -> None:
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
        self._was: Module | None = None

    def before(self, each: Pass, module: Module) -> None:
        self._was = module

    def after(self, each: Pass, module: Module) -> None:
        if module is self._was:
            self.write(f"# {each.name}: nothing changed")
        else:
            self.write(f"# after {each.name}\n{module}")


def run(
    pipeline: Pipeline,
    module: Module,
    instruments: Sequence[Instrument] = (),
    debug: bool = False,
) -> Module:
    """The module after all passes.

    In debug mode each pass must keep the module well formed and well typed, and give the normal
    forms it declares; otherwise a `CompilerBug` names it.
    """
    _check_requirements(pipeline)
    for each in pipeline:
        for name in each.before:
            if debug and not _forms[name](module):
                raise CompilerBug(f"Before {each.name}: the module is not in the form {name!r}.")
        for watcher in instruments:
            watcher.before(each, module)
        module = each.run(module)
        if not isinstance(module, Module):
            raise CompilerBug(f"The pass {each.name} gave a {type(module).__name__}, not a module.")
        for watcher in instruments:
            watcher.after(each, module)
        if debug:
            module = _verified(each, module)
    return module


def _verified(each: Pass, module: Module) -> Module:
    wrong = check(module)
    if wrong:
        raise CompilerBug(f"After {each.name}: the module is not well formed.\n{wrong[0]}")
    try:
        infer(module)
    except PlicaError as error:
        raise CompilerBug(f"After {each.name}: the module is not well typed.\n{error}") from error
    for name in each.after:
        if not _forms[name](module):
            raise CompilerBug(f"After {each.name}: the module is not in the form {name!r}.")
    return module


def diff(old: Pipeline, new: Pipeline) -> str:
    """What changed from one pipeline to another, a line per pass; empty if nothing did."""
    width = max((len(each.name) for each in (*old, *new)), default=0)
    a, b = [_line(each, width) for each in old], [_line(each, width) for each in new]
    lines: list[str] = []
    for kind, i, j, k, l in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():  # noqa: E741  # lines of b from k to l, as difflib names them
        if kind == "equal":
            lines += [f"  {line}" for line in a[i:j]]
        else:
            lines += [f"- {line}" for line in a[i:j]] + [f"+ {line}" for line in b[k:l]]
    changed = any(not line.startswith("  ") for line in lines)
    return "\n".join(lines) if changed else ""


def _line(each: Pass, width: int) -> str:
    return f"{each.name:<{width}}  {each.why}"


def _check_requirements(pipeline: Pipeline) -> None:
    seen: set[str] = set()
    missing: list[Diagnostic] = []
    for each in pipeline:
        for name in each.requires:
            if name not in seen:
                where = "comes after it" if name in pipeline.names else "is not in the pipeline"
                message = f"The pass {each.name} requires {name}, which {where}."
                missing.append(Diagnostic("missing-pass", message))
        seen.add(each.name)
    if missing:
        raise PassError(*missing)


def _unknown(what: str, name: str, known: Sequence[str]) -> PassError:
    message = f"There is no {what} {name!r}."
    listed = ", ".join(known)
    return PassError(
        Diagnostic(
            "unknown-pass", message, expected=listed or None, suggestion=did_you_mean(name, known)
        )
    )


def _is_inferred(module: Module) -> bool:
    return infer(module) is module


def _is_first_order(module: Module) -> bool:
    """Every call names a definition, and functions are nothing but definitions."""
    return all(
        isinstance(call.callee, Var | Constructor)
        for value in module.values
        for call in post_order(value)
        if isinstance(call, Call)
    ) and not any(
        isinstance(inner, Function)
        for value in module.values
        for inner in post_order(value)
        if inner is not value
    )


form("inferred", _is_inferred)
form("first-order", _is_first_order)
