"""Attributes: readers that bring a setting into its one canonical form, or say why they cannot.

Numpy numbers become Python numbers, lists become tuples, names become dtypes. Attributes that need
an argument's rank (a negative axis, one stride for all axes) stay as given: type relations
normalise them.

>>> axes([0, -1]), axes(2), axes(None)
((0, -1), (2,), None)
>>> choice("edge", "wrap")("egde").expected
"one of 'edge', 'wrap'"
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np

from plica.ir.graph.operator import Attribute, Mismatch
from plica.ir.loop.scalar import Lit, Scalar
from plica.ir.type import DTYPES, DType, dim, dim_text, dim_var, i64

# Any: a reader takes the user's value and returns the form its operator uses.
Reader: TypeAlias = Callable[[Any], Any]

BAD: Final = "bad-attribute"
_DTYPES: Final = {name: each for each in DTYPES for name in (each.name, each.numpy.name)}


def _bad(expected: str, found: object) -> Mismatch:
    return Mismatch(BAD, f"An attribute must be {expected}.", expected, _shown(found))


def _shown(found: object) -> str:
    shown = repr(found)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."


def integer(value: Any) -> Any:
    """A whole number."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return int(value)
    return _bad("an integer", value)


def natural(value: Any) -> Any:
    """A whole number that is not negative."""
    number_ = integer(value)
    return number_ if isinstance(number_, int) and number_ >= 0 else _bad("0 or more", value)


def positive(value: Any) -> Any:
    """A whole number above zero."""
    number_ = integer(value)
    return (
        number_
        if isinstance(number_, int) and number_ > 0
        else _bad("a whole number above 0", value)
    )


def flag(value: Any) -> Any:
    """True or False."""
    return bool(value) if isinstance(value, bool | np.bool_) else _bad("True or False", value)


def number(value: Any) -> Any:
    """A number of any kind, unchanged."""
    if isinstance(value, np.generic):
        value = value.item()
    return value if isinstance(value, bool | int | float) else _bad("a number", value)


def real(value: Any) -> Any:
    """A floating-point number."""
    if isinstance(value := number(value), Mismatch | bool):
        return _bad("a number", value)
    return float(value)


def dtype(value: Any) -> Any:
    """An element type, or its name in Plica or numpy."""
    if isinstance(value, DType):
        return value
    if isinstance(value, type) and issubclass(value, np.generic | bool | int | float):
        value = np.dtype(value)
    name = value.name if isinstance(value, np.dtype) else value
    found = _DTYPES.get(name) if isinstance(name, str) else None
    return _bad("a dtype", value) if found is None else found


def text(value: Any) -> Any:
    """A string."""
    return str(value) if isinstance(value, str) else _bad("a string", value)


def choice(*words: str) -> Reader:
    """One of the given words."""

    def read(value: Any) -> Any:
        if value in words:
            return str(value)
        return _bad(f"one of {', '.join(map(repr, words))}", value)

    return read


def optional(read: Reader) -> Reader:
    """None, or a value of the other reader."""

    def read_or_none(value: Any) -> Any:
        return None if value is None else read(value)

    return read_or_none


def many(read: Reader) -> Reader:
    """A sequence of values of the other reader; a single value counts as a sequence of one."""

    def read_all(value: Any) -> Any:
        given = value if isinstance(value, list | tuple | np.ndarray) else (value,)
        items = tuple([read(each) for each in given])
        return next((item for item in items if isinstance(item, Mismatch)), items)

    return read_all


def per_axis(read: Reader) -> Reader:
    """One value for every axis, or a sequence with one for each."""

    def read_one_or_all(value: Any) -> Any:
        return many(read)(value) if isinstance(value, list | tuple | np.ndarray) else read(value)

    return read_one_or_all


integers: Final = many(integer)
naturals: Final = many(natural)
axis: Final = integer
axes: Final = optional(integers)  # axes; None means all of them, or whatever the operator says


def pairs(value: Any) -> Any:
    """Pairs (before, after) of naturals, one per axis."""
    if not isinstance(value, list | tuple | np.ndarray):
        return _bad("pairs (before, after), one per axis", value)
    items = tuple([naturals(each) for each in value])
    if any(isinstance(item, Mismatch) or len(item) != 2 for item in items):
        return _bad("pairs (before, after), one per axis", value)
    return items


def padding(value: Any) -> Any:
    """A natural for all sides, one for both sides of each axis, or pairs (before, after)."""
    if not isinstance(value, list | tuple | np.ndarray):
        return natural(value)
    if any(isinstance(each, list | tuple | np.ndarray) for each in value):
        return pairs(value)
    return naturals(value)


def index(value: Any) -> Any:
    """An index term: an integer, a symbolic term, or the text of one ("2*n+1")."""
    if isinstance(value, Scalar):
        return dim(value)
    if isinstance(value, str):
        return read_dim(value)
    found = integer(value)
    return found if isinstance(found, Mismatch) else Lit(found, i64)


def size(value: Any) -> Any:
    """A dim: an index term that is no negative number."""
    found = index(value)
    if isinstance(found, Lit) and found.value < 0:
        return _bad("a dim: 0 or more", value)
    return found


dims: Final = many(size)  # a shape

indices: Final = many(index)  # index terms

bounds: Final = many(optional(index))  # ends of slices; None is the end of the axis


def new_shape(value: Any) -> Any:
    """A shape in which one dim may be -1, to be inferred."""
    if isinstance(found := indices(value), Mismatch):
        return found
    numbers = [each.value for each in found if isinstance(each, Lit)]
    if numbers.count(-1) > 1:
        message = "More than one size is -1, so how they share what is left is not said."
        return Mismatch(BAD, message, "dims of which one may be -1", _shown(value))
    if any(each < -1 for each in numbers):
        return _bad("dims of which one may be -1", value)
    return found


def read_dim(source: str) -> Scalar | Mismatch:
    """The index term of a text such as `"2*n+1"`; its names are symbolic dims."""
    found = dim_text.read_dim(source, dim_var)
    if isinstance(found, Scalar):
        return dim(found)
    message = f"The text of a dim cannot be read: {found}."
    return Mismatch(BAD, message, "an index term such as '2*n+1'", _shown(source))


def attribute(name: str, read: Reader, *default: Any) -> Attribute:
    """An attribute; without a default it must be given.

    The default is read as a user's value is, so that giving it and leaving it out are one call.
    """
    return Attribute(name, read, *[read(each) for each in default])


AXIS: Final = attribute("axis", axis, -1)
AXES: Final = attribute("axis", axes, None)
KEEPDIMS: Final = attribute("keepdims", flag, False)
