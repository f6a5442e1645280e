"""Forms: the inputs and outputs of a dynamic program, as serialisable data.

    Form ::= Port (a tensor) | int (a data type, by number) | tuple of forms

>>> x = Port("x", (2,), "f32", ELEMENTS["f32"].numpy)
>>> pair = DataForm("Pair", (ConstructorForm("Pair", 0, (x, x)),))
>>> pair.constructors[0].width
2
>>> interface = DynamicInterface((("p", 0),), 0, (pair,))
>>> from_data(to_data(interface)) == interface
True
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, TypeAlias

from plica.runtime.element import ELEMENTS
from plica.runtime.error import damaged
from plica.runtime.port import Port

Form: TypeAlias = "Port | int | tuple[Form, ...]"


@dataclass(frozen=True)
class ConstructorForm:
    """One way to build a value: its name, its number, and the forms of its fields."""

    name: str
    index: int
    fields: tuple[Form, ...]

    @cached_property
    def leaves(self) -> tuple[Port | int, ...]:
        """The fields its objects have: tuples lie in them item by item."""
        return tuple([each for field in self.fields for each in flat(field)])

    @cached_property
    def width(self) -> int:
        """How many fields its objects have."""
        return len(self.leaves)

    @cached_property
    def meta(self) -> int:
        """The header word of an object."""
        return self.width << 8 | self.index << 32

    @cached_property
    def empty(self) -> tuple[int, ...]:
        """Fields that nothing is in yet."""
        return (0,) * self.width

    @cached_property
    def places(self) -> tuple[tuple[Form, int], ...]:
        """Each field, and at which of the fields of an object it begins."""
        starts = accumulate([len(flat(field)) for field in self.fields], initial=0)
        return tuple(zip(self.fields, starts, strict=False))  # one start more than there are fields

    @cached_property
    def is_flat(self) -> bool:
        """Whether no field is a tuple."""
        return not any(isinstance(field, tuple) for field in self.fields)


@dataclass(frozen=True)
class DataForm:
    """A data type: its name, and its constructors in order."""

    name: str
    constructors: tuple[ConstructorForm, ...]


@dataclass(frozen=True)
class DynamicInterface:
    """The caller's view: parameters by name, the result, and the data types in them."""

    params: tuple[tuple[str, Form], ...]
    result: Form
    data: tuple[DataForm, ...]


@dataclass(frozen=True, slots=True)
class DataPort(Port):
    """An input or output that is a value of a data type."""

    @property
    def type(self) -> str:
        """The type as scripts write it."""
        return self.dtype


def flat(form: Form) -> list[Port | int]:
    """The tensors and data of a form, from left to right."""
    found: list[Port | int] = []
    stack = [form]
    while stack:
        if isinstance(each := stack.pop(), tuple):
            stack.extend(reversed(each))
        else:
            found.append(each)
    return found


def ports(name: str, form: Form, data: tuple[DataForm, ...]) -> list[Port]:
    """The tensors and data of a form, with names."""
    found: list[Port] = []
    stack: list[tuple[str, Form]] = [(name, form)]
    while stack:
        label, each = stack.pop()
        if isinstance(each, tuple):
            stack.extend([(f"{label}[{n}]", item) for n, item in enumerate(each)][::-1])
        elif isinstance(each, Port):
            found.append(Port(label, each.shape, each.dtype, each.numpy))
        else:
            found.append(DataPort(label, (), data[each].name, ELEMENTS["bool"].numpy))
    return found


def to_data(of: DynamicInterface) -> dict[str, Any]:
    """The interface as JSON data."""
    return {
        "params": [[name, _written(form)] for name, form in of.params],
        "result": _written(of.result),
        "data": [
            [
                data_form.name,
                [[c.name, [_written(field) for field in c.fields]] for c in data_form.constructors],
            ]
            for data_form in of.data
        ],
    }


def from_data(given: object) -> DynamicInterface:
    """The validated interface of JSON data."""
    match given:
        case {"params": [*params], "result": result, "data": [*data]}:
            count = len(data)
            return DynamicInterface(
                tuple([_param(param, count) for param in params]),
                _read(result, count),
                tuple([_data(each, count) for each in data]),
            )
    raise damaged("The interface in the artefact is damaged.")


def _written(form: Form) -> Any:
    match form:
        case Port():
            return {"name": form.name, "shape": list(form.shape), "dtype": form.dtype}
        case tuple():
            return [_written(each) for each in form]
        case int():
            return form


def _read(given: object, count: int) -> Form:
    match given:
        case {"name": str(name), "shape": [*shape], "dtype": str(dtype)} if dtype in ELEMENTS:
            sizes = [each for each in shape if type(each) is int and 0 <= each < 1 << 48]
            if len(sizes) == len(shape):
                return Port(name, tuple(sizes), dtype, ELEMENTS[dtype].numpy)
        case [*items]:
            return tuple([_read(item, count) for item in items])
        case int() if type(given) is int and 0 <= given < count:
            return given
    raise damaged("The interface in the artefact is damaged.", repr(given)[:80])


def _param(given: object, count: int) -> tuple[str, Form]:
    match given:
        case [str(name), form]:
            return name, _read(form, count)
    raise damaged("The interface in the artefact is damaged.", repr(given)[:80])


def _data(given: object, count: int) -> DataForm:
    match given:
        case [str(name), [*constructors]]:
            ways = [_constructor(each, at, count) for at, each in enumerate(constructors)]
            return DataForm(name, tuple(ways))
    raise damaged("The interface in the artefact is damaged.", repr(given)[:80])


def _constructor(given: object, index: int, count: int) -> ConstructorForm:
    match given:
        case [str(name), [*fields]]:
            return ConstructorForm(name, index, tuple([_read(field, count) for field in fields]))
    raise damaged("The interface in the artefact is damaged.", repr(given)[:80])
