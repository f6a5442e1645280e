"""What the compiler takes now: first-order programs whose every dim is a number.

Everything else is refused, and all of it is listed at once: a symbolic dim, a recursive function,
an algebraic data type, a function as input or output.

>>> from plica.ir.graph.expression import Function, Var
>>> from plica.ir.graph.module import module
>>> from plica.core.name import Name
>>> from plica.ir.type.term import tensor
>>> x = Var(Name("x"), tensor(("n",), "f32"))
>>> main = Var(Name("main"), None)
>>> whole = module({main: Function((), (), (x,), x.type, x)}, main)
>>> for each in unsupported(whole):
...     print(each.message)
The input 'x' has a symbolic dim.
The output has a symbolic dim.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from plica.core import Term, fold, free_vars, post_order
from plica.ir.graph.expression import Function, Let, Var
from plica.ir.graph.module import DataDef, Definition, Extern, Module
from plica.ir.loop.statement import Kernel
from plica.ir.type import term as ty
from plica.runtime.error import Diagnostic, Place

MAX_TENSORS: Final = 10_000  # how many tensors an input or the output may have


def unsupported(
    module: Module, sizes_come: bool = False, objects: bool = False
) -> tuple[Diagnostic, ...]:
    """Everything in an inferred module that cannot be compiled yet, in a fixed order.

    Where `sizes_come` with a call, symbolic dims of inputs and outputs are no fault; where there
    are `objects` (`plica.codegen.dynamic`), neither are recursion and data, as inputs only where no
    sizes come with them.
    """
    if module.main is None:
        message = "The module has no main function to compile."
        hint = "Define a function, or say which one is the main."
        expected = "one function, or one that is called main"
        names = sorted([str(each.name) for each in module.definitions() if isinstance(each, Var)])
        defined = ", ".join(names[:8]) or "no definition"
        return (Diagnostic("no-main", message, None, expected, defined, hint),)
    table = module.definitions()
    main = table.get(module.main)
    if not isinstance(main, Function):
        return (_refuse("The main definition is not a graph function.", str(module.main.name)),)
    if (crowded := _too_many(main)) is not None:
        return (crowded,)
    uses = _uses(module.main, table)
    data = objects and not sizes_come
    diagnostics = [*_interface(main, sizes_come, data)]
    for name in uses:
        value = table[name]
        label = str(name.name)
        if isinstance(value, Extern):
            if data:
                message = f"A program with data or recursion calls the extern {value.symbol!r}."
                diagnostics.append(_refuse(message, label))
            continue
        if isinstance(value, Kernel):
            if data and len(value.params) != value.inputs + 1:
                message = f"A program with data or recursion calls the kernel {label!r},"
                diagnostics.append(_refuse(f"{message} which has not one result.", label))
            continue
        if objects and isinstance(value, DataDef | Function):
            continue
        if isinstance(value, DataDef):
            diagnostics.append(_refuse(f"The program uses the data type {label!r}.", label))
        else:
            if _recurses(name, uses):
                diagnostics.append(_refuse(f"The function {label!r} is recursive.", label))
            diagnostics += _local_recursion(value, label)
    return tuple(diagnostics)


def has_too_many(module: Module) -> bool:
    """Whether an input or the output has more tensors than code can be called with."""
    return _too_many(module.main_function()) is not None


def _too_many(main: Function) -> Diagnostic | None:
    """What is wrong where tuples of tuples of … have more tensors than anybody can name."""
    places = [(f"The input {str(var.name)!r}", str(var.name), var.type) for var in main.params]
    for what, label, of in [*places, ("The output", None, main.ret)]:
        count = 0 if of is None else tensors_in(of)
        if count > MAX_TENSORS:
            place = None if label is None else Place(node=label)
            expected = f"at most {MAX_TENSORS} tensors"
            message = f"{what} has too many tensors."
            return Diagnostic("unsupported", message, place, expected, f"{count} tensors")
    return None


def tensors_in(of: ty.Type) -> int:
    """How many tensors a value of a type has, tuples in tuples counted as often as they come."""

    def algebra(node: Term, kids: tuple[int, ...]) -> int:
        return sum(kids) if isinstance(node, ty.TupleType) else int(isinstance(node, ty.TensorType))

    return fold(algebra, of)


def _interface(main: Function, sizes_come: bool, data: bool) -> Iterator[Diagnostic]:
    for param in main.params:
        label = str(param.name)
        for problem in _problems(param.type, sizes_come, data):
            yield _refuse(f"The input {label!r} {problem}.", label, str(param.type))
    for problem in _problems(main.ret, sizes_come, data):
        yield _refuse(f"The output {problem}.", None, str(main.ret))


def _problems(type: ty.Type | None, sizes_come: bool, data: bool) -> dict[str, None]:
    """What is wrong with the type of an input or output, each thing once."""
    match type:
        case ty.TensorType():
            fine = sizes_come or ty.static_shape(type) is not None
            return {} if fine else {"has a symbolic dim": None}
        case ty.TupleType(items):
            inside = [_problems(item, sizes_come, data) for item in items]
            return {problem: None for each in inside for problem in each}
        case ty.FuncType():
            return {"is a function": None}
        case ty.TypeVar():
            return {"has a type that is not known": None}
        case ty.DataType(name, _):
            return {} if data else {f"is of the data type {str(name.name)!r}": None}
        case ty.Unknown() | None:
            return {"has a type that was not inferred": None}


def _uses(main: Var, table: Mapping[Term, Definition]) -> dict[Var | ty.DataName, list[Term]]:
    """Every definition reached from main, with the definitions it mentions, in order of use."""
    uses: dict[Var | ty.DataName, list[Term]] = {}
    queue: list[Var | ty.DataName] = [main]
    for name in queue:
        if name in uses:
            continue
        mentioned = [node for node in post_order(table[name]) if node in table]
        uses[name] = list(mentioned)
        queue += [node for node in mentioned if isinstance(node, Var | ty.DataName)]
    return uses


def _recurses(name: Var | ty.DataName, uses: Mapping[Var | ty.DataName, list[Term]]) -> bool:
    seen: set[Term] = set()
    stack = list(uses[name])
    while stack:
        node = stack.pop()
        if node is name:
            return True
        if node not in seen:
            seen.add(node)
            stack += uses.get(node, ())  # type: ignore[call-overload]  # all are names
    return False


def _local_recursion(function: Function, label: str) -> Iterator[Diagnostic]:
    for node in post_order(function):
        if not isinstance(node, Let) or not isinstance(node.value, Function):
            continue
        if node.var in free_vars(node.value):
            local = str(node.var.name)
            yield _refuse(f"The local function {local!r} of {label!r} is recursive.", label)


def _refuse(message: str, node: str | None, found: str | None = None) -> Diagnostic:
    place = None if node is None else Place(node=node)
    hint = "plica.interpret runs every program of the language."
    return Diagnostic("unsupported", message, place, None, found, hint)
