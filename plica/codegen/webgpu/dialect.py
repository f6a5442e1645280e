"""The dialect WGSL: how dtypes, literals, operators and helpers are written.

    dtype                in a register      in memory
    bool i8 i16 u8 u16   bool, i32, u32     a part of a word
    i32 u32 f32          themselves         a word
    i64 u64              i32, u32 as indices; i64, u64 where tensors hold some     two words

Integers of 64 bits ask for an extension of the language, and f64 is refused, as are functions that
the language computes too roughly.

>>> WGSL.literal(0.1, f32), WGSL.literal(-1, i32), WGSL.literal(float("inf"), f32)
('0.1f', '-1i', 'bitcast<f32>(0x7f800000u | nothing)')
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from attrs import evolve

from plica.codegen.emit.clike_operator import CLIKE, TextPlace
from plica.codegen.emit.coded_word import conversions
from plica.codegen.emit.formula_text import NARROW, FormulaWords, clike_words, formula_lines
from plica.codegen.emit.scalar import round_to_dtype
from plica.ir.loop.scalar import Cast, Intrinsic, Le, Lt, Scalar, Sub, row_of
from plica.ir.loop.scalar_row import ScalarRow
from plica.ir.type import DTYPES, DType, bool_, f32, i32
from plica.runtime.error import Diagnostic, UnsupportedError

__all__ = ["LONG", "LONG_HELPERS", "WGSL", "f32", "helpers", "i32"]


def real(value: float) -> str:
    """An f32 as it is written: what is not finite by its bits, which nobody computes early."""
    single = np.float32(value)
    if np.isfinite(single):
        return f"{single!s}f"
    return f"bitcast<f32>({int(single.view(np.uint32)):#x}u | nothing)"


def whole(value: int) -> str:
    """An i32 as it is written."""
    return "(-2147483647i - 1i)" if value == -(1 << 31) else f"{value}i"


FORMULA_WORDS: Final = FormulaWords(
    "let {name} = {text};", {f32: "f32", i32: "i32", None: "bool"},
    lambda value, of: whole(int(value)) if of is i32 else real(value),
    clike_words(
        "select({2}, {1}, {0})", bits="bitcast<i32>({0})", real="bitcast<f32>({0})",
        to_float="f32({0})", size="abs({0})", with_sign="p_copysign({0}, {1})",
        logical_shift="bitcast<i32>(bitcast<u32>({0}) >> {1})", rounded="p_rounded({0})",
        shift="u32({1})",
    ),
)  # fmt: skip


def _formula(name: str) -> str:
    lines, result = formula_lines(name, FORMULA_WORDS)
    return "\n  ".join([f"fn p_{name}(x: f32) -> f32 {{", *lines, f"return {result};"]) + "\n}\n"


_TYPES: Final = {
    "bool": "bool", "i8": "i32", "i16": "i32", "i32": "i32", "i64": "i32",
    "u8": "u32", "u16": "u32", "u32": "u32", "u64": "u32", "f32": "f32",
}  # fmt: skip

_FUNCTIONS: Final = {
    "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "rint": "round", "trunc": "trunc",
    "fabs": "abs", "copysign": "p_copysign", **{name: f"p_{name}" for name in NARROW},
}  # fmt: skip
"""Functions of C that are there, by what they are called; all others are too rough."""

_FIXED: Final[dict[str, str]] = {
    "p_at": "fn p_at(a: i64) -> u32 { return u32(a); }\n",
    "p_count": "fn p_count(a: i64) -> u64 { return u64(a); }\n",
    "p_less": """\
fn p_less(a: i64, b: i64) -> bool {
  return (u64(a) ^ 9223372036854775808lu) < (u64(b) ^ 9223372036854775808lu);
}
""",
    "p_min_i64": "fn p_min_i64(a: i64, b: i64) -> i64 { return select(b, a, p_less(a, b)); }\n",
    "p_max_i64": "fn p_max_i64(a: i64, b: i64) -> i64 { return select(a, b, p_less(a, b)); }\n",
    "p_rounded": """\
fn p_rounded(a: f32) -> f32 { return bitcast<f32>(bitcast<u32>(a) | nothing); }
""",
    "p_copysign": """\
