"""Scalar operations in LLVM's text: the meaning `plica.ir.scalar` states, for every operand.

Nothing here can trap or be undefined (division by zero, shifts beyond the width, casts out of
range are all guarded), so both sides of a `Select` may be computed before one is chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from plica.codegen.llvm.word import is_narrow, literal, register
from plica.codegen.llvm.writer import Writer
from plica.core.diagnostic import CompilerBug
from plica.ir.dtype import DType, bool_, f64
from plica.ir.scalar import (
    Add,
    And,
    BitAnd,
    BitOr,
    BitXor,
    Cast,
    Div,
    Eq,
    FloorDiv,
    FloorMod,
    Intrinsic,
    Le,
    Lt,
    Max,
    Min,
    Mul,
    Ne,
    Not,
    Or,
    Pow,
    Scalar,
    Select,
    ShiftLeft,
    ShiftRight,
    Sub,
    dtype_of,
)


def operate(w: Writer, node: Scalar, kids: Sequence[str], natural: bool = False) -> str:
    """The value of a node from those of its operands.

    `natural` says that both operands of a quotient or remainder are known not to be negative, and
    the right one not to be zero.
    """
    match node:
        case Add() | Sub() | Mul():
            return _arithmetic(w, node, dtype_of(node), kids)
        case Div():
            of = dtype_of(node)
            return rounded(w, w.let(f"fdiv {register(of)} {kids[0]}, {kids[1]}"), of)
        case FloorDiv() | FloorMod():
            return _floor(w, isinstance(node, FloorDiv), dtype_of(node), kids, natural)
        case Min() | Max():
            return _extreme(w, isinstance(node, Max), dtype_of(node), kids)
        case Pow():
            return _power(w, dtype_of(node), kids)
        case And() | BitAnd():
            return w.let(f"and {register(dtype_of(node))} {kids[0]}, {kids[1]}")
        case Or() | BitOr():
            return w.let(f"or {register(dtype_of(node))} {kids[0]}, {kids[1]}")
        case BitXor():
            return w.let(f"xor {register(dtype_of(node))} {kids[0]}, {kids[1]}")
        case ShiftLeft() | ShiftRight():
            return _shift(w, isinstance(node, ShiftLeft), dtype_of(node), kids)
        case Eq(left, _) | Ne(left, _) | Lt(left, _) | Le(left, _):
            return _compare(w, type(node), dtype_of(left), kids)
        case Not():
            return w.let(f"xor i1 {kids[0]}, true")
        case Select():
            kind = register(dtype_of(node))
            return w.let(f"select i1 {kids[0]}, {kind} {kids[1]}, {kind} {kids[2]}")
        case Cast(value, to):
            return cast(w, kids[0], dtype_of(value), to)
        case Intrinsic(name, args):
            return _intrinsic(w, name, dtype_of(args[0]), kids)
        case _:
            raise CompilerBug(f"{node!r} is no operation on scalars.")


def rounded(w: Writer, value: str, of: DType) -> str:
    """The value as its dtype holds it, after an operation in f32."""
    if not is_narrow(of):
        return value
    return w.help(of.name, f"plica.round.{of.name}", "float", [("float", value)])


def unpack(w: Writer, stored: str, of: DType) -> str:
    """What was loaded, as a value in a register."""
    if of is bool_:
        return w.let(f"icmp ne i8 {stored}, 0")
    if is_narrow(of):
        return w.help(of.name, f"plica.unpack.{of.name}", "float", [("i16", stored)])
    return stored


def pack(w: Writer, value: str, of: DType) -> str:
    """A value as it is stored."""
    if of is bool_:
        return w.let(f"zext i1 {value} to i8")
    if is_narrow(of):
        return w.help(of.name, f"plica.pack.{of.name}", "i16", [("float", value)])
    return value


def _arithmetic(w: Writer, node: Add | Sub | Mul, of: DType, kids: Sequence[str]) -> str:
    word = {Add: "add", Sub: "sub", Mul: "mul"}[type(node)]
    if of is bool_:  # numpy's: or, and; a difference of bools is where they differ
        word = {"add": "or", "sub": "xor", "mul": "and"}[word]
    elif of.is_float:
        word = f"f{word}"
    return rounded(w, w.let(f"{word} {register(of)} {kids[0]}, {kids[1]}"), of)


def _floor(w: Writer, quotient: bool, of: DType, kids: Sequence[str], natural: bool) -> str:
    a, b = kids
    kind = register(of)
    if of.is_float:
        suffix = "f64" if of is f64 else "f32"
        name = f"plica.{'floordiv' if quotient else 'floormod'}.{suffix}"
        return rounded(w, w.help(f"floor.{suffix}", name, kind, [(kind, a), (kind, b)]), of)
    if of is bool_:
        raise CompilerBug("Bools have no quotient.")
    if natural:
        return w.let(f"{'udiv' if quotient else 'urem'} {kind} {a}, {b}")
    zero = w.let(f"icmp eq {kind} {b}, 0")
    if of.kind == "uint":
        safe = w.let(f"select i1 {zero}, {kind} 1, {kind} {b}")
        found = w.let(f"{'udiv' if quotient else 'urem'} {kind} {a}, {safe}")
        return w.let(f"select i1 {zero}, {kind} 0, {kind} {found}")
    minus = w.let(f"icmp eq {kind} {b}, -1")
    special = w.let(f"or i1 {zero}, {minus}")
    safe = w.let(f"select i1 {special}, {kind} 1, {kind} {b}")
    q = w.let(f"sdiv {kind} {a}, {safe}")
    back = w.let(f"mul {kind} {q}, {safe}")
    r = w.let(f"sub {kind} {a}, {back}")
    some = w.let(f"icmp ne {kind} {r}, 0")
    signs = w.let(f"xor {kind} {r}, {safe}")
    differ = w.let(f"icmp slt {kind} {signs}, 0")
    down = w.let(f"and i1 {some}, {differ}")
    if quotient:
        step = w.let(f"sext i1 {down} to {kind}")
        floor = w.let(f"add {kind} {q}, {step}")
        turned = w.let(f"sub {kind} 0, {a}")
        either = w.let(f"select i1 {minus}, {kind} {turned}, {kind} {floor}")
        return w.let(f"select i1 {zero}, {kind} 0, {kind} {either}")
    step = w.let(f"select i1 {down}, {kind} {safe}, {kind} 0")
    floor = w.let(f"add {kind} {r}, {step}")
    return w.let(f"select i1 {special}, {kind} 0, {kind} {floor}")


def _extreme(w: Writer, greatest: bool, of: DType, kids: Sequence[str]) -> str:
    a, b = kids
    kind = register(of)
    if of.is_float:
        name = f"llvm.{'maximum' if greatest else 'minimum'}.{'f64' if of is f64 else 'f32'}"
        return w.call(name, kind, [(kind, a), (kind, b)])
    if of is bool_:
        return w.let(f"{'or' if greatest else 'and'} i1 {a}, {b}")
    sign = "s" if of.kind == "int" else "u"
    name = f"llvm.{sign}{'max' if greatest else 'min'}.{kind}"
    return w.call(name, kind, [(kind, a), (kind, b)])


def _power(w: Writer, of: DType, kids: Sequence[str]) -> str:
    a, b = kids
    kind = register(of)
    if of.is_float:
        name = "pow" if of is f64 else "powf"
        return rounded(w, w.call(name, kind, [(kind, a), (kind, b)]), of)
    if of is bool_:
        raise CompilerBug("Bools have no power.")
    found = w.help(f"power.{kind}", f"plica.power.{kind}", kind, [(kind, a), (kind, b)])
    if of.kind == "uint":
        return found
    negative = w.let(f"icmp slt {kind} {b}, 0")
    return w.let(f"select i1 {negative}, {kind} 0, {kind} {found}")


def _shift(w: Writer, left: bool, of: DType, kids: Sequence[str]) -> str:
    a, b = kids
    kind = register(of)
    fits = w.let(f"icmp ult {kind} {b}, {of.bits}")
    arithmetic = not left and of.kind == "int"
    far = str(of.bits - 1) if arithmetic else "0"
    by = w.let(f"select i1 {fits}, {kind} {b}, {kind} {far}")
    word = "shl" if left else ("ashr" if arithmetic else "lshr")
    moved = w.let(f"{word} {kind} {a}, {by}")
    return moved if arithmetic else w.let(f"select i1 {fits}, {kind} {moved}, {kind} 0")


_ORDERS: Final[dict[type, tuple[str, str, str]]] = {
    Eq: ("oeq", "eq", "eq"),
    Ne: ("une", "ne", "ne"),
    Lt: ("olt", "slt", "ult"),
    Le: ("ole", "sle", "ule"),
}


def _compare(w: Writer, order: type, of: DType, kids: Sequence[str]) -> str:
    of_float, of_int, of_uint = _ORDERS[order]
    if of.is_float:
        return w.let(f"fcmp {of_float} {register(of)} {kids[0]}, {kids[1]}")
    word = of_int if of.kind == "int" else of_uint
    return w.let(f"icmp {word} {register(of)} {kids[0]}, {kids[1]}")


def cast(w: Writer, value: str, source: DType, to: DType) -> str:
    """A value in another dtype."""
    if source is to:
        return value
    before, after = register(source), register(to)
    if to is bool_:
        if source.is_float:
            return w.let(f"fcmp une {before} {value}, {literal(0.0, source)}")
        return w.let(f"icmp ne {before} {value}, 0")
    match source.kind, to.kind:
        case "float", "float":
            return _refloat(w, value, source, to)
        case "float", "int" | "uint":
            sign = "s" if to.kind == "int" else "u"
            suffix = "f64" if source is f64 else "f32"
            return w.call(f"llvm.fpto{sign}i.sat.{after}.{suffix}", after, [(before, value)])
        case _, "float":
            word = "sitofp" if source.kind == "int" else "uitofp"
            return rounded(w, w.let(f"{word} {before} {value} to {after}"), to)
        case _:
            if source.bits == to.bits:
                return value
            narrower = to.bits < source.bits
            wider = "sext" if source.kind == "int" else "zext"
            return w.let(f"{'trunc' if narrower else wider} {before} {value} to {after}")


def _refloat(w: Writer, value: str, source: DType, to: DType) -> str:
    if to is f64:
        return w.let(f"fpext float {value} to double")
    if source is f64:
        if to.name == "f16":
            value = w.help("odd", "plica.odd", "float", [("double", value)])
        else:
            value = w.let(f"fptrunc double {value} to float")
    return rounded(w, value, to)


_INLINE: Final = {
    "sqrt": "sqrt",
    "floor": "floor",
    "ceil": "ceil",
    "round": "rint",
    "trunc": "trunc",
    "abs": "fabs",
    "copysign": "copysign",
}
"""Intrinsics that are instructions, by LLVM's name."""

