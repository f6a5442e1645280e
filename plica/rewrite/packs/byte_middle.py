"""Byte middles: byte products centred on the middle of the weight's range, as instructions require;
other zero points are moved out of the sum.

A weight of bytes has the middle c of its dtype (128 of u8, 0 of i8), or of the 256 numbers that a
constant spans, or that each column of it does.  Sums of integers are exact modulo 2**32, so any
zero points can be changed: known or given, one, or one for each row and each column.

    before:  matmul(cast(q, i32) - z, cast(w, i32) - p)
    after:   matmul(cast(q, i32) - z, cast(w, i32) - c) + sum(cast(q, i32) - z, axis=-1) * (c - p)

    before:  matmul(cast(q, i32) - z, B)                              z one for each row
    after:   matmul(cast(q, i32), B) - z * sum(B, axis=-2)

    windows: … + conv(sum(cast(q, i32) - z, axis=1), ones) * (c - p)
    groups:  the sum of a window's data is one more result of each group, where w is constant

Measure: zero points that are neither the middle of a weight nor one number for all data.

>>> [rule.name for rule in byte_middles_for()][:2]
['byte-product-middle', 'byte-product-middle-at-zero']
"""

from __future__ import annotations

from functools import lru_cache, partial
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np

from plica.core.deferred import look_at
from plica.ir.graph.expression import Expr, const
from plica.ir.graph.provenance import leaves_of
from plica.ir.op.convolution import conv
from plica.ir.op.elementwise import add, cast, multiply, subtract
from plica.ir.op.linear import matmul
from plica.ir.type import i8, i32, known, u8
from plica.rewrite.closed import are_bytes, closed, is_closed, unseen, value_of
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.pack import Pack, pack
from plica.rewrite.packs.word import op, shape, sizes as known_sizes, tensor
from plica.rewrite.pattern import hole, holes

Array = np.ndarray[Any, Any]
Sides: TypeAlias = tuple[str, Any, Any]  # Any: patterns are built by what they are patterns of

MIN_TERMS: Final = 4  # shorter sums do not fill an instruction with four products
BYTE_SPAN: Final = int(u8.bounds[1])  # how far numbers of a byte are from each other at most
NO_SHIFT: Final = np.zeros((), np.int32)  # the numbers are bytes already

q: Any = hole("q", dtypes=(i8, u8))
n: Any = hole("z", dtypes=i32)
g: Any = hole("g", dtypes=(i8, u8), rank=(2, 3, 4))
h: Any = hole("g", dtypes=(i8, u8), rank=(3, 4, 5))
p: Any = hole("p", dtypes=i32)
u = closed("u", dtypes=i32, rank=(2, 3, 4))
o = closed("u", dtypes=i32, rank=(3, 4, 5))
window = holes("strides padding dilation")
(groups,) = holes("groups")


# --- constants ------------------------------------------------------------------------------------


def of_signed_bytes(m: PatternMatch) -> Expr | None:
    """An integer product as a product of signed bytes; None if it is one already, or no operand is
    a byte."""
    weight = unseen(m.u)
    if weight is None or weight.shape[-2] < MIN_TERMS or are_bytes(m.u):
        return None
    look_at(leaves_of(m.u))
    return by_bytes(_data(m), weight) if spans_bytes(weight, (-2,)) else None


def over_signed_bytes(m: PatternMatch) -> Expr | None:
    """The same of a convolution; one result in a group becomes two, which lanes go along."""
    weight = unseen(m.u)
    if weight is None or (m.groups > 1 and known_sizes(shape(m.q)[2:]) is None):
        return None  # groups of images of open sizes are products first (`byte_window`)
    alone, fits = _is_alone(weight.shape, m.groups), are_bytes(m.u)
    if not (alone and fits) and (prod(weight.shape[1:]) < MIN_TERMS or fits):
        return None
    look_at(leaves_of(m.u))
    if alone and fits:
        return _with_sums(m, weight.astype(np.int32), NO_SHIFT)
    terms = tuple(range(1, weight.ndim))
    if not spans_bytes(weight, terms) or not _has_sums(m, weight.shape[1]):
        return None
    shift = _shift(weight, terms)
    near = weight - shift
    if m.groups > 1 or len(weight) == 1:
        return _with_sums(m, near, shift)
    by = shift.reshape(shift.shape[: weight.ndim - 1])  # results have an axis less than weights
    return _window(m, const(near, i32), weight.shape, const(by, i32))


def by_bytes(data: Expr, weight: Array) -> Expr:
    """The product by integers whose columns span a byte, which are moved where they are none."""
    if fits_bytes(weight):
        return matmul(data, const(weight.astype(np.int32), i32))
    shift = _shift(weight, (-2,))
    return _product(data, const(weight - shift, i32), const(shift, i32))