fn p_copysign(a: f32, b: f32) -> f32 {
  return bitcast<f32>((bitcast<u32>(a) & 0x7fffffffu) | (bitcast<u32>(b) & 0x80000000u));
}
""",
    "p_isnan_f32": """\
fn p_isnan_f32(a: f32) -> bool { return (bitcast<u32>(a) & 0x7fffffffu) > 0x7f800000u; }
""",
    **{
        f"p_{word}_f32": f"""\
fn p_{word}_f32(a: f32, b: f32) -> f32 {{
  if (p_isnan_f32(a) || p_isnan_f32(b)) {{ return a + b; }}
  if (a == b) {{ return bitcast<f32>(bitcast<u32>(a) {both} bitcast<u32>(b)); }}
  return select(b, a, a {sign} b);
}}
"""
        for word, sign, both in (("min", "<", "|"), ("max", ">", "&"))
    },
    **{
        f"p_{word}_f32": f"""\
fn p_{word}_f32(a: f32, b: f32) -> bool {{
  if (p_isnan_f32(a) || p_isnan_f32(b)) {{ return {"true" if word == "ne" else "false"}; }}
  return a {sign} b;
}}
"""
        for word, sign in (("eq", "=="), ("ne", "!="), ("lt", "<"), ("le", "<="))
    },
    "p_sign_f32": """\
