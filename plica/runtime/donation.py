"""Donation: inputs whose memory a call reuses for its results.

A donated array must be writable in place and unshared: no other input may alias its memory.

>>> from plica.runtime.port import Port
>>> x = Port("x", (2,), "f32", np.dtype("float32"))
>>> interface = Interface((("x", 0),), (x,), (x,), True, (), ((0, 0),))
>>> given = np.zeros(2, np.float32)
>>> check_donated(interface, [given], [given])
>>> check_donated(interface, [given], [[0.0, 0.0]])
Traceback (most recent call last):
plica.runtime.error.InputError: x: Input 'x' is donated, and cannot be written in place. ...
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from plica.runtime.error import Diagnostic, InputError, Place
from plica.runtime.interface import Interface
from plica.runtime.port import Array, address_of


def check_donated(of: Interface, arrays: Sequence[Array], values: Sequence[object]) -> None:
    """Refuses donated inputs that cannot be overwritten; `values` are the caller's objects."""
    own, shared = {id(each) for each in values}, _shared(of, arrays)
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
    spans = sorted((address_of(each), each.nbytes, at) for at, each in enumerate(arrays))
    given, found, end = {old for old, _ in of.donated}, set[int](), 0
    for (start, size, at), (after, _, _) in pairwise((*spans, (1 << 64, 0, 0))):
        if size and at in given and (start < end or after < start + size):
            found.add(at)
        end = max(end, start + size)
    return found
