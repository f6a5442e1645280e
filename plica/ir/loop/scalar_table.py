"""The table of scalar operators: a row each, and all that anybody knows of it.

To add an intrinsic, add a row to `INTRINSIC_ROWS` (and a formula in `plica.ir.loop.formula` if
Plica computes it by a polynomial): interpreters, scripts, printers, generators, LLVM, C-like
languages, features, intervals and derivatives read the row.

>>> ROWS["Add"].sign, ROWS["Add"].llvm["float"], ROWS["exp"].c["float"]
('+', 'fadd', 'exp{e}({0})')
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np

from plica.core.diagnostic import EvaluationError
from plica.ir.loop import scalar_meaning as meaning, scalar_row as interval
from plica.ir.loop.formula import FORMULAS
from plica.ir.loop.scalar_row import FLAT, INTEGERS, NUMBERS, ScalarRow, every, laws
from plica.ir.type.dtype import DTYPES, DType, f32, f64
from plica.runtime.element import Kind
from plica.runtime.error import Place
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.ir.loop.array_formula import by_formula

ANY: Final[tuple[Kind, ...]] = (*NUMBERS, "bool")
WHOLE: Final[tuple[Kind, ...]] = (*INTEGERS, "bool")


def _numbers(integers: Any, floats: Any = None, bools: Any = None) -> dict[Kind, Any]:
    """Meanings on single numbers, by kind."""
    found: dict[Kind, Any] = {"int": integers, "uint": integers} if integers else {}
    return found | ({"float": floats} if floats else {}) | ({"bool": bools} if bools else {})


def _by_kind(floats: str, signed: str, unsigned: str, bools: str = "") -> dict[Kind, str]:
    found: dict[Kind, str] = {"float": floats, "int": signed, "uint": unsigned}
    return found | ({"bool": bools} if bools else {})


def _compare(name: str, sign: str, how: Any, array: Any, *words: str) -> ScalarRow:
    of_float, signed, unsigned = words
    return ScalarRow(
        name, array, ANY, 2, gives="bool", numbers=dict.fromkeys(ANY, how), is_exact=True,
        sign=sign, binds=4, cost="compare",
        llvm=_by_kind(f"fcmp {of_float}", f"icmp {signed}", f"icmp {unsigned}", f"icmp {unsigned}"),
        c=every(f"({{0}} {sign} {{1}})"),
        laws=laws("commutative") if name in ("Eq", "Ne") else laws(),
    )  # fmt: skip


def _extreme_slope(f: Any, d: Any, z: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """The selected operand takes the cotangent; equal operands take half each."""
    left, right = f("equal", z, x), f("equal", z, y)
    half = d * 0.5
    return (
        f("where", left, f("where", right, half, d), 0),
        f("where", right, f("where", left, half, d), 0),
    )


def _angle_slope(f: Any, d: Any, z: Any, y: Any, x: Any) -> tuple[Any, Any]:
    size = f("square", x) + f("square", y)
    part = d / f("where", f("equal", size, 0), 1, size)  # the origin has no angle: 0, not 0 / 0
    return part * x, -(part * y)


_RING: Final = laws("commutative", "associative")
_LATTICE: Final = laws("commutative", "associative", "idempotent")

# fmt: off
OPERATOR_ROWS: Final = (
    ScalarRow("Add", np.add, NUMBERS, 2, numbers=_numbers(operator.add, operator.add, operator.or_), is_exact=True,
              sign="+", binds=9, cost="add", llvm=_by_kind("fadd", "add", "add", "or"), c=_by_kind("({0} + {1})", "@p_add", "@p_add", "|"),
              range=interval.total, derivative=lambda f, d, z, x, y: (d, d), laws=_RING, unit="zero"),
    ScalarRow("Sub", np.subtract, NUMBERS, 2, numbers=_numbers(operator.sub, operator.sub), is_exact=True,
              sign="-", binds=9, cost="add", llvm=_by_kind("fsub", "sub", "sub", "xor"), c=_by_kind("({0} - {1})", "@p_sub", "@p_sub", "^"),
              range=interval.difference, derivative=lambda f, d, z, x, y: (d, -d)),
    ScalarRow("Mul", np.multiply, NUMBERS, 2, numbers=_numbers(operator.mul, operator.mul, operator.and_), is_exact=True,
              sign="*", binds=10, cost="multiply", llvm=_by_kind("fmul", "mul", "mul", "and"), c=_by_kind("({0} * {1})", "@p_mul", "@p_mul", "&"),
              range=interval.product, derivative=lambda f, d, z, x, y: (d * y, d * x), laws=_RING, unit="one"),
    ScalarRow("Div", np.divide, ("float",), 2, numbers=_numbers(None, meaning.number_divide), is_exact=True,
              sign="/", binds=10, cost="divide", llvm={"float": "fdiv"}, c={"float": "({0} / {1})"},
              derivative=lambda f, d, z, x, y: (d / y, -(d * z / y))),
    ScalarRow("FloorDiv", np.floor_divide, NUMBERS, 2, numbers=_numbers(lambda a, b: a // b if b else 0), is_exact=True,
              sign="//", binds=10, cost="divide", c=_by_kind("@p_floordiv_float", "@p_floordiv", "@p_floordiv"),
              range=interval.quotient, derivative=FLAT),
    ScalarRow("FloorMod", np.remainder, NUMBERS, 2, numbers=_numbers(lambda a, b: a % b if b else 0), is_exact=True,
              sign="%", binds=10, cost="divide", c=_by_kind("@p_floormod_float", "@p_floormod", "@p_floormod"),
              range=interval.remainder),
    ScalarRow("Min", meaning.array_least, NUMBERS, 2, numbers=_numbers(min, meaning.number_least, operator.and_), is_exact=True, rounds=False,
              word="min", cost="compare", range=interval.least, derivative=_extreme_slope, laws=_LATTICE, unit="greatest"),
    ScalarRow("Max", meaning.array_greatest, NUMBERS, 2, numbers=_numbers(max, meaning.number_greatest, operator.or_), is_exact=True, rounds=False,
              word="max", cost="compare", range=interval.greatest, derivative=_extreme_slope, laws=_LATTICE, unit="least"),
    ScalarRow("Pow", meaning.array_power, NUMBERS, 2, numbers=_numbers(meaning.number_power),
              word="pow", c=_by_kind("pow{e}({0}, {1})", "@p_power", "@p_power")),
    ScalarRow("BitAnd", np.bitwise_and, WHOLE, 2, numbers=_numbers(operator.and_, None, operator.and_), is_exact=True,
              sign="&", binds=7, cost="logic", llvm=every("and", WHOLE), c=every("{0} & {1}", WHOLE),
              range=interval.common_bits, laws=_LATTICE),
    ScalarRow("BitOr", np.bitwise_or, WHOLE, 2, numbers=_numbers(operator.or_, None, operator.or_), is_exact=True,
              sign="|", binds=5, cost="logic", llvm=every("or", WHOLE), c=every("{0} | {1}", WHOLE),
              range=interval.all_bits, laws=_LATTICE, unit="zero"),
    ScalarRow("BitXor", np.bitwise_xor, WHOLE, 2, numbers=_numbers(operator.xor, None, operator.xor), is_exact=True,
              sign="^", binds=6, cost="logic", llvm=every("xor", WHOLE), c=every("{0} ^ {1}", WHOLE), laws=_RING, unit="zero"),
    ScalarRow("ShiftLeft", np.left_shift, INTEGERS, 2, numbers=_numbers(meaning.number_shift_left), is_exact=True,
              sign="<<", binds=8, cost="other", c=every("@p_shl", INTEGERS), range=interval.shifted_left),
    ScalarRow("ShiftRight", np.right_shift, INTEGERS, 2, numbers=_numbers(meaning.number_shift_right), is_exact=True,
              sign=">>", binds=8, cost="other", c=every("@p_shr", INTEGERS), range=interval.shifted_right),
    _compare("Eq", "==", operator.eq, np.equal, "oeq", "eq", "eq"),
    _compare("Ne", "!=", operator.ne, np.not_equal, "une", "ne", "ne"),
    _compare("Lt", "<", operator.lt, np.less, "olt", "slt", "ult"),
    _compare("Le", "<=", operator.le, np.less_equal, "ole", "sle", "ule"),
    ScalarRow("And", np.logical_and, ("bool",), 2, gives="bool", is_exact=True, sign="and", binds=2, cost="logic",
              llvm={"bool": "and"}, c={"bool": "({0} && {1})"}, laws=_LATTICE, unit="one"),
    ScalarRow("Or", np.logical_or, ("bool",), 2, gives="bool", is_exact=True, sign="or", binds=1, cost="logic",
              llvm={"bool": "or"}, c={"bool": "({0} || {1})"}, laws=_LATTICE, unit="zero"),
    ScalarRow("Not", np.logical_not, ("bool",), 1, gives="bool", is_exact=True, cost="logic", c={"bool": "(!{0})"}),
    ScalarRow("Select", np.where, ANY, 3, is_exact=True, rounds=False, cost="select", c=every("({0} ? {1} : {2})"),
              range=lambda _, a, b: interval.hull(a, b)),
)


def _library(name: str, derivative: Any, array: Any = None, range: Any = None, **more: Any) -> ScalarRow:
    """A function of the C library: in f32 with an `f` at the end."""
    means = array or getattr(np, name)
    return ScalarRow(name, partial(by_formula, name, means) if name in FORMULAS else means, range=range, derivative=derivative,
                     llvm={"float": f"@{name}"}, c={"float": f"{name}{{e}}({{0}})"}, **more)


def _rounding(name: str, llvm: str, c: str, array: Callable[..., Any]) -> ScalarRow:
    """To a whole number; integers are whole."""
    return ScalarRow(name, array, is_exact=True, rounds=False, llvm=every("") | {"float": f"@llvm.{llvm}"},
                     c=every("{0}") | {"float": f"{c}{{e}}({{0}})"}, range=interval.rising(array), derivative=FLAT)


_TURN: Final = interval.within(-1.0, 1.0)

def _of_bits(of: DType) -> ScalarRow:
    """The float whose code is the low bits of an integer."""
    code = np.dtype(f"u{of.bytes}")
    return ScalarRow(f"{of}_of_bits", lambda x: np.asarray(x).astype(code).view(of.numpy), INTEGERS, gives=of.name,
                     is_exact=True, rounds=False, cost="other", derivative=FLAT)


def _bits_of(of: DType, into: dict[str, str], out: dict[str, str]) -> tuple[ScalarRow, ScalarRow]:
    """The float of a code of its width, and the code of a float: texts by dialect, C first."""
    code = np.dtype(f"u{of.bytes}")
    shared: dict[str, Any] = {"is_exact": True, "rounds": False, "cost": "other", "derivative": FLAT}
    return (
        ScalarRow(f"{of}_of_bits", lambda x: np.asarray(x).astype(code).view(of.numpy), ("uint",), gives=of.name,
                  llvm={"uint": "bitcast"}, c={"uint": into.pop("c")}, dialects={name: {"uint": text} for name, text in into.items()}, **shared),
        ScalarRow(f"bits_of_{of}", lambda x: np.asarray(x, of.numpy).view(code), gives=f"u{of.bits}",
                  llvm={"float": "bitcast"}, c={"float": out.pop("c")}, dialects={name: {"float": text} for name, text in out.items()}, **shared),
    )


CODED_FLOATS: Final = tuple(each for each in DTYPES if each.is_narrow and each.bits == 8 * each.bytes)
"""The floats whose values are decoded from whole bytes: each has an intrinsic `…_of_bits`."""

INTRINSIC_ROWS: Final = (
    _library("exp",   lambda f, d, y, x: d * y,                             range=interval.rising(np.exp)),
    _library("exp2",  lambda f, d, y, x: d * y * math.log(2),               range=interval.rising(np.exp2)),
    _library("expm1", lambda f, d, y, x: d * (y + 1),                       range=interval.rising(np.expm1)),
    _library("log",   lambda f, d, y, x: d / x,                             range=interval.rising(np.log, 0.0)),
    _library("log2",  lambda f, d, y, x: d / (x * math.log(2)),             range=interval.rising(np.log2, 0.0)),
    _library("log10", lambda f, d, y, x: d / (x * math.log(10)),            range=interval.rising(np.log10, 0.0)),
    _library("log1p", lambda f, d, y, x: d / (x + 1),                       range=interval.rising(np.log1p, -1.0)),
    ScalarRow("sqrt", np.sqrt, is_exact=True, llvm={"float": "@llvm.sqrt"}, c={"float": "sqrt{e}({0})"},
              range=interval.rising(np.sqrt, 0.0), derivative=lambda f, d, y, x: d / y * 0.5),
    ScalarRow("rsqrt", meaning.array_rsqrt, is_direct=True, range=interval.within(0.0, math.inf),
              derivative=lambda f, d, y, x: d * (y / x) * -0.5),
    _library("sin",   lambda f, d, y, x: d * f("cos", x),                   range=_TURN),
    _library("cos",   lambda f, d, y, x: -(d * f("sin", x)),                range=_TURN),
    _library("tan",   lambda f, d, y, x: d * (f("square", y) + 1)),
    _library("asin",  lambda f, d, y, x: d * f("rsqrt", 1 - f("square", x)),     np.arcsin, interval.within(-math.pi / 2, math.pi / 2)),
    _library("acos",  lambda f, d, y, x: -(d * f("rsqrt", 1 - f("square", x))),  np.arccos, interval.within(0.0, math.pi)),
    _library("atan",  lambda f, d, y, x: d / (f("square", x) + 1),          np.arctan, interval.rising(np.arctan)),
    _library("sinh",  lambda f, d, y, x: d * f("cosh", x),                  range=interval.rising(np.sinh)),
    _library("cosh",  lambda f, d, y, x: d * f("sinh", x),                  range=interval.within(1.0, math.inf)),
    _library("tanh",  lambda f, d, y, x: d * (1 - f("square", y)),          range=interval.rising(np.tanh)),
    _library("asinh", lambda f, d, y, x: d * f("rsqrt", f("square", x) + 1),     np.arcsinh, interval.rising(np.arcsinh)),
    _library("acosh", lambda f, d, y, x: d * f("rsqrt", f("square", x) - 1),     np.arccosh, interval.rising(np.arccosh, 1.0)),
    _library("atanh", lambda f, d, y, x: d / (1 - f("square", x)),          np.arctanh),
    _library("erf",   lambda f, d, y, x: d * f("exp", -f("square", x)) * (2 / math.sqrt(math.pi)), meaning.array_erf,
             interval.within(-1.0, 1.0)),
    _rounding("floor", "floor", "floor", np.floor),
    _rounding("ceil",  "ceil",  "ceil",  np.ceil),
    _rounding("round", "rint",  "rint",  np.rint),
    _rounding("trunc", "trunc", "trunc", np.trunc),
    ScalarRow("abs", np.abs, ANY, numbers=dict.fromkeys(WHOLE, abs), is_exact=True, is_direct=True, rounds=False,
              llvm={"float": "@llvm.fabs", "uint": "", "bool": ""}, c=_by_kind("fabs{e}({0})", "@p_abs", "{0}", "{0}"),
              range=interval.size, derivative=lambda f, d, y, x: d * f("sign", x)),
    ScalarRow("sign", meaning.array_sign, ANY, numbers=dict.fromkeys(WHOLE, lambda x: (x > 0) - (x < 0)), is_exact=True,
              rounds=False, c=every("@p_sign") | {"bool": "{0}"}, range=_TURN, derivative=FLAT),
    ScalarRow("isnan", np.isnan, gives="bool", numbers=dict.fromkeys(ANY, math.isnan), is_exact=True, is_direct=True,
              c=every("false") | {"float": "({0} != {0})"}),
    ScalarRow("isinf", np.isinf, gives="bool", numbers=dict.fromkeys(ANY, math.isinf), is_exact=True, is_direct=True,
              c=every("false") | {"float": "(fabs{e}({0}) == {inf})"}),
    ScalarRow("atan2", np.arctan2, ("float",), 2, llvm={"float": "@atan2"}, c={"float": "atan2{e}({0}, {1})"},
              range=interval.within(-math.pi, math.pi), derivative=_angle_slope),
    ScalarRow("fmod", np.fmod, ("float",), 2, is_exact=True, llvm={"float": "frem"},
              c=every("@p_fmod", INTEGERS) | {"float": "fmod{e}({0}, {1})"}),
    ScalarRow("truncdiv", meaning.array_truncdiv, INTEGERS, 2, numbers=_numbers(meaning.number_truncdiv), is_exact=True,
              c=every("@p_truncdiv", INTEGERS), cost="divide", derivative=FLAT),
    ScalarRow("truncmod", meaning.array_truncmod, INTEGERS, 2, numbers=_numbers(meaning.number_truncmod), is_exact=True,
              c=every("@p_fmod", INTEGERS), cost="divide"),
    ScalarRow("copysign", np.copysign, ("float",), 2, is_exact=True, rounds=False, llvm={"float": "@llvm.copysign"},
              c={"float": "copysign{e}({0}, {1})"}, range=lambda a, b: (-interval.size(a)[1], interval.size(a)[1]),
              derivative=lambda f, d, z, x, y: (f("where", f("logical_xor", f("signbit", x), f("signbit", y)), -d, d), None)),
    ScalarRow("fma", meaning.array_fma, ("float",), 3, is_exact=True, llvm={"float": "@llvm.fma"},
              c={"float": "fma{e}({0}, {1}, {2})"}, cost="multiply", range=interval.fused,
              derivative=lambda f, d, w, x, y, z: (d * y, d * x, d)),
    ScalarRow("popcount", meaning.array_popcount, INTEGERS, is_exact=True, llvm=every("@llvm.ctpop", INTEGERS),
              c=every("__builtin_popcountll((unsigned long long)({0}) & {m}ULL)", INTEGERS), cost="other",
              dialects={"cuda": every("__popcll((unsigned long long)({0}) & {m}ULL)", INTEGERS)},
              range=interval.within(0, 64), derivative=FLAT),
    *map(_of_bits, CODED_FLOATS),
    *_bits_of(f32,
              {"c": "(((union {{ unsigned i; float f; }}){{ {0} }}).f)", "cuda": "__uint_as_float({0})", "opencl": "as_float({0})",
               "metal": "as_type<float>({0})", "webgpu": "bitcast<f32>({0})"},
              {"c": "(((union {{ float f; unsigned i; }}){{ {0} }}).i)", "cuda": "__float_as_uint({0})", "opencl": "as_uint({0})",
               "metal": "as_type<uint>({0})", "webgpu": "bitcast<u32>({0})"}),
    *_bits_of(f64,
              {"c": "(((union {{ unsigned long long i; double f; }}){{ {0} }}).f)", "cuda": "__longlong_as_double((long long)({0}))",
               "opencl": "as_double({0})"},
              {"c": "(((union {{ double f; unsigned long long i; }}){{ {0} }}).i)", "opencl": "as_ulong({0})",
               "cuda": "((unsigned long long)__double_as_longlong({0}))"}),
)
# fmt: on
# ruff: noqa: E501  # a row is a few long lines

INTRINSICS: Final = {row.name: row for row in INTRINSIC_ROWS}  # the rows of intrinsics, by name
ROWS: Final = {row.name: row for row in OPERATOR_ROWS} | INTRINSICS
"""Every row, by the name of its class or of its intrinsic."""

DECLARED: Final[dict[str, ScalarRow]] = {}  # the rows that programs declare besides those of Plica


def declare_scalar(row: ScalarRow) -> ScalarRow:
    """Enter an intrinsic that kernels call as `intrinsic("name", x)`; its row says what it means,
    and by which instruction of LLVM (`@llvm.bitreverse`) or text of C a target computes it.

    A name is declared once; a row without a word for any target is refused.
    """
    if ROWS.get(row.name) is row:
        return row
    if row.name in ROWS:
        message, hint = f"There is a scalar operator {row.name!r} already.", "Give it another name."
    elif not (row.llvm or row.c or row.dialects):
        message = f"The scalar intrinsic {row.name!r} has no text for any target."
        hint = 'Say how a target writes it: llvm=every("@llvm.bitreverse", INTEGERS).'
    else:
        DECLARED[row.name] = ROWS[row.name] = row
        return row
    raise EvaluationError.of("bad-intrinsic", message, Place(node=row.name), suggestion=hint)
