"""Open ports: inputs and outputs of a model some of whose sizes are only known at a call.

A size that is not a number is the name of a dim; dims with one name are one size.

>>> x = OpenPort("x", ("n", 3), "f32", np.dtype("float32"))
>>> print(x)
x: Tensor[('n', 3), f32]
>>> x.take(np.ones((2, 3), np.float32)).shape
(2, 3)
>>> print(x.take(np.ones((2, 4), np.float32)))
x: Input 'x' has the wrong shape. [input-shape]
  expected: ('n', 3)
  found: (2, 4)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from plica.runtime.error import Diagnostic, EvaluationError, Place, UnsupportedError
from plica.runtime.port import Array, Port


@dataclass(frozen=True, slots=True)
class OpenPort(Port):
    """A port whose shape holds numbers, and names of sizes that are not known yet."""

    shape: tuple[Any, ...]  # Any: int or str

    @staticmethod
    def unknown(name: str, shape: tuple[Any, ...]) -> OpenPort:
        """The port of an output of which the model does not say the element type."""
        return OpenPort(name, shape, "unknown", np.dtype(object))

    def empty(self) -> Array:
        """Refuse: there is no array of unknown size."""
        message = f"The sizes of {self.name!r} are only known when the model is called."
        raise UnsupportedError(Diagnostic("unsupported", message, None, "sizes", self.type))

    def take(self, value: object) -> Array | Diagnostic:
        """The value as an array native code can read; its shape must fit what is known."""
        shape = value.shape if isinstance(value, np.ndarray) else _shape(value)
        if not (hasattr(value, "shape") or isinstance(value, bool | int | float)):
            return self._refuse("input-type", "is not a tensor", self.type, type(value).__name__)
        found = Port(self.name, shape, self.dtype, self.numpy).take(value)
        if isinstance(found, Diagnostic) or self.fits(shape):
            return found
        return self._refuse("input-shape", "has the wrong shape", repr(self.shape), str(shape))

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether a shape has this number of axes, and the sizes that are known."""
        return len(shape) == len(self.shape) and all(
            isinstance(dim, str) or dim == size for dim, size in zip(self.shape, shape, strict=True)
        )


def _shape(value: object) -> tuple[int, ...]:
    """The shape of what is no numpy array; what has none is refused by `Port.take`."""
    return tuple(int(size) for size in getattr(value, "shape", ()))


def checked_size(name: str, size: int, inputs: Sequence[str] = ()) -> int:
    """A size that was computed, for a dim; `inputs` are those it was computed from.

    >>> checked_size("n", 3)
    3
    """
    if size >= 0:
        return size
    told = ", which depends on " + ", ".join(map(repr, inputs)) if inputs else ""
    message = f"The dim {name!r}{told}, would have a negative size."
    place = Place(node=name)
    raise EvaluationError(Diagnostic("input-shape", message, place, "0 or more", str(size)))


def out_of_range(name: str, size: int, least: int, most: int | None) -> Diagnostic | None:
    """What is wrong with a size of a dim that a program takes from `least` to `most`.

    >>> print(out_of_range("n", 0, 1, None))
    n: The dim 'n' has a size the program was not made for. [input-shape]
      expected: at least 1
      found: 0
      suggestion: Give arrays in which n is at least 1.
    """
    if size >= least and (most is None or size <= most):
        return None
    message = f"The dim {name!r} has a size the program was not made for."
    expected = f"at least {least}" if most is None else f"from {least} to {most}"
    hint = f"Give arrays in which {name} is {expected}."
    return Diagnostic("input-shape", message, Place(node=name), expected, str(size), hint)
