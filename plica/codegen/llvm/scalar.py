"""Scalar operations in LLVM's text: the meaning `plica.ir.loop.scalar` states, for every operand.

A place (`LlvmPlace`) says how many lanes all operands and the result have.  Nothing here can trap
or be undefined (divisions by zero, shifts, casts out of range are guarded): both sides of a
`Select` may be computed.  An operator is the word of its row or, by name, one of `SPECIALS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from plica.codegen.emit.contraction import bounded, nearest_integer
from plica.codegen.emit.dialect import SpecialOperator
from plica.codegen.emit.scalar import round_to_dtype
from plica.codegen.llvm.writer import LlvmPlace
from plica.core import CompilerBug
from plica.ir.loop.formula import FORMULAS
from plica.ir.loop.scalar import Cast, FloorDiv, FloorMod, Intrinsic, Lit, Scalar, dtype_of
from plica.ir.loop.scalar_row import ScalarRow
from plica.ir.type import DType, bf16, bool_, f32, f64, i8, i32
from plica.schedule.default.lane import EXACT_QUOTIENT_BITS

ROUNDING_CONSTANT: Final = 3 << 22
"""Floats near this constant are integers, with a spacing of 1 over 22 bits."""


def by_word(word: str, row: ScalarRow, of: DType, kids: Sequence[str], p: LlvmPlace) -> str:
    """The expression of a row's word (`plica.ir.loop.scalar_row`)."""
    if not word:
        return kids[0]
    kind = p.register(of)
    if word == "bitcast":
        return p.let(f"bitcast {kind} {kids[0]} to {p.register(DType(row.gives))}")
    if not word.startswith("@"):
        return p.let(f"{word} {kind} {', '.join(kids)}")
    if word.startswith("@llvm."):
        return p.intrinsic(word.removeprefix("@llvm."), of, kids)
    if row.name in FORMULAS and of is not f64:
        return p.help(f"math.{row.name}", f"{row.name}.f32", ("float", "float"), kids)
    return _library(word[1:], of, kids, p)


def _library(name: str, of: DType, kids: Sequence[str], p: LlvmPlace) -> str:
    """A function of the C library, on one lane after another."""
    one, called = p.dialect.register(of), name if of is f64 else f"{name}f"
    return p.by_lane(one, kids, lambda *each: p.call(called, one, each))


def loaded(stored: str, of: DType, p: LlvmPlace) -> str:
    """The loaded value converted to its register type."""
    kind, own = p.wide(p.dialect.memory(of)), p.register(of)
    if of is bool_:
        return p.let(f"icmp ne {kind} {stored}, {p.literal(0, i8)}")
    return p.let(f"trunc {kind} {stored} to {own}")


def stored(value: str, of: DType, p: LlvmPlace) -> str:
    """The value converted to its storage type."""
    return p.let(f"zext {p.register(of)} {value} to {p.wide(p.dialect.memory(of))}")


def multiply_add(node: Scalar, terms: Sequence[str], p: LlvmPlace) -> str:
    """`a * b + c` of three terms, rounded once where the machine does that in one instruction."""
    of = dtype_of(node)
    return p.call(f"llvm.fmuladd.{p.suffix(of)}", p.register(of), terms)


def nearest(node: Scalar, terms: Sequence[str], p: LlvmPlace) -> str:
    """A float as the nearest small integer, shifted and clamped (`nearest_integer`).

    Integral bounds may be applied before rounding. Adding a number whose last bit is 1 rounds a
    float to an integer, ties to even, whose low bits are the integer. Subtracting the number again
    gives the integer as a float without extracting bits.
    """
    of, (value,) = nearest_integer(node), terms
    assert of is not None
    assert isinstance(node, Cast)
    kind, whole, bounded = p.register(f32), p.register(i32), value
    for word, bound in (("ogt", of.low - of.zero), ("olt", of.high - of.zero)):
        text = p.literal(float(bound), f32)
        inside = p.let(f"fcmp {word} {kind} {bounded}, {text}")
        bounded = p.select(inside, kind, bounded, text)
    if of.restored is not None:
        moved = p.let(f"fadd {kind} {bounded}, {p.literal(float(ROUNDING_CONSTANT), f32)}")
        less = p.literal(float(ROUNDING_CONSTANT - of.zero - of.restored), f32)
        found = p.let(f"fsub {kind} {moved}, {less}")
        if not of.low:
            return found
        none = p.let(f"fcmp uno {kind} {value}, {value}")
        return p.select(none, kind, p.literal(float(of.restored), f32), found)
    odd = of.zero % 2  # a tie is between other neighbours where an odd number is added before
    if of.rounds:
        beside = p.literal(float(ROUNDING_CONSTANT + of.zero - odd), f32)
        moved = p.let(f"bitcast {kind} {p.let(f'fadd {kind} {bounded}, {beside}')} to {whole}")
    else:
        moved = p.let(f"fptosi {kind} {bounded} to {whole}")
    if odd:
        moved = p.let(f"add {whole} {moved}, {p.literal(odd, i32)}")
    if of.low:  # nan is the least number by now
        none = p.let(f"fcmp uno {kind} {value}, {value}")
        moved = p.select(none, whole, p.literal(0, i32), moved)
    return p.let(f"trunc {whole} {moved} to {p.register(node.dtype)}")


