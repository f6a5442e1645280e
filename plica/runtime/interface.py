"""Interfaces: a caller's view of a compiled model, as serialisable data.

>>> x = Port("x", (2, 3), "f32", ELEMENTS["f32"].numpy)
>>> interface = Interface((("pair", (0, 0)),), (x,), (x,), True)
>>> to_data(interface)["params"]
[['pair', [0, 0]]]
>>> from_data(to_data(interface)) == interface
True
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from plica.runtime.element import ELEMENTS
from plica.runtime.error import damaged
from plica.runtime.port import OpenPort, Port

Shape: TypeAlias = "int | tuple[Shape, ...]"  # where the tensors of a parameter are among the ports


@dataclass(frozen=True, slots=True)
class Interface:
    """A caller's view: parameters made of inputs, outputs, and whether each is one array."""

    params: tuple[tuple[str, Shape], ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    single: bool
    ranges: tuple[tuple[str, int, int | None], ...] = ()
    """Open sizes the model was not made for every value of: the name, the least, the most."""
    donated: tuple[tuple[int, int], ...] = ()
    """Inputs and the outputs that are written over them, by number."""
    needs: tuple[str, ...] = ()
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
    return {
        "params": [[name, _lists(shape)] for name, shape in of.params],
        "inputs": [[port.name, list(port.shape), port.dtype] for port in of.inputs],
        "outputs": [[port.name, list(port.shape), port.dtype] for port in of.outputs],
        "single": of.single,
        **({"ranges": [list(each) for each in of.ranges]} if of.ranges else {}),
        **({"donated": [list(each) for each in of.donated]} if of.donated else {}),
        **({"needs": list(of.needs)} if of.needs else {}),
    }


def from_data(given: object) -> Interface:
    """The interface that was written down; nothing in it is believed."""
    match given:
        case {
            "params": [*params],
            "inputs": [*inputs],
            "outputs": [*outputs],
            "single": bool(single),
            **more,
        }:
            ports = tuple([_port(each) for each in inputs])
            results = tuple([_port(output) for output in outputs])
            return Interface(
                tuple([_param(param, len(ports)) for param in params]),
                ports,
                results,
                single,
                _ranges(more.get("ranges", [])),
                _donated(more.get("donated", []), ports, results),
                _needs(more.get("needs", [])),
            )
        case _:
            raise damaged("The interface in the artefact is damaged.")


def _lists(shape: Shape) -> Any:
    return shape if isinstance(shape, int) else [_lists(each) for each in shape]


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


def _ranges(given: object) -> tuple[tuple[str, int, int | None], ...]:
    match given:
        case [*ranges]:
            return tuple([_range(each) for each in ranges])
        case _:
            raise damaged("The ranges of dims in the artefact are damaged.", repr(given))


def _range(given: object) -> tuple[str, int, int | None]:
    match given:
        case [str(name), int(least), int() | None as most]:
            return name, least, most
        case _:
            raise damaged("The range of a dim in the artefact is damaged.", repr(given))


def _needs(given: object) -> tuple[str, ...]:
    match given:
        case [*needs] if all(isinstance(need, str) for need in needs):
            return tuple([str(need) for need in needs])
        case _:
            raise damaged("What the artefact asks of open sizes is damaged.", repr(given)[:80])


def _donated(
    given: object, inputs: tuple[Port, ...], outputs: tuple[Port, ...]
) -> tuple[tuple[int, int], ...]:
    """Pairs of inputs and outputs, each once, whose memory can be one."""
    pairs: list[tuple[int, int]] = []
    for each in given if isinstance(given, list) else [None]:
        match each:
            case [int(old), int(new)] if 0 <= old < len(inputs) and 0 <= new < len(outputs):
                mine, other = inputs[old], outputs[new]
                if (mine.shape, mine.dtype) != (other.shape, other.dtype):
                    raise damaged("A donated input in the artefact has another type.", repr(each))
                pairs.append((old, new))
            case _:
                raise damaged("The donated inputs in the artefact are damaged.", repr(given))
    if any(len({pair[side] for pair in pairs}) != len(pairs) for side in (0, 1)):
        raise damaged("An input in the artefact is donated twice.", repr(given))
    return tuple(pairs)


def _param(given: object, count: int) -> tuple[str, Shape]:
    match given:
        case [str(name), shape]:
            return name, _shape(shape, count, 0)
        case _:
            raise damaged("A parameter in the artefact is damaged.", repr(given))


def _shape(given: object, count: int, depth: int) -> Shape:
    match given:
        case int(number) if type(number) is int and 0 <= number < count:
            return number
        case [*inside] if depth < 64:
            return tuple([_shape(each, count, depth + 1) for each in inside])
        case _:
            raise damaged("A parameter in the artefact is damaged.", repr(given))
