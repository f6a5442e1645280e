"""Forms for tensor cores: a product of matrices of f16, its rows, columns and terms in digits.

    left[by, q, s, wm, i, half, h, g, e]        terms e, or rows g, are neighbours: as in memory
    right[bx, q, s, wn, j, h, n, e]             likewise, n being columns (t, pair)
    part[by, bx, wm, wn, g, t, i, half, j, pair]
    out[m, n]                                   what is done to each sum
"""

from __future__ import annotations

from attrs import frozen

from plica.core.name import Name
from plica.ir.define import define
from plica.ir.dtype import DType, f16, f32, i64
from plica.ir.loop import Kernel
from plica.ir.scalar import Buffer, Cast, Load, Mul, Reduce, Scalar, ScalarVar, index
from plica.ir.stage import Each
from plica.ir.tensor import buffer
from plica.schedule.default.gpu.tensor_core import Warps
from plica.schedule.default.gpu.tensor_core_meaning import OCTET, QUADS, Along
from plica.schedule.default.gpu.form import digits


def number(places, steps):
    found = places[0]
    for place, step in zip(places[1:], steps, strict=True):
        found = found * step + place
    return found

def matrices(m, n, k, of: Warps, along: Along, dtype=f32) -> Kernel:
    x = buffer("x", (m, k), f16) if along[0] else buffer("x", (k, m), f16)
    w = buffer("w", (n, k), f16) if along[1] else buffer("w", (k, n), f16)
    def var(name): return ScalarVar(Name(name), i64)
    by, wm, i, half, g = map(var, ("by", "wm", "i", "half", "g"))
    bx, wn, j, t, pair = map(var, ("bx", "wn", "j", "t", "pair"))
    q, s, h, e = map(var, "qshe")
    down = (of.down, of.high, 2, OCTET)
    across = (of.across, of.wide, QUADS, 2)
    terms = (of.steps, 2, OCTET)
    row, column, term = number((by, wm, i, half, g), down), number((bx, wn, j, t, pair), across), number((q, s, h, e), terms)
    ints = lambda *a: tuple(map(index, a))
    M, N, K = m // of.rows, n // of.columns, k // of.terms
    size = dict(zip((by, wm, i, half, g, bx, wn, j, t, pair, q, s, h, e), (M, *down, N, *across, K, *terms)))
    la = (by, q, s, wm, i, half, h, g, e) if along[0] else (by, q, s, wm, i, half, h, e, g)
    ra = (bx, q, s, wn, j, h, t, pair, e) if along[1] else (bx, q, s, wn, j, h, e, t, pair)
    pa = (by, wm, i, half, g, bx, wn, j, t, pair)
    buf = lambda name, axes, dt: Buffer(Name(name), tuple([index(size[a]) for a in axes]), dt)
    left, right, part = buf("left", la, f16), buf("right", ra, f16), buf("part", pa, f32)
    stages = [
        Each(left, la, x[row, term] if along[0] else x[term, row]),
        Each(right, ra, w[column, term] if along[1] else w[term, column]),
        Each(part, pa, Reduce("sum", (q, s, h, e), ints(K, *terms), Mul(Cast(Load(left, la), f32), Cast(Load(right, ra), f32)))),
    ]
    mm, nn = var("m"), var("n")
    out = Buffer(Name("out"), ints(m, n), dtype)
    value = Load(part, (*digits(mm, down), *digits(nn, across)))
    stages.append(Each(out, (mm, nn), value if dtype is f32 else Cast(value, dtype)))
    return define(*stages, inputs=(x, w), outputs=(out,))
