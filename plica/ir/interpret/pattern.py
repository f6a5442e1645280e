"""Patterns: whether a value fits one, and what its variables are then.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Var
>>> x, y = Var(Name("x"), None), Var(Name("y"), None)
>>> found = {}
>>> fits(PTuple((PVar(x), PTuple((PAny(), PVar(y))))), (1, (2, 3)), found)
True
>>> found[x], found[y]
(1, 3)
"""

from __future__ import annotations

from typing import Any

from plica.core import EvaluationError
from plica.ir.graph.expression import Match, PAny, Pattern, PConstructor, PTuple, PVar
from plica.ir.interpret.value import sketch


def fits(pattern: Pattern, value: Any, env: dict[Any, Any]) -> bool:
    """Whether a value fits a pattern; binds its variables on the way.

    Bindings made before a pattern fails are left in place and never read: other clauses do not use
    their variables without binding them.
    """
    match pattern:
        case PVar(var):
            env[var] = value
            return True
        case PAny():
            return True
        case PConstructor(constructor, items):
            if value.index != constructor.index:
                return False
            value = value.fields
        case PTuple(items):
            pass
    return all(fits(item, inside, env) for item, inside in zip(items, value, strict=True))


def unmatched(node: Match, value: Any) -> EvaluationError:
    """The error of a match none of whose clauses fits."""
    clauses = [sketch_pattern(clause.pattern) for clause in node.clauses]
    message = "No clause of the match fits the value."
    expected = " or ".join(clauses) or "nothing"
    return EvaluationError.of("match-failure", message, None, expected, sketch(value))


def sketch_pattern(pattern: Pattern) -> str:
    """A pattern in script syntax."""
    match pattern:
        case PAny():
            return "_"
        case PVar(var):
            return str(var.name)
        case PConstructor(constructor, items):
            return f"{constructor.name}({', '.join(map(sketch_pattern, items))})"
        case PTuple(items):
            return f"({', '.join(map(sketch_pattern, items))})"
