"""Recording: what a compilation did, as an artefact holds it.

>>> from plica.codegen.program import Program
>>> from plica.ir.graph.module import module
>>> empty = module({})
>>> made = recorded(Derivation(empty, ()), empty, Program((), (), (), ((),), 0, ()))
>>> made.module == made.result, made.stages
(True, ())
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from attrs import fields, has

from plica.codegen.program import Program, kernel_name
from plica.core import Name, Term
from plica.core.digest import digests
from plica.ir.graph import Module, Var, module
from plica.ir.loop.statement import Kernel
from plica.rewrite.derivation import Derivation
from plica.rewrite.rule import Rule
from plica.runtime.late import lazy_imports
from plica.runtime.record import CompilationRecord, KernelTrace, RecordStage, Used
from plica.runtime.store import key_of
from plica.schedule.trace import Trace

with lazy_imports(__name__):
    from plica.ir.text.show import show_kernel

RULES: Final = "rules"  # the name of a stage that is no pass
PLAIN: Final = Trace(())


def recorded(  # noqa: PLR0917  # what a compilation was asked for, and what it did
    derivation: Derivation,
    final: Module,
    program: Program,
    asked: str = "",
    packs: Sequence[str] = (),
    lowering: Sequence[str] = (),
) -> CompilationRecord:
    """Where the code of a program comes from; `final` is the module that was sequenced."""
    steps = derivation.steps
    ends = [end for step in steps for end in (step.before, step.after)]
    every = [derivation.source, final, *ends]
    known = dict(zip(every, digests(every), strict=True))
    rules = {step.rule.name: step.rule for step in steps}
    return CompilationRecord(
        known[derivation.source],
        str(derivation.contract),
        tuple(
            [
                (each.rule.name, str(each.rule.contract), known[each.before], known[each.after])
                for each in steps
            ]
        ),
        kernels(program),
        known[final],
        asked,
        tuple(packs),
        tuple(stages(derivation, final, known)),
        tuple([used(rules[name]) for name in sorted(rules)]),
        tuple(traces(program)),
        tuple(digests(program.kernels)),
        tuple(lowering),
    )


def stages(
    derivation: Derivation, final: Module, known: Mapping[Term, str]
) -> Iterator[RecordStage]:
    """From the source to the final module, whose digests are known."""
    here: Term = derivation.source
    waiting = 0
    for step in derivation.steps:
        if not step.rule.is_pass:
            waiting += 1
            continue
        if waiting:
            yield RecordStage(RULES, known[here], known[step.before], waiting)
            waiting = 0
        yield RecordStage(step.rule.name, known[step.before], known[step.after], 1)
        here = step.after
    if waiting:
        yield RecordStage(RULES, known[here], known[final], waiting)


def used(rule: Rule) -> Used:
    """A rule as it is told of: what functions compute is known by their names alone."""
    if rule.is_pass:
        return Used(rule.name, "pass", str(rule.contract), key_of("pass", rule.name)[:32])
    kind = "computed" if rule.computed else "equation"
    says = spelled((rule.left, rule.right, rule.when))
    return Used(rule.name, kind, str(rule.contract), key_of(kind, says)[:32])


def spelled(what: Any) -> str:  # Any: fields of patterns
    """A pattern in full, the same in every process; patterns are as small as somebody wrote them.

    >>> spelled((Name("x"), len, 1))
    "(Name(hint='x', index=0), builtins.len, 1)"
    """
    if isinstance(what, Term):
        inside = ", ".join(spelled(getattr(what, name)) for name in type(what)._fields)
        return f"{type(what).__name__}({inside})"
    if type(what) is tuple:
        return f"({', '.join(map(spelled, what))})"
    if callable(what) and hasattr(what, "__qualname__"):
        return f"{what.__module__}.{what.__qualname__}"
    if isinstance(what, partial):
        return f"partial{spelled((what.func, what.args, tuple(sorted(what.keywords.items()))))}"
    if has(type(what)):
        inside = ", ".join(spelled(getattr(what, field.name)) for field in fields(type(what)))
        return f"{type(what).__name__}({inside})"
    # What has no text of its own is told by where it lies, which no other process knows.
    bare = getattr(type(what), "__repr__", None) is object.__repr__
    return f"{type(what).__module__}.{type(what).__qualname__}" if bare else repr(what)


def kernels(program: Program) -> str:
    """The distinct kernels of a program as text."""
    shown = []
    for number, kernel in enumerate(program.kernels):
        shown.append(show_kernel(kernel, kernel_name(number, program)))
    return "\n\n".join(shown) + "\n"


def traces(program: Program) -> Iterator[KernelTrace]:
    """How each kernel was scheduled; those that were not begin as they end."""
    for number, kernel in enumerate(program.kernels):
        origin = program.origins[number] if program.origins else None
        name = kernel_name(number, program)
        if origin is None:
            yield KernelTrace(name, as_script(kernel), PLAIN.to_python(), PLAIN.to_json())
        else:
            python = origin.trace.to_python(origin.kernel)
            yield KernelTrace(name, as_script(origin.kernel), python, origin.trace.to_json())


def as_script(kernel: Kernel) -> str:
    """A kernel alone in a module, as text."""
    return str(module({Var(Name("kernel"), None): kernel}))
