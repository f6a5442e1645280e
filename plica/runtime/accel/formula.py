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
from typing import Any, Final, TypeAlias

import numpy as np

from plica.runtime.port import Array
from plica.runtime.typed_json import Annotated, ClassVar, dataclass

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
DTYPES: Final = frozenset(
    ("bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))
) | {"float16", "float32", "float64"}  # fmt: skip
"""The names of numbers that an element may hold."""

ElementType: TypeAlias = Annotated[str, DTYPES]
Size: TypeAlias = Annotated[int, range(1, 1 + (1 << 16))]
_STEPS: Final = range(1, 1 + 4096)  # how many a formula may have


@dataclass(frozen=True, slots=True)
class ContractionStep:
    """`old + sum of left * right`: letters of the left, of the right and of the result.

    `operands` are the two among the inputs, `dtype` is one in which the sums are exact.
    """

    DAMAGED: ClassVar = "A product in the artefact is damaged."

    subscripts: tuple[str, str, str]
    operands: tuple[int, int]
    dtype: ElementType

    def fits(self, inputs: Sequence[Sequence[int]], rank: int) -> bool:
        """Whether it is a product of two inputs of these shapes, which has so many axes."""
        x, y, z = self.subscripts
        if not all(at in range(len(inputs)) for at in self.operands):
            return False
        a, b = (inputs[at] for at in self.operands)
        return (
            (len(x), len(y), len(z)) == (len(a), len(b), rank)
            and all(len(set(word)) == len(word) for word in (x, y, z))
            and set(x + y + z) <= set("abcdefghijkl")
            and set(z) == set(x) ^ set(y)
        )


def _tuples(given: object) -> Any:  # Any: as in `Step`
    return tuple(map(_tuples, given)) if isinstance(given, list) else given


@dataclass(frozen=True, slots=True)
class Formula:
    """Steps over the axes of a result and of its sums; the last step is the result."""

    DAMAGED: ClassVar = "A formula in the artefact is damaged."

    shape: tuple[Size, ...]
    inner: tuple[Size, ...]
    steps: tuple[Annotated[Step, _tuples], ...]
    product: ContractionStep | None = None

    def fits(self, inputs: Sequence[Sequence[int]], words: Sequence[str]) -> bool:
        """Whether it is one over inputs of these shapes, and operands of these names."""
        axes = len(self.shape) + len(self.inner)
        return (
            len(self.steps) in _STEPS
            and all(_is_step(step, at, axes, inputs, words) for at, step in enumerate(self.steps))
            and (self.product is None or self.product.fits(inputs, len(self.shape)))
        )


def _is_step(
    step: object, at: int, axes: int, inputs: Sequence[Sequence[int]], words: Sequence[str]
) -> bool:
    """Whether a step uses what there is before it."""

    def within(end: int, *numbers: object) -> bool:
        return all(type(number) is int and 0 <= number < end for number in numbers)

    match step:
        case (str(word), a, b) if word in BINARY or word in ("left", "right"):
            return within(at, a, b)
        case ("select", a, b, c):
            return within(at, a, b, c)
        case ("number", int() | float(), str(dtype)):
            return dtype in DTYPES
        case ("operand", name, str(dtype)):
            return name in words and dtype in DTYPES
        case ("cast", a, str(dtype)):
            return within(at, a) and dtype in DTYPES
        case ("axis", n):
            return within(axes, n)
        case ("load", int(n), (*places,)):
            return within(len(inputs), n) and len(places) == len(inputs[n]) and within(at, *places)
        case (str(word), a, (*along,)) if word in REDUCE:
            return within(at, a) and within(axes, *along)
    return False


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
