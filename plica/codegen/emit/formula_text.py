"""Formulas as text: the functions of f32 that Plica defines itself, in a language with words.

A language's own function of that name may be far less accurate. Formulas that need f64 are
unavailable in languages without it.

>>> C = FormulaWords(
...     "const {kind} {name} = {text};", {f32: "float", i32: "int", None: "bool"},
...     lambda value, of: str(value) if of is i32 else f"{value}f",
...     clike_words("({0} ? {1} : {2})", bits="bits({0})", real="real({0})"))
>>> formula_lines("exp2", C)[0][0]
'const bool v0 = x < -151.0f;'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from attrs import frozen

from plica.core import CompilerBug
from plica.ir.loop.formula import FORMULAS, CarriedNumber
from plica.ir.type import DType, f32, f64, i32

WIDE: Final = frozenset(("sin", "cos", "tan", "asin", "acos", "asinh", "acosh"))
"""The formulas that need an f64, or a square root as good as an f32's."""

NARROW: Final = tuple(name for name in FORMULAS if name not in WIDE)  # the others

GIVES: Final[Mapping[str, DType | None]] = {
    "bits": i32, "low_word": i32, "real": f32, "to_float": f32, "narrowed": f32, "widened": f64,
    "turn_high": f64, "turn_low": f64, **dict.fromkeys(("olt", "ogt", "oeq", "sgt", "ne")),
}  # fmt: skip
"""What operations give that is no number of the type they are done to; None is a condition."""


@frozen
class FormulaWords:
    """A language's words for formulas: templates by operation, in which `{0}` is the number itself,
    `{1}` and `{2}` are others, and `{kind}` is its type; two of them are two lines, one of the
    result of the other.  An `f` before the name of an operation says that floats have their own.
    """

    let: str
    kinds: Mapping[DType | None, str]  # the types of values, and of a condition
    literal: Callable[[float, DType], str]
    words: Mapping[str, str | tuple[str, ...]]
    name: str = "v{}"


def clike_words(
    select: str, *, rounded: str = "{0}", shift: str = "{1}",
    logical_shift: str = "(int)((unsigned){0} >> {1})", **more: str,
) -> dict[str, str]:  # fmt: skip
    """The words of a language like C.

    `rounded` is a float as it was rounded, where a driver would take `(a + b) - b` for `a`; `shift`
    is by how much bits are moved, of the type that is for.
    """
    signs = {
        "add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^",
        "olt": "<", "ogt": ">", "oeq": "==", "sgt": ">", "ne": "!=",
    }  # fmt: skip
    return {
        **{word: f"{{0}} {sign} {{1}}" for word, sign in signs.items()},
        "fsub": f"{rounded} - {{1}}", "shl": f"{{0}} << {shift}", "ashr": f"{{0}} >> {shift}",
        "lshr": logical_shift.replace("{1}", shift), "select": select, "to_float": "float({0})",
        "size": "fabs({0})", "with_sign": "copysign({0}, {1})", **more,
    }  # fmt: skip


@frozen(eq=False)
class TextNumber(CarriedNumber):
    """A value in a function of these lines: of a dtype, or a condition where `of` is None."""

    words: FormulaWords
    lines: list[str]
    text: str
    of: DType | None

    def do(self, word: str, *others: TextNumber) -> TextNumber:
        own = self.words.words.get(f"f{word}") if self.of in (f32, f64) else None
        templates = own or self.words.words.get(word)
        if templates is None:
            raise CompilerBug(f"There is no {word} in the text of a formula.")
        of = GIVES[word] if word in GIVES else (others[0] if word == "select" else self).of
        facts = {"kind": self.words.kinds[self.of], "to": self.words.kinds[of], "of": self.of}
        texts = [self.text, *[number.text for number in others]]
        for template in (templates,) if isinstance(templates, str) else templates:
            name = self.words.name.format(len(self.lines))
            text = template.format(*texts, **facts)
            self.lines.append(self.words.let.format(kind=facts["to"], name=name, text=text))
            texts = [name]
        return TextNumber(self.words, self.lines, name, of)

    def number(self, value: float) -> TextNumber:
        assert self.of is not None
        return self._constant(value, self.of)

    def whole(self, value: int) -> TextNumber:
        return self._constant(value, i32)

    def _constant(self, value: float, of: DType) -> TextNumber:
        given = int(value) if of is i32 else value
        return TextNumber(self.words, self.lines, self.words.literal(given, of), of)

    def fused(self, factor: TextNumber, term: TextNumber | float) -> TextNumber | None:
        return self.do("fma", factor, self._like(term)) if "fma" in self.words.words else None

    def scaled(self, exponent: TextNumber) -> TextNumber | None:
        return self.do("scale", exponent) if "scale" in self.words.words else None

    def at_most(self, bound: float) -> TextNumber:
        return self._extreme("minimum", bound) or super().at_most(bound)

    def at_least(self, bound: float) -> TextNumber:
        return self._extreme("maximum", bound) or super().at_least(bound)

    def _extreme(self, word: str, bound: float) -> TextNumber | None:
        is_there = word in self.words.words and self.of is not f64
        return self.do(word, self.number(bound)) if is_there else None


def formula_lines(
    name: str,
    words: FormulaWords,
    given: Sequence[str] = ("x",),
    formulas: Mapping[str, Callable[..., Any]] = FORMULAS,  # Any: as there
) -> tuple[list[str], str]:
    """The lines of a formula of some f32, and its result."""
    lines: list[str] = []
    result = formulas[name](*[TextNumber(words, lines, each, f32) for each in given])
    return lines, result.text
