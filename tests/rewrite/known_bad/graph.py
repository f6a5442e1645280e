"""Known-bad graph rules: each is of a class that has really been shipped by some compiler."""

from __future__ import annotations

from typing import Any

import numpy as np

from plica.ir.graph.expression import Const, const
from plica.ir.op import find
from plica.ir.type.dtype import DTYPES, f32, i8
from plica.rewrite import constants, hole, holes, reassociates
from plica.rewrite.match import PatternMatch

BadRule = tuple[str, Any, Any, dict[str, Any]]  # name, left, right, options of `rule`

x, y, z, a, p, q, s = holes("x y z a p q s")
(c,) = constants("c")
INTEGERS = tuple(each for each in DTYPES if each.is_integer)
SIGNED = tuple(each for each in DTYPES if each.kind == "int")
FLOATS = tuple(each for each in DTYPES if each.is_float)
n: Any = hole("n", dtypes=INTEGERS)
m: Any = hole("m", dtypes=INTEGERS)
f: Any = hole("f", dtypes=FLOATS)
g: Any = hole("g", dtypes=FLOATS)
h: Any = hole("h", dtypes=FLOATS)
b: Any = hole("b", dtypes=[d for d in DTYPES if d.name == "bool"])


def op(name: str) -> Any:
    found = find(name)
    assert found is not None, name
    return found


exp, log, sqrt, floor, ceil, round_ = map(op, ("exp", "log", "sqrt", "floor", "ceil", "round"))
absolute, expm1, log1p, tanh = map(op, ("absolute", "expm1", "log1p", "tanh"))
maximum, minimum, where = op("maximum"), op("minimum"), op("where")
less, greater, equal, greater_equal = map(op, ("less", "greater", "equal", "greater_equal"))
logical_not, cast = op("logical_not"), op("cast")
sum_, max_, mean, argmax, argmin = map(op, ("sum", "max", "mean", "argmax", "argmin"))
transpose, reshape, concat, expand_dims = map(op, ("transpose", "reshape", "concat", "expand_dims"))
flip, matmul = op("flip"), op("matmul")
relu, softmax, sigmoid = map(op, ("nn.relu", "nn.softmax", "nn.sigmoid"))


def wrong_order(m: PatternMatch) -> Any:
    """Composes two permutations the wrong way round."""
    if m.p is None or m.q is None:
        return None
    inner, outer = m.p, m.q
    return transpose(m.x, tuple(outer[i] for i in inner))


def off_by_one(m: PatternMatch) -> Any:
    """Counts the axis from the wrong end."""
    return sum_(m.x, axis=(0,)) if m.a else None


def all_ones(m: PatternMatch) -> bool:
    return isinstance(m.c, Const) and bool(np.all(m.c.numpy() == 1))


def reciprocal(m: PatternMatch) -> Any:
    with np.errstate(all="ignore"):
        return m.f * const((1 / m.c.numpy()).astype(m.c.dtype.numpy), m.c.dtype)


def scaled_outside(m: PatternMatch) -> Any:
    return relu(m.f) * m.c


