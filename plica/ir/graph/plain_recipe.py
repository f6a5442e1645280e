"""Plain recipes: how a constant is derived from stored tensors, with numpy alone.

>>> two = ["given", "AAAAQA==", "<f4", []]
>>> text = json.dumps([["stored", "weight", "<f4", [2]], two, ["multiply", 0, 1]])
>>> array_by(text, {"weight": np.float32([1, 2]).tobytes()}.get)
array([2., 4.], dtype=float32)

Each step is bit-equal to the interpreter or the packing of stages.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from plica.ir.graph import weight_array
from plica.ir.graph.winograd_weight import transformed

Stored: TypeAlias = Callable[[str], bytes | None]  # returns the bytes of a name, or None
Made: TypeAlias = "weight_array.Array | weight_array.ColumnwiseArray"
Step: TypeAlias = list[Any]  # Any: JSON
Number: TypeAlias = Callable[[int], weight_array.Array]


def array_by(text: str, stored: Stored) -> weight_array.Array | None:
    """The array that a recipe derives, or None if a stored tensor is missing."""
    made: list[Made] = []

    def whole(number: int) -> weight_array.Array:
        found = made[number]
        return found.whole() if isinstance(found, weight_array.ColumnwiseArray) else found

    for step in json.loads(text):
        if (found := _made(step, made, whole, stored)) is None:
            return None
        made.append(found)
    return whole(-1)


def _made(step: Step, made: list[Made], whole: Number, stored: Stored) -> Made | None:
    match step:
        case ["stored", name, kind, shape]:
            data = stored(name)
            return None if data is None else np.frombuffer(data, kind).reshape(shape)
        case ["given", text, kind, shape]:
            return np.frombuffer(base64.b64decode(text), kind).reshape(shape)
        case ["reshape", of, shape]:
            return whole(of).reshape(shape)
        case ["winograd", of, table]:
            return transformed("made anew", whole(of), table)
        case ["copy", of, *order]:
            return weight_array.together(_order(order).of(whole(of)))
        case ["columns", of, at, *order] if isinstance(
            columns := made[of], weight_array.ColumnwiseArray
        ):
            return weight_array.put_in_columns(columns, at, _order(order))
        case [word, left, right] if word in weight_array.LIKE_NUMPY:
            with np.errstate(all="ignore"):
                return weight_array.LIKE_NUMPY[word](whole(left), whole(right))
    return None


def order_data(of: weight_array.StridedCopy) -> Step:
    """A strided copy as the end of a step."""
    return [of.shape, of.pads, of.fill, of.starts, of.steps]


def _order(data: Step) -> weight_array.StridedCopy:
    shape, pads, fill, starts, steps = data
    return weight_array.StridedCopy(tuple(shape), tuple(map(tuple, pads)), fill, tuple(starts),
                       tuple(map(tuple, steps)))  # fmt: skip
