"""What tensor cores do, as one thread of a warp sees it.

A warp multiplies 16 rows by 8 columns, 16 terms of f16 at a time, and sums in f32.  Of the result a
thread has 2 rows that are 8 apart and 2 neighbouring columns: thread t has the rows t // 4 and
t // 4 + 8, and the columns 2 * (t % 4) and the next.  So for one thread an instruction means

    c[half, pair] += a[half, k] * b[k, pair]            for all k

where the rows and columns are those of the thread.  Many such squares of a thread are one
intrinsic: what is read of `a` and `b` is read once for all of them.

>>> mma(2, 4, (True, False)).name
'cuda.mma_f16_2x4_kn'
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, TypeAlias

from plica.ir.dtype import f16, f32
from plica.ir.intrinsic import intrinsic
from plica.ir.invocation import TensorIntrinsic
from plica.ir.loop import For, Kernel, Stmt, Store
from plica.ir.scalar import Cast, index
from plica.ir.tensor import axis, buffer

Along: TypeAlias = tuple[bool, bool]
"""Whether neighbours in memory are terms, not rows or columns, on the left and on the right."""

OCTET: Final = 8
"""Neighbours that lie together: 16 bytes of f16."""

QUADS: Final = 4
"""Threads of a warp that share a row."""


@lru_cache(maxsize=256)
def mma(high: int, wide: int, along: Along) -> TensorIntrinsic:
    """The intrinsic of so many squares down and across."""
    a = buffer("a", (high, 2, 2, OCTET), f16)
    b = buffer("b", (wide, 2, 2, OCTET) if along[1] else (wide, 2, OCTET, 2), f16)
    c = buffer("c", (high, 2, wide, 2), f32)
    i, half, j, pair, h, e = (axis(name) for name in ("i", "half", "j", "pair", "h", "e"))
    right = b[j, h, pair, e] if along[1] else b[j, h, e, pair]
    product = Cast(a[i, half, h, e], f32) * Cast(right, f32)
    body: Stmt = Store(c, (i, half, j, pair), c[i, half, j, pair] + product)
    for var, size in ((e, OCTET), (h, 2), (pair, 2), (j, wide), (half, 2), (i, high)):
        body = For(var, index(size), "serial", body)
    sides = "".join(["k" if terms else side for terms, side in zip(along, "mn", strict=True)])
    hints = (("cuda", "mma_f16"), ("left", along[0]), ("right", along[1]))
    name = f"cuda.mma_f16_{high}x{wide}_{sides}"
    return intrinsic(name, Kernel((), (a, b, c), 2, body), None, hints)
