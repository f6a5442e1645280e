"""Making rules: what cannot be a rule is refused at birth.

>>> from plica.ir.op import find
>>> from plica.rewrite.pattern import holes
>>> x, y = holes("x y")
>>> relu = find("nn.relu")
>>> rule("relu-relu", relu(relu(x)), relu(x))
Rule('relu-relu')

A right side with a hole the left side does not bind is refused, and so are sides whose types differ
on an instance; a right side that computes is run on some instances for that.  A guard or a right
side that fails there, or a guard that gives a term and no bool, is refused too.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from attrs import evolve

from plica.core import RuleRefused, Term, post_order
from plica.ir.contract import Contract, exact, named, unknown_contract
from plica.ir.graph import Expr, Module
from plica.rewrite import pattern as pt
from plica.rewrite.instantiate import late_right_side
from plica.rewrite.match import compiled
from plica.rewrite.rule import Fillings, Guard, Rule
from plica.runtime.error import Diagnostic, Place
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.ir.text.script import Scripted
    from plica.rewrite.binder import bound_holes, loose_binders
    from plica.rewrite.check.probe import probe
    from plica.rewrite.output_groups import several
    from plica.rewrite.recursive import check_recursions


def rule(
    name: str,
    left: Any,
    right: Any,
    *,
    when: Guard | None = None,
    float: Contract | str = exact,
    examples: Sequence[Module | Scripted | Expr] = (),
    instances: Fillings | None = None,
) -> Rule:
    """A rule; raises `RuleRefused` where it can't be one.

    Checks generate instances of the left side. If attributes depend on each other (adjacent slices,
    inverse permutations), help them: `examples` are programs that contain the left side;
    `instances` is a function that takes a chooser and fills some of the holes, `lambda choose:
    {"k": (k := choose(range(4))), "n": k + 1}`.
    """
    place = _caller()
    wrong = findings(name, left, right, when=when, float=float, place=place)
    if wrong:
        raise RuleRefused(*wrong)
    made = _made(name, left, right, place, when=when, float=float)
    made = evolve(made, examples=_examples(made, examples), instances=_fillings(made, instances))
    if not isinstance(left, pt.Dominator):  # a region has no instances to look at
        reason = probe(made)
        if reason is not None:
            message = f"The sides of {name} cannot have one type."
            raise RuleRefused(Diagnostic("rule-types", message, made.place, found=reason))
    return made


def tabled(
    name: str,
    left: Any,
    right: Any,
    *,
    when: Guard | None = None,
    float: Contract | str = exact,
    instances: Fillings | None = None,
) -> Rule:
    """A rule of Plica's own tables: tests check it, so nothing is validated when the table is
    loaded."""
    made = _made(name, left, right, _caller(), when=when, float=float)
    return made if instances is None else evolve(made, instances=instances)


def _made(
    name: str,
    left: Term,
    right: Any,
    place: Place | None,
    *,
    when: Guard | None,
    float: Contract | str,
) -> Rule:
    right = several(right) if isinstance(left, pt.Outputs) else right
    contract = named(float) if isinstance(float, str) else float
    assert contract is not None
    build = late_right_side(left, right) if isinstance(right, Term) else None
    return Rule(name, left, right, contract, when, place, compiled(left), build)


def findings(
    name: str,
    left: Any,
    right: Any,
    *,
    when: Guard | None = None,
    float: Contract | str = exact,
    place: Place | None = None,
) -> list[Diagnostic]:
    """Why something cannot be a rule, as far as its two sides tell."""
    right = several(right) if isinstance(left, pt.Outputs) else right
    wrong: list[Diagnostic] = []
    contract = named(float) if isinstance(float, str) else float
    given: object = name  # whatever a user gives
    if not isinstance(given, str) or not given.strip():
        message = "The name of a rule must be a word."
        wrong.append(Diagnostic("bad-rule", message, place, "a name, as relu-relu", repr(name)))
    if not isinstance(contract, Contract):
        message = f"The float contract of {name} is not known."
        wrong.append(replace(unknown_contract(float, "bad-rule", place), message=message))
    if isinstance(left, Term) and not isinstance(left, pt.Dominator):
        wrong.extend(_two_demands(name, left, place))
    if not isinstance(left, Term) or type(left).hole:
        message = f"The left side of {name} must be a term with structure."
        alone = isinstance(left, Term) and pt.hole_names(left)
        met = f"the hole {' '.join(alone)} alone" if alone else repr(left)
        wrong.append(Diagnostic("bad-rule", message, place, "an operator around holes", met))
    elif isinstance(right, Term):
        wrong.extend(_unbound(name, left, right, place))
    elif not callable(right):
        message = f"The right side of {name} must be a term or a function of the match."
        wrong.append(Diagnostic("bad-rule", message, place, None, repr(right)))
    if when is not None and not callable(when):
        message = f"The guard of {name} must be a function of the match."
        wrong.append(Diagnostic("bad-rule", message, place, None, repr(when)))
    return wrong


def _examples(of: Rule, given: Any) -> tuple[Module | Expr, ...]:  # Any: what a user gives
    """Programs as modules or expressions; the rule must apply somewhere in each."""
    if not given:
        return ()
    found: list[Module | Expr] = []
    for each in given if isinstance(given, Sequence) else (given,):
        module = getattr(each, "module", each)  # of a decorated function
        if not isinstance(module, Module | Expr):
            message = f"An example of {of.name} must be a module, a function or an expression."
            raise RuleRefused(Diagnostic("bad-rule", message, of.place, found=repr(each)))
        found.append(module)
    return tuple(found)


def _fillings(of: Rule, given: Any) -> Fillings | None:  # Any: as above
    if given is None or callable(given):
        return given  # type: ignore[no-any-return]  # whatever it gives is looked at then
    message = f"The instances of {of.name} must be a function that picks what fills the holes."
    hint = "lambda choose: {'axis': choose((0, 1))}"
    raise RuleRefused(Diagnostic("bad-rule", message, of.place, None, repr(given), hint))


def _unbound(name: str, left: Term, right: Term, place: Place | None) -> list[Diagnostic]:
    """Holes that the right side uses or binds, but the left side does not bind."""
    known = pt.bound_names(left)
    wrong: list[Diagnostic] = []
    loose = sorted(pt.hole_names(right) - known)
    if loose:
        message = f"The right side of {name} uses holes that the left side does not bind."
        expected = f"holes among {', '.join(sorted(known))}"
        wrong.append(Diagnostic("unbound-hole", message, place, expected, ", ".join(loose)))
    escaped = loose_binders(left, right)
    if escaped:
        message = f"The right side of {name} uses variables outside of what binds them."
        wrong.append(Diagnostic("unbound-hole", message, place, found=", ".join(escaped)))
    made = sorted((bound_holes(right) & known) - bound_holes(left))
    if made:
        message = f"The right side of {name} binds holes that are no variables on the left side."
        hint = "Bind a Var of its own: it is renamed where it would capture something."
        found = ", ".join(made)
        wrong.append(Diagnostic("bad-rule", message, place, found=found, suggestion=hint))
    return wrong


def _two_demands(name: str, left: Term, place: Place | None) -> list[Diagnostic]:
    """Holes of one name with different constraints, of which only the first would apply."""
    for alternative in pt.alternatives(left):
        first: dict[str, Term] = {}
        for node in post_order(alternative):
            of: Any = node
            if isinstance(node, pt.Recursive):
                check_recursions(alternative, place)
            if type(node).hole and first.setdefault(of.name, node) is not node:
                message = f"The left side of {name} has two holes {of.name} with different demands."
                hint = "Make the hole once and use it twice."
                return [Diagnostic("bad-rule", message, place, suggestion=hint)]
    return []


def _caller() -> Place | None:
    """Where the rule was written: the first frame outside this file."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    if frame is None:
        return None
    return Place(file=frame.f_code.co_filename, line=frame.f_lineno)
