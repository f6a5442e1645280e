"""Index maps as text: `lambda i, j: (i // 4, j, i % 4)`, in JSON and in Python text alike.

Only maps with an exact text are written this way: named indices, integers and `+ - * // %`, of
limited length. Others are written as terms.

>>> from plica.ir.loop.index_map import index_map
>>> tiles = index_map(lambda i, j: (i // 4, (j + 1) * 2, i % 4))
>>> show_map(tiles)
'lambda i, j: (i // 4, (j + 1) * 2, i % 4)'
>>> read_map(show_map(tiles)) is tiles
True
>>> read_map("lambda i: open('x')") is None
True
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from plica.core import IllFormed, Name, ScriptError, Term, fold
from plica.ir.loop.index_map import IndexMap
from plica.ir.loop.scalar import Add, FloorDiv, FloorMod, Lit, Mul, Scalar, ScalarVar, Sub, index
from plica.ir.text.script.text import parse
from plica.ir.type import i64

LONGEST: Final = 2000  # characters

# fmt: off
SIGNS: Final[dict[type, tuple[str, int]]] = {
    Add: ("+", 1), Sub: ("-", 1), Mul: ("*", 2), FloorDiv: ("//", 2), FloorMod: ("%", 2),
}
OPERATORS: Final[dict[type, Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}
# fmt: on

Shown: TypeAlias = "tuple[str, int] | None"  # a text and its precedence; None if there is none


def show_map(of: IndexMap) -> str | None:
    """The map as a Python lambda that reads back to it, or None."""
    results = [_shown(result) for result in of.results]
    texts = [result for result in results if result is not None]
    if len(texts) < len(results) or sum(map(len, texts)) > LONGEST:
        return None
    several = f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"
    head = f"lambda {', '.join(str(var.name) for var in of.vars)}" if of.vars else "lambda"
    text = f"{head}: {several}"
    return text if read_map(text) is of else None


def read_map(text: str) -> IndexMap | None:
    """The map of a lambda, parsed without running it; None for other texts."""
    if len(text) > 2 * LONGEST:
        return None
    try:
        tree = parse(text, "<map>").body
    except ScriptError:
        return None
    match tree:
        case [ast.Expr(value=ast.Lambda() as node)]:
            return map_of(node)
    return None


def map_of(node: ast.Lambda) -> IndexMap | None:
    """The map that the syntax tree of a lambda means."""
    given = node.args
    plain = not (given.posonlyargs or given.kwonlyargs or given.vararg or given.kwarg)
    names = [arg.arg for arg in given.args]
    if not plain or given.defaults or not isinstance(node.body, ast.Tuple):
        return None
    variables = {name: ScalarVar(Name(name), i64) for name in names}
    results: list[Scalar] = []
    for elt in node.body.elts:
        if (value := _value(elt, variables)) is None:
            return None
        results.append(index(value))
    try:
        return IndexMap(tuple(variables.values()), tuple(results))
    except IllFormed:
        return None


def _shown(root: Scalar) -> str | None:
    def algebra(node: Term, kids: tuple[Shown, ...]) -> Shown:
        if isinstance(node, ScalarVar):
            return str(node.name), 9
        if isinstance(node, Lit):
            return (str(node.value), 9) if type(node.value) is int else None
        if type(node) not in SIGNS:
            return None
        left, right = kids
        if left is None or right is None or len(left[0]) + len(right[0]) > LONGEST:
            return None
        sign, tight = SIGNS[type(node)]
        first = f"({left[0]})" if left[1] < tight else left[0]
        second = f"({right[0]})" if right[1] <= tight else right[0]
        return f"{first} {sign} {second}", tight

    found = fold(algebra, root)
    return None if found is None else found[0]


def _value(root: ast.expr, variables: dict[str, ScalarVar]) -> Scalar | int | None:
    """The value of an expression, computed as Python would; with an explicit stack."""
    done: list[Any] = []
    stack: list[tuple[ast.expr, bool]] = [(root, False)]
    while stack:
        node, leaving = stack.pop()
        match node:
            case ast.BinOp(left=left, op=sign, right=right) if type(sign) in OPERATORS:
                if not leaving:
                    stack += [(node, True), (right, False), (left, False)]
                    continue
                second, first = done.pop(), done.pop()
                if isinstance(first, int) and isinstance(second, int):
                    return None
                done.append(OPERATORS[type(sign)](first, second))
            case ast.Name(id=name) if name in variables:
                done.append(variables[name])
            case ast.Constant(value=int(number)) if type(number) is int:
                done.append(number)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(number))):
                done.append(-number)
            case _:
                return None
    (value,) = done
    return value  # type: ignore[no-any-return]  # a scalar or an int
