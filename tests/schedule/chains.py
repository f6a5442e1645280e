"""Softmax between two products, as stages: what tests of it begin with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np

from plica.ir.loop.scalar import Cast, Intrinsic, Le, Lit, Lt, Scalar, Select
from plica.ir.loop.stage import Each, stage
from plica.ir.loop.stages import Stages, stages
from plica.ir.loop.tensor import buffer, reduce
from plica.ir.type.dtype import DType, f16, f32

Array: TypeAlias = np.ndarray[Any, Any]
Sizes: TypeAlias = tuple[int, int, int, int, int]
"""Lots, rows, keys, depth and columns."""
Mask: TypeAlias = Literal["none", "causal", "window", "bias"]

WINDOW = 5
"""Keys before its own number that a row sees."""


def attention(sizes: Sizes, mask: Mask = "none", dtype: DType = f16, shared: int = 1) -> Stages:
    """Stages of attention as a front end spells them out; a given number of lots share keys and
    values."""
    z, m, n, d, c = sizes
    q, k, v = (
        buffer("q", (z, m, d), dtype),
        buffer("k", (z // shared, n, d), dtype),
        buffer("v", (z // shared, n, c), dtype),
    )
    bias = buffer("bias", (m, n), f32)
    lot: Callable[[Scalar], Scalar] = lambda z: z // shared if shared > 1 else z  # noqa: E731  # of keys
    held = stage("held", (z, m, n), lambda z, i, j: reduce(
        "sum", (d,), lambda t: Cast(q[z, i, t], f32) * Cast(k[lot(z), j, t], f32)))  # fmt: skip

    def scored(z: Scalar, i: Scalar, j: Scalar) -> Scalar:
        score = held[z, i, j] * 0.25
        if mask == "bias":
            return score + bias[i, j]
        nothing = Lit(float("-inf"), f32)
        if mask == "window":
            score = Select(Lt(i, j + WINDOW), score, nothing)
        return score if mask == "none" else Select(Le(j, i), score, nothing)

    s = stage("s", (z, m, n), scored)
    top = stage("top", (z, m), lambda z, i: reduce("max", (n,), lambda t: s[z, i, t]))
    e = stage("e", (z, m, n), lambda z, i, j: Intrinsic("exp", (s[z, i, j] - top[z, i],)))
    total = stage("total", (z, m), lambda z, i: reduce("sum", (n,), lambda t: e[z, i, t]))
    w = stage("w", (z, m, n), lambda z, i, j: e[z, i, j] / total[z, i])
    mixed = stage("mixed", (z, m, c), lambda z, i, j: reduce(
        "sum", (n,), lambda t: w[z, i, t] * Cast(v[lot(z), t, j], f32)))  # fmt: skip
    out = stage("out", (z, m, c), lambda z, i, j: Cast(mixed[z, i, j], dtype))
    every: tuple[Each, ...] = (held, s, top, e, total, w, mixed, out)
    return stages((q, k, v, bias) if mask == "bias" else (q, k, v), every)


def drawn(
    sizes: Sizes, seed: int, mask: Mask = "none", dtype: DType = f16, shared: int = 1
) -> list[Array]:
    """Inputs for such stages."""
    z, m, n, d, c = sizes
    random = np.random.default_rng(seed)
    made = [random.standard_normal(shape).astype(np.float32).astype(dtype.numpy)
            for shape in ((z, m, d), (z // shared, n, d), (z // shared, n, c))]  # fmt: skip
    return [*made, random.standard_normal((m, n)).astype(np.float32)] if mask == "bias" else made


def exact(given: list[Array], mask: Mask = "none") -> Array:
    """What the stages mean, in float64 by numpy."""
    q, k, v = (each.astype(np.float64) for each in given[:3])
    k, v = (np.repeat(each, len(q) // len(each), 0) for each in (k, v))
    scores = q @ k.transpose(0, 2, 1) * 0.25
    rows, keys = np.arange(scores.shape[1])[:, None], np.arange(scores.shape[2])[None]
    if mask == "bias":
        scores = scores + given[3]
    elif mask != "none":
        seen = (keys <= rows) & ((rows < keys + WINDOW) | (mask == "causal"))
        scores = np.where(seen, scores, -np.inf)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    found: Array = powers / powers.sum(-1, keepdims=True) @ v
    return found
