"""Cases and meanings of the operators that arrange: codes, layouts, windows, grids, sequences."""

from __future__ import annotations

import math
import re
from typing import Any

import hypothesis.strategies as st
import numpy as np

from plica.ir.type.dtype import DTYPES
from tests.ir.reference.case import INTEGERS, Array, Case, Draw, array, case, one, shapes
from tests.ir.reference.case_shape import indices
from tests.ir.reference.meaning import REFERENCE

CODES = {
    (2, 3, 4): [(0, 0, 0), (0, -1), (-2,), (4, 0, 2), (0, -3), (-3, 0), (-4, 1, 2, -2), (0, 0, -1),
                (0, -4, 3, -1, 4), (-3, -4, 2, 2), (-1, 0), (24,)],
    (4, 6): [(0, -1), (-4, -1, 2, 0), (-3,), (0, -4, 2, 3), (-2,), (0, -4, -1, 3)],
    (): [(), (1,), (-2,), (-1,)],
}  # fmt: skip
LAYOUTS = (
    ("NCHW", "NHWC"), ("NHWC", "NCHW"), ("NCHW", "NCHW2c"), ("NCHW2c", "NCHW"), ("NCHW2c", "NHWC"),
    ("NHWC", "NCHW4c"), ("OIHW", "OIHW2i4o"), ("OIHW2i4o", "HWIO"), ("NCHW2c", "NCHW4c"),
)  # fmt: skip


@case("reshape_codes")
def _codes(draw: Draw, _: str) -> Case:
    shape = draw(st.sampled_from(sorted(CODES)))
    return Case((one(draw, DTYPES, shape),), {"codes": draw(st.sampled_from(CODES[shape]))})


