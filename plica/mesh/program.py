"""Flat programs: a module as operators over numbered tensors, which is what is laid out on a mesh.

Composite operators are written out, tuples of parameters and of results taken apart.  A parameter
that is a tuple `weights` gives the values `weights.0`, `weights.1`, …; the value of an operator is
called by it and its number among those of its kind: `matmul.3`.

>>> from plica.ir.graph.expression import Function, Var
>>> from plica.ir.graph.module import main_module
>>> from plica.core import Name
>>> from plica.ir.type import tensor
>>> x = Var(Name("x"), tensor((8, 4), "f32"))
>>> program = flat_program(main_module(Function((), (), (x,), None, x + x)))
>>> program.names, [each.op for each in program.operations]
(('x', 'add.0'), ['add'])
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from attrs import frozen

from plica.codegen.lower.decompose import decompose
from plica.codegen.lower.graph_flattening import flatten_graph
from plica.codegen.program_kind import static_form, without_loops
from plica.ir.graph.expression import Apply, Attrs, Const, Expr, Project, Tuple, Var
from plica.ir.graph.module import Module
from plica.ir.type import TensorType, TupleType, Type, infer, known, type_of
from plica.rewrite.graph.walk import expressions
from plica.runtime.error import Diagnostic, UnsupportedError


@frozen(eq=False)
class FlatOperation:
    """An operator applied to values, and the values it gives, all by number."""

    op: str
    attributes: Attrs
    arguments: tuple[int, ...]
    results: tuple[int, ...]


@frozen(eq=False)
class FlatProgram:
    """The values by number: parameters first; then constants and results of operators."""

    module: Module
    names: tuple[str, ...]
    types: tuple[TensorType, ...]
    params: int  # how many of the values are parameters
    constants: dict[int, Const]
    operations: tuple[FlatOperation, ...]
    results: tuple[int, ...]
    returned: Type  # the type of what main returns, whose tensors the results are in order


@lru_cache(maxsize=8)
def flat_program(module: Module) -> FlatProgram:
    """The flat program of a module; what has control flow or open sizes is refused."""
    static = static_form(without_loops(infer(module)))
    if static is None:
        raise _unsupported("The program decides at run time what it computes.",
                           "operators on tensors alone", "control flow or data types")  # fmt: skip
    main = decompose(flatten_graph(static)).main_function()
    types: dict[str, TensorType] = {}
    number: dict[Expr, int] = {}
    constants: dict[int, Const] = {}
    operations: list[FlatOperation] = []
    count = Counter[str]()

    def add(value: Expr, name: str) -> tuple[int, ...]:
        """Numbers the tensors of a value."""
        first = len(types)
        for way, part in _tensors(value, type_of(value)):
            label, of = ".".join([name, *map(str, way)]), type_of(part)
            if not isinstance(of, TensorType) or any(known(size) is None for size in of.shape):
                message = f"The value {label} has no fixed shape."
                hint = "Give the sizes of open dims: --dim n=8."
                raise _unsupported(message, "a tensor of known sizes", str(of), hint)
            number[part] = len(types)
            types[label] = of
        return tuple(range(first, len(types)))

    params = sum([len(add(param, str(param.name))) for param in main.params])
    for node in expressions(main.body):
        if isinstance(node, Tuple | Project | Var):
            continue
        kind = node.op if isinstance(node, Apply) else type(node).__name__.lower()
        name = f"{kind}.{count[kind]}"
        count[kind] += 1
        if isinstance(node, Const):
            constants |= dict.fromkeys(add(node, name), node)
        elif isinstance(node, Apply):
            arguments = tuple([number[arg] for arg in node.args])
            operations.append(FlatOperation(node.op, node.attrs, arguments, add(node, name)))
        else:
            raise _unsupported(
                f"A program with {kind} cannot be laid out on a mesh.",
                "operators on tensors alone", kind,
            )  # fmt: skip
    returned = type_of(main.body)
    return FlatProgram(
        module, tuple(types), tuple(types.values()), params, constants, tuple(operations),
        tuple([number[part] for _, part in _tensors(main.body, returned)]), returned,
    )  # fmt: skip


def _unsupported(message: str, expected: str, found: str, hint: str | None = None) -> Exception:
    return UnsupportedError(Diagnostic("unsupported", message, None, expected, found, hint))


def _tensors(value: Expr, of: Type) -> Iterator[tuple[tuple[int, ...], Expr]]:
    """The tensors in a value, with the ways through its tuples."""
    if not isinstance(of, TupleType):
        yield (), value
        return
    for at, item in enumerate(of.items):
        part = value.items[at] if isinstance(value, Tuple) else Project(value, at)
        for way, inner in _tensors(part, item):
            yield (at, *way), inner


def leaves(value: Any) -> list[Any]:  # Any: arrays in tuples
    """The arrays in nested tuples, in order."""
    if not isinstance(value, tuple | list):
        return [value]
    return [leaf for item in value for leaf in leaves(item)]


def nested(of: Type, values: Sequence[Any]) -> Any:
    """Arrays in the tuples of a type; `leaves(nested(t, v)) == v`."""
    remaining = iter(values)

    def build(part: Type) -> Any:
        return tuple(map(build, part.items)) if isinstance(part, TupleType) else next(remaining)

    return build(of)
