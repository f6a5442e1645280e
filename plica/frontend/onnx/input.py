"""Inputs of a model: their types, with dims of one name as one dim, and values that fix some."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from plica.core.diagnostic import Malformed
from plica.frontend.onnx.dim import Dims
from plica.frontend.onnx.storage import MOST_AXES, Array, dtype_of
from plica.frontend.onnx.value import TensorValue
from plica.ir.graph.expression import const
from plica.ir.loop.scalar import Scalar, index
from plica.ir.type.dim import dim_var
from plica.ir.type.term import TensorType, static_shape
from plica.runtime.error import Diagnostic, InputError, Place, UnsupportedError

if TYPE_CHECKING:
    from onnx import ValueInfoProto


def array_given(name: str, given: Any) -> Array:
    """A value that was given, as an array, if it is one."""
    try:
        return np.asarray(given)
    except (TypeError, ValueError) as error:  # rows of different lengths, and what else is none
        message = f"The value for {name!r} is no array."
        found = f"{type(given).__name__}: {error}"
        problem = Diagnostic("input-type", message, Place(node=name), "an array", found)
        raise InputError(problem) from error


def fixed_value(name: str, array: Array, of: TensorType) -> TensorValue:
    """An input with a value."""
    if array.dtype != of.dtype.numpy or array.ndim != len(of.shape):
        message = f"The value for {name!r} does not fit it."
        found = f"{array.dtype} of shape {array.shape}"
        raise InputError(Diagnostic("input-type", message, Place(node=name), str(of), found))
    return TensorValue(const(array, of.dtype))


def replaced_value(name: str, given: Any, stored: TensorValue) -> TensorValue:
    """A value in place of one that the file holds: of the same type, so that all else fits."""
    array = array_given(name, given)
    if array.dtype != stored.type.dtype.numpy or array.shape != static_shape(stored.type):
        message = f"The value for {name!r} does not fit the one that the file holds."
        found, place = f"{array.dtype} of shape {array.shape}", Place(node=name)
        raise InputError(Diagnostic("input-type", message, place, str(stored.type), found))
    return TensorValue(const(array, stored.type.dtype))


class InputTypes:
    """The types of inputs; dims with one name are one dim."""

    def __init__(
        self, inputs: list[ValueInfoProto], given: Mapping[str, int], fixed: Mapping[str, Array]
    ) -> None:
        self._dims = Dims(inputs)
        self._sizes = self._dims.sizes(given)
        # A value says the open sizes of its input, and with them those of others.
        for each in inputs:
            if each.name in fixed and each.type.HasField("tensor_type"):
                shape = fixed[each.name].shape
                if not self._dims.bound(each, shape, self._sizes):
                    message = f"The value for {each.name!r} has the wrong shape."
                    said = [self._sizes.get(str(size), size) for size in self._dims.of(each)]
                    expected = str(tuple(said))
                    place = Place(node=each.name)
                    raise InputError(
                        Diagnostic("input-shape", message, place, expected, str(shape))
                    )

    def type(self, info: ValueInfoProto) -> TensorType:
        """The type of an input."""
        if not info.type.HasField("tensor_type"):
            kind = info.type.WhichOneof("value") or "nothing"
            message = f"The input {info.name!r} is no tensor."
            place = Place(node=info.name)
            if kind == "nothing":
                raise Malformed(Diagnostic("bad-model", message, place, "a tensor", kind))
            raise UnsupportedError(Diagnostic("unsupported", message, place, "a tensor", kind))
        of = info.type.tensor_type
        dtype = dtype_of(of.elem_type, info.name)
        if not of.HasField("shape"):
            message = f"The number of axes of the input {info.name!r} is not known."
            raise UnsupportedError(
                Diagnostic("unsupported", message, Place(node=info.name), "a shape", "none")
            )
        if len(of.shape.dim) > MOST_AXES:
            message = f"The input {info.name!r} has too many axes."
            found = str(len(of.shape.dim))
            raise UnsupportedError(
                Diagnostic(
                    "unsupported", message, Place(node=info.name), f"at most {MOST_AXES}", found
                )
            )
        sizes: list[Scalar] = []
        for size in self._dims.of(info):
            if isinstance(size, str):
                number = self._sizes.get(size)
                sizes.append(dim_var(size) if number is None else index(number))
            else:
                sizes.append(index(size))
        return TensorType(tuple(sizes), dtype)