@case("layout_transform")
def _layout(draw: Draw, _: str) -> Case:
    source, target = draw(st.sampled_from(LAYOUTS))
    sizes = {letter: draw(st.integers(0, 2)) for letter in "NHW"} | dict.fromkeys("COI", 4)
    shape = []
    for letter, block, part in re.findall(r"([A-Z])|(\d+)([a-z])", source):
        inner = math.prod(
            int(b) for b, p in re.findall(r"(\d+)([a-z])", source) if p.upper() == letter
        )
        shape.append(int(block) if part else sizes[letter] // inner)
    return Case((one(draw, DTYPES, tuple(shape)),), {"source": source, "target": target})


@case("sliding_window")
def _window(draw: Draw, _: str) -> Case:
    shape = draw(shapes(1, 3, side=1))
    at = draw(st.integers(0, len(shape) - 1))
    count = draw(st.integers(1, len(shape) - at))
    window = tuple(draw(st.integers(1, size)) for size in shape[at : at + count])
    strides = tuple(draw(st.integers(1, 3)) for _ in window)
    attrs = {"axis": at, "window": window, "strides": strides}
    return Case((one(draw, DTYPES, shape),), attrs)


@case("meshgrid")
def _grid(draw: Draw, _: str) -> Case:
    count = draw(st.integers(1, 3))
    vectors = [one(draw, DTYPES, (draw(st.integers(0, 3)),)) for _ in range(count)]
    return Case(tuple(vectors), {"indexing": draw(st.sampled_from(["ij", "xy"]))})


@case("unravel_index")
def _unravel(draw: Draw, _: str) -> Case:
    shape = draw(shapes(1, 4, side=1))
    places = draw(
        st.lists(st.integers(0, min(math.prod(shape), 127) - 1), max_size=4)
        if math.prod(shape) > 1
        else st.just([0])
    )
    dtype = draw(st.sampled_from(INTEGERS))
    return Case((np.array(places, dtype.numpy),), {"shape": shape})


@case("adv_index")
def _advanced(draw: Draw, _: str) -> Case:
    shape = draw(shapes(1, 3, side=1))
    count = draw(st.integers(1, len(shape)))
    front = draw(shapes(0, 2))
    forms = [tuple(draw(st.sampled_from([size, 1])) for size in front) for _ in range(count)]
    places = [indices(draw, size, form) for size, form in zip(shape, forms, strict=False)]
    return Case((one(draw, DTYPES, shape), *places), {})


@case("sequence_mask", "reverse_sequence")
def _sequences(draw: Draw, name: str) -> Case:
    shape = draw(shapes(2, 4))
    at, batch = draw(st.permutations(range(len(shape))))[:2]
    lengths = [draw(st.integers(0, shape[at])) for _ in range(shape[batch])]
    attrs = {"axis": at - len(shape) * draw(st.integers(0, 1)), "batch_axis": batch}
    if name == "sequence_mask":
        attrs["value"] = draw(st.integers(0, 1))
    dtype = draw(st.sampled_from(DTYPES))
    return Case((draw(array(dtype, shape)), np.array(lengths, np.int32)), attrs)


def _recoded(x: Array, codes: Any) -> Array:
    """MXNet's rules, by hand."""
    shape, given, at, found = x.shape, list(codes), 0, []
    while given:
        code = given.pop(0)
        if code in (0, -3):
            width = 1 if code == 0 else 2
            found.append(math.prod(shape[at : at + width]))
            at += width
        elif code == -2:
            found += shape[at:]
            at = len(shape)
        elif code == -4:
            first, second = given.pop(0), given.pop(0)
            found += [
                shape[at] // second if first == -1 else first,
                shape[at] // first if second == -1 else second,
            ]
            at += 1
        else:
            found.append(code)
            at += 1
    return x.reshape(found)


def _parts(word: str) -> list[tuple[str, int]]:
    return [(a or p.upper(), int(b or 0)) for a, b, p in re.findall(r"([A-Z])|(\d+)([a-z])", word)]


def _laid(x: Array, source: str, target: str) -> Array:
    """To the letters in their order, each whole, and from there to the target."""
    letters = [letter for letter, block in _parts(source) if not block]
    names = [name for name, _ in _parts(source)]
    merged = x.transpose([at for letter in letters for at, n in enumerate(names) if n == letter])
    sizes = [
        math.prod(size for size, name in zip(x.shape, names, strict=True) if name == letter)
        for letter in letters
    ]
    plain = merged.reshape(sizes)
    split, parts = [], []
    for letter, size in zip(letters, sizes, strict=True):
        blocks = [block for name, block in _parts(target) if name == letter and block]
        split += [size // math.prod(blocks), *blocks]
        parts += [(letter, 0), *((letter, block) for block in blocks)]
    return plain.reshape(split).transpose([parts.index(part) for part in _parts(target)])


def _slid(x: Array, axis: int, window: Any, strides: Any) -> Array:
    axes = tuple(range(axis, axis + len(window)))
    places = np.arange(x.size).reshape(x.shape)  # numpy has no views of 8-bit floats
    seen = np.lib.stride_tricks.sliding_window_view(places, window, axes)
    seen = seen[(*(slice(None),) * axis, *(slice(None, None, stride) for stride in strides))]
    rank, count = x.ndim, len(window)
    rest = tuple(range(axis + count, rank))
    order = (*range(axis + count), *range(rank, rank + count), *rest)
    return np.asarray(x.reshape(-1)[seen.transpose(order)])


def _masked(x: Array, lengths: Array, axis: int = 1, batch_axis: int = 0, value: Any = 0) -> Array:
    found = np.moveaxis(x, (batch_axis, axis), (0, 1)).copy()
    for at, length in enumerate(lengths):
        found[at, length:] = value
    return np.moveaxis(found, (0, 1), (batch_axis, axis))


def _turned(x: Array, lengths: Array, axis: int = 1, batch_axis: int = 0) -> Array:
    found = np.moveaxis(x, (batch_axis, axis), (0, 1)).copy()
    for at, length in enumerate(lengths):
        found[at, :length] = found[at, :length][::-1].copy()
    return np.moveaxis(found, (0, 1), (batch_axis, axis))


REFERENCE.update(
    {
        "reshape_codes": _recoded,
        "layout_transform": _laid,
        "sliding_window": _slid,
        "meshgrid": lambda *x, indexing="ij": tuple(np.meshgrid(*x, indexing=indexing)),
        "unravel_index": lambda x, shape: np.stack(np.unravel_index(x, shape)),
        "adv_index": lambda x, *places: x[tuple(each.astype(np.int64) for each in places)],
        "sequence_mask": _masked,
        "reverse_sequence": _turned,
    }
)
