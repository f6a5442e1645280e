"""Cases: a well-typed module and inputs for it, often one in which a given rule applies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, TypeAlias

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from plica.ir.generate.builder import Builder
from plica.ir.generate.choice import pick
from plica.ir.generate.definition import modules
from plica.ir.generate.measured import measured_program
from plica.ir.generate.neural import any_operator
from plica.ir.generate.operation import operation
from plica.ir.generate.scope import GenerationScope, KnownExpression
from plica.ir.generate.static import static_modules
from plica.ir.generate.value import inputs_for
from plica.ir.graph import Expr, Function, Module, Tuple, Var, module
from plica.ir.type import FuncType, TupleType, infer, type_of
from plica.rewrite.check.data import array
from plica.rewrite.check.instance import instance
from plica.rewrite.rule import Rule
from plica.runtime.error import wrong_argument

Case: TypeAlias = tuple[Module, tuple[Any, ...]]  # Any: arrays, or tuples of them


MAX_TRIES: Final = 16  # how often an instance of a rule that was asked for is looked for


@st.composite
def cases(
    draw: DrawFn,
    rules: Sequence[Rule] = (),
    wanted: Rule | None = None,
    finite: bool = False,
    whole: bool = False,
) -> Case:
    """A module, inferred, and values for its inputs; with an instance of the rule `wanted`.

    Where it is to be of the `whole` language it has closures, data and recursion, or sizes that
    become known while it runs, with branches of different sizes and loops.
    """
    speaking = of_programs(rules)
    made: Module | None = None
    if whole and pick(draw, (False, False, True)):
        module_, given = measured_program(draw(st.randoms(use_true_random=False)))
        return infer(module_), given
    if whole:
        kind = "any"
        made = draw(modules(depth=1))
    elif wanted is None:
        kind = pick(draw, (["static", "any"] + ["rule", "rule"] * bool(speaking))[::-1])
        if kind == "rule":
            made = _around(draw, pick(draw, speaking))
        elif kind == "any":
            made = draw(modules(depth=1))
    else:
        kind = "wanted"
        for _ in range(MAX_TRIES):
            made = made or _around(draw, wanted)
    if made is not None and kind != "any" and not finite:  # data that rules are sensitive to
        known = infer(made)
        types = [type_of(param) for param in known.main_function().params]
        return known, tuple(array(each, lambda options: pick(draw, options)) for each in types)
    known = infer(draw(static_modules()) if made is None else made)
    return known, draw(inputs_for(known, finite))


Programs: TypeAlias = Callable[[Random], Any]
"""From a source of choices to a module or a function of a script, or to one and its inputs.  Any:
whatever a user's generator gives."""


@st.composite
def made_by(draw: DrawFn, programs: Programs) -> Case:
    """A case of a custom generator, with inputs drawn if it provides none."""
    given = programs(draw(st.randoms(use_true_random=False)))
    program, inputs = given if isinstance(given, tuple) else (given, None)
    found = getattr(program, "module", program)  # of a decorated function
    if not isinstance(found, Module):
        hint = "def programs(random): return plica.from_text(...)"
        raise wrong_argument("A generator of programs gives modules.", "a module", program, hint)
    known = infer(found)
    types = [type_of(param) for param in known.main_function().params]
    if inputs is not None:
        return known, tuple(inputs)
    return known, tuple(array(each, lambda options: pick(draw, options)) for each in types)


def of_programs(rules: Sequence[Rule]) -> list[Rule]:
    """The rules that speak of programs, not of index terms."""
    return [rule for rule in rules if isinstance(rule.left, Expr)]


def _around(draw: DrawFn, rule: Rule) -> Module | None:
    """A program that contains the left side of a rule, or None if it has no instance."""
    if (found := instance(rule.left, lambda options: pick(draw, options), data=False)) is None:
        return None
    builder = Builder(draw)
    scope = GenerationScope([])
    params = found.variables
    for param in params:
        builder.used.add(param.name)
        scope.add(param, type_of(param))
    core = scope.add(found.term, type_of(found.term))
    if builder.chance(3):  # a name between, as a person would write
        name = Var(builder.name(), core.type)
        scope.lets.append((name, core.expr))
        core = scope.add(name, core.type)
    results = [core]
    for _ in range(builder.count(0, 3)):
        grown = operation(draw, scope) if builder.chance(2) else any_operator(draw, scope)
        results += [] if grown is None else [grown]
    result = _together(results)
    ret = result.type
    main = Var(builder.name(), FuncType((), (), tuple(type_of(var) for var in params), ret))
    return module({main: Function((), (), params, ret, scope.close(result.expr))}, main)


def _together(results: Sequence[KnownExpression]) -> KnownExpression:
    if len(results) == 1:
        return results[0]
    items = tuple(result.expr for result in results)
    return KnownExpression(Tuple(items), TupleType(tuple(result.type for result in results)))
