"""Cases and meanings of operators in other layouts, and of placement."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis import assume

from plica.ir.op.laid import LAID, logical_axes
from tests.ir.reference import case_neural, case_shape, neural  # noqa: F401  # the cases we need
from tests.ir.reference.case import CASES, NUMBERS, Case, Draw, case, one
from tests.ir.reference.meaning import REFERENCE

Array = np.ndarray[Any, Any]


def stored_at(word: str, logical: str, at: tuple[int, ...]) -> tuple[int, ...]:
    """The place of an element, digit by digit from the innermost block."""
    rest = list(at)
    place = []
    for size, letter in reversed(re.findall(r"(\d*)([A-Za-z])", word)):
        axis = logical.index(letter.upper())
        if size:
            place.append(rest[axis] % int(size))
            rest[axis] //= int(size)
        else:
            place.append(-1 - axis)  # what is left of it, which later blocks may lessen
    found = [rest[-1 - each] if each < 0 else each for each in reversed(place)]
    return tuple(found)


def stored(word: str, logical: str, array: Array) -> Array:
    """The array in a layout, element by element."""
    places = {at: stored_at(word, logical, at) for at in np.ndindex(*array.shape)}
    shape = []
    for size, letter in re.findall(r"(\d*)([A-Za-z])", word):
        blocks = re.findall(rf"(\d+){letter.lower()}", word)
        whole = array.shape[logical.index(letter.upper())]
        shape.append(int(size) if size else whole // int(np.prod([int(b) for b in blocks])))
    result = np.zeros(shape, array.dtype)
    for at, place in places.items():
        result[place] = array[at]
    return result


def unstored(word: str, logical: str, array: Array) -> Array:
    """The array that is stored in a layout."""
    numbers = np.arange(array.size)
    shape = []
    for letter in logical:
        parts = [
            size
            for (_, each), size in zip(
                re.findall(r"(\d*)([A-Za-z])", word), array.shape, strict=True
            )
            if each.upper() == letter
        ]
        shape.append(int(np.prod(parts)))
    order = stored(word, logical, numbers.reshape(shape)).ravel()
    result = np.empty(array.size, array.dtype)
    result[order] = array.ravel()
    return result.reshape(shape)


def words(draw: Draw, logical: str, shape: tuple[int, ...]) -> str:
    """A layout of a shape: axes in some order, now and then a block that divides its axis."""
    parts = list(draw(st.permutations(logical)))
    axis = draw(st.integers(-1, len(logical) - 1))
    if axis >= 0:
        block = draw(st.sampled_from([b for b in (1, 2, 3) if shape[axis] % b == 0]))
        parts.insert(draw(st.integers(0, len(parts))), f"{block}{logical[axis].lower()}")
    return "".join(parts)


def _meaning(op: str) -> Callable[..., Any]:
    def run(*args: Array, layouts: tuple[str, ...], **attrs: Any) -> Any:
        rank = sum(letter.isupper() for letter in layouts[0])
        letters = logical_axes(op, rank)
        plain = [unstored(*each) for each in zip(layouts, letters, args, strict=False)]
        return stored(layouts[-1], letters[-1], np.asarray(REFERENCE[op](*plain, **attrs)))

    return run


@case(*[record.name for record in LAID.values()])
def _laid(draw: Draw, name: str) -> Case:
    op = name.removesuffix("_laid")
    base = draw(CASES[op])
    # A layout changes no values; infinities times padding are the business of the operator itself.
    assume(all(np.isfinite(each.astype(np.float64)).all() for each in base.args))
    letters = logical_axes(op, base.args[0].ndim)
    with np.errstate(all="ignore"):
        result = np.asarray(REFERENCE[op](*base.args, **base.attrs))
    tensors = (*base.args, result)
    pairs = zip(letters, (each.shape for each in tensors), strict=True)
    layouts = tuple(words(draw, *each) for each in pairs)
    args = tuple(stored(*each) for each in zip(layouts, letters, base.args, strict=False))
    return Case(args, {**base.attrs, "layouts": layouts})


REFERENCE.update({record.name: _meaning(op) for op, record in LAID.items()})


@case("on_device")
def _on_device(draw: Draw, _: str) -> Case:
    return Case((one(draw, NUMBERS),), {"device": "gpu"})


@case("device_copy")
def _device_copy(draw: Draw, _: str) -> Case:
    return Case((one(draw, NUMBERS),), {"source": "cpu", "target": "gpu"})


REFERENCE["on_device"] = lambda x, *, device: x
REFERENCE["device_copy"] = lambda x, *, source, target: x
