"""Values: what expressions of the graph language stand for.

    Value ::= np.ndarray | tuple of values | DataValue(data, index, name, fields)
            | Closure | Native | Constructor

A tensor is an array (a scalar one of rank 0), a tuple is a Python tuple, and a function is one of
the last three: a closure of the language, a function of Python, or a constructor.

>>> from plica.ir.type.term import tensor
>>> conforms(np.zeros((3, 4), np.float32), tensor(("n", 4), "f32"), {dim_var("n"): 3})
True
>>> conforms(np.zeros((3, 4), np.float32), tensor(("n", 4), "f32"), {dim_var("n"): 2})
False

Patterns: whether a value fits one, and what its variables are then.

>>> x, y = ex.Var(Name("x"), None), ex.Var(Name("y"), None)
>>> found = {}
>>> fits(ex.PTuple((ex.PVar(x), ex.PTuple((ex.PAny(), ex.PVar(y))))), (1, (2, 3)), found)
True
>>> found[x], found[y]
(1, 3)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import attrs
import numpy as np

from plica.core import CompilerBug, EvaluationError, Name, Term, did_you_mean, substitute
from plica.ir.graph import expression as ex
from plica.ir.graph.module import DataDef, Module
from plica.ir.loop.scalar import ScalarVar
from plica.ir.type import DType, Sizes, dim_var, term as ty
from plica.ir.type.size import Equation, size_of
from plica.runtime.error import InputError
from plica.runtime.late import lazy_imports
from plica.runtime.port import number_text

with lazy_imports(__name__):  # where a match fails
    from plica.ir.graph.exhaustiveness import show_pattern

__all__ = [
    "Array", "Closure", "DataValue", "NativeFunction", "Value", "arity", "build", "conforms",
    "dim_var", "equations", "sketch",
]  # fmt: skip

Array: TypeAlias = np.ndarray[Any, Any]  # Any: the dtype is the tensor type's


@attrs.frozen(eq=False, repr=False, slots=True)
class DataValue:
    """A value of an algebraic data type: its constructor and fields."""

    data: ty.DataName
    index: int
    name: Name
    fields: tuple[Value, ...]

    def __repr__(self) -> str:
        return sketch(self)


@attrs.frozen(eq=False, repr=False, slots=True)
class Closure:
    """A function with the values of its free variables; `call` runs it on Python's side.

    `itself` is the variable by which a recursive function refers to itself. It is bound on entry,
    not captured: a closure that contained itself would be a reference cycle and stay until garbage
    collection.
    """

    function: ex.Function
    captured: Mapping[Term, Any]  # Any: values of variables, and numbers for dims
    call: Callable[[Closure, tuple[Any, ...]], Value]
    itself: ex.Var | None = None

    def __call__(self, *args: Any) -> Value:
        """The result on arguments that are checked as the inputs of a module are."""
        return self.call(self, args)

    def __repr__(self) -> str:
        return f"<function of {len(self.function.params)}>"


@attrs.frozen(eq=False, repr=False, slots=True)
class NativeFunction:
    """A function that is no term of the graph language: an extern, a kernel, a caller's own."""

    name: str
    arity: int
    call: Callable[[tuple[Value, ...]], Value]

    def __call__(self, *args: Any) -> Value:
        """The result on values."""
        return self.call(args)

    def __repr__(self) -> str:
        return f"<{self.name}>"


Value: TypeAlias = (
    "Array | tuple[Value, ...] | DataValue | Closure | NativeFunction | ex.Constructor"
)


def arity(value: Value) -> int | None:
    """The number of arguments of a function, or None for other values."""
    if isinstance(value, Closure):
        return len(value.function.params)
    if isinstance(value, NativeFunction):
        return value.arity
    if isinstance(value, ex.Constructor) and isinstance(value.type, ty.FuncType):
        return len(value.type.params)
    return None


def conforms(
    value: Any, type: ty.Type, sizes: Sizes | None = None, module: Module | None = None
) -> bool:
    """Whether `value` is of `type`, as far as a value can show.

    A dim that `sizes` does not know may be any number, the same one everywhere.  Of a function
    only the number of parameters can be seen, of a type variable's value nothing.  Values of data
    types need the module that defines those.
    """
    known: dict[Term, int] = dict(sizes or {})
    fields: dict[tuple[ty.DataType, int], tuple[ty.Type, ...] | None] = {}
    stack: list[tuple[Any, ty.Type]] = [(value, type)]
    while stack:
        value, type = stack.pop()
        match type:
            case ty.TensorType():
                if not _is_tensor(value, type, known):
                    return False
            case ty.TupleType():
                if not isinstance(value, tuple) or len(value) != len(type.items):
                    return False
                stack.extend(zip(value, type.items, strict=True))
            case ty.DataType():
                if not isinstance(value, DataValue) or value.data is not type.data:
                    return False
                key = type, value.index
                if key not in fields:
                    fields[key] = field_types(type, value.index, module)
                inside = fields[key]
                if inside is None or len(inside) != len(value.fields):
                    return False
                stack.extend(zip(value.fields, inside, strict=True))
            case ty.FuncType():
                if arity(value) != len(type.params):
                    return False
            case ty.TypeVar():
                continue
            case ty.Unknown():
                raise CompilerBug("A value is held against a type that was never inferred.")
    return True


