"""Ragged lists: tensors of different shapes as two arrays, and the conversion of lists.

A list is its elements one after the other, and a table with a row for each tensor: its number of
axes, then its sizes, filled up with ones.  An option is a bool, and a list: of one tensor at most,
or the one that it may hold.  A result whose number of axes is known when a program has run is a
list of one tensor.

>>> x = ListPort("x", ("n",), "f32", ELEMENTS["f32"].numpy, "list")
>>> print(x)
x: List[Tensor[('n',), f32]]
>>> elements, table = packed(x, [np.ones(2, np.float32), np.zeros(1, np.float32)], [])
>>> elements.tolist(), table[:, :2].tolist()
([1.0, 1.0, 0.0], [[1, 2], [1, 1]])
>>> [each.tolist() for each in unpacked(x, (elements, table))]
[[1.0, 1.0], [0.0]]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, TypeGuard

import numpy as np

from plica.runtime.element import ELEMENTS
from plica.runtime.error import Diagnostic, InputError, Place, damaged
from plica.runtime.port import Array, OpenPort, Port

ListKind: TypeAlias = Literal["tensor", "any rank", "list", "option", "option of list"]

MAX_RANK: Final = 8  # tensors of lists have at most this many axes
WIDTH: Final = 1 + MAX_RANK  # how many numbers a row of the table is

PARTS: Final[dict[ListKind, tuple[str, ...]]] = {
    "tensor": ("",),
    "any rank": (".elements", ".shapes"),
    "list": (".elements", ".shapes"),
    "option": (".there", ".elements", ".shapes"),
    "option of list": (".there", ".elements", ".shapes"),
}
"""The suffixes of the arrays that represent a list."""


@dataclass(frozen=True, slots=True)
class ListPort(Port):
    """An input or output of a program over lists; of a shape that is None nothing is known."""

    shape: Any  # Any: None, or numbers and names
    kind: ListKind

    @property
    def type(self) -> str:
        """The type as scripts write it."""
        tensor = f"Tensor[{'...' if self.shape is None else repr(self.shape)}, {self.dtype}]"
        match self.kind:
            case "tensor" | "any rank":
                return tensor
            case "list":
                return f"List[{tensor}]"
            case "option":
                return f"Option[{tensor}]"
            case "option of list":
                return f"Option[List[{tensor}]]"

    def placing(self) -> Callable[[], tuple[Array, int]]:
        """Nothing to prepare: the program over arrays makes those that stand for it."""
        return self.placed

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the arrays that stand for it."""
        return tuple([self.name + end for end in PARTS[self.kind]])


def packed(port: ListPort, value: object, wrong: list[Diagnostic]) -> list[Any]:
    """The arrays that stand for a value; what does not fit the port is noted."""
    if port.kind == "tensor":
        return [value]
    if port.kind == "list":
        return _joined(port, value, wrong)
    there = np.asarray(value is not None)
    items = [] if value is None else [value] if port.kind == "option" else value
    return [there, *_joined(port, items, wrong)]


def unpacked(port: ListPort, arrays: Sequence[Array]) -> Any:  # Any: an array, a list of them, None
    """The value that arrays stand for."""
    if port.kind == "tensor":
        return arrays[0]
    *there, elements, table = arrays
    if there and not bool(there[0]):
        return None
    items: list[Array] = []
    start = 0
    for count, *sizes in table.tolist():
        shape = tuple(sizes[:count])
        stop = start + math.prod(shape)
        items.append(elements[start:stop].reshape(shape).copy())
        start = stop
    return items[0] if port.kind in ("any rank", "option") else items


