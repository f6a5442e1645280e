"""Inputs: the values a user gives for the parameters of a function, checked against their types.

Arrays must have the declared dtype and shape; Python numbers stand for scalars, tuples for tuples,
Python functions for functions.  Symbolic dims are found from the arrays and must agree.  All that
is wrong is reported at once, each with the input's name and both sides.

>>> from plica.core.name import Name
>>> from plica.ir.module import module
>>> from plica.ir.type import tensor
>>> x = Var(Name("x"), tensor((2,), "f32"))
>>> values, sizes = read_inputs((x,), (np.zeros(2, np.float32),), {}, module({}))
>>> values[0].shape
(2,)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from plica.core.binding import free_vars, name_of
from plica.core.diagnostic import CompilerBug, EvaluationError, did_you_mean
from plica.core.term import Term
from plica.ir.dtype import DType
from plica.ir.graph import Constructor, Var
from plica.ir.module import Module
from plica.ir.size import Sizes, shape_of, size_of, solve
from plica.ir.type import (
    DataType,
    FuncType,
    TensorType,
    TupleType,
    Type,
    TypeVar,
    Unknown,
)
from plica.ir.value import (
    Array,
    Closure,
    DataValue,
    Native,
    Value,
    arity,
    conforms,
    equations,
    sketch,
)
from plica.runtime.error import Diagnostic, InputError, Place

_MISSING: Final = object()


def read_inputs(
    params: Sequence[Var],
    args: Sequence[Any],
    named: Mapping[str, Any],
    module: Module,
    sizes: Sizes | None = None,
) -> tuple[tuple[Value, ...], dict[Term, int]]:
    """The values of the parameters, and the dims they determine; `InputError` names all faults."""
    wrong: list[Diagnostic] = []
    given = _by_position(params, args, named, wrong)
    read: list[tuple[Var, Value]] = []
    for param, value in zip(params, given, strict=True):
        if value is not _MISSING:
            name = str(param.name)
            known = _read(f"Input {name!r}", name, value, type_given(param), module, wrong)
            if known is not None:
                read.append((param, known))
    found = dict(sizes or {})
    origin: dict[Term, str] = {}
    for param, value in read:  # one by one, so that a conflict can say who fixed the dim
        before = set(found)
        found = solve(equations(type_given(param), value, module), found)
        origin |= {dim: str(param.name) for dim in found if dim not in before}
    for param, value in read:
        _check(str(param.name), value, type_given(param), found, origin, wrong)
    if wrong:
        raise InputError(*wrong)
    return tuple([value for _, value in read]), found


def type_given(param: Var) -> Type:
    """The type of a parameter of an inferred function."""
    if param.type is None:
        raise CompilerBug(f"The parameter {param.name} has no type: the module was not inferred.")
    return param.type


def read_result(name: str, value: Any, type: Type, sizes: Sizes, module: Module) -> Value:
    """What a Python function returned, as a value of the type it must have."""
    wrong: list[Diagnostic] = []
    read = _read(f"The result of {name!r}", name, value, type, module, wrong)
    if read is not None and conforms(read, type, sizes, module):
        return read
    raise EvaluationError(
        Diagnostic(
            "type-conflict",
            f"The function {name!r} returned a value that is not of its type.",
            Place(node=name),
            str(type),
            _describe(value),
        )
    )


def native(
    name: str, call: Callable[..., Any], type: FuncType, sizes: Sizes, module: Module
) -> Native:
    """A Python function as a value: it is given read-only arrays, and its result is checked."""

    def checked(args: tuple[Value, ...]) -> Value:
        known = dict(sizes)
        for param, arg in zip(type.params, args, strict=True):
            known = solve(equations(param, arg), known)
        return read_result(name, call(*map(_frozen, args)), type.ret, known, module)

    return Native(name, len(type.params), checked)


def _by_position(
    params: Sequence[Var], args: Sequence[Any], named: Mapping[str, Any], wrong: list[Diagnostic]
) -> list[Any]:
    """What is given for each parameter, `_MISSING` where nothing is."""
    names = [str(param.name) for param in params]
    given = [*args[: len(names)], *[_MISSING] * (len(names) - len(args))]
    if len(args) > len(names):
        message = "More values are given than there are inputs."
        expected = f"{len(names)} ({', '.join(names)})"
        wrong.append(Diagnostic("input-unknown", message, None, expected, str(len(args))))
    for name, value in named.items():
        if names.count(name) != 1:
            how = "more than one input" if name in names else "no input"
            message = f"There is {how} {name!r}."
            hint = did_you_mean(name, names)
            expected = ", ".join(names) or "no inputs"
            wrong.append(Diagnostic("input-unknown", message, None, expected, name, hint))
        elif given[names.index(name)] is not _MISSING:
            message = f"Input {name!r} is given twice, by position and by name."
            wrong.append(Diagnostic("input-unknown", message, Place(node=name)))
        else:
            given[names.index(name)] = value
    for param, value in zip(params, given, strict=True):
        if value is _MISSING:
            place = Place(node=str(param.name))
            message = f"Input {str(param.name)!r} is not given."
            wrong.append(Diagnostic("input-missing", message, place, str(param.type)))
    return given


def _read(
    what: str, name: str, value: Any, type: Type, module: Module, wrong: list[Diagnostic]
) -> Value | None:
    """The value in its canonical form; None where something is wrong with it already."""

    def refuse(code: str, message: str, expected: object, found: object) -> None:
        place = Place(node=name)
        wrong.append(Diagnostic(code, f"{what} {message}", place, str(expected), str(found)))

    match type:
        case TensorType():
            array = _array(value, type.dtype)
            if array is None:
                refuse("input-type", "is not a tensor.", type, _describe(value))
            elif isinstance(array, str):
                refuse("input-dtype", "has the wrong element type.", type.dtype, array)
            elif array.ndim != len(type.shape):
                refuse("input-shape", "has the wrong rank.", type, _describe(array))
            else:
                return array
            return None
        case TupleType():
            if not isinstance(value, tuple) or len(value) != len(type.items):
                refuse("input-type", "is not the tuple it must be.", type, _describe(value))
                return None
            count = len(wrong)
            items = [
                _read(f"{what}[{i}]", name, item, inside, module, wrong)
                for i, (item, inside) in enumerate(zip(value, type.items, strict=True))
            ]
            return tuple(items) if len(wrong) == count else None  # type: ignore[arg-type]
        case FuncType():
            if isinstance(value, Native | Constructor | Closure):
                if arity(value) == len(type.params):
                    return value
            elif callable(value):
                return native(name, value, type, {}, module)
            refuse("input-type", "is not the function it must be.", type, _describe(value))
            return None
        case DataType():
            if conforms(value, type, None, module):
                return value  # type: ignore[no-any-return]  # conforms says it is one
            refuse("input-type", "is not a value of its data type.", type, _describe(value))
            return None
        case TypeVar():
            if isinstance(value, np.ndarray | np.generic):
                return np.asarray(value)
            if isinstance(value, tuple | DataValue) or arity(value) is not None:
                return value
            refuse("input-type", "is no value of the language.", "an array", _describe(value))
            return None
        case Unknown():
            raise CompilerBug(f"{what} has a type that was never inferred.")


def _check(
    name: str,
    value: Value,
    type: Type,
    sizes: Sizes,
    origin: Mapping[Term, str],
    wrong: list[Diagnostic],
) -> None:
    """Whether every tensor has the shape its type gives it under `sizes`."""
    if isinstance(type, TupleType) and isinstance(value, tuple):
        for inside, item in zip(type.items, value, strict=True):
            _check(name, item, inside, sizes, origin, wrong)
    if not isinstance(type, TensorType) or not isinstance(value, np.ndarray):
        return
    expected = shape_of(type.shape, sizes)
    if value.shape == expected:
        return
    undecided = expected is None and all(
        size_of(dim, sizes) in (None, size)
        for dim, size in zip(type.shape, value.shape, strict=True)
    )
    used = frozenset[Term]().union(*map(free_vars, type.shape))
    fixed = [f"{name_of(v)} = {sizes[v]} from {origin[v]!r}" for v in origin if v in used]
    wrong.append(
        Diagnostic(
            "input-shape",
            f"Input {name!r} has a shape that no size of its dims gives."
            if undecided
            else f"Input {name!r} has the wrong shape.",
            Place(node=name),
            f"{type} with {', '.join(fixed)}" if fixed else str(type),
            f"shape {value.shape}",
        )
    )


def _array(value: Any, dtype: DType) -> Array | str | None:
    """The value as an array of `dtype`; a string says which dtype it has instead."""
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
    elif isinstance(value, bool | int | float):
        return _number(value, dtype)
    elif hasattr(value, "__dlpack__"):
        array = np.from_dlpack(value)
    else:
        return None
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return array if array.dtype == dtype.numpy else str(array.dtype)


def _number(value: bool | int | float, dtype: DType) -> Array | str:
    """A Python number as a scalar tensor: exact for integers and bools, rounded for floats."""
    if dtype.is_float:
        fits = not isinstance(value, bool)
    elif dtype.is_integer:
        low, high = dtype.bounds
        fits = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
    else:
        fits = isinstance(value, bool)
    return np.asarray(value, dtype.numpy) if fits else f"{value!r} ({type(value).__name__})"


def _frozen(value: Value) -> Any:
    """The same value through which no array can be changed."""
    if isinstance(value, np.ndarray):
        view = value.view()
        view.flags.writeable = False
        return view
    if isinstance(value, tuple):
        return tuple([_frozen(item) for item in value])
    return value


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray | np.generic):
        return f"{value.dtype} tensor of shape {tuple(value.shape)}"
    return f"{sketch(value)} ({type(value).__name__})"
