"""Scalar operations in LLVM's text: the meaning `plica.ir.loop.scalar` states, for every operand.

Every operation takes a number of lanes, `n`: 0 for a single value, otherwise all operands are
vectors of so many lanes and so is the result.  Nothing here can trap or be undefined (divisions by
zero, shifts, casts out of range are guarded): both sides of a `Select` may be computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from plica.codegen.llvm.spelling import flag, literal, memory, register, suffix, wide
from plica.codegen.llvm.writer import LlvmWriter
from plica.core.diagnostic import CompilerBug
from plica.ir.loop.formula import FORMULAS
from plica.ir.loop.scalar import (
    Cast,
    FloorDiv,
    FloorMod,
    Intrinsic,
    Not,
    Scalar,
    Select,
    dtype_of,
    row_of,
)
from plica.ir.loop.scalar_row import ScalarRow
from plica.ir.type.dtype import DType, bool_, f32, f64, i8, i32
from plica.runtime.element import Kind


def operate(
    w: LlvmWriter, node: Scalar, kids: Sequence[str], natural: bool = False, n: int = 0
) -> str:
    """The value of a node from those of its operands.

    `natural` says that both operands of a quotient or remainder are known not to be negative, and
    the right one not to be zero.
    """
    match node:
        case FloorDiv() | FloorMod():
            return _floor(w, isinstance(node, FloorDiv), dtype_of(node), kids, natural, n)
        case Cast(value, to):
            return cast(w, kids[0], dtype_of(value), to, n)
        case Select():
            kind = register(dtype_of(node), n)
            return w.let(f"select {flag(n)} {kids[0]}, {kind} {kids[1]}, {kind} {kids[2]}")
        case Not():
            return w.let(f"xor {flag(n)} {kids[0]}, {literal(True, bool_, n)}")
    row = row_of(node)
    if row is None:
        raise CompilerBug(f"{node!r} is no operation on scalars.")
    of = dtype_of(_first(node))
    word = row.llvm.get(of.kind)
    if word is not None:
        return _by_word(w, row, word, of, kids, n)
    special = _SPECIAL.get(row.name)
    if special is None or not (of.kind in (*row.takes, *_ALSO.get(row.name, ())) or row.is_bool):
        raise CompilerBug(f"{row.name} has no meaning for {of}.")
    return special(w, of, kids, n)


def _first(node: Scalar) -> Scalar:
    """The operand whose dtype says which code an operator has."""
    return node.args[0] if isinstance(node, Intrinsic) else node._children[0]  # type: ignore[return-value]  # a scalar


def _by_word(  # noqa: PLR0917  # what is written, and of what
    w: LlvmWriter, row: ScalarRow, word: str, of: DType, kids: Sequence[str], n: int
) -> str:
    """What the word of a row says (`plica.ir.loop.scalar_row`)."""
    if not word:
        return kids[0]
    kind = register(of, n)
    args = [(kind, each) for each in kids[: row.arity]]
    if not word.startswith("@"):
        found = w.let(f"{word} {kind} {', '.join(kids[: row.arity])}")
    elif word.startswith("@llvm."):
        found = w.call(f"{word[1:]}.{suffix(of, n)}", kind, args)
    elif row.name in FORMULAS and of is not f64:
        found = w.help(f"math.{row.name}", f"plica.{row.name}.f32", kind, args, n)
    else:
        one, name = register(of), word[1:] if of is f64 else f"{word[1:]}f"
        singles = [(one, each) for _, each in args]
        found = by_lane(
            w, n, one, singles, lambda *each: w.call(name, one, [(one, x) for x in each])
        )
    return rounded(w, found, of, n) if row.rounds and not row.is_bool else found


def rounded(w: LlvmWriter, value: str, of: DType, n: int = 0) -> str:
    """The value as its dtype holds it, after an operation in f32."""
    if not of.is_narrow:
        return value
    return w.help(
        of.name, f"plica.round.{of.name}", wide("float", n), [(wide("float", n), value)], n
    )


def unpack(w: LlvmWriter, stored: str, of: DType, n: int = 0) -> str:
    """What was loaded, as a value in a register."""
    if of is bool_:
        return w.let(f"icmp ne {wide('i8', n)} {stored}, {literal(0, i8, n)}")
    if of.is_narrow:
        args = [(memory(of, n), stored)]
        return w.help(of.name, f"plica.unpack.{of.name}", wide("float", n), args, n)
    if of.bits < 8:
        return w.let(f"trunc {memory(of, n)} {stored} to {register(of, n)}")
    return stored


def pack(w: LlvmWriter, value: str, of: DType, n: int = 0) -> str:
    """A value as it is stored."""
    if of is bool_:
        return w.let(f"zext {flag(n)} {value} to {wide('i8', n)}")
    if of.is_narrow:
        args = [(wide("float", n), value)]
        return w.help(of.name, f"plica.pack.{of.name}", memory(of, n), args, n)
    if of.bits < 8:
        return w.let(f"zext {register(of, n)} {value} to {memory(of, n)}")
    return value


def by_lane(
    w: LlvmWriter, n: int, result: str, args: Sequence[tuple[str, str]], of_one: Callable[..., str]
) -> str:
    """An operation on single values for each lane in turn; the types are those of one lane."""
    if not n:
        return of_one(*[value for _, value in args])
    found = "poison"
    for lane in range(n):
        kids = [w.let(f"extractelement <{n} x {k}> {v}, i64 {lane}") for k, v in args]
        one = of_one(*kids)
        found = w.let(f"insertelement <{n} x {result}> {found}, {result} {one}, i64 {lane}")
    return found


def multiply_add(w: LlvmWriter, terms: Sequence[str], of: DType, n: int = 0) -> str:
    """`a * b + c` of three terms, rounded once."""
    kind = register(of, n)
    return w.call(f"llvm.fma.{suffix(of, n)}", kind, [(kind, each) for each in terms])


def _floor(  # noqa: PLR0917  # and whether it is natural
    w: LlvmWriter, quotient: bool, of: DType, kids: Sequence[str], natural: bool, n: int = 0
) -> str:
    a, b = kids
    kind = register(of, n)
    if of.is_float:
        end = suffix(of)
        name = f"plica.{'floordiv' if quotient else 'floormod'}.{end}"
        found = w.help(f"floor.{end}", name, kind, [(kind, a), (kind, b)], n)
        return rounded(w, found, of, n)
    if of is bool_:
        raise CompilerBug("Bools have no quotient.")
    if natural:
        return w.let(f"{'udiv' if quotient else 'urem'} {kind} {a}, {b}")
    nil = literal(0, of, n)
    zero = w.let(f"icmp eq {kind} {b}, {nil}")
    if of.kind == "uint":
        safe = w.let(f"select {flag(n)} {zero}, {kind} {literal(1, of, n)}, {kind} {b}")
        found = w.let(f"{'udiv' if quotient else 'urem'} {kind} {a}, {safe}")
        return w.let(f"select {flag(n)} {zero}, {kind} {nil}, {kind} {found}")
    minus = w.let(f"icmp eq {kind} {b}, {literal(-1, of, n)}")
    special = w.let(f"or {flag(n)} {zero}, {minus}")
    safe = w.let(f"select {flag(n)} {special}, {kind} {literal(1, of, n)}, {kind} {b}")
    q = w.let(f"sdiv {kind} {a}, {safe}")
    back = w.let(f"mul {kind} {q}, {safe}")
    r = w.let(f"sub {kind} {a}, {back}")
    some = w.let(f"icmp ne {kind} {r}, {nil}")
    signs = w.let(f"xor {kind} {r}, {safe}")
    differ = w.let(f"icmp slt {kind} {signs}, {nil}")
    down = w.let(f"and {flag(n)} {some}, {differ}")
    if quotient:
        step = w.let(f"sext {flag(n)} {down} to {kind}")
        floor = w.let(f"add {kind} {q}, {step}")
        turned = w.let(f"sub {kind} {nil}, {a}")
        either = w.let(f"select {flag(n)} {minus}, {kind} {turned}, {kind} {floor}")
        return w.let(f"select {flag(n)} {zero}, {kind} {nil}, {kind} {either}")
    step = w.let(f"select {flag(n)} {down}, {kind} {safe}, {kind} {nil}")
    floor = w.let(f"add {kind} {r}, {step}")
    return w.let(f"select {flag(n)} {special}, {kind} {nil}, {kind} {floor}")


def _extreme(  # and which
    w: LlvmWriter, greatest: bool, of: DType, kids: Sequence[str], n: int = 0
) -> str:
    a, b = kids
    kind = register(of, n)
    if of.is_float:
        name = f"llvm.{'maximum' if greatest else 'minimum'}.{suffix(of, n)}"
        # A machine's own instruction seldom tells 0 from -0.
        return w.call(name, f"nsz {kind}" if w.signless else kind, [(kind, a), (kind, b)])
    if of is bool_:
        return w.let(f"{'or' if greatest else 'and'} {flag(n)} {a}, {b}")
    sign = "s" if of.kind == "int" else "u"
    name = f"llvm.{sign}{'max' if greatest else 'min'}.{suffix(of, n)}"
    return w.call(name, kind, [(kind, a), (kind, b)])


def _power(w: LlvmWriter, of: DType, kids: Sequence[str], n: int = 0) -> str:
    a, b = kids
    one = register(of)
    args = [(one, a), (one, b)]
    if of.is_float:
        name = "pow" if of is f64 else "powf"
        found = by_lane(w, n, one, args, lambda x, y: w.call(name, one, [(one, x), (one, y)]))
        return rounded(w, found, of, n)
    if of is bool_:
        raise CompilerBug("Bools have no power.")
    helper, name = f"power.{one}", f"plica.power.{one}"
    found = by_lane(w, n, one, args, lambda x, y: w.help(helper, name, one, [(one, x), (one, y)]))
    if of.kind == "uint":
        return found
    kind, nil = register(of, n), literal(0, of, n)
    negative = w.let(f"icmp slt {kind} {b}, {nil}")
    return w.let(f"select {flag(n)} {negative}, {kind} {nil}, {kind} {found}")


def _shift(w: LlvmWriter, left: bool, of: DType, kids: Sequence[str], n: int = 0) -> str:
    a, b = kids
    kind = register(of, n)
    fits = w.let(f"icmp ult {kind} {b}, {literal(of.bits, of, n)}")
    arithmetic = not left and of.kind == "int"
    far = literal(of.bits - 1 if arithmetic else 0, of, n)
    nil = literal(0, of, n)
    by = w.let(f"select {flag(n)} {fits}, {kind} {b}, {kind} {far}")
    word = "shl" if left else ("ashr" if arithmetic else "lshr")
    moved = w.let(f"{word} {kind} {a}, {by}")
    return moved if arithmetic else w.let(f"select {flag(n)} {fits}, {kind} {moved}, {kind} {nil}")


def cast(w: LlvmWriter, value: str, source: DType, to: DType, n: int = 0) -> str:
    """A value in another dtype."""
    if source is to:
        return value
    before, after = register(source, n), register(to, n)
    if to is bool_:
        if source.is_float:
            return w.let(f"fcmp une {before} {value}, {literal(0.0, source, n)}")
        return w.let(f"icmp ne {before} {value}, {literal(0, source, n)}")
    match source.kind, to.kind:
        case "float", "float":
            return _refloat(w, value, source, to, n)
        case "float", "int" | "uint":
            if n and to.bits >= 8:
                return _saturated(w, value, source, to, n)
            sign = "s" if to.kind == "int" else "u"
            name = f"llvm.fpto{sign}i.sat.{suffix(to, n)}.{suffix(source, n)}"
            return w.call(name, after, [(before, value)])
        case _, "float":
            word = "sitofp" if source.kind == "int" else "uitofp"
            return rounded(w, w.let(f"{word} {before} {value} to {after}"), to, n)
        case _:
            if source.bits == to.bits:
                return value
            narrower = to.bits < source.bits
            wider = "sext" if source.kind == "int" else "zext"
            return w.let(f"{'trunc' if narrower else wider} {before} {value} to {after}")


def _saturated(w: LlvmWriter, value: str, source: DType, to: DType, n: int) -> str:
    """Integers of floats in lanes: the nearest there is of what is too large, 0 of nan.

    LLVM's own instruction for that would be made for one lane after another.
    """
    wide_ = f64 if source is f64 else f32
    before, (low, high) = register(source, n), to.bounds
    middle = to if to.bits >= 32 else i32
    between = register(middle, n)
    digits = 53 if wide_ is f64 else 24
    most = high if high < 2**digits else high + 1 - 2 ** (high.bit_length() - digits)
    bounded = value
    for word, bound in (("ogt", low), ("olt", most)):
        text = literal(float(bound), wide_, n)
        inside = w.let(f"fcmp {word} {before} {bounded}, {text}")
        bounded = w.let(f"select {flag(n)} {inside}, {before} {bounded}, {before} {text}")
    word = "fptosi" if middle.kind == "int" else "fptoui"
    found = w.let(f"{word} {before} {bounded} to {between}")
    for test, where, other in (
        (most < high, f"fcmp oge {before} {value}, {literal(float(high + 1), wide_, n)}", high),
        (low != 0, f"fcmp uno {before} {value}, {value}", 0),  # else it is the least already
    ):
        if test:
            text = literal(other, middle, n)
            found = w.let(f"select {flag(n)} {w.let(where)}, {between} {text}, {between} {found}")
    if middle is to:
        return found
    return w.let(f"trunc {between} {found} to {register(to, n)}")


def _refloat(w: LlvmWriter, value: str, source: DType, to: DType, n: int = 0) -> str:
    if to is f64:
        return w.let(f"fpext {wide('float', n)} {value} to {wide('double', n)}")
    if source is f64:
        if to.is_narrow and not to.row.by_way_of_f32:
            value = w.help("odd", "plica.odd", wide("float", n), [(wide("double", n), value)], n)
        else:
            value = w.let(f"fptrunc {wide('double', n)} {value} to {wide('float', n)}")
    return rounded(w, value, to, n)


def _classify(w: LlvmWriter, name: str, of: DType, value: str, n: int = 0) -> str:
    if not of.is_float:
        return literal(False, bool_, n)
    kind = register(of, n)
    if name == "isnan":
        return w.let(f"fcmp uno {kind} {value}, {literal(0.0, of, n)}")
    size = w.call(f"llvm.fabs.{suffix(of, n)}", kind, [(kind, value)])
    return w.let(f"fcmp oeq {kind} {size}, {literal(float('inf'), of, n)}")


def _sign(w: LlvmWriter, of: DType, value: str, n: int = 0) -> str:
    kind = register(of, n)
    if of.is_float:
        zero = literal(0.0, of, n)
        more = w.let(f"fcmp ogt {kind} {value}, {zero}")
        less = w.let(f"fcmp olt {kind} {value}, {zero}")
        nan = w.let(f"fcmp uno {kind} {value}, {zero}")
        one = w.let(f"select {flag(n)} {more}, {kind} {literal(1.0, of, n)}, {kind} {zero}")
        two = w.let(f"select {flag(n)} {less}, {kind} {literal(-1.0, of, n)}, {kind} {one}")
        return w.let(f"select {flag(n)} {nan}, {kind} {value}, {kind} {two}")
    if of is bool_:
        return value
    nil = literal(0, of, n)
    some = w.let(f"icmp ne {kind} {value}, {nil}")
    plus = w.let(f"zext {flag(n)} {some} to {kind}")
    if of.kind == "uint":
        return plus
    less = w.let(f"icmp slt {kind} {value}, {nil}")
    return w.let(f"select {flag(n)} {less}, {kind} {literal(-1, of, n)}, {kind} {plus}")


def _absolute(w: LlvmWriter, of: DType, kids: Sequence[str], n: int = 0) -> str:
    kind, nil = register(of, n), literal(0, of, n)
    less = w.let(f"icmp slt {kind} {kids[0]}, {nil}")
    turned = w.let(f"sub {kind} {nil}, {kids[0]}")
    return w.let(f"select {flag(n)} {less}, {kind} {turned}, {kind} {kids[0]}")


def _inverse_root(w: LlvmWriter, of: DType, kids: Sequence[str], n: int = 0) -> str:
    kind = register(of, n)
    root = rounded(w, w.call(f"llvm.sqrt.{suffix(of, n)}", kind, [(kind, kids[0])]), of, n)
    return rounded(w, w.let(f"fdiv {kind} {literal(1.0, of, n)}, {root}"), of, n)


def _truncated(  # and which
    w: LlvmWriter, quotient: bool, of: DType, kids: Sequence[str], n: int = 0
) -> str:
    """The quotient towards 0, or the remainder with the sign of the left side; 0 by 0."""
    a, b = kids
    kind = register(of, n)
    nil = literal(0, of, n)
    zero = w.let(f"icmp eq {kind} {b}, {nil}")
    special, by_minus_one = zero, nil
    if of.kind == "int":
        minus = w.let(f"icmp eq {kind} {b}, {literal(-1, of, n)}")
        special = w.let(f"or {flag(n)} {zero}, {minus}")
        if quotient:
            turned = w.let(f"sub {kind} {nil}, {a}")
            by_minus_one = w.let(f"select {flag(n)} {minus}, {kind} {turned}, {kind} {nil}")
    safe = w.let(f"select {flag(n)} {special}, {kind} {literal(1, of, n)}, {kind} {b}")
    sign = "s" if of.kind == "int" else "u"
    found = w.let(f"{sign}{'div' if quotient else 'rem'} {kind} {a}, {safe}")
    return w.let(f"select {flag(n)} {special}, {kind} {by_minus_one}, {kind} {found}")


_SPECIAL: Final[dict[str, Callable[[LlvmWriter, DType, Sequence[str], int], str]]] = {
    "Min": lambda w, of, kids, n: _extreme(w, False, of, kids, n),
    "Max": lambda w, of, kids, n: _extreme(w, True, of, kids, n),
    "Pow": _power,
    "ShiftLeft": lambda w, of, kids, n: _shift(w, True, of, kids, n),
    "ShiftRight": lambda w, of, kids, n: _shift(w, False, of, kids, n),
    "isnan": lambda w, of, kids, n: _classify(w, "isnan", of, kids[0], n),
    "isinf": lambda w, of, kids, n: _classify(w, "isinf", of, kids[0], n),
    "sign": lambda w, of, kids, n: _sign(w, of, kids[0], n),
    "abs": _absolute,
    "rsqrt": _inverse_root,
    "fmod": lambda w, of, kids, n: _truncated(w, False, of, kids, n),
    "truncdiv": lambda w, of, kids, n: _truncated(w, True, of, kids, n),
    "truncmod": lambda w, of, kids, n: _truncated(w, False, of, kids, n),
}
"""Operators that are several instructions: what no word of a row says."""

_ALSO: Final[dict[str, tuple[Kind, ...]]] = {
    "Min": ("bool",),
    "Max": ("bool",),
    "fmod": ("int", "uint"),
}
"""Kinds that special code has besides those that scripts write."""
