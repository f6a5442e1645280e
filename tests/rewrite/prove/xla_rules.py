"""Rules of XLA's algebraic simplifier as TensorRight restates them, in Plica's terms.

Numbers are those of TensorRight's 118 rules in order.  Elements are integers and reals there, so
rules of floats claim no more than an equation of reals (`reassociates`).  Integers wrap around here.

A dynamic slice is a slice here, whose bounds are numbers along each axis (10, 47, 48, 50); an update
of a part is a choice between two paddings and the whole (51 to 54).  Stated for less than there: 41
for matrices, 106 and 108 for pads without interior, 115 for steps of 1.  A uniform tensor that a pad
repeats is filled with an attribute (26, 27, 52), since a pad's number is one.
"""

from __future__ import annotations

from math import inf
from typing import Any, Final

from plica.ir.contract import reassociates
from plica.rewrite.make import tabled
from plica.rewrite.match import PatternMatch
from plica.rewrite.packs.axes import (
    AxesOfOne,
    composed,
    exclusive,
    flipped,
    merged,
    remaining,
    through,
)
from plica.rewrite.packs.cut import IsWhole
from plica.rewrite.packs.logic import always, false, never, true
from plica.rewrite.packs.per_axis import (
    AlongEachAxis,
    along,
    before,
    behind,
    beside,
    counts,
    differences,
    extent_along,
    extents,
    extents_beside,
    flipped_along,
    greatest,
    in_bounds,
    integers,
    sums,
    where_zero,
    widths,
)
from plica.rewrite.packs.rearrange import is_zero
from plica.rewrite.packs.shape import is_identity, is_order
from plica.rewrite.packs.word import (
    INTEGERS,
    OneShape,
    b,
    d,
    f,
    m,
    n,
    op,
    refilled,
    reshaped,
    spread,
    v,
    x,
    y,
    z,
)
from plica.rewrite.pattern import hole, holes
from plica.rewrite.rule import Rule

a, axis, i, j, s, t, u = holes("a axis i j s t u")
p: Any = hole("p", when=is_order)
q: Any = hole("q", when=is_order)
g: Any = hole("g", dtypes=f.constraint.dtypes)
v1, v2 = (hole(name, rank=0) for name in ("v1", "v2"))

maximum, minimum, where, absolute, exp = map(op, ["maximum", "minimum", "where", "absolute", "exp"])
less, less_equal, equal, not_equal = map(op, ["less", "less_equal", "equal", "not_equal"])
both, any_of, negated = map(op, ["logical_and", "logical_or", "logical_not"])
broadcast_to, transpose, flip, slice_ = map(op, ["broadcast_to", "transpose", "flip", "slice"])
pad = op("pad")
concat, sum_, full_like, zeros_like, negative = map(
    op, ["concat", "sum", "full_like", "zeros_like", "negative"]
)


i_, j_, k_, r_, s_, t_, u_ = holes("i j k r s t w")  # numbers along each axis
e: Any = hole("e")
full = op("full")


matmul = op("matmul")
first, second = (hole(name, rank=2) for name in ("first", "second"))
m0, c1, c2 = (hole(name, rank=0, constant=True, dtypes=INTEGERS) for name in ("m0", "c1", "c2"))


def same_side(match: PatternMatch) -> bool:
    """The values, as unbounded integers, are on the same side of 0."""
    start, step = (int(match[name].numpy()[()]) for name in ("c1", "c2"))
    return (start >= 0) == (start + step >= 0)


def not_negative(match: PatternMatch) -> bool:
    return int(match["m0"].numpy()[()]) >= 0


def sliced(of: Any, starts: Any, stops: Any, steps: Any = None) -> Any:
    """A slice along all axes."""
    return slice_(of, starts, stops, steps, None)


def joined(*parts: Any) -> Any:
    return concat(parts, axis=axis)


def padded(of: Any, pads: Any) -> Any:
    """The sizes of a padded tensor."""
    return sums(sums(before(pads), extents(of)), behind(pads))


