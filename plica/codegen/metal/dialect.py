"""The dialect Metal Shading Language: the words of OpenCL C, but for a few.

It has no f64, and few functions of numbers: what C has besides is Plica's own formula, or refused.

>>> text_in_metal("long long n = (long long)expf(2.0f) + erff(x);")
'long n = (long)exp(2.0f) + p_erf(x);'
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from attrs import evolve

from plica.codegen.cuda.dialect import CUDA
from plica.codegen.emit.dialect import decimal
from plica.codegen.emit.formula_text import FormulaWords, clike_words, formula_lines
from plica.codegen.opencl.dialect import OPENCL, helpers as opencl_helpers, text_in_opencl
from plica.ir.type import DType, f32, i32
from plica.runtime.error import Diagnostic, UnsupportedError

HEAD: Final = """\
#include <metal_stdlib>
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
using namespace metal;
"""
"""Numbers are as IEEE 754 says, and products are rounded by themselves."""

OWN_FORMULAS: Final = ("expm1", "log1p", "erf")
"""Functions of C that the language has not, and Plica has a formula for."""

_LACKING: Final = re.compile(r"\b(cbrt|erfc|[tl]gamma|remainder|hypot|double)\b")

_WORDS: Final = """
    device constant thread threadgroup kernel vertex fragment metal access sampler texture half
    uint uchar ushort ulong as_type select clamp mix step id failed number
"""


def _constant(value: float, of: DType) -> str:
    if of is i32:
        return OPENCL.literal(value, i32)
    return decimal(value, f32, lambda bits, of: f"as_type<float>({bits:#x}u)")


_FORMULA: Final = FormulaWords(
    "const {kind} {name} = {text};", {f32: "float", i32: "int", None: "bool"}, _constant,
    clike_words(
        "({0} ? {1} : {2})", bits="as_type<int>({0})", real="as_type<float>({0})",
        logical_shift="int(uint({0}) >> {1})",
    ),
)  # fmt: skip


def _formula(name: str) -> str:
    lines, result = formula_lines(name, _FORMULA)
    body = "\n  ".join([*lines, f"return {result};"])
    return f"static inline float p_{name}(float x) {{\n  {body}\n}}\n"


def text_in_metal(text: str) -> str:
    """A text of C in words of the language; refuses what it has no words for."""
    text = text_in_opencl(text)
    text = re.sub(r"\bas_(uint|float)\(", r"as_type<\1>(", text)
    text = re.sub(rf"(?<!p_)\b({'|'.join(OWN_FORMULAS)})\(", r"p_\1(", text)
    if lacking := _LACKING.search(text):
        word = {"double": "f64"}.get(lacking[1], lacking[1])
        message = f"Metal Shading Language has no {word}."
        hint = "Compile the model for another target, or do without."
        raise UnsupportedError(Diagnostic("unsupported", message, None, "f32", word, hint))
    return text


def helpers(used: Iterable[str]) -> str:
    """The helpers of these names, and what they call, in a fixed order."""
    return text_in_metal(opencl_helpers(used))


def formulas(text: str) -> str:
    """The formulas that a text calls."""
    return "".join([_formula(name) for name in OWN_FORMULAS if f"p_{name}(" in text])


METAL: Final = evolve(
    OPENCL,
    name="metal",
    reserved=OPENCL.reserved | CUDA.reserved | frozenset(_WORDS.split()),
    unroll="#pragma unroll",
)
