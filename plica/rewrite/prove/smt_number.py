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
_WORDS: Final = {
    "Add": "bvadd", "Sub": "bvsub", "Mul": "bvmul", "BitAnd": "bvand", "BitOr": "bvor",
    "BitXor": "bvxor", "ShiftLeft": "bvshl",
}  # fmt: skip
_SIGNED: Final = {("ShiftRight", True): "bvashr", ("ShiftRight", False): "bvlshr"}


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
    signed, zero = of.kind == "int", f"(_ bv0 {of.bits})"
    below = "bvslt" if signed else "bvult"
    word = _WORDS.get(name) or _SIGNED.get((name, signed))
    if word is not None:
        return f"({word} {a} {b})".replace(" )", ")")
    quotient = f"(bvs{'div'} {a} {b})" if signed else f"(bvudiv {a} {b})"
    match name:
        case "floor" | "ceil" | "round" | "trunc":
            return a
        case "isnan" | "isinf":
            return "false"
        case "Min":
            return f"(ite ({below} {a} {b}) {a} {b})"
        case "Max":
            return f"(ite ({below} {a} {b}) {b} {a})"
        case "abs":
            return f"(ite ({below} {a} {zero}) (bvneg {a}) {a})" if signed else a
        case "sign":
            one = f"(_ bv1 {of.bits})"
            return f"(ite (= {a} {zero}) {zero} (ite ({below} {a} {zero}) (bvneg {one}) {one}))"
        case "truncdiv":
            return f"(ite (= {b} {zero}) {zero} {quotient})"
        case "truncmod":
            rest = f"(bv{'s' if signed else 'u'}rem {a} {b})"
            return f"(ite (= {b} {zero}) {zero} {rest})"
        case "FloorMod":
            rest = f"(bvsmod {a} {b})" if signed else f"(bvurem {a} {b})"
            return f"(ite (= {b} {zero}) {zero} {rest})"
        case "FloorDiv":
            if not signed:
                return f"(ite (= {b} {zero}) {zero} {quotient})"
            signs = f"(xor (bvslt {a} {zero}) (bvslt {b} {zero}))"
            down = f"(and (distinct (bvsrem {a} {b}) {zero}) {signs})"
            lower = f"(bvsub {quotient} (_ bv1 {of.bits}))"
            return f"(ite (= {b} {zero}) {zero} (ite {down} {lower} {quotient}))"
        case "Pow" if power is not None and power >= 0:
            one = f"(_ bv1 {of.bits})"
            return one if power == 0 else chain("bvmul", a, power)
    return None
