"""Formulas as text: the functions of f32 that Plica defines itself, in a language with words.

A language's own function of that name may be far less accurate. Formulas that need f64 are
unavailable in languages without it.

>>> C = FormulaWords("const {kind} {name} = {text};", "({when} ? {yes} : {no})", "bits({0})",
...     "real({0})", "float({0})", "fabs({0})", "copysign({0}, {1})", "(int)((unsigned){0} >> {1})",
...     "{0}", {f32: "float", i32: "int", None: "bool"}, lambda n: f"{n}f", str, str)
>>> formula_lines("exp2", C)[0][0]
'const bool v0 = x < -151.0f;'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal

from attrs import frozen

from plica.core import CompilerBug
from plica.ir.loop.formula import FORMULAS, Bitwise, CarriedNumber, Order
from plica.ir.type import DType, f32, i32

WIDE: Final = frozenset(("sin", "cos", "tan", "asin", "acos", "asinh", "acosh"))
"""The formulas that need an f64, or a square root as good as an f32's."""

NARROW: Final = tuple(name for name in FORMULAS if name not in WIDE)  # the others
_ORDERS: Final = {"olt": "<", "ogt": ">", "oeq": "==", "sgt": ">", "ne": "!="}
_SIGNS: Final = {"and": "&", "or": "|", "xor": "^", "shl": "<<", "ashr": ">>"}


@frozen
class FormulaWords:
    """A language's words for formulas; templates have braces."""

    let: str
    select: str
    bits: str
    real: str
    to_float: str
    size: str
    with_sign: str
    logical_shift: str
    rounded: str  # a float as it was rounded, where a driver would take `(a + b) - b` for `a`
    kinds: Mapping[DType | None, str]  # the type of a value of f32 and of i32, and of a condition
    floats: Callable[[float], str]
    wholes: Callable[[int], str]
    shift: Callable[[str], str]  # by how much bits are moved, of the type that is for


class _Lines:
    """The lines of a function under construction."""

    def __init__(self, words: FormulaWords) -> None:
        self.words = words
        self.lines: list[str] = []

    def let(self, text: str, of: DType | None) -> TextNumber:
        name = f"v{len(self.lines)}"
        kind = self.words.kinds[of]
        self.lines.append(self.words.let.format(kind=kind, name=name, text=text))
        return TextNumber(self, name, of)


@frozen(eq=False)
class TextNumber(CarriedNumber):
    """A value in a function: of f32 or i32, or a condition where `of` is None."""

    body: _Lines
    text: str
    of: DType | None

    def like(self, other: TextNumber | float) -> str:
        if isinstance(other, TextNumber):
            return other.text
        return self.body.words.wholes(int(other)) if self.of is i32 else self._float(other)

    def _float(self, value: float) -> str:
        return self.body.words.floats(value)

    def apply(self, sign: str, other: TextNumber | float) -> TextNumber:
        return self.body.let(f"{self.text} {sign} {self.like(other)}", self.of)

    def __add__(self, other: TextNumber | float) -> TextNumber:
        return self.apply("+", other)

    def __sub__(self, other: TextNumber | float) -> TextNumber:
        text = self.text if self.of is i32 else self.body.words.rounded.format(self.text)
        return TextNumber(self.body, text, self.of).apply("-", other)

    def __mul__(self, other: TextNumber | float) -> TextNumber:
        return self.apply("*", other)

    def __truediv__(self, other: TextNumber | float) -> TextNumber:
        return self.apply("/", other)

    def bitwise(self, word: Bitwise, other: TextNumber | int) -> TextNumber:
        words, by = self.body.words, self.like(other)
        if word == "lshr":
            return self.body.let(words.logical_shift.format(self.text, words.shift(by)), i32)
        by = words.shift(by) if word in ("shl", "ashr") else by
        return self.apply(_SIGNS[word], TextNumber(self.body, by, i32))

    def is_(self, order: Order, other: TextNumber | float) -> TextNumber:
        return self.body.let(f"{self.text} {_ORDERS[order]} {self.like(other)}", None)

    def choose(self, then: TextNumber, orelse: TextNumber | float) -> TextNumber:
        no = then.like(orelse)
        return self.body.let(
            self.body.words.select.format(when=self.text, yes=then.text, no=no), then.of
        )

    def number(self, value: float) -> TextNumber:
        return TextNumber(self.body, self.like(value), self.of)

    def whole(self, value: int) -> TextNumber:
        return TextNumber(self.body, self.body.words.wholes(value), i32)

    def bits(self) -> TextNumber:
        return self.body.let(self.body.words.bits.format(self.text), i32)

    def real(self) -> TextNumber:
        return self.body.let(self.body.words.real.format(self.text), f32)

    def to_float(self) -> TextNumber:
        return self.body.let(self.body.words.to_float.format(self.text), f32)

    def widened(self) -> TextNumber:
        raise CompilerBug("There is no f64 in the text of a formula.")

    def narrowed(self) -> TextNumber:
        return self.widened()

    def low_word(self) -> TextNumber:
        return self.widened()

    def turn(self, part: Literal["high", "low"]) -> TextNumber:
        return self.widened()

    def root(self) -> TextNumber:
        return self.widened()

    def size(self) -> TextNumber:
        return self.body.let(self.body.words.size.format(self.text), f32)

    def with_sign(self, other: TextNumber) -> TextNumber:
        return self.body.let(self.body.words.with_sign.format(self.text, other.text), f32)


def formula_lines(name: str, words: FormulaWords) -> tuple[list[str], str]:
    """The lines of a formula of `x`, and its result."""
    body = _Lines(words)
    result = FORMULAS[name](TextNumber(body, "x", f32))
    return body.lines, result.text
