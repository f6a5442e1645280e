"""Ports: the inputs and outputs of a compiled model, and how arrays are accepted.

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
  suggestion: It has as many elements: x.reshape((2, 3)).

A size of an open port that is not a number is the name of a dim, which is only known at a call;
dims with one name are one size.

>>> x = OpenPort("x", ("n", 3), "f32", np.dtype("float32"))
>>> print(x)
x: Tensor[('n', 3), f32]
>>> x.take(np.ones((2, 3), np.float32)).shape
(2, 3)
>>> print(x.take(np.ones((2, 4), np.float32)))
x: Input 'x' has the wrong shape. [input-shape]
  expected: ('n', 3)
  found: (2, 4)
  suggestion: Sizes that are numbers are fixed; those that have names may be any.
"""

from __future__ import annotations

import ctypes
import math
import re
import struct
import sys
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from plica.runtime.element import ELEMENTS, wrong_element
from plica.runtime.error import Diagnostic, EvaluationError, Place, UnsupportedError
from plica.runtime.late import lazy_imports
from plica.runtime.typed_json import DERIVED

with lazy_imports(__name__):  # few programs are given tensors of other libraries, or wrong ones
    from plica.runtime.foreign_tensor import foreign_dtype, how_to_convert, how_to_share, shared

Array: TypeAlias = np.ndarray[Any, Any]  # Any: the dtype is the port's

MISSING: Final = type("Missing", (), {"__repr__": lambda _: "MISSING"})()
"""In the place of a value that was not given: None may be one."""

LINE: Final = 64
"""Bytes of a line of a cache: where vectors begin at a multiple, none is written to two lines."""

MIN_ALIGNED_BYTES: Final = 1 << 15
"""Results of at least this many bytes are aligned to a cache line. numpy's start 16 bytes after
one, which halves the speed of 64-byte stores. For shorter results the alignment costs more."""

RECYCLED_BYTES: Final = range(1 << 25, 1 << 28)
"""Allocations of these sizes are unmapped when freed, and page faults on new ones take longer than
filling them. The last few are cached instead."""

_KEPT: Final[deque[Array]] = deque(maxlen=2)  # the last allocations of these sizes, in use or not
_START: Final = (ctypes.c_char * 0).from_buffer
_SHARED: Final = frozenset("?bBhHiIlLqQefd")
"""The dtypes whose memory numpy shares with others, by its letters for them."""

# Note [Words of an interface]
# Numpy makes the words of an array's interface anew each time, and Python keeps all such words in
# one table while they live.  Were they not kept here, every call would enter and remove some, and
# every thread that then happens to rebuild the table would keep a megabyte of its own for it.
_WORDS: Final = tuple(map(sys.intern, ("data", "descr", "shape", "strides", "typestr", "version")))


def _references(held: list[Array]) -> int:
    """The reference count of the only element of a list, including the list's.

    A list, because not every Python version counts references from variables.
    """
    return sys.getrefcount(held[0])


_ALONE: Final = _references([np.empty(0, np.uint8)])
"""The reference count of an allocation that only the list holds."""


def _result_bytes(size: int) -> Array:
    """Memory for a result: new, or that of a result which is no longer used."""
    if size not in RECYCLED_BYTES:
        return np.empty(size, np.uint8)
    for _ in range(len(_KEPT)):
        try:
            held = [_KEPT.popleft()]  # in one step: no two threads have it
        except IndexError:
            break
        is_free = held[0].size == size and _references(held) == _ALONE
        _KEPT.append(held[0])
        if is_free:
            return held[0]
    allocated = np.empty(size, np.uint8)
    _KEPT.append(allocated)
    return allocated


