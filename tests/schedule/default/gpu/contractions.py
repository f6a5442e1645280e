"""Contractions of any rank, size, dtype and epilogue, for tests of tiles."""

from __future__ import annotations

from functools import reduce as fold_left
from random import Random
from typing import Any, Final

import numpy as np
from attrs import frozen

from plica.codegen.cuda.fold import KernelCode
from plica.ir.loop.scalar import (
    And,
    Buffer,
    Cast,
    Le,
    Lt,
    Max,
    Scalar,
    Select,
    dtype_of,
    index,
    lit,
)
from plica.ir.loop.stage import Each, stage
from plica.ir.loop.stages import Stages, evaluate_stages, stages
from plica.ir.loop.tensor import buffer, reduce
from plica.ir.type.dim import known
from plica.ir.type.dtype import DType, bf16, f16, f32
from plica.schedule.hoist import Hoisted, constants
from tests.codegen.cuda.emulate import run as emulated

Array = np.ndarray[Any, Any]

DTYPES: Final = (f16, bf16, f32)
ENDS: Final = ("", "cast", "bias", "residual", "wide")
"""Nothing, a cast to what is multiplied, bias and relu, a residual, a bias of f32."""


@frozen(eq=False)
class Case:
    """Stages, which of their inputs are known before, and what they are."""

    of: Stages
    constant: tuple[bool, ...]
    name: str

    def arrays(self) -> list[Array]:
        """Small whole numbers: sums in any order are exact."""
        random = np.random.default_rng(0)
        return [
            random.integers(-2, 3, [known(size) or 0 for size in each.shape]).astype(
                each.dtype.numpy
            )
            for each in self.of.inputs
        ]

    def expected(self) -> Array:
        return np.asarray(evaluate_stages(self.of, self.arrays()))

    def runs(self, apart: Hoisted, code: KernelCode) -> Array:
        """What code for the rest of hoisted stages makes, on the processor."""
        arrays = self.arrays()
        told = {n: arrays[n] for n, known_now in enumerate(self.constant) if known_now}
        before = constants(apart, told)
        given = [arrays[each] if isinstance(each, int) else before[each] for each in apart.reads]
        expected = self.expected()
        found = np.full(expected.size, 7, expected.dtype)
        emulated(code, [*[np.ascontiguousarray(each) for each in given], found])
        return found.reshape(expected.shape)


def wide(of: Scalar) -> Scalar:
    return of if dtype_of(of) is f32 else Cast(of, f32)


def dense(
    lead: tuple[int, ...],
    columns: int,
    terms: int,
    dtype: DType = f16,
    *,
    ends: str = "",
    turned: bool = False,
    swapped: bool = False,
    constant: bool = False,
) -> Case:
    """x[…, m, k] by w[k, n], or by w[n, k] where that is `turned`; sides `swapped`."""
    x = buffer("x", (*lead, terms), dtype)
    w = buffer("w", (columns, terms) if turned else (terms, columns), dtype)

    def element(*at: Any) -> Scalar:
        def term(k: Any) -> Scalar:
            one, two = wide(x[(*at[:-1], k)]), wide(w[at[-1], k] if turned else w[k, at[-1]])
            return two * one if swapped else one * two

        return reduce("sum", (terms,), term)

    return ended((x, w), (*lead, columns), element, ends, len(lead), constant, "dense")


def batch(
    lots: tuple[int, ...], sizes: tuple[int, int, int], dtype: DType = f16, *, ends: str = "",
    heads: bool = False,
) -> Case:  # fmt: skip
    """Batches x[b…, m, k] by w[b…, k, n]; with `heads` x[b, m, h, k] by w[b, n, h, k]."""
    m, n, k = sizes
    if heads:
        x, w = (
            buffer(name, (lots[0], size, lots[1], k), dtype) for name, size in (("x", m), ("w", n))
        )

        def element(*at: Any) -> Scalar:
            p, q, i, j = at
            return reduce("sum", (k,), lambda t: wide(x[p, i, q, t]) * wide(w[p, j, q, t]))

    else:
        x, w = buffer("x", (*lots, m, k), dtype), buffer("w", (*lots, k, n), dtype)

        def element(*at: Any) -> Scalar:
            *b, i, j = at
            return reduce("sum", (k,), lambda t: wide(x[(*b, i, t)]) * wide(w[(*b, t, j)]))

    return ended((x, w), (*lots, m, n), element, ends, len(lots) + 1, False, "batch")


