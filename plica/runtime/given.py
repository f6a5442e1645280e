"""The inputs of a model by position or name, and how invalid ones are refused.

>>> wrong = []
>>> in_order(["x", "y"], [1], {"z": 2}, wrong, {"y": "Tensor[(3,), f32]"}.get)
[1, MISSING]
>>> print(*wrong, sep="\\n")
There is no input 'z'. [input-unknown]
  expected: x, y
  found: z
y: Input 'y' is not given. [input-missing]
  expected: Tensor[(3,), f32]
  suggestion: Give it as the 2nd value, or by its name: y=...

Donation: inputs whose memory a call reuses for its results.

A donated array must be writable in place and unshared: no other input may alias its memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from itertools import pairwise

import numpy as np

from plica.runtime.error import Diagnostic, InputError, Place
from plica.runtime.interface import Interface
from plica.runtime.port import MISSING, Array, Port, address_of


def in_order(
    names: Sequence[str],
    args: Sequence[object],
    named: Mapping[str, object],
    wrong: list[Diagnostic],
    type_of: Callable[[str], str | None],
) -> list[object]:
    """A value for each name, `MISSING` if there is none; errors are appended."""
    every = ", ".join(names) or "no inputs"
    if len(args) > len(names):
        message = "More values are given than there are inputs."
        expected = f"{len(names)} ({every})"
        fewer = "Give a value for each of these, and no more."
        wrong.append(Diagnostic("input-unknown", message, None, expected, str(len(args)), fewer))
    by_position, rest = names[: len(args)], names[len(args) :]
    for name in named:
        if name not in names:
            message, near = f"There is no input {name!r}.", get_close_matches(name, names, n=1)
            hint = f"Did you mean '{near[0]}'?" if near else None
            wrong.append(Diagnostic("input-unknown", message, None, every, name, hint))
        elif name in by_position:
            message = f"Input {name!r} is given twice, by position and by name."
            hint = f"The values by position are those of {', '.join(by_position)}."
            place = Place(node=name)
            wrong.append(Diagnostic("input-unknown", message, place, suggestion=hint))
    for at, name in enumerate(rest, len(args) + 1):
        if name not in named:
            message, hint = f"Input {name!r} is not given.", f"by its name: {name}=..."
            if at == len(args) + 1:
                hint = f"as the {ordinal(at)} value, or {hint}"
            place, type = Place(node=name), type_of(name)
            wrong.append(Diagnostic("input-missing", message, place, type, None, f"Give it {hint}"))
    return [*args[: len(names)], *[named.get(name, MISSING) for name in rest]]


def ordinal(number: int) -> str:
    """A number as one of a row is called.

    >>> [ordinal(each) for each in (1, 2, 3, 4, 11, 22)]
    ['1st', '2nd', '3rd', '4th', '11th', '22nd']
    """
    teen = number % 100 // 10 == 1
    return f"{number}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def contradicted_dims(ports: Sequence[Port], arrays: Sequence[Array]) -> dict[str, str]:
    """The names of dims that are of several sizes in some inputs, with these sizes.

    >>> import numpy as np
    >>> from plica.runtime.port import OpenPort
    >>> x, y = (OpenPort(each, ("n", "m"), "f32", np.dtype("float32")) for each in "xy")
    >>> contradicted_dims((x, y), (np.ones((2, 3)), np.ones((2, 4))))
    {'m': "3 in 'x', 4 in 'y'"}
    """
    sizes: dict[str, dict[int, str]] = {}
    for port, array_ in zip(ports, arrays, strict=True):
        for dim, size in zip(port.shape, array_.shape, strict=True):
            if isinstance(dim, str):
                sizes.setdefault(dim, {}).setdefault(size, port.name)
    return {
        name: ", ".join(f"{size} in {port!r}" for size, port in found.items())
        for name, found in sizes.items()
        if len(found) > 1
    }


# --- donation ----------------------------------------------------------------------------------


def check_donated(of: Interface, arrays: Sequence[Array], values: Sequence[object]) -> None:
    """Refuses donated inputs that cannot be overwritten; `values` are the caller's objects."""
    own, shared = {id(value) for value in values}, _shared(of, arrays)
    wrong: list[Diagnostic] = []
    for old, _ in of.donated:
        port, array = of.inputs[old], arrays[old]
        place = Place(node=port.name)
        if id(array) not in own or not array.flags.writeable:
            message = f"Input {port.name!r} is donated, and cannot be written in place."
            expected = f"a contiguous, writeable numpy array, {port.type}"
            found = "a read-only array" if id(array) in own else "what must be copied first"
            hint = "Give x.copy(), or what the last call returned."
            wrong.append(Diagnostic("input-type", message, place, expected, found, hint))
        for at, other in enumerate(arrays if old in shared else ()):
            if at != old and np.may_share_memory(array, other):
                message = f"Input {port.name!r} is donated, and {of.inputs[at].name!r} lies in it."
                wrong.append(Diagnostic("input-type", message, place, "memory of its own"))
    if wrong:
        raise InputError(wrong[0], *wrong[1:])


def _shared(of: Interface, arrays: Sequence[Array]) -> set[int]:
    """The donated inputs that lie in the memory of others: neighbours by their addresses.

    A model has hundreds of inputs, and a step of it may take less than to look at every pair.
    """
    spans = sorted((address_of(array), array.nbytes, at) for at, array in enumerate(arrays))
    given, found, end = {old for old, _ in of.donated}, set[int](), 0
    for (start, size, at), (after, _, _) in pairwise((*spans, (1 << 64, 0, 0))):
        if size and at in given and (start < end or after < start + size):
            found.add(at)
        end = max(end, start + size)
    return found