@dataclass(frozen=True, slots=True)
class Port:
    """One input or output: its name, shape, Plica's name of its dtype, and numpy's dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    numpy: np.dtype[Any] = field(metadata=DERIVED)

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
        return self.placed()[0]

    def placed(self) -> tuple[Array, int]:
        """A new array for the port, and where it begins."""
        size = math.prod(self.shape) * self.numpy.itemsize
        try:
            if size < MIN_ALIGNED_BYTES:
                made = np.empty(self.shape, self.numpy)
                return made, address_of(made)
            allocated = _result_bytes(size + LINE)
            start = address_of(allocated)
            skipped = -start % LINE
            return np.ndarray(self.shape, self.numpy, allocated, skipped), start + skipped
        except (MemoryError, ValueError):  # numpy calls what no address can reach a bad value
            message = f"There is not enough memory for the output {self.name!r}."
            need = f"{size} bytes"
            hint = "Run the model on smaller inputs."
            place = Place(node=self.name)
            wrong = Diagnostic("no-memory", message, place, need, self.type, hint)
        raise EvaluationError(wrong)

    def placing(self) -> Callable[[], tuple[Array, int]]:
        """What `placed` does, prepared: of a short result nothing is looked up again."""
        if self.nbytes >= MIN_ALIGNED_BYTES or self.numpy.char not in _SHARED:
            return self.placed
        empty, shape, dtype, address, start = (
            np.empty, self.shape, self.numpy, ctypes.addressof, _START,
        )  # fmt: skip

        def make() -> tuple[Array, int]:
            try:
                made: Any = empty(shape, dtype)  # that arrays are buffers is not in numpy's types
            except MemoryError:
                return self.placed()  # it says what is wrong
            return made, address(start(made))

        return make

    def take(self, value: object) -> Array | Diagnostic:
        """The value as an array native code can read, copied only if it must be."""
        if type(value) is np.ndarray and value.dtype is self.numpy and value.shape == self.shape:
            flags = value.flags
            if flags.c_contiguous and flags.aligned:
                return value  # the usual case, in a microsecond
        hint: str | None
        if isinstance(value, bool | int | float):
            if not self._holds(value):
                found = f"{number_text(value)} ({type(value).__name__})"
                return self._of_another(found, value)
            array = np.asarray(value, self.numpy)
        elif isinstance(value, np.ma.MaskedArray):
            message = f"Input {self.name!r} is a masked array, and tensors have no masks."
            hint = "Give x.filled(value), or the mask as an input of its own."
            place = Place(node=self.name)
            return Diagnostic("input-type", message, place, self.type, "a masked array", hint)
        elif isinstance(value, np.ndarray | np.generic):
            array = np.asarray(value)
        elif hasattr(value, "__dlpack__"):
            if (named := foreign_dtype(value)) not in (None, ELEMENTS[self.dtype].array):
                return self._of_another(str(named), value)
            try:
                array = shared(value, ELEMENTS[self.dtype])
            except (BufferError, RuntimeError, TypeError, ValueError) as error:
                # On another device, of another dtype, or no tensor for all it says.
                hint = how_to_share(self.name, value)
                return self._refuse("input-type", "cannot be shared", self.type, str(error), hint)
        else:
            kind, hint = type(value).__name__, how_to_share(self.name, value)
            return self._refuse("input-type", "is not a tensor", self.type, kind, hint)
        if array.dtype != self.numpy:
            if array.dtype.newbyteorder("=") != self.numpy:
                return self._of_another(str(array.dtype), value)
            array = array.astype(self.numpy)
        if array.shape != self.shape:
            hint = "Compile the model for this shape, or with sizes that are open."
            if array.size == math.prod(self.shape):
                hint = f"It has as many elements: {self.name}.reshape({self.shape})."
            found = str(array.shape)
            return self._refuse("input-shape", "has the wrong shape", str(self.shape), found, hint)
        flags = array.flags
        if flags.c_contiguous and flags.aligned:
            return array
        try:
            return np.require(array, requirements=("C", "A")).reshape(self.shape)
        except MemoryError:
            what, need = (
                "is not contiguous, and there is no memory for a copy",
                "a contiguous array",
            )
            hint = "Give a smaller input, or one that is contiguous."
            return self._refuse("no-memory", what, need, f"{self.nbytes} bytes", hint)

    def _holds(self, value: bool | int | float) -> bool:
        """Whether a Python number is a value of the dtype; a float may be rounded."""
        element = ELEMENTS[self.dtype]
        if element.kind == "bool":
            return isinstance(value, bool)
        if element.kind != "float":
            low, high = element.bounds
            return not isinstance(value, bool | float) and low <= value <= high
        return fits_float(value)

    def _refuse(
        self, code: str, what: str, expected: str, found: str, hint: str | None = None
    ) -> Diagnostic:
        place = Place(node=self.name)
        return Diagnostic(code, f"Input {self.name!r} {what}.", place, expected, found, hint)

    def _of_another(self, found: str, value: object) -> Diagnostic:
        hint = how_to_convert(self.name, value, self.dtype)
        return wrong_element(f"Input {self.name!r}", self.name, self.dtype, found, hint)


def address_of(array: Array) -> int:
    """Where the elements of a contiguous array begin."""
    if array.dtype.char in _SHARED and array.flags.writeable:
        memory: Any = array  # that arrays are buffers is not in numpy's types
        return ctypes.addressof(_START(memory))  # several times as fast as what follows
    address: int = array.__array_interface__["data"][0]
    return address


# Note [Workspaces]
# Native code is given a table of addresses: of inputs, outputs, constants, the workspace, and what
# else it asks for.  From one call to the next the first alone change, so a table is kept with its
# workspace.


class Workspace(NamedTuple):
    """What code computes in, the table it is given, and where that begins: asking is slow."""

    memory: Array
    table: array[int]
    address: int


def with_table(count: int, constants: Sequence[int], memory: Array, *last: int) -> Workspace:
    """A workspace with a table for a given number of inputs and outputs, which ends with the
    last."""
    table = array("Q", [*[0] * count, *constants, *last])
    return Workspace(memory, table, table.buffer_info()[0])


def entering(count: int) -> Callable[..., None]:
    """What writes a given number of addresses at the beginning of a table: `enter(table, 0,
    *addresses)`."""
    return struct.Struct(f"{count}Q").pack_into


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


@dataclass(frozen=True, slots=True)
class OpenPort(Port):
    """A port whose shape contains names of open sizes."""

    shape: tuple[Any, ...]  # Any: int or str

    @staticmethod
    def unknown(name: str, shape: tuple[Any, ...]) -> OpenPort:
        """The port of an output of which the model does not say the element type."""
        return OpenPort(name, shape, "unknown", np.dtype(object))

    def placed(self) -> tuple[Array, int]:
        """Refuses: an array of open size cannot be allocated."""
        message = f"The sizes of {self.name!r} are only known when the model is called."
        raise UnsupportedError(Diagnostic("unsupported", message, None, "sizes", self.type))

    def placing(self) -> Callable[[], tuple[Array, int]]:
        """What refuses, when it is called."""
        return self.placed

    def take(self, value: object) -> Array | Diagnostic:
        """The value as an array for native code; its shape must match the known sizes."""
        if type(value) is np.ndarray and value.dtype is self.numpy and self.fits(value.shape):
            flags = value.flags
            if flags.c_contiguous and flags.aligned:
                return value
        shape = value.shape if isinstance(value, np.ndarray) else _shape(value)
        if not (hasattr(value, "shape") or isinstance(value, bool | int | float)):
            kind, hint = type(value).__name__, how_to_share(self.name, value)
            return self._refuse("input-type", "is not a tensor", self.type, kind, hint)
        found = Port(self.name, shape, self.dtype, self.numpy).take(value)
        if isinstance(found, Diagnostic) or self.fits(shape):
            return found
        hint = "Sizes that are numbers are fixed; those that have names may be any."
        expected = repr(self.shape)
        return self._refuse("input-shape", "has the wrong shape", expected, str(shape), hint)

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether a shape has this number of axes, and the sizes that are known."""
        if shape == self.shape:
            return True
        if len(shape) != len(self.shape):
            return False
        for dim, size in zip(self.shape, shape, strict=True):
            if dim != size and not isinstance(dim, str):
                return False
        return True


