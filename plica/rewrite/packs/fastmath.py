"""Fast math: exp, tanh, erf and functions of them as short f32 polynomials.

Compositions of additions, multiplications and at most one division vectorise where a call of a
library does not; they pay once they are fused.  They are off unless asked for by name.

    function          form                                        largest error measured
    exp               (polynomial of x / 256) to the power 256    2.5e-5 of the value
    tanh              x P(x²) / Q(x²), ±1 beyond 9.1              4e-7 of the value
    erf               x P(x²) / Q(x²), ±1 beyond 3.95             3.5e-6 of the value
    sigmoid, silu     (1 + tanh(x / 2)) / 2                       2e-7 of the greatest
    gelu              by erf, or by tanh where it was             2e-6, 5e-7 of |x|
    softmax           its definition with this exp                5e-5 of the value

The coefficients are fits of minimal relative error on the stated ranges. Exponentials below
exp(-87) are clamped: smaller results are subnormal.

Measure: each rule removes a function for good.

>>> [rule.name for rule in FASTMATH][:3]
['fast-exp', 'fast-tanh', 'fast-erf']
"""

from __future__ import annotations

import math
from typing import Any, Final

from plica.ir.contract import approx
from plica.ir.graph import Apply, Expr, Operator
from plica.ir.op.activation import gelu, sigmoid, silu
from plica.ir.op.comparison import greater
from plica.ir.op.elementwise import absolute, erf, exp, maximum, sign, square, tanh
from plica.ir.op.index import where
from plica.ir.op.normalize import log_softmax, softmax
from plica.ir.type import f32
from plica.rewrite.graph.walk import map_expressions
from plica.rewrite.instantiate import plan
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.pack import Pack, pack
from plica.rewrite.pattern import hole, holes
from plica.rewrite.rule import Computed

LOWEST: Final = -87.0
HALVINGS: Final = 8
EXP: Final = tuple(1 / math.factorial(n) for n in range(8))
# fmt: off
TANH: Final = (
    (0.999999977, 0.133744191, 0.00348774337, 2.04800517e-05, 1.31759458e-08),
    (1.0,         0.467077329, 0.0258471335,  0.000327280833, 7.70339987e-07),
    9.1,
)
ERF: Final = (
    (1.12838193,  0.125042334, 0.0403705472,  -0.000393387477, -2.44220988e-05),
    (1.0,         0.444207493, 0.0836283993,  0.00723744753,   -0.000276981725),
    3.95,
)
# fmt: on

x: Any = hole("x", dtypes=f32)
(axis,) = holes("axis")


def polynomial(coefficients: tuple[float, ...], of: Any) -> Any:
    """The polynomial with these coefficients, the constant first, by Horner's rule."""
    *rest, total = coefficients
    value: Any = total
    for each in reversed(rest):
        value = of * value + each
    return value


def fast_exp(of: Any) -> Any:
    """exp by squaring: the polynomial serves a small range, and each squaring doubles it."""
    value = polynomial(EXP, maximum(of, LOWEST) * 0.5**HALVINGS)
    for _ in range(HALVINGS):
        value = value * value
    return value


def odd(fit: tuple[tuple[float, ...], tuple[float, ...], float], of: Any) -> Any:
    """An odd function that ends at ±1, as a fraction inside a range and as the sign outside."""
    above, below, end = fit
    inside = of * polynomial(above, square(of)) / polynomial(below, square(of))
    return where(greater(absolute(of), end), sign(of), inside)


def fast_sigmoid(of: Any) -> Any:
    """The logistic function by tanh."""
    return odd(TANH, of * 0.5) * 0.5 + 0.5


def fast_gelu(of: Any, approximate: str) -> Any:
    """The Gaussian error linear unit, by erf or by the tanh it was said to be."""
    if approximate == "tanh":
        inner = (of + of * of * of * 0.044715) * math.sqrt(2 / math.pi)
        return of * 0.5 * (odd(TANH, inner) + 1.0)
    return of * 0.5 * (odd(ERF, of * math.sqrt(0.5)) + 1.0)


_exp_of: Final = plan(fast_exp(x))


def with_fast_exp(record: Operator) -> Computed:
    """An operator's own definition, in which exp is the fast one."""
    build = record.decompose
    assert build is not None

    def right(m: PatternMatch) -> Expr:
        return map_expressions(_faster, build({"axis": m.axis}, m.x))

    return right


def _faster(node: Expr) -> Expr:
    if isinstance(node, Apply) and node.op == exp.name:
        expr: Expr = _exp_of({"x": node.args[0]})
        return expr
    return node


# fmt: off
FASTMATH: Final[Pack] = pack(
    "fastmath",
    rule("fast-exp",         exp(x),               fast_exp(x),                float=approx(5e-5)),
    rule("fast-tanh",        tanh(x),              odd(TANH, x),               float=approx(1e-6)),
    rule("fast-erf",         erf(x),               odd(ERF, x),                float=approx(5e-6)),
    rule("fast-sigmoid",     sigmoid(x),           fast_sigmoid(x),            float=approx(1e-6)),
    rule("fast-silu",        silu(x),              x * fast_sigmoid(x),        float=approx(1e-6)),
    rule("fast-gelu",        gelu(x, "none"),      fast_gelu(x, "none"),       float=approx(5e-6)),
    rule("fast-gelu-tanh",   gelu(x, "tanh"),      fast_gelu(x, "tanh"),       float=approx(1e-6)),
    rule("fast-softmax",     softmax(x, axis),     with_fast_exp(softmax),     float=approx(1e-4)),
    rule("fast-log-softmax", log_softmax(x, axis), with_fast_exp(log_softmax), float=approx(1e-4)),
    version="1",
    doc="Short polynomials for exp, tanh, erf and what is made of them; off by default.",
)
# fmt: on