_EXACT: Final = frozenset({"floor", "ceil", "round", "trunc", "abs", "copysign"})
"""Those whose result needs no rounding in any dtype."""

_LIBRARY: Final = frozenset({
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p",
    "sin", "cos", "tan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
    "asin", "acos", "atan", "atan2", "erf",
})  # fmt: skip
"""Intrinsics that are functions of the C library; in f32 with an `f` at the end."""


def _intrinsic(w: Writer, name: str, of: DType, kids: Sequence[str]) -> str:
    kind = register(of)
    if name in ("isnan", "isinf"):
        return _classify(w, name, of, kids[0])
    if name == "sign":
        return _sign(w, of, kids[0])
    if not of.is_float:
        return _of_integer(w, name, of, kids)
    suffix = "f64" if of is f64 else "f32"
    if name == "rsqrt":
        root = rounded(w, w.call(f"llvm.sqrt.{suffix}", kind, [(kind, kids[0])]), of)
        return rounded(w, w.let(f"fdiv {kind} {literal(1.0, of)}, {root}"), of)
    if name == "fmod":  # the instruction: of the library's function LLVM thinks it is never nan
        return rounded(w, w.let(f"frem {kind} {kids[0]}, {kids[1]}"), of)
    args = [(kind, each) for each in kids]
    if name in _INLINE:
        found = w.call(f"llvm.{_INLINE[name]}.{suffix}", kind, args)
        return found if name in _EXACT else rounded(w, found, of)
    if name not in _LIBRARY:
        raise CompilerBug(f"The intrinsic {name} has no code.")
    return rounded(w, w.call(name if of is f64 else f"{name}f", kind, args), of)