def _shape(value: object) -> tuple[int, ...]:
    """The shape of an object that is no numpy array; if it has none, `Port.take` refuses it."""
    return tuple(int(size) for size in getattr(value, "shape", ()))


DEMAND: Final = "demand"  # the kind of a size that only a condition on values determines


_OF: Final = "_of_"


def inner_name(what: str, whose: str) -> str:
    """The name of a dim that no tensor of a model has: some count on the way to one."""
    return f"_{what}{_OF}{whose}"


def is_inner(name: str) -> bool:
    """Whether a dim is nothing that who wrote the program knows by its name.

    >>> is_inner(inner_name("count", "y")), is_inner("_n")
    (True, False)
    """
    return name.startswith("_") and _OF in name


def spoken_dim(name: str) -> str:
    """A dim in messages: its name, or its description.

    >>> spoken_dim("n"), spoken_dim(inner_name("candidates", "y"))
    ('n', "the candidates of 'y'")
    """
    if not is_inner(name):
        return name
    what, _, whose = name[1:].partition(_OF)
    return f"the {what.replace('_', ' ')} of {whose!r}"


def spoken_dims(text: str) -> str:
    """A text about dims, each as messages say it.

    >>> spoken_dims("n - _k_of_y >= 0")
    "n - the k of 'y' >= 0"
    """
    return _INNER.sub(lambda found: spoken_dim(found[0]), text)


