"""Numbers in SMT-LIB: literals, formats of floats, and operations on integers as bit vectors.

>>> from plica.ir.type import f16
>>> float_constant(1.0, f16), real_text(Fraction(-1, 2))
('(fp #b0 #b01111 #b0000000000)', '(- (/ 1.0 2.0))')
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

import numpy as np

from plica.ir.loop import scalar as sc
from plica.ir.type import DType, f32

FORMATS: Final = {"f16": (5, 11), "bf16": (8, 8), "f32": (8, 24), "f64": (11, 53)}
_UNLESS_ZERO: Final = "(ite (= {{b}} {{zero}}) {{zero}} {})"
_LOWER: Final = (
    "(ite (and (distinct (bvsrem {a} {b}) {zero}) (xor (bvslt {a} {zero}) (bvslt {b} {zero}))) "
    "(bvsub (bvsdiv {a} {b}) {one}) (bvsdiv {a} {b}))"
)
_ON_BITS: Final = {
    "Add": "(bvadd {a} {b})", "Sub": "(bvsub {a} {b})", "Mul": "(bvmul {a} {b})",
    "BitAnd": "(bvand {a} {b})", "BitOr": "(bvor {a} {b})", "BitXor": "(bvxor {a} {b})",
    "ShiftLeft": "(bvshl {a} {b})", "isnan": "false", "isinf": "false",
    **dict.fromkeys(("floor", "ceil", "round", "trunc"), "{a}"),
    "Min": "(ite ({below} {a} {b}) {a} {b})", "Max": "(ite ({below} {a} {b}) {b} {a})",
    "sign": "(ite (= {a} {zero}) {zero} (ite ({below} {a} {zero}) (bvneg {one}) {one}))",
}  # fmt: skip
_ON_SIGNED: Final = {
    "ShiftRight": "(bvashr {a} {b})", "abs": "(ite (bvslt {a} {zero}) (bvneg {a}) {a})",
    "truncdiv": _UNLESS_ZERO.format("(bvsdiv {a} {b})"), "FloorDiv": _UNLESS_ZERO.format(_LOWER),
    "truncmod": _UNLESS_ZERO.format("(bvsrem {a} {b})"),
    "FloorMod": _UNLESS_ZERO.format("(bvsmod {a} {b})"),
}  # fmt: skip
_ON_UNSIGNED: Final = {
    "ShiftRight": "(bvlshr {a} {b})", "abs": "{a}",
    **dict.fromkeys(("truncdiv", "FloorDiv"), _UNLESS_ZERO.format("(bvudiv {a} {b})")),
    **dict.fromkeys(("truncmod", "FloorMod"), _UNLESS_ZERO.format("(bvurem {a} {b})")),
}  # fmt: skip


def float_format(of: DType) -> DType:
    """The float that numbers of a dtype are encoded in; f32 holds those that are only stored."""
    return of if of.name in FORMATS else f32


def float_constant(value: float, of: DType) -> str:
    """A float of a format."""
    of = float_format(of)
    eb, sb = FORMATS[of.name]
    if math.isnan(value):
        return f"(_ NaN {eb} {sb})"
    if math.isinf(value):
        return f"(_ {'+' if value > 0 else '-'}oo {eb} {sb})"
    if value == 0:
        return f"(_ {'-' if math.copysign(1, value) < 0 else '+'}zero {eb} {sb})"
    with np.errstate(over="ignore"):
        code = int.from_bytes(np.asarray(value, of.numpy).tobytes(), "little")
    bits = f"{code:0{of.bits}b}"
    return f"(fp #b{bits[0]} #b{bits[1 : 1 + eb]} #b{bits[1 + eb :]})"


def real_text(value: Fraction, whole: bool = False) -> str:
    """A rational number."""
    size = abs(value)
    if whole:
        text = str(size)
    elif size.denominator == 1:
        text = f"{size}.0"
    else:
        text = f"(/ {size.numerator}.0 {size.denominator}.0)"
    return f"(- {text})" if value < 0 else text


def truncated_real(text: str) -> str:
    """A real rounded towards zero."""
    down = "(to_real (to_int {}))"
    return f"(ite (>= {text} 0.0) {down.format(text)} (- {down.format(f'(- {text})')}))"


def resized(text: str, of: DType, to: DType) -> str:
    """An integer in another width."""
    if to.bits < of.bits:
        return f"((_ extract {to.bits - 1} 0) {text})"
    if to.bits == of.bits:
        return text
    word = "sign_extend" if of.kind == "int" else "zero_extend"
    return f"((_ {word} {to.bits - of.bits}) {text})"


def power_of(node: sc.Scalar) -> int | None:
    """The exponent, where it is a whole number."""
    exponent = node.right if isinstance(node, sc.Pow) else None
    if isinstance(exponent, sc.Lit) and math.isfinite(exponent.value):
        return int(exponent.value) if exponent.value == int(exponent.value) else None
    return None


def chain(word: str, base: str, power: int) -> str:
    """A power as a product."""
    return base if power == 1 else f"({word} {' '.join([base] * power)})"


def on_bits(name: str, a: str, b: str, of: DType, power: int | None) -> str | None:
    """An operation on integers that wrap around, None where it is not known."""
    if name == "Pow":
        if power is None or power < 0:
            return None
        return f"(_ bv1 {of.bits})" if power == 0 else chain("bvmul", a, power)
    signed = of.kind == "int"
    text = (_ON_SIGNED if signed else _ON_UNSIGNED).get(name) or _ON_BITS.get(name)
    below = "bvslt" if signed else "bvult"
    zero, one = f"(_ bv0 {of.bits})", f"(_ bv1 {of.bits})"
    return None if text is None else text.format(a=a, b=b, zero=zero, one=one, below=below)