def flat_inputs(
    lists: object, args: Sequence[object], named: Mapping[str, object]
) -> tuple[Any, ...]:
    """The arrays that represent inputs, in order; `lists` are the main function's list types."""
    takes, _ = map(from_data, _sides(lists))
    wrong: list[Diagnostic] = []
    values = dict(zip([port.name for port in takes], args, strict=False)) | dict(named)
    names = [port.name for port in takes]
    if len(args) > len(names) or {*values} != {*names}:
        message = "Other inputs are given than the program takes."
        found = f"{len(args)} and {', '.join(named) or 'none by name'}"
        raise InputError(Diagnostic("input-unknown", message, None, ", ".join(names), found))
    arrays = [each for port in takes for each in packed(port, values[port.name], wrong)]
    if wrong:
        raise InputError(wrong[0], *wrong[1:])
    return tuple(arrays)


def nested_results(lists: object, found: object) -> Any:  # Any: arrays, lists of them, None
    """The results that arrays stand for."""
    _, gives = map(from_data, _sides(lists))
    values = values_of(gives, found if isinstance(found, tuple) else (found,))
    return values[0] if len(values) == 1 else tuple(values)


def values_of(ports: Sequence[ListPort], arrays: Sequence[Any]) -> list[Any]:
    """What arrays stand for, for each port."""
    values, start = [], 0
    for port in ports:
        stop = start + len(port.parts)
        values.append(unpacked(port, arrays[start:stop]))
        start = stop
    return values


def _sides(lists: object) -> tuple[object, object]:
    match lists:
        case (takes, gives):
            return takes, gives
        case _:
            raise damaged("What a program says of its lists is damaged.", repr(lists)[:80])


def _joined(port: ListPort, items: object, wrong: list[Diagnostic]) -> list[Array]:
    """The elements of some arrays and the table of their shapes."""
    arrays: list[Array] = []
    if not isinstance(items, list | tuple):
        message = f"Input {port.name!r} is not a list of tensors."
        kind = type(items).__name__
        wrong.append(Diagnostic("input-type", message, Place(node=port.name), port.type, kind))
        items = ()
    for at, item in enumerate(items):
        name = port.name if port.kind == "option" else f"{port.name}[{at}]"
        shape = tuple(getattr(item, "shape", ())) if port.shape is None else port.shape
        taken = OpenPort(name, shape, port.dtype, port.numpy).take(item)
        if isinstance(taken, Diagnostic):
            wrong.append(taken)
        elif taken.ndim > MAX_RANK:
            message = f"Input {name!r} has too many axes."
            found = str(taken.ndim)
            expected = f"at most {MAX_RANK}"
            wrong.append(Diagnostic("input-shape", message, Place(node=name), expected, found))
        else:
            arrays.append(taken)
    table = np.ones((len(arrays), WIDTH), np.int64)
    for row, array in zip(table, arrays, strict=True):
        row[: 1 + array.ndim] = (array.ndim, *array.shape)
    empty = np.zeros(0, port.numpy)
    return [np.concatenate([empty, *[array.reshape(-1) for array in arrays]]), table]


# --- as data --------------------------------------------------------------------------------------


def to_data(ports: Sequence[ListPort]) -> list[list[Any]]:
    """Ports as JSON data."""
    return [
        [port.name, port.kind, port.dtype, None if port.shape is None else list(port.shape)]
        for port in ports
    ]


def from_data(given: object) -> tuple[ListPort, ...]:
    """The ports that were written down; nothing in them is believed."""
    if not isinstance(given, list | tuple):
        raise damaged("The lists of the artefact are damaged.", repr(given)[:80])
    return tuple([_port(each) for each in given])


def _port(given: object) -> ListPort:
    match given:
        case [
            str(name),
            "tensor" | "any rank" | "list" | "option" | "option of list" as kind,
            str(dtype),
            shape,
        ]:
            if dtype in ELEMENTS and (shape is None or _is_shape(shape)):
                sizes = None if shape is None else tuple(shape)
                return ListPort(name, sizes, dtype, ELEMENTS[dtype].numpy, kind)
    raise damaged("An input or output in the artefact is damaged.", repr(given)[:80])


def _is_shape(given: object) -> TypeGuard[Sequence[int | str]]:
    return isinstance(given, list | tuple) and all(
        isinstance(each, str) or (type(each) is int and 0 <= each < 1 << 48) for each in given
    )