def small(node: Scalar, terms: Sequence[str], p: LlvmPlace) -> str:
    """A float below 2^22 in magnitude as a small integer, from the low bits of the nearest; or a
    float clamped on one side (`plica.codegen.emit.contraction`)."""
    kind, whole = p.register(f32), p.register(i32)
    if (of := bounded(node)) is not None:
        if p.w.traits.saturates:  # there the other one of nan is one instruction, too
            return p.intrinsic(f"{of[0]}num", f32, terms)
        word = "ogt" if of[0] == "max" else "olt"
        inside = p.let(f"fcmp {word} {kind} {', '.join(terms)}")
        return p.select(inside, kind, *terms)
    moved = p.let(f"fadd {kind} {terms[0]}, {p.literal(float(ROUNDING_CONSTANT), f32)}")
    bits = p.let(f"bitcast {kind} {moved} to {whole}")
    return p.let(f"trunc {whole} {bits} to {p.register(dtype_of(node))}")


def _arithmetic(
    word: str, node: Scalar, of: DType, kids: Sequence[str], p: LlvmPlace
) -> str | None:
    """A sum, product or quotient of two of bf16, rounded; of two others it is their row's word.

    Low bits of both are 0, and so are those of a nan they give: no bit of it can be carried away.
    """
    if of is not bf16:
        return None
    value = p.let(f"{word} {p.register(of)} {', '.join(kids)}")
    return p.help("bf16", "near.bf16", ("float", "float"), (value,))


def _select(node: Scalar, of: DType, kids: Sequence[str], p: LlvmPlace) -> str:
    return p.select(kids[0], p.register(of), kids[1], kids[2])


def _not(node: Scalar, of: DType, kids: Sequence[str], p: LlvmPlace) -> str:
    return p.let(f"xor {p.flag} {kids[0]}, {p.literal(True, bool_)}")


def _floor(node: Scalar, of: DType, kids: Sequence[str], p: LlvmPlace) -> str:
    assert isinstance(node, FloorDiv | FloorMod)
    quotient = isinstance(node, FloorDiv)
    a, b = kids
    if of.is_float:
        one = p.dialect.register(of)
        end = "f64" if of is f64 else "f32"
        name = f"{'floordiv' if quotient else 'floormod'}.{end}"
        return round_to_dtype(p.help(f"floor.{end}", name, (one, one), (a, b)), of, p)
    if of is bool_:
        raise CompilerBug("Bools have no quotient.")
    kind, nil = p.register(of), p.literal(0, of)
    if p.divides_naturals(node) and (isinstance(node.right, Lit) or not _is_in_lanes(of, p)):
        return p.let(f"{'udiv' if quotient else 'urem'} {kind} {a}, {b}")
    if isinstance(node.right, Lit) and (by := int(node.right.value)) > 0:
        return _floor_by(by, of, kids, p, quotient=quotient)
    zero = p.let(f"icmp eq {kind} {b}, {nil}")
    if of.kind == "uint":
        safe = p.select(zero, kind, p.literal(1, of), b)
        found = _quotient(of, a, safe, p)
        if not quotient:
            found = p.let(f"sub {kind} {a}, {p.let(f'mul {kind} {found}, {safe}')}")
        return p.select(zero, kind, nil, found)
    minus = p.let(f"icmp eq {kind} {b}, {p.literal(-1, of)}")
    special = p.let(f"or {p.flag} {zero}, {minus}")
    safe = p.select(special, kind, p.literal(1, of), b)
    q = _quotient(of, a, safe, p)
    back = p.let(f"mul {kind} {q}, {safe}")
    r = p.let(f"sub {kind} {a}, {back}")
    some = p.let(f"icmp ne {kind} {r}, {nil}")
    signs = p.let(f"xor {kind} {r}, {safe}")
    differ = p.let(f"icmp slt {kind} {signs}, {nil}")
    down = p.let(f"and {p.flag} {some}, {differ}")
    if quotient:
        step = p.let(f"sext {p.flag} {down} to {kind}")
        floor = p.let(f"add {kind} {q}, {step}")
        turned = p.let(f"sub {kind} {nil}, {a}")
        return p.select(zero, kind, nil, p.select(minus, kind, turned, floor))
    step = p.select(down, kind, safe, nil)
    return p.select(special, kind, nil, p.let(f"add {kind} {r}, {step}"))


