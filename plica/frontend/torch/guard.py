"""Guards: what torch took for granted of open sizes when it exported a program.

    if x.shape[0] % 2 == 0: …            the branch of the example is in the graph: n % 2 == 0
    torch.diagonal(x, x.shape[0] // 2)   the offset is the number that the example gave: n // 2 == 6

Torch asserts its guards when the exported program is called. Here every equality is asserted, and
every decision of the model's own code and of operators that torch decomposes in C++ (the lengths of
`tensor_split`). Inequalities from torch's shape functions (clamped slices, contiguity) are omitted:
shapes are inferred again, for all sizes. A program from `torch.export.load` has its guards as text,
without source lines: all of them are asserted, as torch does.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from plica.frontend.torch.symbol import EqualSizes, Symbols, Sympy
from plica.ir.loop.scalar import Scalar, ScalarVar, index
from plica.ir.type.dim import known, normal_dim
from plica.runtime.error import InputError, UnsupportedError

if TYPE_CHECKING:
    from torch.export import ExportedProgram

Guard = Any  # torch's own: a relation in sympy, and the line that asked for it


@frozen
class LoadedGuard:
    """A guard that was read from text."""

    expr: Sympy


def guards_of(program: ExportedProgram) -> tuple[Guard, ...]:
    """The guards that torch has recorded with a program."""
    for node in program.graph.nodes:
        mode = getattr(node.meta.get("val"), "fake_mode", None)
        sizes = None if mode is None else mode.shape_env
        if sizes is not None and sizes.var_to_sources:  # else it was loaded: others are in there
            return tuple(sizes.guards)
    texts = getattr(program, "_guards_code", None) or ()
    if not texts:
        return ()
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    return tuple([LoadedGuard(_relation(text, values)) for text in texts])


def _relation(text: str, values: Mapping[str, Any]) -> Sympy:  # Any: torch's fake tensors
    """A guard such as `(L['x'].size()[0] % 2) == 0` over the symbols of the sizes."""
    import sympy
    from torch.utils._sympy.functions import FloorDiv, Max, Min, Mod

    functions: Mapping[str, Callable[..., Sympy]] = {"max": Max, "min": Min}
    operators: Mapping[type[ast.AST], Callable[..., Sympy]] = {
        ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b,
        ast.FloorDiv: FloorDiv, ast.Mod: Mod, ast.Eq: sympy.Eq, ast.NotEq: sympy.Ne,
        ast.Lt: sympy.Lt, ast.LtE: sympy.Le, ast.Gt: sympy.Gt, ast.GtE: sympy.Ge,
    }  # fmt: skip

    def read(node: ast.expr) -> Sympy:
        match node:
            case ast.Constant(int() as number):
                return sympy.Integer(number)
            case ast.UnaryOp(ast.USub(), value):
                return -read(value)
            case ast.BinOp(left, kind, right) if type(kind) in operators:
                return operators[type(kind)](read(left), read(right))
            case ast.BoolOp(kind, parts):
                return (sympy.Or if isinstance(kind, ast.Or) else sympy.And)(*map(read, parts))
            case ast.Compare(left, [kind], [right]) if type(kind) in operators:
                return operators[type(kind)](read(left), read(right))
            case ast.Call(ast.Name(name), args, []) if name in functions:
                return functions[name](*map(read, args))
            case ast.Subscript(
                ast.Call(ast.Attribute(of, "size"), [], []), ast.Constant(int() as at)
            ):
                size = getattr(values.get(_placeholder(of)), "shape", ())[at : at + 1]
                if size:
                    return getattr(getattr(size[0], "node", None), "expr", None) or sympy.sympify(
                        size[0]
                    )
        raise _unreadable(text)

    return read(ast.parse(text, mode="eval").body)


def _placeholder(of: ast.expr) -> str:
    """The name of the placeholder of an input: `xs_0` of `L['xs'][0]`."""
    parts: list[str] = []
    while isinstance(of, ast.Subscript) and isinstance(of.slice, ast.Constant):
        parts.append(str(of.slice.value))
        of = of.value
    return "_".join(reversed(parts))


def _unreadable(text: str) -> UnsupportedError:
    message = "Torch exported the program for sizes of which Plica cannot check a condition."
    hint = "Give numbers for these dims: from_torch(program, dims={…})."
    return UnsupportedError.of("unsupported", message, None, "sums and quotients", text, hint)


def equal_sizes(guards: tuple[Guard, ...], symbols: Symbols) -> EqualSizes:
    """The sizes that guards hold to be equal."""
    equalities = [guard.expr for guard in guards if type(guard.expr).__name__ == "Equality"]
    known_ = [equality for equality in equalities if equality.free_symbols <= symbols.names.keys()]
    pairs = [pair for each in known_ if (pair := symbols.sides(each)) is not None]
    numbers = EqualSizes(pair for pair in pairs if any(known(size) is not None for size in pair))
    return EqualSizes(
        [*pairs, *[(numbers.simplest(normal_dim(a - b)), index(0)) for a, b in pairs]]
    )


def guarded_terms(guards: tuple[Guard, ...], symbols: Symbols) -> tuple[Scalar, ...]:
    """Terms that are not negative exactly where the guards hold."""
    terms: dict[Scalar, None] = {}
    for guard in guards:
        relation = guard.expr
        if relation in (True, False) or not _is_decision(guard) or _is_range(relation):
            continue
        if not relation.free_symbols <= symbols.names.keys():
            continue  # sizes that depend on elements: torch asserts these in the graph
        if (least := symbols.least(relation)) is None:
            raise _unreadable(str(relation))
        for term in least:
            number = known(term)
            if number is not None and number < 0:
                message = "The program was exported for other sizes than `dims` gives."
                raise InputError.of("input-shape", message, None, str(relation), "no")
            if number is None and not isinstance(term, ScalarVar):
                terms[term] = None
    return tuple(terms)


def _is_decision(guard: Guard) -> bool:
    """Whether a guard is an equality, or comes from code outside torch's shape functions."""
    import torch

    if isinstance(guard, LoadedGuard) or type(guard.expr).__name__ == "Equality":
        return True
    file = getattr(guard.sloc.framework_loc, "filename", None)
    if file is None:
        return False
    place, library = Path(file), Path(torch.__file__).parent
    called = place == library / "_ops.py"  # no line of Python asked for it
    return called or not place.is_relative_to(library) or place.is_relative_to(library / "nn")


_BOUNDS: Final = ("GreaterThan", "StrictGreaterThan", "LessThan", "StrictLessThan")


def _is_range(relation: Sympy) -> bool:
    """Whether a relation bounds one size alone: torch has that in its ranges."""
    if len(relation.free_symbols) != 1 or type(relation).__name__ not in _BOUNDS:
        return False
    (symbol,) = relation.free_symbols
    difference = relation.args[0] - relation.args[1]
    return bool(difference.is_polynomial(symbol)) and difference.as_poly(symbol).degree() == 1