def spans_bytes(weight: Array, terms: tuple[int, ...]) -> bool:
    """Whether the numbers of each sum, along some axes, span at most a byte.

    >>> spans_bytes(np.array([[0, 300], [255, 400]]), (-2,))
    True
    >>> spans_bytes(np.array([[0, 300], [256, 400]]), (-2,))
    False
    """
    return bool(weight.size) and int(_span(weight, terms).max()) <= BYTE_SPAN


def _is_alone(shape: tuple[int, ...], groups: int) -> bool:
    """Whether a weight has one result in each group, of several channels."""
    several = shape[1] > 1 and prod(shape[1:]) >= MIN_TERMS
    return several and shape[0] == groups and prod(shape) > 0


def fits_bytes(weight: Array) -> bool:
    """Whether the numbers are signed bytes."""
    low, high = i8.bounds
    return not weight.size or bool(low <= int(weight.min()) and int(weight.max()) <= high)


def _shift(weight: Array, terms: tuple[int, ...]) -> Array:
    """The offset that makes numbers signed bytes: one for all if possible, or one per sum."""
    one = int(_span(weight, None)) <= BYTE_SPAN
    least = weight.min() if one else weight.min(axis=terms, keepdims=True)
    far = np.asarray(least, np.int64) - int(i8.bounds[0])
    return far.astype(np.int32)  # modulo 2**32, as all sums are


def _span(weight: Array, terms: tuple[int, ...] | None) -> Array:
    """How far the greatest numbers along axes are from the least: i32 might not hold it."""
    return np.asarray(np.ptp(weight.astype(np.int64), axis=terms))


# --- bytes that are given -------------------------------------------------------------------------


def about_middles(m: PatternMatch, fewest: int) -> Expr | None:
    """A product of two byte operands, the second centred on its middle, the first shifted by one
    number; None if they are already, if a zero point varies along the sum, or with too few rows."""
    depth, several = known(shape(m.g)[-2]), len(shape(m.g)) > 2
    rows = known_sizes(shape(m.q)[-2:-1] if several else shape(m.q)[:-1])
    if is_closed(m.g) or (depth is not None and depth < MIN_TERMS):
        return None
    if rows is not None and prod(rows) < fewest:
        return None
    zero, point = (m[at] if at in m.filling else const(0, i32) for at in "zp")
    if not _is_along(zero, -1) or not _is_along(point, -2):
        return None
    weight, by = _about(m.g, point, tensor(m.g).dtype.beyond(i8))
    data, more = subtract(cast(m.q, i32), zero) if "z" in m.filling else cast(m.q, i32), None
    if not _is_one(zero):
        data, more = _about(m.q, zero, 0)
    if by is None and more is None:
        return None
    product = _product(data, weight, by)
    if more is None:
        return product
    columns = op("sum")(subtract(cast(m.g, i32), point), axis=(-2,), keepdims=True)
    return add(product, multiply(more, columns))


def over_middles(m: PatternMatch) -> Expr | None:
    """A convolution by constant bytes, centred on their middle; None if they are already, or if
    there is neither one zero point nor one per output."""
    sizes = _sizes(m.g)
    if sizes is None or is_closed(m.g) or prod(sizes[1:]) < MIN_TERMS:
        return None
    if not _has_sums(m, sizes[1]):
        return None
    point = m.p if "p" in m.filling else const(0, i32)
    near, by = _about(m.g, point, tensor(m.g).dtype.beyond(i8))
    of_point = _sizes(point)
    if by is None or of_point is None:
        return None
    if _is_one(point):
        by = op("reshape")(by, shape=())
    elif of_point == (sizes[0], *(1,) * (len(sizes) - 1)):
        by = op("reshape")(by, shape=of_point[:-1])
    else:
        return None
    return _window(m, near, sizes, by)


def _about(given: Expr, point: Expr, middle: int) -> tuple[Expr, Expr | None]:
    """Bytes less a number, and by how much more that is than less a zero point; None for
    nothing."""
    known, wide = value_of(point), cast(given, i32)
    near = subtract(wide, const(middle, i32)) if middle else wide
    if known is not None and known.size and bool((known == middle).all()):
        return near, None
    return near, subtract(const(middle, i32), point)


def _sizes(of: Expr) -> tuple[int, ...] | None:
    return known_sizes(shape(of))


def _is_one(point: Expr) -> bool:
    sizes = _sizes(point)
    return sizes is not None and prod(sizes) == 1


def _is_along(point: Expr, axis: int) -> bool:
    """Whether zero points are the same for all places of an axis."""
    sizes = _sizes(point)
    return sizes is not None and (len(sizes) < -axis or sizes[axis] == 1)


