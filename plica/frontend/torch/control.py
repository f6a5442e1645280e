"""Control flow of torch: `torch.cond` is an `if`, `while_loop` a function that calls itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from plica.core.name import Name
from plica.ir.graph.expression import Call, Expr, Function, If, Let, Project, Tuple, Var
from plica.ir.type import FuncType, TupleType, type_of

Inside: TypeAlias = Callable[[Any, Sequence[Any]], list[Any]]
"""The outputs of a graph on values of its inputs.  Any: terms and numbers."""

CONTROL: Final = ("cond", "while_loop")  # the operators of torch whose arguments are graphs


def choice(inside: Inside, condition: Any, then: Any, orelse: Any, given: Sequence[Any]) -> Any:
    """What one of two graphs gives; a condition that is known chooses at once."""
    if not isinstance(condition, Expr):
        return inside(then if condition else orelse, given)
    both = Tuple(tuple(inside(then, given))), Tuple(tuple(inside(orelse, given)))
    whole = If(condition, *both)
    return [Project(whole, at) for at in range(len(both[0].items))]


def loop(
    inside: Inside, graphs: tuple[Any, Any], begin: Sequence[Expr], rest: Sequence[Any], number: int
) -> list[Expr]:
    """The carried values when a loop's test first fails; `number` makes its variables unique."""
    types = tuple([type_of(expr) for expr in begin])
    carried = tuple([Var(Name(f"carried_{at}", number), type_) for at, type_ in enumerate(types)])
    of = FuncType((), (), types, TupleType(types))
    again = Var(Name("loop", number), of)
    test, body = graphs
    (condition,) = inside(test, [*carried, *rest])
    after = tuple(inside(body, [*carried, *rest]))
    step = If(condition, Call(again, after), Tuple(carried))
    function = Function((), (), carried, TupleType(types), step)
    whole = Let(again, function, Call(again, tuple(begin)))
    return [Project(whole, at) for at in range(len(types))]