# fmt: off
# ruff: noqa: E501
GRAPH: tuple[BadRule, ...] = (
    ("bad-add-zero-exact",      f + 0,                                f,                              {}),
    ("bad-multiply-zero",       f * 0,                                f - f,                          {}),
    ("bad-subtract-self",       f - f,                                f * 0,                          {}),
    ("bad-divide-self",         f / f,                                exp(f - f),                     {}),
    ("bad-sum-of-swapped",      (f + g) + h,                          f + (g + h),                    {}),
    ("bad-product-exact",       (f * g) * h,                          f * (g * h),                    {}),
    ("bad-distribute-exact",    f * (g + h),                          f * g + f * h,                  {}),
    ("bad-factor-dropped",      f * g + f * h,                        f * (g * h),                    {"float": reassociates}),
    ("bad-log-exp",             log(exp(f)),                          f,                              {}),
    ("bad-exp-sum-exact",       exp(f + g),                           exp(f) * exp(g),                {}),
    ("bad-sqrt-square",         sqrt(f * f),                          f,                              {"float": reassociates}),
    ("bad-square-sqrt",         sqrt(f) * sqrt(f),                    f,                              {"float": reassociates}),
    ("bad-power-half",          f ** 0.5,                             sqrt(f),                        {}),
    ("bad-expm1",               exp(f) - 1,                           expm1(f),                       {}),
    ("bad-log1p",               log(1 + f),                           log1p(f),                       {}),
    ("bad-sigmoid-mirror",      sigmoid(-f),                          1 - sigmoid(f),                 {}),
    ("bad-divide-reciprocal",   f / c,                                reciprocal,                     {}),
    ("bad-floor-plus-one",      floor(f) + 1,                         ceil(f),                        {}),
    ("bad-round-half",          floor(f + 0.5),                       round_(f),                      {}),
    ("bad-floor-negative",      floor(-f),                            -floor(f),                      {}),
    ("bad-floordiv-negative",   (-n) // m,                            -(n // m),                      {}),
    ("bad-floordiv-negdivisor", n // (-m),                            -(n // m),                      {}),
    ("bad-mod-negative",        (-n) % m,                             -(n % m),                       {}),
    ("bad-div-mul",             (n // m) * m,                         n,                              {}),
    ("bad-double-halve",        (n * 2) // 2,                         n,                              {}),
    ("bad-mod-shift",           (n + m) % m,                          n % m,                          {}),
    ("bad-minimum-where-nan",   where(less(f, g), f, g),              minimum(f, g),                  {}),
    ("bad-maximum-where-nan",   where(greater(f, g), f, g),           maximum(f, g),                  {}),
    ("bad-absorb-nan",          maximum(minimum(f, g), f),            f,                              {}),
    ("bad-not-less-nan",        logical_not(less(f, g)),              greater_equal(f, g),            {}),
    ("bad-equal-self-nan",      equal(f, f),                          equal(f * 0, f * 0),            {}),
    ("bad-where-swapped",       where(logical_not(b), x, y),          where(b, x, y),                 {}),
    ("bad-clip-order",          minimum(maximum(x, 2), 1),            maximum(minimum(x, 1), 2),      {}),
    ("bad-cast-round-trip",     cast(cast(f, dtype=i8), dtype=f32),   f,                              {}),
    ("bad-cast-early",          cast(n + m, dtype=f32),               cast(n, dtype=f32) + cast(m, dtype=f32), {}),
    ("bad-promote",             cast(f * g, dtype=f32),               cast(f, dtype=f32) * cast(g, dtype=f32), {}),
    ("bad-transpose-order",     transpose(transpose(x, p), q),        wrong_order,                    {}),
    ("bad-transpose-drop",      transpose(x, p),                      x,                              {}),
    ("bad-transpose-matmul",    transpose(matmul(f, g), (1, 0)),      matmul(transpose(f, (1, 0)), transpose(g, (1, 0))), {}),
    ("bad-matmul-commute",      matmul(f, g),                         matmul(g, f),                   {"float": reassociates}),
    ("bad-softmax-axis",        softmax(f, axis=-1),                  softmax(f, axis=0),             {"float": reassociates}),
    ("bad-softmax-shift",       softmax(f * 2, axis=-1),              softmax(f, axis=-1),            {"float": reassociates}),
    ("bad-reshape-transpose",   reshape(transpose(x, p), s),          reshape(x, s),                  {}),
    ("bad-concat-swapped",      concat((x, y), axis=0),               concat((y, x), axis=0),         {}),
    ("bad-expand-axis",         expand_dims(x, 0),                    expand_dims(x, -1),             {}),
    ("bad-keepdims-lost",       sum_(x, axis=a, keepdims=True),       sum_(x, axis=a),                {"float": reassociates}),
    ("bad-sum-axis",            sum_(x, axis=a),                      off_by_one,                     {"float": reassociates}),
    ("bad-sum-broadcast",       sum_(f + g, axis=(0,)),               sum_(f, axis=(0,)) + sum_(g, axis=(0,)), {"float": reassociates}),
    ("bad-sum-product",         sum_(f * g, axis=a),                  sum_(f, axis=a) * sum_(g, axis=a), {"float": reassociates}),
    ("bad-max-negative",        max_(-f, axis=(0,)),                  -max_(f, axis=(0,)),            {}),
    ("bad-max-sum",             max_(f + g, axis=(0,)),               max_(f, axis=(0,)) + max_(g, axis=(0,)), {"float": reassociates}),
    ("bad-argmax-negative",     argmax(x, axis=0),                    argmin(-x, axis=0),             {}),
    ("bad-flip-drop",           flip(x, axis=a),                      x,                              {}),
    ("bad-relu-scale",          relu(f * c),                          scaled_outside,                 {"float": reassociates}),
    ("bad-relu-bias",           relu(f) + g,                          relu(f + g),                    {"float": reassociates}),
    ("bad-relu-absolute",       relu(f),                              absolute(f),                    {}),
    ("bad-multiply-ones",       f * c,                                lambda m: m.f,                  {"when": all_ones}),
    ("bad-tanh-linear",         tanh(f + g),                          tanh(f) + tanh(g),              {"float": reassociates}),
)
# fmt: on