def _is_in_lanes(of: DType, p: LlvmPlace) -> bool:
    """Whether integers are narrow enough for floats to divide them, several at once."""
    return of.bits <= EXACT_QUOTIENT_BITS and p.register(of).startswith("<")


def _quotient(of: DType, a: str, b: str, p: LlvmPlace) -> str:
    """A quotient rounded towards 0, for divisors other than 0 and -1.

    No machine divides integers in lanes, but all divide floats: two integers of 32 bits are apart
    from a whole quotient by 2^-31 of it, of 16 bits by 2^-15, which the next larger floats tell.
    """
    kind, sign = p.register(of), "s" if of.kind == "int" else "u"
    if not _is_in_lanes(of, p):
        return p.let(f"{sign}div {kind} {a}, {b}")
    real = p.register(f64 if of.bits > 16 else f32)
    one, two = (p.let(f"{sign}itofp {kind} {each} to {real}") for each in (a, b))
    return p.let(f"fpto{sign}i {real} {p.let(f'fdiv {real} {one}, {two}')} to {kind}")


def _floor_by(by: int, of: DType, kids: Sequence[str], p: LlvmPlace, *, quotient: bool) -> str:
    """A quotient or remainder by a number that is known, and more than 0."""
    (a, b), kind = kids, p.register(of)
    if of.kind == "uint":
        return p.let(f"{'udiv' if quotient else 'urem'} {kind} {a}, {b}")
    if by & (by - 1) == 0:
        shift = p.literal(by.bit_length() - 1, of)
        return p.let(
            f"ashr {kind} {a}, {shift}" if quotient else f"and {kind} {a}, {p.literal(by - 1, of)}"
        )
    q = p.let(f"sdiv {kind} {a}, {b}")
    back = p.let(f"mul {kind} {q}, {b}")
    r = p.let(f"sub {kind} {a}, {back}")
    below = p.let(f"ashr {kind} {r}, {p.literal(of.bits - 1, of)}")  # all ones where it is negative
    if quotient:
        return p.let(f"add {kind} {q}, {below}")
    more = p.let(f"and {kind} {below}, {b}")
    return p.let(f"add {kind} {r}, {more}")


def _extreme(word: str, node: Scalar, of: DType, kids: Sequence[str], p: LlvmPlace) -> str:
    """The lesser (`min`) or greater (`max`) of two."""
    if of.is_float:
        kind = p.register(of)
        args = [(kind, child) for child in kids]
        # A machine's own instruction seldom tells 0 from -0.
        result = f"nsz {kind}" if p.w.traits.signless else kind
        return p.w.call(f"llvm.{word}imum.{p.suffix(of)}", result, args)
    if of is bool_:
        return p.let(f"{'or' if word == 'max' else 'and'} {p.flag} {kids[0]}, {kids[1]}")
    return p.intrinsic(f"{'s' if of.kind == 'int' else 'u'}{word}", of, kids)


def _power(node: Scalar, of: DType, kids: Sequence[str], p: LlvmPlace) -> str:
    if of is f64:
        return _library("pow", of, kids, p)
    if of.is_float:
        return round_to_dtype(p.help("math.pow", "pow.f32", ("float", "float"), kids), of, p)
    if of is bool_:
        raise CompilerBug("Bools have no power.")
    one = p.dialect.register(of)
    single = LlvmPlace(p.dialect, p.w)
    name = f"power.{one}"
    found = p.by_lane(one, kids, lambda *each: single.help(name, name, (one, one), each))
    if of.kind == "uint":
        return found
    kind, nil = p.register(of), p.literal(0, of)
    return p.select(p.let(f"icmp slt {kind} {kids[1]}, {nil}"), kind, nil, found)