fn p_sign_f32(a: f32) -> f32 {
  if (p_isnan_f32(a)) { return a; }
  return f32(a > 0.0f) - f32(a < 0.0f);
}
""",
    **{f"p_{name}": _formula(name) for name in NARROW},
    **{name: made for of in DTYPES if of.is_coded for name, made in conversions(of).items()},
}


def _templates() -> dict[str, str]:
    """The helpers of integers, by what stands before the name of a dtype."""
    parts = Path(__file__).with_name("helper.wgsl").read_text(encoding="utf-8").split("\n\n")[1:]
    return {part.removeprefix("fn ").partition("_D")[0]: f"{part.rstrip()}\n" for part in parts}


_TEMPLATES: Final = _templates()
_INTEGER: Final = re.compile(r"(p_\w+?)_([iu](?:8|16|32|64))((?:_f32)?)")


def fitted(value: str, of: DType) -> str:
    """An integer of 32 bits as one of fewer."""
    return f"extractBits({value}, 0u, {of.bits}u)" if of.bits < 32 else value


def _instance(name: str, registers: dict[str, str]) -> str:
    match = _INTEGER.fullmatch(name)
    if match is None or match[1] not in _TEMPLATES:
        raise _rough(name)
    dtype = DType(match[2])
    made = re.sub(
        r"FIT\((.*?)\);", lambda each: f"{fitted(f'({each[1]})', dtype)};", _TEMPLATES[match[1]]
    )
    kind = registers[dtype.name]
    made = made.replace("_D", f"_{dtype.name}").replace("W)", f"{dtype.bits})")
    if kind.startswith("u"):
        made = made.replace("T(-1)", f"{kind}(0xffffffff)").replace("b < 0 ||", "")
        made = re.sub(r"\b(a|b|r) < 0\b", "false", made)
        made = re.sub(rf"\|\| b == {kind}\(0xffffffff\)|if \(b == .*\n", _no_sign, made)
    if kind == "i64":
        made = re.sub(r"\b(\w) < 0\b", r"p_less(\1, 0li)", made)
        made = re.sub(r"\b(\w) > 0\b", r"p_less(0li, \1)", made)
        made = made.replace("b >= 64", "p_less(63li, b)")
    return re.sub(r"\bT\b", kind, made)


def _no_sign(found: re.Match[str]) -> str:
    return "" if found[0].startswith("||") else "\n"


def helpers(used: Iterable[str], registers: dict[str, str] | None = None) -> str:
    """The helpers of these names, and what they call, in a fixed order."""
    wanted = set(used)
    if wanted:
        wanted |= {"p_isnan_f32", "p_copysign", "p_rounded"}
    for name in list(wanted):
        if name.startswith("p_round_"):
            of = name.removeprefix("p_round_")
            wanted |= {f"p_pack_{of}", f"p_unpack_{of}"}
    parts = [text for name, text in _FIXED.items() if name in wanted]
    for name in sorted(wanted.difference(_FIXED)):
        parts.append(_instance(name, registers or _TYPES))
    return "".join(parts)


def _rough(name: str) -> UnsupportedError:
    message = f"WGSL has no {name.removeprefix('p_')} that is exact enough."
    hint = "Compile the model for another target."
    return UnsupportedError(Diagnostic("unsupported", message, None, None, name, hint))


def _written(word: str, row: ScalarRow, of: DType, kids: Sequence[str], place: TextPlace) -> str:
    """An operator by the word that C has for it."""
    if row.name == "popcount":
        return f"{place.dialect.register(of)}(countOneBits({kids[0]}{_mask(of)}))"
    found = CLIKE.written(word, row, of, kids, place)
    if row.name.startswith("Bit") and of.bits < 32 and of is not bool_:
        return fitted(found, of)
    return found


def _mask(of: DType) -> str:
    return f" & {(1 << of.bits) - 1:#x}" if of.bits < 32 else ""


def _function(node: Scalar, of: DType, kids: Sequence[str], place: TextPlace) -> str | None:
    """A function of the library: by what it is called here, if it is there."""
    row = row_of(node)
    assert row is not None
    if not of.is_float or not (word := row.words("webgpu").get("float", "")).endswith(")"):
        return None
    name = word.partition("{e}(")[0]
    if "{e}(" not in word or not name.isidentifier():
        return None
    if name not in _FUNCTIONS:
        raise _rough(row.name)
    called = _FUNCTIONS[name]
    made = place.call(called, (), kids) if called.startswith("p_") else f"{called}({kids[0]})"
    return round_to_dtype(made, of, place) if row.rounds else made


def _select(node: Scalar, of: DType, kids: Sequence[str], place: TextPlace) -> str:
    return f"select({kids[2]}, {kids[1]}, {kids[0]})"


def _isnan(node: Scalar, of: DType, kids: Sequence[str], place: TextPlace) -> str | None:
    return place.call("p_isnan_f32", (), kids) if of.is_float else None


def _isinf(node: Scalar, of: DType, kids: Sequence[str], place: TextPlace) -> str | None:
    return f"((bitcast<u32>({kids[0]}) << 1u) == 0xff000000u)" if of.is_float else None


def _sign(node: Scalar, of: DType, kids: Sequence[str], place: TextPlace) -> str | None:
    if of is bool_:
        return None
    return place.call("p_sign", (f32 if of.is_float else of,), kids)


def _cast(node: Scalar, source: DType, kids: Sequence[str], place: TextPlace) -> str | None:
    assert isinstance(node, Cast)
    to, kinds = node.dtype, place.dialect.registers
    if to.name == "i64" and kinds["i64"] == "i64" and source.kind == "uint":
        return f"i64(u64({kids[0]}))"  # or drivers take the highest bit for a sign
    if to.is_integer and not source.is_float and source is not to:
        return fitted(f"{kinds[to.name]}({kids[0]})", to)
    if to.is_integer and source.is_float:  # which is computed as f32, whatever it is
        source = f32
    return CLIKE.specials["Cast"](node, source, kids, place)


def _as_c(node: Scalar, of: DType, kids: Sequence[str], place: TextPlace) -> str | None:
    found = CLIKE.specials.get(type(node).__name__)
    return None if found is None else found(node, of, kids, place)


def _refused_float(node: Scalar, of: DType, kids: Sequence[str], place: TextPlace) -> str | None:
    """Quotients and powers of floats."""
    if of.is_float:
        raise _rough(type(node).__name__ if not isinstance(node, Intrinsic) else node.name)
    return _as_c(node, of, kids, place)


def _inverse_root(node: Scalar, of: DType, kids: Sequence[str], place: TextPlace) -> str | None:
    if not of.is_float:
        return None
    return round_to_dtype(f"(1.0f / {round_to_dtype(f'sqrt({kids[0]})', of, place)})", of, place)


def _differ(node: Scalar, of: DType, kids: Sequence[str], place: TextPlace) -> str | None:
    """Where two conditions differ; and a difference of floats, in which drivers cancel nothing."""
    if of is bool_:
        return f"({kids[0]} != {kids[1]})"
    if of.is_float and isinstance(node, Sub):
        return round_to_dtype(f"({place.call('p_rounded', (), kids[:1])} - {kids[1]})", of, place)
    return _as_c(node, of, kids, place)


def _compared(node: Scalar, of: DType, kids: Sequence[str], place: TextPlace) -> str | None:
    """Comparisons of 64 bits as those of naturals, since drivers are wrong about others (Mesa
    22.3), and of floats by functions that look for nan: what is not less need not be more."""
    if of.is_float:
        return place.call(f"p_{type(node).__name__.lower()}_f32", (), kids)
    if of.name == "i64" and isinstance(node, Lt | Le) and place.dialect.register(of) == "i64":
        one, two = kids if isinstance(node, Lt) else (kids[1], kids[0])
        return f"{'' if isinstance(node, Lt) else '!'}p_less({one}, {two})"
    return _as_c(node, of, kids, place)


LONG_HELPERS: Final = frozenset(["p_at", "p_count", "p_less", "p_min_i64", "p_max_i64"])
"""What kernels with integers of 64 bits have at hand."""


def _integer(value: int, of: DType) -> str:
    if of.kind == "uint":
        return f"{value}u"
    return whole(value)


def _integer_long(value: int, of: DType) -> str:
    if of.bits < 64:
        return _integer(value, of)
    if value == -(1 << 63):
        return "(-9223372036854775807li - 1li)"
    return f"{value}l{'u' if of.name == 'u64' else 'i'}"


_WORDS: Final = """
    alias bitcast break case const const_assert continue continuing default diagnostic discard else
    enable false fn for if let loop override requires return struct switch true var while array
    atomic bool f16 f32 f64 i32 i64 u32 u64 vec2 vec3 vec4 mat2x2 ptr sampler select abs min max
    floor ceil round trunc sqrt exp log pow sin cos tan sign clamp step mix fract any all dot
    length cross distance normalize nothing memory params item failed p main id NULL Self abstract
    active as async await attribute auto become cast catch class common compile concept constexpr
    do enum explicit export extends extern external final finally from get goto handle highp impl
    import in inline inout input instanceof interface layout lowp macro match mediump meta mod
    module move mut namespace new nil noexcept null of operator out output package packed pass
    precise private protected pub public readonly ref regardless register require resource self set
    shared signed sizeof smooth static std target template this throw trait try type typedef typeid
    typename union unless unsafe unsigned use using varying virtual volatile where with workgroup
    write yield