_INNER: Final = re.compile(r"\b_\w+")


def fault_name(fault: Diagnostic) -> str:
    """A fault of a part of a program, in a form that fits a dim name.

    >>> fault_name(Diagnostic("bad-model", "A sequence has three axes.", None, "rank 3", "rank 2"))
    'A_sequence_has_three_axes_expected_rank_3_found_rank_2'
    """
    words = [fault.message]
    words += [f"expected {fault.expected}"] if fault.expected else []
    words += [f"found {fault.found}"] if fault.found else []
    text = re.sub(r"\W+", "_", " ".join(words), flags=re.ASCII).strip("_")
    return text.replace(_OF, "_in_")[:_MAX_FAULT_LETTERS]


_MAX_FAULT_LETTERS: Final = 160  # the maximum length of such a name


Reason: TypeAlias = Literal[
    "axis", "step", "border", "scale", "part", "overlap", "patch", "room", "band", "frame",
    "random", "meaning",
]  # fmt: skip

# fmt: off
REASONS: Final[dict[Reason, str]] = {
    "axis":   "an axis is named that the tensor does not have, or one is named twice",
    "step":   "a step is 0, or a start, an end or a step is no finite number",
    "border": "a border is wider than what it is mirrored from, or an axis is not there",
    "scale":  "a scale is no finite number above 0",
    "part":   "a part would be empty, or less",
    "overlap": "the overlap that is allowed is no part of a box",
    "patch":  "the patches do not make up the image",
    "room":   "a result would be smaller than what it holds",
    "band":   "bands of frequencies are none, or no part of the spectrum",
    "frame":  "a frame is empty or longer than its signal, or a step is not above 0",
    "random": "training would draw random numbers",
    "meaning": "the model has no meaning for such a size or value",
}
EXPECTED: Final[dict[Reason, str]] = {
    "axis":   "axes of the tensor, each once",
    "step":   "finite numbers, and a step other than 0",
    "border": "borders narrower than the axis, of axes of the tensor",
    "scale":  "finite scales above 0",
    "part":   "an axis of which each part has an element",
    "overlap": "a number from 0 to 1",
    "patch":  "as many patches as an image of that size has, each with an element",
    "room":   "a size no less than that of what is put there",
    "band":   "one band or more, from 0 up to half of the rate, the lower edge first",
    "frame":  "a frame of one place or more inside of the signal, and a step above 0",
    "random": "inference, or a ratio of 0",
    "meaning": "sizes and values for which every node has a meaning",
}
# fmt: on
SIZE_OF: Final[dict[Reason, int]] = {reason: -(1 << 40) - at for at, reason in enumerate(REASONS)}
"""The size that a program computes if there is none, by reason; no real sum of sizes comes
close."""
REASON_OF: Final = {size: literal_type for literal_type, size in SIZE_OF.items()}


def checked_size(name: str, size: int, inputs: Sequence[str] = ()) -> int:
    """A size that was computed, for a dim; `inputs` are those it was computed from.

    >>> checked_size("n", 3)
    3
    """
    if size >= 0:
        return size
    several = ", ".join(map(repr, inputs))
    told = f", which depends on {several}" if inputs else ""
    what, _, whose = name[1:].partition("_of_") if is_inner(name) else ("", "", name)
    if (reason := REASON_OF.get(size)) is not None:
        if reason == "meaning" and what != DEMAND:
            words, _, types = what.replace("_", " ").partition(" expected ")
            expected, _, found = types.partition(" found ")
            message = f"{REASONS[reason].capitalize()}{told}: {words}."
            place = Place(node=whose)
            raise EvaluationError(
                Diagnostic("input-value", message, place, expected or None, found or None)
            )
        message = f"What {whose!r} is computed from has values that its operator does not take: "
        message, found = f"{message}{REASONS[reason]}.", f"others{told}"
        raise EvaluationError(Diagnostic("input-value", message, None, EXPECTED[reason], found))
    if not what:
        message, place = f"The dim {name!r}{told}, would have a negative size.", Place(node=name)
        raise EvaluationError(Diagnostic("input-shape", message, place, "0 or more", str(size)))
    message = f"A size, {spoken_dim(name)}{told}, would be negative."
    raise EvaluationError(Diagnostic("input-shape", message, None, "0 or more", str(size)))


def out_of_range(name: str, size: int, least: int, most: int | None) -> Diagnostic | None:
    """The diagnostic for a size outside the range of a dim, or None.

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