def _shift(word: str, node: Scalar, of: DType, kids: Sequence[str], p: LlvmPlace) -> str | None:
    if not of.is_integer:
        return None
    a, b = kids
    kind = p.register(of)
    fits = p.let(f"icmp ult {kind} {b}, {p.literal(of.bits, of)}")
    arithmetic = word == "shr" and of.kind == "int"
    by = p.select(fits, kind, b, p.literal(of.bits - 1 if arithmetic else 0, of))
    if arithmetic:
        return p.let(f"ashr {kind} {a}, {by}")
    moved = p.let(f"{'shl' if word == 'shl' else 'lshr'} {kind} {a}, {by}")
    return p.select(fits, kind, moved, p.literal(0, of))


def _cast(node: Scalar, source: DType, kids: Sequence[str], p: LlvmPlace) -> str:
    """A value in another dtype."""
    assert isinstance(node, Cast)
    (value,), to = kids, node.dtype
    if source is to:
        return value
    before, after = p.register(source), p.register(to)
    if to is bool_:
        if source.is_float:
            return p.let(f"fcmp une {before} {value}, {p.literal(0.0, source)}")
        return p.let(f"icmp ne {before} {value}, {p.literal(0, source)}")
    match source.kind, to.kind:
        case "float", "float":
            return _refloat(value, source, to, p)
        case "float", "int" | "uint":
            if p.lanes and to.bits >= 8 and not p.w.traits.saturates:
                return _saturated(value, source, to, p)
            sign = "s" if to.kind == "int" else "u"
            name = f"llvm.fpto{sign}i.sat.{p.suffix(to)}.{p.suffix(source)}"
            return p.w.call(name, after, [(before, value)])
        case _, "float":
            word = "sitofp" if source.kind == "int" else "uitofp"
            return round_to_dtype(p.let(f"{word} {before} {value} to {after}"), to, p)
        case _:
            if source.bits == to.bits:
                return value
            narrower = to.bits < source.bits
            wider = "sext" if source.kind == "int" else "zext"
            return p.let(f"{'trunc' if narrower else wider} {before} {value} to {after}")


def _saturated(value: str, source: DType, to: DType, p: LlvmPlace) -> str:
    """Saturating float-to-integer conversion of lanes; 0 for NaN.

    LLVM's own instruction for that would be made for one lane after another.
    """
    wide = f64 if source is f64 else f32
    before, (low, high) = p.register(source), to.bounds
    middle = to if to.bits >= 32 else i32
    between = p.register(middle)
    digits = 53 if wide is f64 else 24
    most = high if high < 2**digits else high + 1 - 2 ** (high.bit_length() - digits)
    bounded = value
    for word, bound in (("ogt", low), ("olt", most)):
        text = p.literal(float(bound), wide)
        inside = p.let(f"fcmp {word} {before} {bounded}, {text}")
        bounded = p.select(inside, before, bounded, text)
    word = "fptosi" if middle.kind == "int" else "fptoui"
    found = p.let(f"{word} {before} {bounded} to {between}")
    for test, where, other in (
        (most < high, f"fcmp oge {before} {value}, {p.literal(float(high + 1), wide)}", high),
        (low != 0, f"fcmp uno {before} {value}, {value}", 0),  # else it is the least already
    ):
        if test:
            found = p.select(p.let(where), between, p.literal(other, middle), found)
    if middle is to:
        return found
    return p.let(f"trunc {between} {found} to {p.register(to)}")


def _refloat(value: str, source: DType, to: DType, p: LlvmPlace) -> str:
    if to is f64:
        return p.let(f"fpext {p.wide('float')} {value} to {p.wide('double')}")
    if source is f64:
        if to.is_narrow and not to.row.by_way_of_f32:
            value = p.help("odd", "odd", ("double", "float"), (value,))
        else:
            value = p.let(f"fptrunc {p.wide('double')} {value} to {p.wide('float')}")
    return round_to_dtype(value, to, p)


