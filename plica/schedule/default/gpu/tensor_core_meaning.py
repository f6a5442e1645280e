"""What tensor cores do, as one thread sees it.

A warp multiplies 16 rows by 8 columns, 16 terms of f16 at a time, and sums in f32.  Of the result a
thread has 2 rows that are 8 apart and 2 neighbouring columns: thread t has the rows t // 4 and
t // 4 + 8, and the columns 2 * (t % 4) and the next.  So for one thread an instruction means

    c[half, pair] += a[half, k] * b[k, pair]            for all k

with the rows and columns of the thread. Many such squares of a thread are one intrinsic: `a` and
`b` are loaded once for all of them.

Of bytes it is 32 terms at a time, 16 where it is 8 of f16, and sums are of i32.  Of f32 it is 8,
and each product is three (see Note [3xTF32] of `plica.codegen.cuda.intrinsic_text`).

Four warps can multiply together: 64 rows, of which the first warp has the first 16, by up to 256
columns; and all terms of a slice are one intrinsic.  To a thread it is the same again.

>>> mma(2, 4, (True, False)).name
'cuda.mma_f16_2x4_kn'
>>> group_mma(2, 32, (True, False)).name
'cuda.group_mma_f16_2x32_kn'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, reduce
from math import prod
from operator import mul
from typing import Final, TypeAlias

from plica.ir.loop import MEANING, For, Kernel, Stmt, Store, axis, buffer, scalar as sc
from plica.ir.loop.intrinsic import intrinsic
from plica.ir.loop.invocation import TensorIntrinsic
from plica.ir.type import DType, f16, f32, i32

Along: TypeAlias = tuple[bool, bool]
"""Whether neighbours in memory are terms, not rows or columns, on the left and on the right."""

Hints: TypeAlias = tuple[tuple[str, int | bool], ...]
Places: TypeAlias = tuple[str, ...]
"""Which axes the elements of buffers have: of `t.p` two are one number, `i?` is none if it has one
place."""

OCTET: Final = 8  # neighbours that lie together: 16 bytes of f16
QUADS: Final = 4  # threads of a warp that share a row
GROUP: Final = 4  # warps that multiply together
STEPS: Final = 4
"""Instructions for the terms of a slice, where warps multiply together: rows of 128 bytes."""


@lru_cache(maxsize=256)
def mma(  # noqa: PLR0917  # squares, and what they are of
    high: int,
    wide: int,
    along: Along,
    dtype: DType = f16,
    other: DType | None = None,
    few: bool = False,
) -> TensorIntrinsic:
    """The intrinsic of a given number of squares down and across; the right side may be of `other`
    bytes, and sums of f32 of `few` terms in all."""
    extents = {"i": high, "half": 2, "j": wide, "pair": 2, "h": 2, "e": 16 // dtype.bytes}
    right = "j? h pair e" if along[1] else "j? h e pair"
    places = ("i? half h e", right, "i? half j? pair")
    return _of_squares("mma", (high, wide), along, (dtype, other or dtype), extents, places, few)


def panels_of(wide: int) -> tuple[int, int]:
    """A given number of squares across as panels of 64 columns, and octets of columns of each;
    squares that fill no panels are one.

    >>> panels_of(16), panels_of(12), panels_of(4)
    ((2, 8), (1, 12), (1, 4))
    """
    return (wide // OCTET, OCTET) if wide % OCTET == 0 else (1, wide)


@lru_cache(maxsize=512)
def group_mma(
    high: int, wide: int, along: Along, dtype: DType = f16, other: DType | None = None
) -> TensorIntrinsic:
    """The intrinsic of four warps, with a given number of squares of a thread down and across."""
    panels, octets = panels_of(wide)
    extents = {"s": STEPS, "i": high, "half": 2, "j": panels, "o": octets, "pair": 2,
               "h": 2, "e": 16 // dtype.bytes}  # fmt: skip
    left = "i? half s h e" if along[0] else "i? s h e half"
    right = "j? o? pair s h e" if along[1] else "j? s h e o? pair"
    places = (left, right, "i? half j? o? pair")
    return _of_squares("group_mma", (high, wide), along, (dtype, other or dtype), extents, places)


def _of_squares(  # noqa: PLR0917  # what an intrinsic is made of
    word: str, size: tuple[int, int], along: Along, dtypes: tuple[DType, DType],
    extents: Mapping[str, int], places: Places, few: bool = False,
) -> TensorIntrinsic:  # fmt: skip
    """Products of squares, as many as there are; an axis of one element is none."""
    sides = "".join(["k" if terms else side for terms, side in zip(along, "mn", strict=True)])
    kind = "_".join([*["few"] * few, *dict.fromkeys(dtype.name for dtype in dtypes)])
    hints = (
        *((("few", True),) if few else ()), ("high", size[0]), ("left", along[0]),
        ("right", along[1]), ("wide", size[1]),
    )  # fmt: skip
    several = {name: count for name, count in extents.items() if count > 1}
    sums = i32 if dtypes[0].bytes == 1 else f32
    name = f"{word}_{kind}_{size[0]}x{size[1]}_{sides}"
    return joining(name, word, several, places, (*dtypes, sums), hints=hints)


def joining(  # noqa: PLR0917  # what an intrinsic is made of
    name: str, word: str, extents: Mapping[str, int], places: Places, dtypes: Sequence[DType],
    combiner: sc.Combiner = "sum", narrow: DType | None = None, hints: Hints = (),
) -> TensorIntrinsic:  # fmt: skip
    """The intrinsic that joins products of all buffers but the last to that, over some axes; the
    first may be rounded to a `narrow` dtype before.

    >>> sums = joining("sums_of_lanes", "lanes", {"i": 2, "t": 4}, ("t i", "i"), (f32, f32))
    >>> [tuple([size.value for size in each.shape]) for each in sums.meaning.params]
    [(4, 2), (2,)]
    """
    axes = {name: axis(name) for name in extents}
    items = [
        [item.strip("?").split(".") for item in of.split()
         if "?" not in item or extents.get(item.strip("?"), 1) > 1]
        for of in places
    ]  # fmt: skip
    *factors, c = [
        buffer(letter, tuple([prod(extents[digit] for digit in item) for item in of]), dtype)
        for letter, of, dtype in zip("abc"[: len(places) - 1] + "c", items, dtypes, strict=True)
    ]
    *read, there = [tuple([_number(item, extents, axes) for item in of]) for of in items]
    loads: list[sc.Scalar] = [of[at] for of, at in zip(factors, read, strict=True)]
    if narrow is not None:
        loads[0] = sc.Cast(loads[0], narrow)
    wide = [load if sc.dtype_of(load) is c.dtype else sc.Cast(load, c.dtype) for load in loads]
    total = MEANING[combiner][1](c[there], reduce(mul, wide))
    body = Store(c, there, total)
    return declare(name, word, (*factors, c), extents, lambda _: body, hints, axes)


def _number(
    digits: Sequence[str], extents: Mapping[str, int], axes: Mapping[str, sc.ScalarVar]
) -> sc.Scalar:
    """Several axes as one number."""
    first, *others = digits
    number: sc.Scalar = axes[first]
    for digit in others:
        number = number * extents[digit] + axes[digit]
    return number


def declare(  # noqa: PLR0917  # what an intrinsic is made of
    name: str, word: str, buffers: tuple[sc.Buffer, ...], extents: Mapping[str, int],
    body: Callable[[Mapping[str, sc.ScalarVar]], Stmt], hints: Hints = (),
    axes: Mapping[str, sc.ScalarVar] | None = None, outputs: int = 1,
) -> TensorIntrinsic:  # fmt: skip
    """The intrinsic that means a body for all places along some axes."""
    axes = {word: axis(word) for word in extents} if axes is None else axes
    whole = body(axes)
    for each in reversed([*extents]):
        whole = For(axes[each], sc.index(extents[each]), "serial", whole)
    meaning = Kernel((), buffers, len(buffers) - outputs, whole)
    return intrinsic(f"cuda.{name}", meaning, None, (("cuda", word), *hints))
