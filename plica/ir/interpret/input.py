"""Inputs: the values a user gives for the parameters of a function, checked against their types.

Arrays must have the declared dtype and shape; Python numbers stand for scalars, tuples for tuples,
Python functions for functions.  Symbolic dims are found from the arrays and must agree.  All that
is wrong is reported at once, each with the input's name and both sides.

>>> from plica.core.name import Name
>>> from plica.ir.graph.module import module
>>> from plica.ir.type.term import tensor
>>> x = Var(Name("x"), tensor((2,), "f32"))
>>> values, sizes = read_inputs((x,), (np.zeros(2, np.float32),), {}, module({}))
>>> values[0].shape
(2,)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from plica.core import CompilerBug, EvaluationError, Term, free_vars, name_of
from plica.ir.graph.expression import Constructor, Var
from plica.ir.graph.module import Module
from plica.ir.interpret.value import (
    Array,
    Closure,
    DataValue,
    NativeFunction,
    Value,
    arity,
    conforms,
    equations,
    field_types,
    sketch,
)
from plica.ir.type import DType, Sizes, shape_of, solve, term as ty
from plica.runtime.element import wrong_element
from plica.runtime.error import Diagnostic, InputError, Place
from plica.runtime.given import in_order
from plica.runtime.port import MISSING, fits_float, number_text


def read_inputs(
    params: Sequence[Var],
    args: Sequence[Any],
    named: Mapping[str, Any],
    module: Module,
    sizes: Sizes | None = None,
) -> tuple[tuple[Value, ...], dict[Term, int]]:
    """The values of the parameters, and the dims they determine; `InputError` names all faults."""
    reader = _Reader(module)
    types = {str(param.name): param.type for param in params}
    names = [str(param.name) for param in params]  # two may print alike: x_1 and the second x
    given = in_order(names, args, named, reader.wrong, lambda name: str(types[name]))
    read: list[tuple[Var, Value]] = []
    for param, value in zip(params, given, strict=True):
        if value is not MISSING:
            name = str(param.name)
            known = reader.read(name, value, type_given(param), f"Input {name!r}")
            if known is not None:
                read.append((param, known))
    found = dict(sizes or {})
    origin: dict[Term, str] = {}
    for param, value in read:  # one by one, so that a conflict can say who fixed the dim
        before = set(found)
        found = solve(equations(type_given(param), value, module), found)
        origin |= {dim: str(param.name) for dim in found if dim not in before}
    for param, value in read:
        reader.check(str(param.name), value, type_given(param), found, origin)
    if reader.wrong:
        raise InputError(*reader.wrong)
    return tuple([value for _, value in read]), found


def type_given(param: Var) -> ty.Type:
    """The type of a parameter of an inferred function."""
    if param.type is None:
        raise CompilerBug(f"The parameter {param.name} has no type: the module was not inferred.")
    return param.type


def read_result(name: str, value: Any, type: ty.Type, sizes: Sizes, module: Module) -> Value:
    """The result of a Python function as a value of the declared type."""
    read = _Reader(module).read(name, value, type, "The result")
    if read is not None and conforms(read, type, sizes, module):
        return read
    raise EvaluationError.of(
        "type-conflict",
        f"The function {name!r} returned a value that is not of its type.",
        Place(node=name),
        str(type),
        _describe(value),
    )


def native(
    name: str, call: Callable[..., Any], type: ty.FuncType, sizes: Sizes, module: Module
) -> NativeFunction:
    """A Python function as a value: it is given read-only arrays, and its result is checked."""

    def checked(args: tuple[Value, ...]) -> Value:
        known = dict(sizes)
        for param, arg in zip(type.params, args, strict=True):
            known = solve(equations(param, arg), known)
        return read_result(name, call(*map(_frozen, args)), type.ret, known, module)

    return NativeFunction(name, len(type.params), checked)


class _Reader:
    """Reads values and collects errors."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.wrong: list[Diagnostic] = []

    def refuse(self, code: str, message: str, name: str, sides: tuple[object, object]) -> None:
        """Records an error with the expected and the given value."""
        expected, found = map(str, sides)
        self.wrong.append(Diagnostic(code, message, Place(node=name), expected, found))

    def masked(self, name: str, type: ty.Type, what: str) -> None:
        """Refuse an array whose mask would be lost."""
        message = f"{what} is a masked array, and tensors have no masks."
        hint = "Give x.filled(value), or the mask as an input of its own."
        self.wrong.append(
            Diagnostic("input-type", message, Place(node=name), str(type), "a masked array", hint)
        )

    def read(self, name: str, value: Any, type: ty.Type, what: str) -> Value | None:
        """The value in its canonical form, or None if it is invalid."""
        sides = type, _describe(value)
        match type:
            case ty.TensorType():
                if isinstance(value, np.ma.MaskedArray):
                    self.masked(name, type, what)
                    return None
                if (array := _array(value, type.dtype)) is None:
                    self.refuse("input-type", f"{what} is not a tensor.", name, sides)
                elif isinstance(array, str):
                    self.wrong.append(wrong_element(what, name, str(type.dtype), array))
                elif array.ndim != len(type.shape):
                    message = f"{what} has the wrong rank."
                    self.refuse("input-shape", message, name, (type, _describe(array)))
                else:
                    return array
            case ty.TupleType():
                if isinstance(value, tuple) and len(value) == len(type.items):
                    pairs = enumerate(zip(value, type.items, strict=True))
                    items = [self.read(name, v, t, f"{what}[{i}]") for i, (v, t) in pairs]
                    found = tuple([item for item in items if item is not None])
                    return found if len(found) == len(items) else None
                self.refuse("input-type", f"{what} is not the tuple it must be.", name, sides)
            case ty.FuncType():
                if isinstance(value, NativeFunction | Constructor | Closure):
                    if arity(value) == len(type.params):
                        return value
                elif callable(value):
                    return native(name, value, type, {}, self.module)
                self.refuse("input-type", f"{what} is not the function it must be.", name, sides)
            case ty.DataType():
                if isinstance(value, DataValue):
                    if conforms(value, type, None, self.module):
                        return value
                    whole = _with_arrays(value, type, self.module)
                    if conforms(whole, type, None, self.module):
                        return whole
                self.refuse("input-type", f"{what} is no value of its data type.", name, sides)
            case ty.TypeVar():
                if isinstance(value, np.ma.MaskedArray):
                    self.masked(name, type, what)
                    return None
                if isinstance(value, np.ndarray | np.generic):
                    return np.asarray(value)
                if isinstance(value, tuple | DataValue | NativeFunction | Constructor | Closure):
                    return value
                self.refuse("input-type", f"{what} is no value of the language.", name, sides)
            case ty.Unknown():
                raise CompilerBug(f"{what} has a type that was never inferred.")
        return None

    def check(
        self, name: str, value: Value, type: ty.Type, sizes: Sizes, origin: Mapping[Term, str]
    ) -> None:
        """Note each tensor that has not the shape its type gives it under `sizes`."""
        if isinstance(type, ty.TupleType) and isinstance(value, tuple):
            for inside, item in zip(type.items, value, strict=True):
                self.check(name, item, inside, sizes, origin)
        if not isinstance(type, ty.TensorType) or not isinstance(value, np.ndarray):
            return
        if value.shape == shape_of(type.shape, sizes):
            return
        used = frozenset[Term]().union(*map(free_vars, type.shape))
        fixed = [f"{name_of(v)} = {sizes[v]} from {origin[v]!r}" for v in origin if v in used]
        expected = f"{type} with {', '.join(fixed)}" if fixed else type
        message = f"Input {name!r} has the wrong shape."
        self.refuse("input-shape", message, name, (expected, f"shape {value.shape}"))


