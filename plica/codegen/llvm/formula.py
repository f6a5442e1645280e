"""Formulas as straight LLVM text: the code of the functions that Plica defines itself.

The definitions are `plica.ir.loop.formula`'s.  The same text serves a scalar and, made wide
(`widened` in `plica.codegen.llvm.helper`), any number of lanes, with the same bits.

>>> print(text("exp2", fused=True).splitlines()[0])
define internal float @plica.exp2.f32(float %x) alwaysinline {
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal

from plica.codegen.emit.formula_text import FormulaWords, formula_lines
from plica.codegen.llvm.dialect import literal
from plica.ir.loop.formula import FORMULAS, NEAR_FORMULAS, PAIR_FORMULAS
from plica.ir.type import f32, f64, i32

_WORDS: Final[dict[str, str | tuple[str, ...]]] = {
    **{
        word: f"{prefix}{word.removeprefix('f')} {{kind}} {{0}}, {{1}}"
        for prefix, words in (
            ("", ("add", "sub", "mul", "and", "or", "xor", "shl", "lshr", "ashr")),
            ("f", ("fadd", "fsub", "fmul", "fdiv")),
            ("icmp ", ("sgt", "ne")),
            ("fcmp ", ("olt", "ogt", "oeq")),
        )
        for word in words
    },
    "select": "select i1 {0}, {to} {1}, {to} {2}",
    "bits": "bitcast float {0} to i32",
    "real": "bitcast i32 {0} to float",
    "to_float": "sitofp {kind} {0} to float",
    "widened": "fpext {kind} {0} to double",
    "narrowed": "fptrunc {kind} {0} to float",
    "low_word": ("bitcast double {0} to i64", "trunc i64 {0} to i32"),
    "size": "call float @llvm.fabs.f32({kind} {0})",
    "with_sign": "call float @llvm.copysign.f32({kind} {0}, float {1})",
    "root": "call float @llvm.sqrt.f32({kind} {0})",
    "turn_high": "call double @plica.turn.high({kind} {0})",
    "turn_low": "call double @plica.turn.low({kind} {0})",
}
_FUSED: Final = {"fma": "call {kind} @llvm.fma.{of}({kind} {0}, {kind} {1}, {kind} {2})"}
_SCALES: Final = {"scale": "call float @llvm.ldexp.f32.i32({kind} {0}, i32 {1})"}
_EXTREMES: Final = {
    word: f"call float @llvm.{word}.f32({{kind}} {{0}}, {{kind}} {{1}})"
    for word in ("minimum", "maximum")
}
_KINDS: Final = {f32: "float", f64: "double", i32: "i32", None: "i1"}


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
    can = ((fused, _FUSED), (scales, _SCALES), (extremes, _EXTREMES))
    more = {word: line for has, lines in can if has for word, line in lines.items()}
    words = FormulaWords("  {name} = {text}", _KINDS, literal, {**_WORDS, **more}, "%v{}")
    formulas = PAIR_FORMULAS | FORMULAS | (NEAR_FORMULAS if part == ".near" else {})
    given = ("%x", "%y") if name in PAIR_FORMULAS else ("%x",)
    lines, result = formula_lines(name, words, given, formulas)
    params = ", ".join(f"float {each}" for each in given)
    head = f"define internal float @plica.{name}{part}.f32({params}) alwaysinline {{"
    return "\n".join([head, *lines, f"  ret float {result}", "}", ""])