def equations(type: ty.Type, value: Any, module: Module | None = None) -> Iterator[Equation]:
    """One equation per axis of every tensor in a value; with a module, inside data as well.

    A value that does not match its type yields no equations: the caller validates it.
    """
    stack: list[tuple[ty.Type, Any]] = [(type, value)]
    while stack:
        type, value = stack.pop()
        inside: tuple[ty.Type, ...] | None = None
        if isinstance(type, ty.TensorType):
            if isinstance(value, np.ndarray) and value.ndim == len(type.shape):
                yield from zip(type.shape, value.shape, strict=True)
        elif isinstance(type, ty.TupleType) and isinstance(value, tuple):
            inside = type.items
        elif isinstance(type, ty.DataType) and isinstance(value, DataValue) and module is not None:
            inside, value = field_types(type, value.index, module), value.fields
        if inside is not None and len(inside) == len(value):
            stack.extend(zip(reversed(inside), reversed(value), strict=True))


def field_types(type: ty.DataType, index: int, module: Module | None) -> tuple[ty.Type, ...] | None:
    """The field types of the constructor with this index, at the arguments of `type`."""
    definition = None if module is None else module.definitions().get(type.data)
    if not isinstance(definition, DataDef):
        raise CompilerBug(f"The data type {type.data.name} is not defined in the module given.")
    if not 0 <= index < len(definition.constructors):
        return None
    arguments: dict[Term, Term] = dict(zip(definition.types, type.args, strict=True))
    found = definition.constructors[index].fields
    return tuple([substitute(type_, arguments) for type_ in found])


def build(module: Module, constructor: str, *fields: Any) -> DataValue:
    """A value of a data type of `module`, by the name of its constructor; numbers become arrays."""
    known: list[str] = []
    for data, definition in module.items():
        if isinstance(data, ty.DataName) and isinstance(definition, DataDef):
            for index, def_ in enumerate(definition.constructors):
                if str(def_.name) == constructor:
                    _check_count(constructor, len(def_.fields), len(fields))
                    inside = zip(fields, def_.fields, strict=True)
                    return DataValue(
                        data, index, def_.name, tuple([_field(v, t) for v, t in inside])
                    )
                known.append(str(def_.name))
    raise InputError.of(
        "input-unknown",
        f"The module has no constructor {constructor!r}.",
        expected=", ".join(known) or "a data type",
        suggestion=did_you_mean(constructor, known),
    )


def sketch(value: Any, depth: int = 4) -> str:
    """A value in a few words, however big it is."""
    if isinstance(value, np.ndarray | np.generic):
        if value.size > 6:
            return f"{value.dtype} tensor of shape {tuple(value.shape)}"
        return str(value.tolist())
    if isinstance(value, tuple):
        shown = [sketch(item, depth - 1) for item in value[:6]] if depth else ["..."]
        return f"({', '.join(shown)}{',' if len(value) == 1 else ''})"
    if isinstance(value, DataValue):
        shown = [sketch(item, depth - 1) for item in value.fields] if depth else ["..."]
        return f"{value.name}({', '.join(shown)})"
    if isinstance(value, ex.Constructor):
        return str(value.name)
    text = number_text(value) if isinstance(value, int) else repr(value)
    return text if len(text) <= 60 else f"{text[:56]} ..."


def _is_tensor(value: Any, type: ty.TensorType, known: dict[Term, int]) -> bool:
    if not isinstance(value, np.ndarray) or value.dtype != type.dtype.numpy:
        return False
    if value.ndim != len(type.shape):
        return False
    for dim, size in zip(type.shape, value.shape, strict=True):
        expected = size_of(dim, known)
        if expected is None and isinstance(dim, ScalarVar):
            known[dim] = size
        elif expected is not None and expected != size:
            return False
    return True


def _field(value: Any, type: ty.Type) -> Any:
    if (
        isinstance(value, tuple)
        and isinstance(type, ty.TupleType)
        and len(value) == len(type.items)
    ):
        return tuple([_field(v, t) for v, t in zip(value, type.items, strict=True)])
    if isinstance(value, bool | int | float | np.generic):
        kind: DType | None = type.dtype if isinstance(type, ty.TensorType) else None
        return np.asarray(value, None if kind is None else kind.numpy)
    return value


def _check_count(constructor: str, expected: int, found: int) -> None:
    if expected != found:
        message = f"{constructor} is built with the wrong number of fields."
        raise InputError.of("wrong-arity", message, expected=str(expected), found=str(found))


def fits(pattern: ex.Pattern, value: Any, env: dict[Any, Any]) -> bool:
    """Whether a value fits a pattern; binds its variables on the way.

    Bindings made before a pattern fails are left in place and never read: other clauses do not use
    their variables without binding them.
    """
    match pattern:
        case ex.PVar(var):
            env[var] = value
            return True
        case ex.PAny():
            return True
        case ex.PConstructor(constructor, items):
            if value.index != constructor.index:
                return False
            value = value.fields
        case ex.PTuple(items):
            pass
    return all(fits(item, inside, env) for item, inside in zip(items, value, strict=True))


def unmatched(node: ex.Match, value: Any) -> EvaluationError:
    """The error of a match none of whose clauses fits."""
    clauses = [show_pattern(clause.pattern) for clause in node.clauses]
    message = "No clause of the match fits the value."
    expected = " or ".join(clauses) or "nothing"
    return EvaluationError.of("match-failure", message, None, expected, sketch(value))