# --- both -----------------------------------------------------------------------------------------


def _data(m: PatternMatch) -> Expr:
    return subtract(cast(m.q, i32), m.z) if "z" in m.filling else cast(m.q, i32)


def _has_sums(m: PatternMatch, each: int) -> bool:
    """Whether sums of the data of a window, of a given number of channels in each group, are less
    than its results."""
    return m.groups == 1 or each > 1


def _product(data: Expr, near: Expr, by: Expr | None) -> Expr:
    """The product by a weight with the given offset subtracted."""
    if by is None:
        return matmul(data, near)
    rows: Expr = op("sum")(data, axis=(-1,), keepdims=True)
    return add(matmul(data, near), multiply(rows, by))


def _window(m: PatternMatch, near: Expr, sizes: tuple[int, ...], by: Expr) -> Expr:
    """The same of a convolution: sums of data are those of channels, then of windows, or products
    by ones."""
    data, groups, taps = _data(m), m.groups, sizes[2:]
    along = {name: m[name] for name in ("strides", "padding", "dilation")}
    if groups == 1:
        channels = op("sum")(data, axis=(1,), keepdims=True)
        sums = conv(channels, const(np.ones((1, 1, *taps), np.int32), i32), **along)
    else:  # products by ones, two for each group, so that an instruction adds them, too
        ones = const(np.ones((2 * groups, sizes[1], *taps), np.int32), i32)
        both = conv(data, ones, **along, groups=groups)
        places = np.arange(sizes[0]) // (sizes[0] // groups) * 2
        sums = op("take")(both, const(places.astype(np.int64)), axis=1)
    return add(conv(data, near, **along, groups=groups), multiply(sums, by))


def _with_sums(m: PatternMatch, near: Array, shift: Array) -> Expr:
    """The same in groups: the sum of a window's data is one more result of each."""
    groups, outputs = m.groups, len(near) // m.groups
    ones = np.ones((groups, 1, *near.shape[1:]), np.int32)
    parts = near.reshape(groups, outputs, *near.shape[1:])
    weight = np.concatenate([parts, ones], axis=1).reshape(-1, *near.shape[1:])
    along = {name: m[name] for name in ("strides", "padding", "dilation")}
    both = conv(_data(m), const(weight, i32), **along, groups=groups)
    batch, _, *places = shape(both)
    apart = op("reshape")(both, shape=(batch, groups, outputs + 1, *places))
    results, sums = (
        op("slice")(apart, starts=(start,), stops=(stop,), axes=(2,))
        for start, stop in ((0, outputs), (outputs, outputs + 1))
    )
    by = shift.reshape((groups, outputs, *[1] * len(places)) if shift.ndim else ())
    moved = add(results, multiply(sums, const(by, i32))) if shift.any() else results
    expr: Expr = op("reshape")(moved, shape=(batch, len(near), *places))
    return expr


def with_and_without(data: tuple[Any, Any], weight: tuple[Any, Any]) -> tuple[Sides, ...]:
    """Both sides, each with a zero point or without, and how names of rules for them end."""
    (moved, at_zero), (by, by_zero) = data, weight
    return (
        ("", moved, by), ("-at-zero", at_zero, by),
        ("-of-bytes", moved, by_zero), ("-all-zero", at_zero, by_zero),
    )  # fmt: skip


PRODUCTS, OVER = [
    with_and_without((cast(q, i32) - n, cast(q, i32)), (cast(side, i32) - p, cast(side, i32)))
    for side in (g, h)
]

# fmt: off
MOVED_BYTES: Final = (
    rule("byte-product-moved",      matmul(cast(q, i32) - n, u),                of_signed_bytes),
    rule("byte-product-moved-zero", matmul(cast(q, i32), u),                    of_signed_bytes),
    rule("byte-window-moved",       conv(cast(q, i32) - n, o, *window, groups), over_signed_bytes),
    rule("byte-window-moved-zero",  conv(cast(q, i32), o, *window, groups),     over_signed_bytes),
)
# fmt: on
"""Constants of another byte than the signed one."""


@lru_cache(maxsize=4)
def byte_middles_for(fewest: int = 1) -> Pack:
    """The rules where a given number of rows are worth to pack a weight that is given."""
    made = partial(about_middles, fewest=fewest)
    products = [(f"byte-product-middle{end}", matmul(*sides)) for end, *sides in PRODUCTS]
    over = [(f"byte-window-middle{end}", conv(*sides, *window, groups)) for end, *sides in OVER]
    return pack(
        "byte-middles",
        *[rule(name, left, made) for name, left in products],
        *[rule(name, left, over_middles) for name, left in over],
        version="1",
        doc="Products of bytes that are given are about the middle of what a byte can be.",
    )