def image(
    shape: tuple[int, int, int], outputs: int, dtype: DType = f16, *, stride: int = 1,
    ends: str = "", constant: bool = False,
) -> Case:  # fmt: skip
    """A convolution of windows of 3 x 3 over an image of a batch, with a border of zeros."""
    many, channels, size = shape
    x = buffer("x", (many, channels, size, size), dtype)
    w = buffer("w", (outputs, channels, 3, 3), dtype)
    there = (size - 1) // stride + 1

    def element(*at: Any) -> Scalar:
        p, o, i, j = at

        def term(c: Any, a: Any, b: Any) -> Scalar:
            u, v = i * stride + a - 1, j * stride + b - 1
            inside = [test for e in (u, v) for test in (Le(index(0), e), Lt(e, index(size)))]
            guard = And(And(inside[0], inside[1]), And(inside[2], inside[3]))
            return wide(Select(guard, x[p, c, u, v], lit(0, dtype))) * wide(w[o, c, a, b])

        return reduce("sum", (channels, 3, 3), term)

    return ended((x, w), (many, outputs, there, there), element, ends, 1, constant, "image")


def pixels(  # noqa: PLR0917  # what a convolution is made of
    sizes: tuple[int, ...], channels: int, outputs: int, window: int = 3, border: int = 1,
    dtype: DType = f16, *, ends: str = "", constant: bool = True,
) -> Case:  # fmt: skip
    """A convolution over images (or lines) of a batch whose channels are neighbours."""
    many, *lengths = sizes
    x = buffer("x", (many, *lengths, channels), dtype)
    w = buffer("w", (outputs, *[window] * len(lengths), channels), dtype)
    there = [length + 2 * border - window + 1 for length in lengths]

    def element(*at: Any) -> Scalar:
        p, *pixel, o = at

        def term(*terms: Any) -> Scalar:
            *moved, c = terms
            places = [i + a - border for i, a in zip(pixel, moved, strict=True)]
            inside: list[Scalar] = [test for e, length in zip(places, lengths, strict=True)
                      for test in (Le(index(0), e), Lt(e, index(length)))]  # fmt: skip
            value: Scalar = x[(p, *places, c)]
            if border:
                value = Select(fold_left(And, inside), value, lit(0, dtype))
            return wide(value) * wide(w[(o, *moved, c)])

        return reduce("sum", (*[window] * len(lengths), channels), term)

    shape = (many, *there, outputs)
    return ended((x, w), shape, element, ends, len(shape) - 1, constant, "pixels")


def ended(  # noqa: PLR0917  # what a contraction is made of
    given: tuple[Buffer, Buffer],
    shape: tuple[int, ...],
    element: Any,
    ends: str,
    axis: int,
    constant: bool,
    name: str,
) -> Case:
    """A contraction with one of several epilogues, the bias of which is along an axis."""
    dtype = given[0].dtype
    held = stage("held", shape, element)
    more: tuple[Buffer, ...] = ()
    made: list[Each] = [held]
    if ends:
        bias = buffer("b", (shape[axis],), f32 if ends == "wide" else dtype)
        other = buffer("r", shape, dtype)
        more = (bias,) if ends in ("bias", "wide") else (other,) if ends == "residual" else ()

        def last(*at: Any) -> Scalar:
            value: Scalar = held[at]
            if ends == "wide":
                return Max(value + bias[at[axis]], lit(-3, f32))
            value = value if dtype is f32 else Cast(value, dtype)
            if ends == "bias":
                return Max(value + bias[at[axis]], lit(0, dtype))
            return value + other[at] if ends == "residual" else value

        made.append(stage("out", shape, last))
    inputs = (*given, *more)
    told = tuple([constant and each is given[1] for each in inputs])
    sizes = " x ".join(str([known(size) for size in each.shape]) for each in given)
    return Case(stages(inputs, made), told, f"{name} {dtype.name} {sizes} {ends}")


def drawn(seed: int) -> Case:
    """The same number, the same case."""
    random = Random(f"contraction/{seed}")
    dtype, ends = random.choice(DTYPES), random.choice(ENDS)
    m, n, k = random.choice((9, 17, 40, 72)), random.choice((9, 24, 64, 90)), random.choice(
        (8, 20, 32, 72, 90)
    )  # fmt: skip
    constant, turned = random.random() < 0.4, random.random() < 0.5
    match random.choice(("dense", "dense", "batch", "heads", "image")):
        case "dense":
            lead = random.choice(((m,), (2, m), (3, 1, m)))
            return dense(lead, n, k, dtype, ends=ends, turned=turned,
                         swapped=random.random() < 0.5, constant=constant)  # fmt: skip
        case "batch":
            return batch(random.choice(((2,), (2, 3))), (m, n, k), dtype, ends=ends)
        case "heads":
            return batch((2, 3), (m, n, k), dtype, ends=ends, heads=True)
        case _:
            shape = (random.choice((1, 2)), random.choice((4, 9)), random.choice((5, 8)))
            return image(shape, random.choice((10, 32)), dtype, stride=random.choice((1, 2)),
                         ends=ends, constant=constant)  # fmt: skip


__all__ = ["Array", "Case", "batch", "dense", "drawn", "image"]