def _classify(node: Scalar, of: DType, kids: Sequence[str], p: LlvmPlace) -> str:
    """Whether a number is none (`isnan`), or infinite."""
    if not of.is_float:
        return p.literal(False, bool_)
    assert isinstance(node, Intrinsic)
    kind = p.register(of)
    if node.name == "isnan":
        return p.let(f"fcmp uno {kind} {kids[0]}, {p.literal(0.0, of)}")
    size = p.intrinsic("fabs", of, kids)
    return p.let(f"fcmp oeq {kind} {size}, {p.literal(float('inf'), of)}")


def _sign(node: Scalar, of: DType, kids: Sequence[str], p: LlvmPlace) -> str:
    (value,), kind = kids, p.register(of)
    if of.is_float:
        zero = p.literal(0.0, of)
        more = p.let(f"fcmp ogt {kind} {value}, {zero}")
        less = p.let(f"fcmp olt {kind} {value}, {zero}")
        nan = p.let(f"fcmp uno {kind} {value}, {zero}")
        one = p.select(more, kind, p.literal(1.0, of), zero)
        return p.select(nan, kind, value, p.select(less, kind, p.literal(-1.0, of), one))
    if of is bool_:
        return value
    nil = p.literal(0, of)
    some = p.let(f"icmp ne {kind} {value}, {nil}")
    plus = p.let(f"zext {p.flag} {some} to {kind}")
    if of.kind == "uint":
        return plus
    return p.select(p.let(f"icmp slt {kind} {value}, {nil}"), kind, p.literal(-1, of), plus)


def _absolute(node: Scalar, of: DType, kids: Sequence[str], p: LlvmPlace) -> str | None:
    if of.kind != "int":
        return None
    kind, nil = p.register(of), p.literal(0, of)
    less = p.let(f"icmp slt {kind} {kids[0]}, {nil}")
    turned = p.let(f"sub {kind} {nil}, {kids[0]}")
    return p.select(less, kind, turned, kids[0])


def _inverse_root(node: Scalar, of: DType, kids: Sequence[str], p: LlvmPlace) -> str | None:
    if not of.is_float:
        return None
    root = round_to_dtype(p.intrinsic("sqrt", of, kids), of, p)
    return round_to_dtype(p.let(f"fdiv {p.register(of)} {p.literal(1.0, of)}, {root}"), of, p)


def _truncated(
    quotient: bool, node: Scalar, of: DType, kids: Sequence[str], p: LlvmPlace
) -> str | None:
    """The quotient towards 0, or the remainder with the sign of the left side; 0 by 0."""
    if of.is_float and of is not f64 and not quotient:
        one = p.dialect.register(of)
        return round_to_dtype(p.help("fmod.f32", "fmod.f32", (one, one), kids), of, p)
    if not of.is_integer:
        return None
    a, b = kids
    kind, nil = p.register(of), p.literal(0, of)
    zero = p.let(f"icmp eq {kind} {b}, {nil}")
    special, by_minus_one = zero, nil
    if of.kind == "int":
        minus = p.let(f"icmp eq {kind} {b}, {p.literal(-1, of)}")
        special = p.let(f"or {p.flag} {zero}, {minus}")
        if quotient:
            turned = p.let(f"sub {kind} {nil}, {a}")
            by_minus_one = p.select(minus, kind, turned, nil)
    safe = p.select(special, kind, p.literal(1, of), b)
    sign = "s" if of.kind == "int" else "u"
    found = p.let(f"{sign}{'div' if quotient else 'rem'} {kind} {a}, {safe}")
    return p.select(special, kind, by_minus_one, found)


SPECIALS: Final[dict[str, SpecialOperator[LlvmPlace]]] = {
    "Add": partial(_arithmetic, "fadd"),
    "Sub": partial(_arithmetic, "fsub"),
    "Mul": partial(_arithmetic, "fmul"),
    "Div": partial(_arithmetic, "fdiv"),
    "FloorDiv": _floor,
    "FloorMod": _floor,
    "Min": partial(_extreme, "min"),
    "Max": partial(_extreme, "max"),
    "Pow": _power,
    "ShiftLeft": partial(_shift, "shl"),
    "ShiftRight": partial(_shift, "shr"),
    "Not": _not,
    "Select": _select,
    "Cast": _cast,
    "isnan": _classify,
    "isinf": _classify,
    "sign": _sign,
    "abs": _absolute,
    "rsqrt": _inverse_root,
    "fmod": partial(_truncated, False),
    "truncdiv": partial(_truncated, True),
    "truncmod": partial(_truncated, False),
}
"""Operators that are several instructions: what no word of a row says."""