"""

WGSL: Final = evolve(
    CLIKE,
    name="webgpu",
    registers=_TYPES,
    elements={},
    integer=_integer,
    real=lambda value, of: real(value),
    reserved=frozenset(_WORDS.split()),
    written=_written,
    specials={
        **CLIKE.specials,
        **dict.fromkeys(_FUNCTIONS, _function),
        **dict.fromkeys(
            ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh",
             "atan2", "log10", "abs", "round", "fma", "exp", "log"), _function),
        **dict.fromkeys(("Eq", "Ne", "Lt", "Le"), _compared),
        "FloorDiv": _refused_float, "FloorMod": _refused_float, "Pow": _refused_float,
        "fmod": _refused_float, "Select": _select, "isnan": _isnan, "isinf": _isinf, "sign": _sign,
        "Cast": _cast, "rsqrt": _inverse_root, "Sub": _differ, "BitXor": _differ,
    },
    conversion="{0}({1})".format,
    extremes=dict.fromkeys(
        ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"), "{word}({0}, {1})"
    ),
    element="{buffer}[u32({at})]",
    allocation="var {name}: array<{type}, {count}>;",
    value="let {name}: {type} = {text};",
    variable="var {name}: {type};",
    loop="for (var {name}: {type} = {type}(0); {name} < {extent}; {name} += {type}(1))",
    failure="fail();",
    inside="u32({at}) < {count}u",
)  # fmt: skip
"""Indices are of 32 bits: no tensor has more elements than those tell apart."""

LONG: Final = evolve(
    WGSL,
    loop=(
        "for (var {name}: {type} = {type}(0); p_less(i64({name}), i64({extent}));"
        " {name} += {type}(1))"
    ),
    registers={**_TYPES, "i64": "i64", "u64": "u64"},
    integer=_integer_long,
    extremes={**WGSL.extremes, "i64": "p_{word}_i64({0}, {1})"},
    element="{buffer}[p_at({at})]",
    inside="p_count({at}) < {count}lu",
)
"""The same for kernels whose tensors hold integers of 64 bits: an extension of the language."""
