"""Known-bad index rules: floor and trunc confused, divisibility assumed, signs forgotten."""

from __future__ import annotations

from typing import Any

from plica.ir.loop.scalar import FloorDiv, FloorMod, Lit, Max, Min
from plica.ir.type.dtype import i64
from plica.rewrite import index_holes

x, y, z = index_holes("x y z")

# fmt: off
INDEX: tuple[tuple[str, Any, Any], ...] = (
    ("bad-div-mul-index",      (x // 4) * 4,                x),
    ("bad-div-sum",            (x + y) // 4,                x // 4 + y // 4),
    ("bad-div-negative",       (0 - x) // 4,                0 - x // 4),
    ("bad-mod-negative-index", (0 - x) % 4,                 0 - x % 4),
    ("bad-mod-sum",            (x + y) % 4,                 x % 4 + y % 4),
    ("bad-mod-product",        (x * 2) % 4,                 x % 4),
    ("bad-nested-div",         (x // 4) // 2,               x // 6),
    ("bad-nested-mod",         (x % 6) % 4,                 x % 4),
    ("bad-div-scale",          (x * 4 + y) // 4,            x),
    ("bad-round-up",           (x + 3) // 4,                x // 4 + 1),
    ("bad-negative-divisor",   FloorDiv(x, Lit(-4, i64)),   0 - x // 4),
    ("bad-negative-modulus",   FloorMod(x, Lit(-4, i64)),   x % 4),
    ("bad-min-sum",            Min(x + y, z),               Min(x, z) + y),
    ("bad-max-min",            Max(Min(x, y), z),           Min(Max(x, z), y)),
)
# fmt: on
