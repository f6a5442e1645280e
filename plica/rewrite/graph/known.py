"""Known values: what can be decided because the shape of a value is in sight, as rules.

    project-tuple      (a, b)[0]                       ->  a
    if-true            a if True else b                ->  a
    if-false           a if False else b               ->  b
    match-known        match Cons(a, b): ...           ->  the clause that fits, behind lets
    beta               (lambda x: e)(a)                ->  let x = a in e

Measure: each rule removes a projection, an `If`, a `Match` or a call, and creates none. A function
that calls itself through a data type can still keep `beta` busy forever: the engine's fuel ends
that, and `plica.rewrite.graph.partial` has its own fuel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from plica.core import Term, rename, substitute
from plica.ir.contract import exact
from plica.ir.graph import expression as ex
from plica.ir.type import same_type, type_of
from plica.rewrite.graph.beta import beta
from plica.rewrite.graph.walk import NameSupply
from plica.rewrite.make import rule
from plica.rewrite.pack import Pack, pack
from plica.rewrite.pattern import hole, holes
from plica.rewrite.rule import Rule

Bindings = list[tuple[ex.Var, ex.Expr]]


def fits(pattern: ex.Pattern, value: ex.Expr) -> Bindings | bool | None:
    """The bindings if a pattern matches a value; False if it cannot match, None if unknown.

    Where one part cannot fit, it does not matter that another is unknown.
    """
    found: Bindings = []
    unknown = False
    stack: list[tuple[Any, ex.Expr]] = [(pattern, value)]
    while stack:
        part, expr = stack.pop()
        match part, expr:
            case ex.PAny(), _:
                continue
            case ex.PVar(var), _:
                found.append((var, expr))
            case ex.PTuple(items), ex.Tuple(parts):
                stack.extend(zip(reversed(items), reversed(parts), strict=True))
            case ex.PTuple(items), _:
                stack.extend([(item, ex.Project(expr, i)) for i, item in enumerate(items)][::-1])
            case ex.PConstructor(constructor, items), ex.Call(ex.Constructor() as made, parts, _):
                if made.index != constructor.index:
                    return False
                stack.extend(zip(reversed(items), reversed(parts), strict=True))
            case _:
                unknown = True
    return None if unknown else found


def chosen(node: ex.Match) -> tuple[ex.Clause, Bindings] | None:
    """The clause a match takes, with its bindings, if known."""
    for clause in node.clauses:
        if isinstance(found := fits(clause.pattern, node.value), list):
            return clause, found
        if found is None:
            return None
    return None


def _projected(node: ex.Project) -> Term | None:
    return node.value.items[node.index] if isinstance(node.value, ex.Tuple) else None


def _matched(node: ex.Match) -> Term | None:
    if (found := chosen(node)) is None:
        return None
    clause, bindings = found
    supply = NameSupply(node)
    fresh: dict[Term, Term] = {}
    for var, _ in bindings:
        fresh[var] = rename(var, supply.name(var.name.hint))
    result: Any = substitute(clause.body, fresh)
    for var, value in reversed(bindings):
        result = ex.Let(fresh[var], value, result)  # type: ignore[arg-type]  # a variable
    return result  # type: ignore[no-any-return]  # an expression


def eta_reduced(function: ex.Function) -> ex.Expr | None:
    """The function to which a function only passes its arguments, or None."""
    body = function.body
    if function.attrs or not isinstance(body, ex.Call) or body.args != function.params:
        return None
    callee = body.callee
    if not isinstance(callee, ex.Var | ex.Constructor) or callee in function.params:
        return None
    if body.types != function.types or not same_type(type_of(function), type_of(callee)):
        return None
    return callee


def _at(name: str, kind: type[Term], right: Callable[[Any], Term | None]) -> Rule:
    """A rule that looks at nodes of one kind, whatever their parts are.

    A pattern has a fixed number of parts, and tuples, calls, matches and functions may have any.
    """

    def matcher(term: Any, filling: dict[str, Any]) -> bool:
        filling["node"] = term
        return term.__class__ is kind

    left = hole("node", when=lambda term: isinstance(term, kind))
    made = lambda m: right(m.node)  # noqa: E731  # the right side of a rule
    return Rule(name, left, made, exact, None, None, (((kind, None), matcher),), None)


x, y = holes("x y")
TRUE, FALSE = ex.const(True, "bool"), ex.const(False, "bool")

# fmt: off
KNOWN: Final[Pack] = pack(
    "known",
    rule("if-true",        ex.If(TRUE, x, y),   x),
    rule("if-false",       ex.If(FALSE, x, y),  y),
    _at("project-tuple",   ex.Project,          _projected),
    _at("match-known",     ex.Match,            _matched),
    _at("beta",            ex.Call,             beta),
    version="1",
    doc="What can be decided because the shape of a value is in sight.",
)
# fmt: on