def _with_arrays(value: DataValue, type: ty.DataType, module: Module) -> Value:
    """The value with its numbers converted to arrays; what does not fit is unchanged."""
    done: dict[tuple[int, ty.Type], Any] = {}
    stack: list[tuple[Any, ty.Type]] = [(value, type)]
    while stack:
        each, of = stack[-1]
        parts: tuple[Any, ...] = ()
        inside: tuple[ty.Type, ...] | None = None
        if isinstance(of, ty.TupleType) and isinstance(each, tuple):
            inside, parts = of.items, each
        elif isinstance(of, ty.DataType) and isinstance(each, DataValue) and each.data is of.data:
            inside, parts = field_types(of, each.index, module), each.fields
        new: Any = each
        if inside is not None and len(inside) == len(parts):
            pairs = list(zip(parts, inside, strict=True))
            if waiting := [(part, t) for part, t in pairs if (id(part), t) not in done]:
                stack.extend(waiting)
                continue
            kept = tuple([done[id(part), t] for part, t in pairs])
            if any(a is not b for a, b in zip(kept, parts, strict=True)):
                new = kept if isinstance(each, tuple) else attrs.evolve(each, fields=kept)
        elif isinstance(of, ty.TensorType) and not isinstance(each, np.ndarray):
            array = _array(each, of.dtype)
            new = each if array is None or isinstance(array, str) else array
        done[id(each), of] = new
        stack.pop()
    made: Value = done[id(value), type]
    return made


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
        fits = fits_float(value)
    elif dtype.is_integer:
        low, high = dtype.bounds
        fits = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
    else:
        fits = isinstance(value, bool)
    return (
        np.asarray(value, dtype.numpy) if fits else f"{number_text(value)} ({type(value).__name__})"
    )


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