def updated(of: Any, part: Any, pads: Any) -> Any:
    """A tensor with a window of it replaced, around which there is that much."""
    inside = pad(full_like(part, **always), pads, "constant", False)
    return where(inside, pad(part, pads, "constant", 0), of)


def window(of: Any, like: Any, pads: Any) -> Any:
    """The part of a tensor that an update replaces."""
    return sliced(of, before(pads), sums(before(pads), extents(like)))


def fits_in(of: Any, part: Any, pads: Any) -> Any:
    return (extents(of), "==", padded(part, pads))


def cut_of(sizes: Any, starts: Any, stops: Any) -> Any:
    return ((0, "<=", starts), (starts, "<=", stops), (stops, "<=", sizes))


def stretched(of: Any, one: Any, other: Any) -> Any:
    """A number along the axes of size 1, and another along the others."""
    return where_zero(differences(extents(of), 1), one, other)


def along_axes(of: Any, *relations: Any, least_rank: int = 0) -> AlongEachAxis:
    return AlongEachAxis(of.name, relations, least_rank)


def of_reals(number: int, left: Any, right: Any, **more: Any) -> tuple[int, Rule]:
    return number, tabled(f"xla-{number}", left, right, float=reassociates, **more)


# fmt: off
# ruff: noqa: E501  # a rule is one line
XLA: Final[dict[int, Rule]] = dict((
    of_reals(1,   (x + v1) + v2,                            x + (v1 + v2)),
    of_reals(2,   x + 0,                                    x),
    of_reals(3,   0 + x,                                    x),
    of_reals(4,   v + x,                                    x + v),
    of_reals(5,   broadcast_to(x, t) + broadcast_to(y, t),  broadcast_to(x + y, t), when=OneShape("x", "y")),
    of_reals(6,   broadcast_to(x, t) * broadcast_to(y, t),  broadcast_to(x * y, t), when=OneShape("x", "y")),
    of_reals(7,   *refilled(transpose(broadcast_to(v, t), p))),
    of_reals(8,   flip(broadcast_to(v, t), a),              broadcast_to(v, t)),
    of_reals(9,   *refilled(slice_(broadcast_to(v, t), i, j, s, a))),
    of_reals(10,  *refilled(slice_(broadcast_to(v, t), i, j, None, a))),
    of_reals(11,  broadcast_to(op("iota")(t_, axis, e), k_), op("iota")(k_, axis, e), when=AlongEachAxis("t", ((0, "<=", t_), (0, "<=", k_), (along(axis, t_), "==", along(axis, k_))))),
    of_reals(12,  broadcast_to(broadcast_to(x, t), u),      broadcast_to(x, u)),
    of_reals(13,  minimum(maximum(minimum(maximum(x, y), z), y), z), minimum(maximum(x, y), z)),
    of_reals(14,  where(less(y, z), maximum(y, minimum(x, z)), x), where(less(y, z), minimum(maximum(x, y), z), x)),
    of_reals(15,  minimum(z, maximum(x, y)),                minimum(maximum(x, y), z)),
    of_reals(16,  less(x, x),                               full_like(x, **never)),
    of_reals(17,  op("greater")(x, x),                      full_like(x, **never)),
    of_reals(18,  not_equal(x, x),                          full_like(x, **never)),
    of_reals(19,  less_equal(x, x),                         full_like(x, **always)),
    of_reals(20,  op("greater_equal")(x, x),                full_like(x, **always)),
    of_reals(21,  equal(x, x),                              full_like(x, **always)),
    of_reals(22,  concat((x, y), axis=axis),                concat((concat((x,), axis=axis), y), axis=axis)),
    of_reals(23,  concat((x, concat((y, z), axis=axis)), axis=axis), concat((concat((x, y), axis=axis), z), axis=axis)),
    of_reals(24,  concat((x, y, z), axis=axis),             concat((x, concat((y, z), axis=axis)), axis=axis)),
    of_reals(25, joined(sliced(x, i_, j_, s_), sliced(x, k_, r_, s_)), sliced(x, i_, sums(beside(axis, j_), along(axis, r_)), s_),
             when=along_axes(x, *in_bounds(x, i_, j_), *in_bounds(x, k_, r_), (1, "<=", s_), (along(axis, s_), "<=", 1), (along(axis, j_), "==", along(axis, k_)),
                             (beside(axis, i_), "==", beside(axis, k_)), (beside(axis, j_), "==", beside(axis, r_)))),
    of_reals(26, joined(full(t_, u, e), y),                 pad(y, widths(along(axis, t_), differences(t_, t_)), "constant", u), when=along_axes(y, (0, "<=", t_))),
    of_reals(27, joined(y, full(t_, u, e)),                 pad(y, widths(differences(t_, t_), along(axis, t_)), "constant", u), when=along_axes(y, (0, "<=", t_))),
    of_reals(28,  concat((x, concat((y, z), axis=axis)), axis=axis), concat((x, y, z), axis=axis)),
    of_reals(32,  f / 1,                                    f),
    of_reals(33,  f / v,                                    f * (1 / v)),
    of_reals(34,  (f / y) / (g / z),                        (f * z) / (y * g)),
    of_reals(35,  f / (y / z),                              (f * z) / y),
    of_reals(41,  matmul(first, second),                    transpose(matmul(transpose(second, (1, 0)), transpose(first, (1, 0))), (1, 0))),
    of_reals(36,  op("fmod")(op("fmod")(n, m), m),          op("fmod")(n, m)),
    of_reals(38,  op("fmod")(op("iota_like")(n, axis, e) + m0, m0), op("fmod")(op("iota_like")(n, axis, e), m0), when=not_negative),
    of_reals(39,  op("fmod")(c1 + c2, c2),                  op("fmod")(c1, c2), when=same_side),
    of_reals(47, sliced(x, i_, j_),                         x, when=along_axes(x, (i_, "==", 0), (j_, "==", extents(x)))),
    of_reals(48, sliced(broadcast_to(x, t_), i_, j_),       broadcast_to(sliced(x, stretched(x, 0, i_), stretched(x, 1, j_)), differences(j_, i_)), when=along_axes(x, *cut_of(t_, i_, j_))),
    of_reals(50, sliced(sliced(x, i_, j_), k_, r_),         sliced(x, sums(i_, k_), sums(i_, r_)), when=along_axes(x, *in_bounds(x, i_, j_), *cut_of(differences(j_, i_), k_, r_))),
    of_reals(51, x + updated(full_like(x, 0, None), y, t_), updated(x, y + window(x, y, t_), t_), when=along_axes(y, fits_in(x, y, t_))),
    of_reals(52, updated(full(k_, u, e), y, t_),            pad(y, t_, "constant", u), when=along_axes(y, (k_, "==", padded(y, t_)))),
    of_reals(53, updated(x, y, t_),                         y, when=along_axes(y, (extents(x), "==", extents(y)), fits_in(x, y, t_))),
    of_reals(54, updated(x, updated(sliced(x, i_, j_), y, u_), t_), updated(x, y, widths(sums(before(t_), before(u_)), sums(behind(t_), behind(u_)))),
             when=along_axes(x, (i_, "==", before(t_)), (i_, "<=", j_), (extents(x), "==", sums(j_, behind(t_))), (differences(j_, i_), "==", padded(y, u_)))),
    of_reals(55,  op("iota")(t_, axis, e),                  full(t_, 0, e), when=AlongEachAxis("t", ((0, "<=", t_), (along(axis, t_), "<=", 1)))),
    of_reals(56,  any_of(b, True),                          full_like(b, **always)),
    of_reals(57,  any_of(true, b),                          full_like(b, **always)),
    of_reals(58,  any_of(b, False),                         b),
    of_reals(59,  any_of(false, b),                         b),
    of_reals(60,  both(b, True),                            b),
    of_reals(61,  both(true, b),                            b),
    of_reals(62,  both(b, False),                           full_like(b, **never)),
    of_reals(63,  both(false, b),                           full_like(b, **never)),
    of_reals(64,  both(less(x, v1), less(x, v2)),           less(x, minimum(v1, v2))),
    of_reals(65,  less(y, maximum(x, y)),                   less(y, x)),
    of_reals(66,  less(x, maximum(x, y)),                   less(x, y)),
    (67, tabled("xla-67", maximum(f, -inf),                 f)),
    (68, tabled("xla-68", minimum(f, inf),                  f)),
    of_reals(69,  x * 1,                                    x),
    of_reals(70,  1 * x,                                    x),
    of_reals(71,  x * 0,                                    zeros_like(x)),
    of_reals(72,  0 * x,                                    zeros_like(x)),
    of_reals(73,  (x * v1) * (y * v2),                      (x * y) * (v1 * v2)),
    of_reals(74,  (x * v1) * v2,                            x * (v1 * v2)),
    of_reals(75,  (x * v) * broadcast_to(y, t),             broadcast_to(y * v, t) * x),
    of_reals(76,  x * z + y * z,                            (x + y) * z),
    of_reals(77,  absolute(f) * absolute(f),                f * f),
    of_reals(78,  exp(f) * exp(g),                          exp(f + g)),
    of_reals(79,  negated(negated(b)),                      b),
    of_reals(80,  negative(negative(x)),                    x),
    of_reals(81,  pad(x, hole("width", when=is_zero), t, u), x),
    of_reals(83,  pad(broadcast_to(x, t_), u_, "constant", u), broadcast_to(pad(broadcast_to(x, where_zero(sums(before(u_), behind(u_)), extents(x), t_)), u_, "constant", u), sums(sums(before(u_), t_), behind(u_))),
             when=along_axes(x, (0, "<=", t_), (0, "<=", before(u_)))),
    of_reals(87,  v * sum_(x, a, u),                        sum_(v * x, a, u)),
    of_reals(88,  sum_(transpose(x, p), a, False),          transpose(sum_(x, through(p, a), False), remaining(p, a, False))),
    of_reals(89,  sum_(sum_(x, a, False), s, False),        sum_(x, merged(a, s, x), False)),
    of_reals(91,  *reshaped(sum_(x, a, False)),             when=AxesOfOne("x", "a")),
    of_reals(93,  transpose(transpose(x, p), q),            transpose(x, composed(p, q))),
    of_reals(94,  transpose(x, hole("same", when=is_identity)), x),
    of_reals(95,  flip(x, a),                               x, when=AxesOfOne("x", "a")),
    of_reals(96,  flip(flip(x, a), a),                      x),
    of_reals(97,  flip(flip(x, a), s),                      flipped(x, exclusive(a, s, x))),
    of_reals(98,  flip(x + v, a),                           flip(x, a) + v),
    of_reals(99,  *spread(where(b, x, x),                   x)),
    of_reals(100, *spread(where(true, x, y),                x)),
    of_reals(101, *spread(where(false, x, y),               y)),
    of_reals(102, where(negated(d), x, y),                  where(d, y, x)),
    of_reals(103, slice_(x, i, j, s, a),                    x, when=IsWhole("x", tuple("ijsa"))),
    of_reals(104, *refilled(slice_(broadcast_to(v, t), i, j, s, a))),
    of_reals(105, sliced(broadcast_to(x, t_), i_, j_, s_),  broadcast_to(sliced(x, stretched(x, 0, i_), stretched(x, 1, j_), integers(stretched(x, 1, s_))), counts(i_, j_, s_)),
             when=along_axes(x, *cut_of(t_, i_, j_), (1, "<=", s_))),
    of_reals(111, sliced(broadcast_to(x, t_), i_, j_, s_),  broadcast_to(x, counts(i_, j_, s_)),
             when=along_axes(x, *cut_of(t_, i_, j_), (1, "<=", s_), (stretched(x, 0, i_), "==", 0), (stretched(x, 1, s_), "==", 1), (stretched(x, 1, j_), "==", extents(x)))),
    of_reals(106, sliced(pad(x, t_, "constant", u), i_, j_), x, when=along_axes(x, (i_, "==", before(t_)), (j_, "==", sums(before(t_), extents(x))), (0, "<=", behind(t_)))),
    of_reals(107, sliced(pad(x, t_, "constant", u), i_, j_, s_), full_like(sliced(pad(x, t_, "constant", u), i_, j_, s_), u, None),
             when=along_axes(x, (0, "<=", i_), (i_, "<=", j_), (j_, "<=", padded(x, t_)), (1, "<=", s_),
                             (0, "<=", greatest(differences(before(t_), j_), differences(i_, sums(before(t_), extents(x))))), least_rank=1)),
    of_reals(108, sliced(pad(x, t_, "constant", u), i_, j_), sliced(x, differences(i_, before(t_)), differences(j_, before(t_))),
             when=along_axes(x, (before(t_), "<=", i_), (i_, "<=", j_), (j_, "<=", sums(before(t_), extents(x))), (0, "<=", behind(t_)))),
    of_reals(109, sliced(sliced(x, i_, j_), k_, r_),        sliced(x, sums(i_, k_), sums(i_, r_)), when=along_axes(x, *in_bounds(x, i_, j_), *cut_of(differences(j_, i_), k_, r_))),
    of_reals(110, sliced(joined(x, y), i_, j_, s_),         sliced(y, beside(axis, i_), sums(beside(axis, j_), extent_along(y, axis)), s_),
             when=along_axes(x, (0, "<=", i_), (i_, "<=", j_), (beside(axis, j_), "<=", extents_beside(x, axis)), (along(axis, i_), "==", extent_along(x, axis)),
                             (along(axis, j_), "==", sums(extent_along(x, axis), extent_along(y, axis))), (1, "<=", s_), (along(axis, s_), "<=", 1))),
    of_reals(112, sliced(joined(x, y), i_, j_, s_),         sliced(x, i_, j_, s_), when=along_axes(x, *in_bounds(x, i_, j_), (1, "<=", s_))),
    of_reals(113, sliced(joined(x, y), i_, j_, s_),         sliced(y, differences(i_, extent_along(x, axis)), differences(j_, extent_along(x, axis)), s_),
             when=along_axes(x, (0, "<=", i_), (extent_along(x, axis), "<=", i_), (i_, "<=", j_), (j_, "<=", sums(extents(y), extent_along(x, axis))), (1, "<=", s_))),
    of_reals(114, sliced(joined(x, y, z), i_, j_, s_),      sliced(joined(y, z), differences(i_, extent_along(x, axis)), differences(j_, extent_along(x, axis)), s_),
             when=along_axes(x, (0, "<=", i_), (extent_along(x, axis), "<=", i_), (i_, "<=", j_), (1, "<=", s_),
                             (j_, "<=", sums(extents(x), sums(extent_along(y, axis), extent_along(z, axis)))))),
    of_reals(115, sliced(flip(x, a), i_, j_),               flip(sliced(x, flipped_along(a, differences(extents(x), j_), i_), flipped_along(a, differences(extents(x), i_), j_)), a),
             when=along_axes(x, *in_bounds(x, i_, j_))),
    of_reals(116, x - 0,                                    x),
    of_reals(117, x - v,                                    x + (-v)),
    of_reals(118, x - x,                                    zeros_like(x)),
))
# fmt: on

NOT_EXPRESSED: Final[dict[int, str]] = {
    **dict.fromkeys((29, 30, 31), "convolutions are not read by coordinates"),
    37: "its precondition compares a size with the value of an element",
    **dict.fromkeys((40, 43, 45, 90), "the contraction of an axis becomes a sum of products"),
    42: "the published right side is not compared: it reassociates contractions",
    44: "vacuous as published; a contraction of an empty axis is no term without a size",
    46: "a dynamic slice is a slice here: both sides are one term",
    49: "a transposition changes which axis a number belongs to",
    82: "there is no pad with an interior",
    84: "there is no pad with a negative width",
    **dict.fromkeys((85, 86), "two sums of different domains become one"),
    92: "the precondition speaks of axes behind a transposition",
}
"""The other rules, and what is missing to express them."""