def _classify(w: Writer, name: str, of: DType, value: str) -> str:
    if not of.is_float:
        return "false"
    kind = register(of)
    if name == "isnan":
        return w.let(f"fcmp uno {kind} {value}, {literal(0.0, of)}")
    size = w.call(f"llvm.fabs.{'f64' if of is f64 else 'f32'}", kind, [(kind, value)])
    return w.let(f"fcmp oeq {kind} {size}, {literal(float('inf'), of)}")


def _sign(w: Writer, of: DType, value: str) -> str:
    kind = register(of)
    if of.is_float:
        zero = literal(0.0, of)
        more = w.let(f"fcmp ogt {kind} {value}, {zero}")
        less = w.let(f"fcmp olt {kind} {value}, {zero}")
        nan = w.let(f"fcmp uno {kind} {value}, {zero}")
        one = w.let(f"select i1 {more}, {kind} {literal(1.0, of)}, {kind} {zero}")
        two = w.let(f"select i1 {less}, {kind} {literal(-1.0, of)}, {kind} {one}")
        return w.let(f"select i1 {nan}, {kind} {value}, {kind} {two}")
    if of is bool_:
        return value
    some = w.let(f"icmp ne {kind} {value}, 0")
    plus = w.let(f"zext i1 {some} to {kind}")
    if of.kind == "uint":
        return plus
    less = w.let(f"icmp slt {kind} {value}, 0")
    return w.let(f"select i1 {less}, {kind} -1, {kind} {plus}")


