"""Ports: the inputs and outputs of a compiled model, and how arrays are taken in.

>>> import numpy as np
>>> x = Port("x", (2, 3), "f32", np.dtype("float32"))
>>> print(x)
x: Tensor[(2, 3), f32]
>>> x.take(np.ones((2, 3), np.float32)).shape
(2, 3)
>>> print(x.take(np.ones((3, 2), np.float32)))
x: Input 'x' has the wrong shape. [input-shape]
  expected: (2, 3)
  found: (3, 2)
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from plica.runtime.element import ELEMENTS
from plica.runtime.error import Diagnostic, EvaluationError, Place

Array: TypeAlias = np.ndarray[Any, Any]  # Any: the dtype is the port's


@dataclass(frozen=True, slots=True)
class Port:
    """One input or output: its name, shape, Plica's name of its dtype, and numpy's dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    numpy: np.dtype[Any]

    @property
    def type(self) -> str:
        """The type as scripts write it."""
        return f"Tensor[{self.shape!r}, {self.dtype}]"

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"

    @property
    def nbytes(self) -> int:
        """How many bytes its elements take."""
        return math.prod(self.shape) * self.numpy.itemsize

    def empty(self) -> Array:
        """A new array for the port, its elements not set."""
        try:
            return np.empty(self.shape, self.numpy)
        except (MemoryError, ValueError):  # numpy calls what no address can reach a bad value
            message = f"There is not enough memory for the output {self.name!r}."
            need = f"{math.prod(self.shape) * self.numpy.itemsize} bytes"
            hint = "Run the model on smaller inputs."
            place = Place(node=self.name)
            wrong = Diagnostic("no-memory", message, place, need, self.type, hint)
        raise EvaluationError(wrong)

    def take(self, value: object) -> Array | Diagnostic:
        """The value as an array native code can read, copied only if it must be."""
        if type(value) is np.ndarray and value.dtype is self.numpy and value.shape == self.shape:
            flags = value.flags
            if flags.c_contiguous and flags.aligned:
                return value  # the usual case, in a microsecond
        if isinstance(value, bool | int | float):
            if not self._holds(value):
                found = f"{number_text(value)} ({type(value).__name__})"
                return self._refuse("input-dtype", "has the wrong element type", self.dtype, found)
            array = np.asarray(value, self.numpy)
        elif isinstance(value, np.ma.MaskedArray):
            message = f"Input {self.name!r} is a masked array, and tensors have no masks."
            hint = "Give x.filled(value), or the mask as an input of its own."
            place = Place(node=self.name)
            return Diagnostic("input-type", message, place, self.type, "a masked array", hint)
        elif isinstance(value, np.ndarray | np.generic):
            array = np.asarray(value)
        elif hasattr(value, "__dlpack__"):
            try:
                array = self._shared(value)
            except (BufferError, RuntimeError, TypeError, ValueError) as error:
                # On another device, of another dtype, or no tensor for all it says.
                return self._refuse("input-type", "cannot be shared", self.type, str(error))
        else:
            kind = type(value).__name__
            return self._refuse("input-type", "is not a tensor", self.type, kind)
        if array.dtype != self.numpy:
            if array.dtype.newbyteorder("=") != self.numpy:
                found = str(array.dtype)
                return self._refuse("input-dtype", "has the wrong element type", self.dtype, found)
            array = array.astype(self.numpy)
        if array.shape != self.shape:
            shape = str(array.shape)
            return self._refuse("input-shape", "has the wrong shape", str(self.shape), shape)
        flags = array.flags
        if not (flags.c_contiguous and flags.aligned):
            array = np.require(array, requirements=("C", "A")).reshape(self.shape)
        return array

    def _shared(self, value: Any) -> Array:
        """The memory of another library's tensor; it may have a type that numpy has not."""
        torch = sys.modules.get("torch")
        element = ELEMENTS[self.dtype]
        if not element.extended or torch is None or not isinstance(value, torch.Tensor):
            return np.from_dlpack(value)
        if value.dtype is not getattr(torch, element.array, None) or value.requires_grad:
            return np.from_dlpack(value)
        whole = getattr(torch, f"int{8 * element.bytes}")
        bits: Array = np.from_dlpack(value.contiguous().view(whole))
        return bits.view(self.numpy)

    def _holds(self, value: bool | int | float) -> bool:
        """Whether a Python number is a value of the dtype; a float may be rounded."""
        element = ELEMENTS[self.dtype]
        if element.kind == "bool":
            return isinstance(value, bool)
        if element.kind != "float":
            low, high = element.bounds
            return not isinstance(value, bool | float) and low <= value <= high
        return fits_float(value)

    def _refuse(self, code: str, what: str, expected: str, found: str) -> Diagnostic:
        place = Place(node=self.name)
        return Diagnostic(code, f"Input {self.name!r} {what}.", place, expected, found)


def fits_float(value: bool | int | float) -> bool:
    """Whether a Python number can be rounded to a float: an integer beyond all of them cannot."""
    if isinstance(value, float):
        return True
    return not isinstance(value, bool) and abs(value) <= sys.float_info.max


def number_text(value: bool | int | float) -> str:
    """A Python number in a message; Python itself refuses to write very long ones."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"a number of {value.bit_length()} bits"
    return repr(value)
