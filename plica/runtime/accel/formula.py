"""Formulas: an instruction's operation on elements, as steps for numpy.

    Step ::= (word, arguments …)         a number among the arguments is an earlier step

    number value dtype | operand name dtype | axis n | load input indices | cast step dtype
    add sub mul min max and or xor eq ne lt le left right | select c a b | left shift, right shift
    sum prod most least step axes        reductions

>>> steps = (("load", 0, ()), ("operand", "imm", "int32"), ("add", 0, 1))
>>> twice = Formula((), (), steps)
>>> evaluate(twice, [np.array([1, 2], np.int32)], {"imm": 3})
array([4, 5], dtype=int32)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from plica.runtime.error import damaged
from plica.runtime.port import Array

Step: TypeAlias = tuple[Any, ...]  # Any: a word, then numbers, names and tuples of numbers

# fmt: off
BINARY: Final[Mapping[str, np.ufunc]] = {
    "add": np.add,          "sub": np.subtract,     "mul": np.multiply,
    "min": np.minimum,      "max": np.maximum,
    "and": np.bitwise_and,  "or": np.bitwise_or,    "xor": np.bitwise_xor,
    "eq": np.equal,         "ne": np.not_equal,     "lt": np.less,          "le": np.less_equal,
}
REDUCE: Final[Mapping[str, np.ufunc]] = {
    "sum": np.add,          "prod": np.multiply,    "most": np.maximum,     "least": np.minimum,
}
# fmt: on
_MAX_STEPS: Final = 4096


@dataclass(frozen=True, slots=True)
class ContractionStep:
    """`old + sum of left * right`: letters of the left, of the right and of the result.

    `operands` are the two among the inputs, `dtype` is one in which the sums are exact.
    """

    subscripts: tuple[str, str, str]
    operands: tuple[int, int]
    dtype: str


@dataclass(frozen=True, slots=True)
class Formula:
    """Steps over the axes of a result and of its sums; the last step is the result."""

    shape: tuple[int, ...]
    inner: tuple[int, ...]
    steps: tuple[Step, ...]
    product: ContractionStep | None = None


def evaluate(of: Formula, inputs: Sequence[Array], given: Mapping[str, int]) -> Array:
    """The result for many elements; `given` are the operands of the instruction."""
    count = len(inputs[0]) if inputs else 1
    sizes = (*of.shape, *of.inner)
    rank = len(sizes) + 1
    everyone = np.arange(count).reshape([count] + [1] * len(sizes))
    arrays: list[Array] = []
    with np.errstate(over="ignore"):
        for step in of.steps:
            word, rest = step[0], step[1:]
            if (binary := BINARY.get(word)) is not None:
                arrays.append(binary(arrays[rest[0]], arrays[rest[1]]))
            elif word == "load":
                places = (everyone, *(arrays[at] for at in rest[1]))
                arrays.append(inputs[rest[0]][places])
            elif word == "axis":
                shape = [1] * rank
                shape[1 + rest[0]] = sizes[rest[0]]
                arrays.append(np.arange(sizes[rest[0]]).reshape(shape))
            elif word in REDUCE:
                arrays.append(_reduced(REDUCE[word], arrays[rest[0]], rest[1], sizes))
            else:
                arrays.append(_OTHERS[word](arrays, rest, given, rank))
    result = arrays[-1]
    shown = result.reshape(result.shape[: 1 + len(of.shape)])
    return np.broadcast_to(shown, (count, *of.shape))


def _reduced(by: np.ufunc, value: Array, axes: Sequence[int], sizes: Sequence[int]) -> Array:
    shape = list(value.shape)
    for axis in axes:
        shape[1 + axis] = sizes[axis]
    wide = np.broadcast_to(value, shape)
    along = tuple([1 + axis for axis in axes])
    reduced: Array = by.reduce(wide, axis=along, keepdims=True, dtype=wide.dtype)
    return reduced


def _number(found: list[Array], rest: Step, given: Mapping[str, int], rank: int) -> Array:
    return np.full((1,) * rank, rest[0], rest[1])


def _operand(found: list[Array], rest: Step, given: Mapping[str, int], rank: int) -> Array:
    return np.full((1,) * rank, given[rest[0]], rest[1])


def _cast(found: list[Array], rest: Step, given: Mapping[str, int], rank: int) -> Array:
    return found[rest[0]].astype(rest[1])


def _select(found: list[Array], rest: Step, given: Mapping[str, int], rank: int) -> Array:
    return np.where(found[rest[0]], found[rest[1]], found[rest[2]])


def _left(found: list[Array], rest: Step, given: Mapping[str, int], rank: int) -> Array:
    value, by = found[rest[0]], found[rest[1]]
    most = value.dtype.itemsize * 8
    return np.where(by >= most, np.zeros_like(value), value << _within(value, by))


def _right(found: list[Array], rest: Step, given: Mapping[str, int], rank: int) -> Array:
    value = found[rest[0]]
    right: Array = value >> _within(value, found[rest[1]])
    return right


def _within(value: Array, by: Array) -> Array:
    """A shift by at least the width gives 0, or all sign bits; negative shifts are not checked."""
    return np.clip(by, 0, value.dtype.itemsize * 8 - 1).astype(value.dtype)


_OTHERS: Final[Mapping[str, Callable[[list[Array], Step, Mapping[str, int], int], Array]]] = {
    "number": _number, "operand": _operand, "cast": _cast, "select": _select, "left": _left,
    "right": _right,
}  # fmt: skip


def to_data(of: Formula) -> object:
    """The formula as JSON data."""
    product = None
    if of.product is not None:
        product = [list(of.product.subscripts), list(of.product.operands), of.product.dtype]
    steps = [[list(x) if isinstance(x, tuple) else x for x in step] for step in of.steps]
    return [list(of.shape), list(of.inner), steps, product]


def from_data(given: object, inputs: Sequence[Sequence[int]], words: Sequence[str]) -> Formula:
    """The formula in JSON, over inputs of these shapes and operands of these names."""
    match given:
        case [[*shape], [*inner], [*steps], product] if 0 < len(steps) <= _MAX_STEPS:
            sizes = _sizes([*shape, *inner])
        case _:
            raise damaged("A formula in the artefact is damaged.", repr(given)[:80])
    read = [_step(step, at, len(sizes), inputs, words) for at, step in enumerate(steps)]
    return Formula(
        tuple(sizes[: len(shape)]),
        tuple(sizes[len(shape) :]),
        tuple(read),
        None if product is None else _product(product, inputs, len(shape)),
    )


def _sizes(given: Sequence[object]) -> list[int]:
    found = [each for each in given if type(each) is int and 0 < each <= 1 << 16]
    if len(found) < len(given):
        raise damaged("A formula in the artefact is damaged.", repr(given))
    return found


def _step(
    given: object, at: int, axes: int, inputs: Sequence[Sequence[int]], words: Sequence[str]
) -> Step:
    def earlier(*numbers: object) -> bool:
        return all(type(number) is int and 0 <= number < at for number in numbers)

    match given:
        case [str(word), int(a), int(b)] if (word in BINARY or word in ("left", "right")) and (
            earlier(a, b)
        ):
            return word, a, b
        case ["select", int(a), int(b), int(c)] if earlier(a, b, c):
            return "select", a, b, c
        case ["number", int() | float() as value, str(dtype)] if is_dtype(dtype):
            return "number", value, dtype
        case ["operand", str(name), str(dtype)] if name in words and is_dtype(dtype):
            return "operand", name, dtype
        case ["cast", int(a), str(dtype)] if earlier(a) and is_dtype(dtype):
            return "cast", a, dtype
        case ["axis", int(n)] if 0 <= n < axes:
            return "axis", n
        case ["load", int(n), [*places]] if (
            0 <= n < len(inputs) and len(places) == len(inputs[n]) and earlier(*places)
        ):
            return "load", n, tuple(places)
        case [str(word), int(a), [*along]] if (
            word in REDUCE and earlier(a) and all(type(n) is int and 0 <= n < axes for n in along)
        ):
            return word, a, tuple(along)
    raise damaged("A step of a formula in the artefact is damaged.", repr(given)[:80])


def _product(given: object, inputs: Sequence[Sequence[int]], rank: int) -> ContractionStep:
    match given:
        case [[str(x), str(y), str(z)], [int(a), int(b)], str(dtype)] if (
            0 <= a < len(inputs)
            and 0 <= b < len(inputs)
            and (len(x), len(y), len(z)) == (len(inputs[a]), len(inputs[b]), rank)
            and all(len(set(word)) == len(word) for word in (x, y, z))
            and set(x + y + z) <= set("abcdefghijkl")
            and set(z) == set(x) ^ set(y)
            and is_dtype(dtype)
        ):
            return ContractionStep((x, y, z), (a, b), dtype)
    raise damaged("A product in the artefact is damaged.", repr(given)[:80])


def is_dtype(name: str) -> bool:
    """Whether a name is that of numbers an element may hold."""
    return name in _DTYPES


_DTYPES: Final = frozenset(
    ("bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))
) | {"float16", "float32", "float64"}
