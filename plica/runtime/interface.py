"""Interfaces: a caller's view of a compiled model, as serialisable data.

>>> x = Port("x", (2, 3), "f32", ELEMENTS["f32"].numpy)
>>> interface = Interface((("pair", (0, 0)),), (x,), (x,), True)
>>> to_data(interface)["params"]
[['pair', [0, 0]]]
>>> from_data(to_data(interface)) == interface
True
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, Final, TypeAlias

from plica.runtime.element import ELEMENTS
from plica.runtime.error import damaged
from plica.runtime.port import OpenPort, Port
from plica.runtime.typed_json import OPTIONAL, Annotated, ClassVar, dataclass, plain, read

MAX_DEPTH: Final = 64  # parameters are nested no deeper
Number: TypeAlias = Annotated[int, range(1 << 48)]

Shape: TypeAlias = "int | tuple[Shape, ...]"  # where the tensors of a parameter are among the ports


def _port(given: object) -> Port:
    match given:
        case [str(name), [*shape], str(dtype)] if dtype in ELEMENTS:
            sizes = [size for size in shape if type(size) is int and 0 <= size < 1 << 48]
            if len(sizes) == len(shape):
                return Port(name, tuple(sizes), dtype, ELEMENTS[dtype].numpy)
            names = [size for size in shape if isinstance(size, str) and size]
            if len(sizes) + len(names) == len(shape):
                return OpenPort(name, tuple(shape), dtype, ELEMENTS[dtype].numpy)
    raise damaged("An input or output in the artefact is damaged.", repr(given))


def _shape(given: object, depth: int = 0) -> Shape:
    if isinstance(given, list) and depth < MAX_DEPTH:
        return tuple([_shape(each, depth + 1) for each in given])
    if type(given) is int and given >= 0:
        return given
    raise damaged("A parameter in the artefact is damaged.", repr(given)[:200])


@dataclass(frozen=True, slots=True)
class Interface:
    """A caller's view: parameters made of inputs, outputs, and whether each is one array."""

    KEYED: ClassVar = True
    DAMAGED: ClassVar = "The interface in the artefact is damaged."

    params: tuple[tuple[str, Annotated[Shape, _shape]], ...]
    inputs: tuple[Annotated[Port, _port], ...]
    outputs: tuple[Annotated[Port, _port], ...]
    single: bool
    ranges: tuple[tuple[str, int, int | None], ...] = field(default=(), metadata=OPTIONAL)
    """Open sizes the model was not made for every value of: the name, the least, the most."""
    donated: tuple[tuple[Number, Number], ...] = field(default=(), metadata=OPTIONAL)
    """Inputs and the outputs that are written over them, by number."""
    needs: tuple[str, ...] = field(default=(), metadata=OPTIONAL)
    """What open sizes are where every operator has a value, in words: `n >= 9`."""


@dataclass(frozen=True, slots=True)
class Dim:
    """An open size: its name, and the input and axis that determine it."""

    name: str
    port: int
    axis: int


def dims_of(of: Interface) -> tuple[Dim, ...]:
    """The open sizes of an interface: names that stand alone on some axis, in order."""
    dims: dict[str, Dim] = {}
    for at, port in enumerate(of.inputs):
        shape: tuple[Any, ...] = port.shape
        for axis, size in enumerate(shape):
            if isinstance(size, str) and size.isidentifier():
                dims.setdefault(size, Dim(size, at, axis))
    return tuple(dims.values())


def to_data(of: Interface) -> dict[str, Any]:
    """The interface as JSON data."""
    data: dict[str, Any] = plain(of)
    return data


def from_data(given: object) -> Interface:
    """The interface that was written down; nothing in it is believed."""
    found = read(Interface, given)
    if not all(_is_shape(shape, len(found.inputs)) for _, shape in found.params):
        raise damaged("A parameter in the artefact is damaged.", repr(found.params)[:200])
    _check_donated(found)
    return found


def _check_donated(of: Interface) -> None:
    """Refuse pairs of inputs and outputs whose memory cannot be one, or that come twice."""
    for old, new in of.donated:
        if not (old < len(of.inputs) and new < len(of.outputs)):
            raise damaged("The donated inputs in the artefact are damaged.", repr(of.donated))
        mine, other = of.inputs[old], of.outputs[new]
        if (mine.shape, mine.dtype) != (other.shape, other.dtype):
            raise damaged("A donated input in the artefact has another type.", repr((old, new)))
    if any(len({pair[side] for pair in of.donated}) != len(of.donated) for side in (0, 1)):
        raise damaged("An input in the artefact is donated twice.", repr(of.donated))


def _is_shape(of: Shape, count: int) -> bool:
    if isinstance(of, int):
        return of < count
    return all(_is_shape(each, count) for each in of)
