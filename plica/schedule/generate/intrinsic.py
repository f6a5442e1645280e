"""Intrinsics for random schedules: small meanings of any size, which random kernels often contain.

>>> len(NAMES) == len(set(NAMES))
True
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from plica.ir.loop import Buffer, For, Kernel, Scalar, ScalarVar, Stmt, Store, axis, buffer
from plica.ir.loop.intrinsic import intrinsic
from plica.ir.loop.scalar import lit
from plica.ir.type import DType, dim_var, f32, i32

M, N, P = (dim_var(name) for name in ("rows", "columns", "depth"))
X, Y, Z = (axis(name) for name in "ijk")


def _looped(body: Stmt, *loops: tuple[ScalarVar, Scalar]) -> Stmt:
    for var, extent in reversed(loops):
        body = For(var, extent, "serial", body)
    return body


def _product(dtype: DType) -> Kernel:
    a, b, c = buffer("a", (M, P), dtype), buffer("b", (P, N), dtype), buffer("c", (M, N), dtype)
    body = Store(c, (X, Y), c[X, Y] + a[X, Z] * b[Z, Y])
    return Kernel((M, N, P), (a, b, c), 2, _looped(body, (X, M), (Y, N), (Z, P)))


def _copy(dtype: DType) -> Kernel:
    a, b = buffer("a", (M, N), dtype), buffer("b", (M, N), dtype)
    return Kernel((M, N), (a, b), 1, _looped(Store(b, (X, Y), a[X, Y]), (X, M), (Y, N)))


def _line(value: Callable[[Buffer], Scalar]) -> Callable[[DType], Kernel]:
    def made(dtype: DType) -> Kernel:
        a, b = buffer("a", (N,), dtype), buffer("b", (N,), dtype)
        return Kernel((N,), (a, b), 1, _looped(Store(b, (X,), value(a)), (X, N)))

    return made


def _sums(dtype: DType) -> Kernel:
    a, b = buffer("a", (M, P), dtype), buffer("b", (M,), dtype)
    return Kernel((M, P), (a, b), 1, _looped(Store(b, (X,), b[X] + a[X, Z]), (X, M), (Z, P)))


def _zeros(dtype: DType) -> Kernel:
    b = buffer("b", (N,), dtype)
    return Kernel((N,), (b,), 0, _looped(Store(b, (X,), lit(0, dtype)), (X, N)))


# fmt: off
MEANINGS: Final[dict[str, Callable[[DType], Kernel]]] = {
    "product": _product,
    "copy":    _copy,
    "line":    _line(lambda a: a[X]),
    "twice":   _line(lambda a: a[X] * 2),
    "sums":    _sums,
    "zeros":   _zeros,
}
# fmt: on
NAMES: Final = tuple(
    [
        intrinsic(f"fuzz.{name}_{dtype}", meaning(dtype)).name
        for name, meaning in MEANINGS.items()
        for dtype in (i32, f32)
    ]
)
