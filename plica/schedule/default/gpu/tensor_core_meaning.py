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

from functools import lru_cache
from typing import Final, TypeAlias

from plica.ir.loop import For, Kernel, Stmt, Store, axis, buffer, index
from plica.ir.loop.intrinsic import intrinsic
from plica.ir.loop.invocation import TensorIntrinsic
from plica.ir.loop.scalar import Cast
from plica.ir.type import DType, f16, f32, i32

Along: TypeAlias = tuple[bool, bool]
"""Whether neighbours in memory are terms, not rows or columns, on the left and on the right."""

Places: TypeAlias = tuple[str, str, str]  # which axes the elements of three buffers have

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
    left, right = "i half h e", "j h pair e" if along[1] else "j h e pair"
    how = extents, (left, right, "i half j pair")
    return _declared("mma", (high, wide), along, (dtype, other or dtype), how, few)


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
    left = "i half s h e" if along[0] else "i s h e half"
    right = "j o pair s h e" if along[1] else "j s h e o pair"
    how = extents, (left, right, "i half j o pair")
    return _declared("group_mma", (high, wide), along, (dtype, other or dtype), how)


def _declared(  # noqa: PLR0917  # what an intrinsic is made of
    word: str,
    size: tuple[int, int],
    along: Along,
    dtypes: tuple[DType, DType],
    how: tuple[dict[str, int], Places],
    few: bool = False,
) -> TensorIntrinsic:
    """The intrinsic that adds products to the last of three buffers, over some axes each.

    An axis of one element is none: a region has many of those.
    """
    given, words = how
    extents = {name: count for name, count in given.items() if count > 1}
    axes = {name: axis(name) for name in extents}
    places = [[name for name in each.split() if name in extents] for each in words]
    sums = i32 if dtypes[0].bytes == 1 else f32
    a, b, c = (
        buffer(name, tuple([extents[each] for each in place]), kind)
        for name, place, kind in zip("abc", places, (*dtypes, sums), strict=True)
    )
    at = [tuple([axes[name] for name in place]) for place in places]
    one, two = (each[place] if each.dtype is sums else Cast(each[place], sums)
                for each, place in ((a, at[0]), (b, at[1])))  # fmt: skip
    total = c[at[2]] + one * two
    body: Stmt = Store(c, at[2], total)
    for name in reversed(extents):
        body = For(axes[name], index(extents[name]), "serial", body)
    sides = "".join(["k" if terms else side for terms, side in zip(along, "mn", strict=True)])
    hints = (
        ("cuda", word), *((("few", True),) if few else ()), ("high", size[0]), ("left", along[0]),
        ("right", along[1]), ("wide", size[1]),
    )  # fmt: skip
    kind = "_".join([*["few"] * few, *dict.fromkeys(dtype.name for dtype in dtypes)])
    name = f"cuda.{word}_{kind}_{size[0]}x{size[1]}_{sides}"
    return intrinsic(name, Kernel((), (a, b, c), 2, body), None, hints)
