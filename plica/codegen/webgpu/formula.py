"""Formulas in WGSL: the functions of f32 that Plica defines itself, as text of that language.

What the language has of the same name may be wrong by much more.

>>> "fn p_exp(x: f32) -> f32 {" in text("exp")
True
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal

import numpy as np
from attrs import frozen

from plica.core.diagnostic import CompilerBug
from plica.ir.loop.formula import FORMULAS, Bitwise, CarriedNumber, Order
from plica.ir.type.dtype import DType, f32, i32

NAMES: Final = tuple(name for name in FORMULAS if name not in ("sin", "cos"))
"""Those that need no f64, which the language has not."""

_ORDERS: Final = {"olt": "<", "ogt": ">", "oeq": "==", "sgt": ">", "ne": "!="}
_SIGNS: Final = {"and": "&", "or": "|", "xor": "^", "shl": "<<", "ashr": ">>"}


def real(value: float) -> str:
    """An f32 as it is written: what is not finite by its bits, which nobody computes early."""
    single = np.float32(value)
    if np.isfinite(single):
        return f"{single!s}f"
    return f"bitcast<f32>({int(single.view(np.uint32)):#x}u | nothing)"


def whole(value: int) -> str:
    """An i32 as it is written."""
    return "(-2147483647i - 1i)" if value == -(1 << 31) else f"{value}i"


class _Lines:
    """The lines of a function under construction."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def let(self, text: str, of: DType | None) -> WgslNumber:
        name = f"v{len(self.lines)}"
        self.lines.append(f"  let {name} = {text};")
        return WgslNumber(self, name, of)


@frozen(eq=False)
class WgslNumber(CarriedNumber):
    """A value in a function: of f32 or i32, or a condition where `of` is None."""

    body: _Lines
    text: str
    of: DType | None

    def like(self, other: WgslNumber | float) -> str:
        if isinstance(other, WgslNumber):
            return other.text
        return whole(int(other)) if self.of is i32 else real(other)

    def apply(self, sign: str, other: WgslNumber | float) -> WgslNumber:
        return self.body.let(f"{self.text} {sign} {self.like(other)}", self.of)

    def __add__(self, other: WgslNumber | float) -> WgslNumber:
        return self.apply("+", other)

    def __sub__(self, other: WgslNumber | float) -> WgslNumber:
        # Drivers take `(a + b) - b` for `a`, which is not what rounding is for.
        hidden = self.text if self.of is i32 else f"p_rounded({self.text})"
        return WgslNumber(self.body, hidden, self.of).apply("-", other)

    def __mul__(self, other: WgslNumber | float) -> WgslNumber:
        return self.apply("*", other)

    def __truediv__(self, other: WgslNumber | float) -> WgslNumber:
        return self.apply("/", other)

    def bitwise(self, word: Bitwise, other: WgslNumber | int) -> WgslNumber:
        by = self.like(other)
        if word == "lshr":
            return self.body.let(f"bitcast<i32>(bitcast<u32>({self.text}) >> u32({by}))", i32)
        moved = word in ("shl", "ashr")
        return self.apply(_SIGNS[word], WgslNumber(self.body, f"u32({by})" if moved else by, i32))

    def is_(self, order: Order, other: WgslNumber | float) -> WgslNumber:
        return self.body.let(f"{self.text} {_ORDERS[order]} {self.like(other)}", None)

    def choose(self, then: WgslNumber, orelse: WgslNumber | float) -> WgslNumber:
        return self.body.let(f"select({then.like(orelse)}, {then.text}, {self.text})", then.of)

    def number(self, value: float) -> WgslNumber:
        return WgslNumber(self.body, self.like(value), self.of)

    def whole(self, value: int) -> WgslNumber:
        return WgslNumber(self.body, whole(value), i32)

    def bits(self) -> WgslNumber:
        return self.body.let(f"bitcast<i32>({self.text})", i32)

    def real(self) -> WgslNumber:
        return self.body.let(f"bitcast<f32>({self.text})", f32)

    def to_float(self) -> WgslNumber:
        return self.body.let(f"f32({self.text})", f32)

    def widened(self) -> WgslNumber:
        raise CompilerBug("WGSL has no f64.")

    def narrowed(self) -> WgslNumber:
        return self.widened()

    def low_word(self) -> WgslNumber:
        return self.widened()

    def turn(self, part: Literal["high", "low"]) -> WgslNumber:
        return self.widened()

    def size(self) -> WgslNumber:
        return self.body.let(f"abs({self.text})", f32)

    def with_sign(self, other: WgslNumber) -> WgslNumber:
        return self.body.let(f"p_copysign({self.text}, {other.text})", f32)


@lru_cache(maxsize=32)
def text(name: str) -> str:
    """The function `p_NAME`."""
    body = _Lines()
    result = FORMULAS[name](WgslNumber(body, "x", f32))
    lines = [f"fn p_{name}(x: f32) -> f32 {{", *body.lines, f"  return {result.text};", "}", ""]
    return "\n".join(lines)