def _of_integer(w: Writer, name: str, of: DType, kids: Sequence[str]) -> str:
    """Intrinsics that integers have as well."""
    kind = register(of)
    if name in ("floor", "ceil", "round", "trunc"):
        return kids[0]
    if name == "abs":
        if of.kind != "int":
            return kids[0]
        less = w.let(f"icmp slt {kind} {kids[0]}, 0")
        turned = w.let(f"sub {kind} 0, {kids[0]}")
        return w.let(f"select i1 {less}, {kind} {turned}, {kind} {kids[0]}")
    if name == "fmod" and of is not bool_:
        return _truncated(w, of, kids)
    raise CompilerBug(f"The intrinsic {name} has no meaning for {of}.")


def _truncated(w: Writer, of: DType, kids: Sequence[str]) -> str:
    """The remainder with the sign of the left side; 0 where the right side is 0."""
    a, b = kids
    kind = register(of)
    zero = w.let(f"icmp eq {kind} {b}, 0")
    special = zero
    if of.kind == "int":
        minus = w.let(f"icmp eq {kind} {b}, -1")
        special = w.let(f"or i1 {zero}, {minus}")
    safe = w.let(f"select i1 {special}, {kind} 1, {kind} {b}")
    r = w.let(f"{'srem' if of.kind == 'int' else 'urem'} {kind} {a}, {safe}")
    return w.let(f"select i1 {special}, {kind} 0, {kind} {r}")
