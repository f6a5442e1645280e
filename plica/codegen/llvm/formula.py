"""Formulas as straight LLVM text: the code of the functions that Plica defines itself.

The definitions are `plica.ir.loop.formula`'s.  The same text serves a scalar and, made wide
(`widened` in `plica.codegen.llvm.helper`), any number of lanes, with the same bits.

>>> print(text("exp2", fused=True).splitlines()[0])
define internal float @plica.exp2.f32(float %x) alwaysinline {
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal

from attrs import frozen

from plica.codegen.llvm.dialect import literal
from plica.ir.loop.formula import (
    FORMULAS,
    NEAR_FORMULAS,
    PAIR_FORMULAS,
    Bitwise,
    CarriedNumber,
    Order,
)
from plica.ir.type import DType, f32, f64, i32


class _Body:
    """The lines of a function under construction."""

    def __init__(self, fused: bool, scales: bool, extremes: bool) -> None:
        self.fused = fused
        self.scales = scales
        self.extremes = extremes
        self.lines: list[str] = []

    def let(self, text: str, of: DType | None) -> LlvmNumber:
        name = f"%v{len(self.lines)}"
        self.lines.append(f"  {name} = {text}")
        return LlvmNumber(self, name, of)


@frozen(eq=False)
class LlvmNumber(CarriedNumber):
    """A value in a function: of f32, f64 or i32, or a condition where `of` is None."""

    body: _Body
    text: str
    of: DType | None

    @property
    def kind(self) -> str:
        return "i1" if self.of is None else _WORDS[self.of]

    def like(self, other: LlvmNumber | float) -> str:
        if isinstance(other, LlvmNumber):
            return other.text
        assert self.of is not None
        return literal(other, self.of)

    def apply(self, word: str, other: LlvmNumber | float) -> LlvmNumber:
        prefix = "" if self.of is i32 else "f"
        return self.body.let(f"{prefix}{word} {self.kind} {self.text}, {self.like(other)}", self.of)

    def __add__(self, other: LlvmNumber | float) -> LlvmNumber:
        return self.apply("add", other)

    def __sub__(self, other: LlvmNumber | float) -> LlvmNumber:
        return self.apply("sub", other)

    def __mul__(self, other: LlvmNumber | float) -> LlvmNumber:
        return self.apply("mul", other)

    def __truediv__(self, other: LlvmNumber | float) -> LlvmNumber:
        return self.apply("div", other)

    def bitwise(self, word: Bitwise, other: LlvmNumber | int) -> LlvmNumber:
        return self.body.let(f"{word} {self.kind} {self.text}, {self.like(other)}", self.of)

    def is_(self, order: Order, other: LlvmNumber | float) -> LlvmNumber:
        word = "icmp" if self.of is i32 else "fcmp"
        return self.body.let(f"{word} {order} {self.kind} {self.text}, {self.like(other)}", None)

    def choose(self, then: LlvmNumber, orelse: LlvmNumber | float) -> LlvmNumber:
        sides = f"{then.kind} {then.text}, {then.kind} {then.like(orelse)}"
        return self.body.let(f"select i1 {self.text}, {sides}", then.of)

    def number(self, value: float) -> LlvmNumber:
        assert self.of is not None
        return LlvmNumber(self.body, literal(value, self.of), self.of)

    def whole(self, value: int) -> LlvmNumber:
        return LlvmNumber(self.body, literal(value, i32), i32)

    def bits(self) -> LlvmNumber:
        return self.body.let(f"bitcast float {self.text} to i32", i32)

    def real(self) -> LlvmNumber:
        return self.body.let(f"bitcast i32 {self.text} to float", f32)

    def to_float(self) -> LlvmNumber:
        return self.body.let(f"sitofp {self.kind} {self.text} to float", f32)

    def widened(self) -> LlvmNumber:
        return self.body.let(f"fpext {self.kind} {self.text} to double", f64)

    def narrowed(self) -> LlvmNumber:
        return self.body.let(f"fptrunc {self.kind} {self.text} to float", f32)

    def low_word(self) -> LlvmNumber:
        whole = self.body.let(f"bitcast double {self.text} to i64", None).text
        return self.body.let(f"trunc i64 {whole} to i32", i32)

    def size(self) -> LlvmNumber:
        return self._call("llvm.fabs.f32", f32)

    def with_sign(self, other: LlvmNumber) -> LlvmNumber:
        return self._call("llvm.copysign.f32", f32, other)

    def root(self) -> LlvmNumber:
        return self._call("llvm.sqrt.f32", f32)

    def turn(self, part: Literal["high", "low"]) -> LlvmNumber:
        return self._call(f"plica.turn.{part}", f64)

    def fused(self, factor: LlvmNumber, term: LlvmNumber | float) -> LlvmNumber | None:
        if not self.body.fused:
            return None
        third = term if isinstance(term, LlvmNumber) else self.number(term)
        assert self.of is not None
        return self._call(f"llvm.fma.{self.of.name}", self.of, factor, third)

    def scaled(self, exponent: LlvmNumber) -> LlvmNumber | None:
        return self._call("llvm.ldexp.f32.i32", f32, exponent) if self.body.scales else None

    def at_most(self, bound: float) -> LlvmNumber:
        if not self.body.extremes or self.of is f64:
            return super().at_most(bound)
        return self._call("llvm.minimum.f32", f32, self.number(bound))

    def at_least(self, bound: float) -> LlvmNumber:
        if not self.body.extremes or self.of is f64:
            return super().at_least(bound)
        return self._call("llvm.maximum.f32", f32, self.number(bound))

    def _call(self, name: str, to: DType, *others: LlvmNumber) -> LlvmNumber:
        args = ", ".join(f"{number.kind} {number.text}" for number in (self, *others))
        return self.body.let(f"call {_WORDS[to]} @{name}({args})", to)


_WORDS: Final = {f32: "float", f64: "double", i32: "i32"}


@lru_cache(maxsize=64)
def text(
    name: str,
    fused: bool,
    scales: bool = False,
    extremes: bool = False,
    part: Literal["", ".near", ".far"] = "",
) -> str:
    """The function `@plica.NAME.f32`.

    `fused` says that products may be added to before they are rounded, `scales` that the machine
    multiplies by powers of two, `extremes` that the lesser of two is one instruction; `part` that
    it is the function for numbers `.near` 0, or for those that are `.far`.
    """
    body = _Body(fused, scales, extremes)
    formula = (PAIR_FORMULAS | FORMULAS | (NEAR_FORMULAS if part == ".near" else {}))[name]
    given = ("%x", "%y") if name in PAIR_FORMULAS else ("%x",)
    result = formula(*[LlvmNumber(body, each, f32) for each in given])
    params = ", ".join(f"float {each}" for each in given)
    head = f"define internal float @plica.{name}{part}.f32({params}) alwaysinline {{"
    return "\n".join([head, *body.lines, f"  ret float {result.text}", "}", ""])
