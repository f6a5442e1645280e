"""Operators of C-like targets: one term over the texts of its operands.

What such languages do otherwise than `plica.ir.scalar` says is a helper of the target's prelude.
Integers that come from memory wrap around; index terms never do, so they are plain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from plica.codegen.emit.dialect import Site
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
    Lit,
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

_ARITHMETIC: Final[dict[type, tuple[str, str, str]]] = {
    Add: ("+", "p_add", "|"), Sub: ("-", "p_sub", "^"), Mul: ("*", "p_mul", "&"),
}  # fmt: skip
"""The sign, the function that wraps around, and what it is for bools."""

_ORDERS: Final[dict[type, str]] = {Eq: "==", Ne: "!=", Lt: "<", Le: "<="}

_BITS: Final[dict[type, str]] = {BitAnd: "&", BitOr: "|", BitXor: "^"}

_FUNCTIONS: Final = {
    "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "round": "rint", "trunc": "trunc",
    "abs": "fabs", "copysign": "copysign", "fmod": "fmod",
    **{name: name for name in (
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh",
        "cosh", "tanh", "asinh", "acosh", "atanh", "asin", "acos", "atan", "atan2", "erf",
    )},
}  # fmt: skip
"""Functions of floats by their name in the C library; in f32 with an `f` at the end."""


def operation(node: Scalar, kids: Sequence[str], site: Site) -> str:
    """The text of a term over the texts of its operands."""
    of = dtype_of(node)
    match node:
        case Add() | Sub() | Mul():
            return _arithmetic(node, of, kids, site)
        case Div():
            return _rounded(f"({kids[0]} / {kids[1]})", of, site)
        case FloorDiv(left, right) | FloorMod(left, right):
            easy = not site.is_read(node) and isinstance(right, Lit) and right.value > 0
            easy = easy and site.is_natural(left)
            return _floor(isinstance(node, FloorDiv), of, kids, site, easy)
        case Min() | Max():
            return _extreme("min" if isinstance(node, Min) else "max", of, kids, site)
        case Pow():
            if of.is_float:
                return _rounded(f"pow{_end(of)}({kids[0]}, {kids[1]})", of, site)
            return site.call("p_power", (of,), kids)
        case And() | Or():
            return f"({kids[0]} {'&&' if isinstance(node, And) else '||'} {kids[1]})"
        case BitAnd() | BitOr() | BitXor():
            return site.dialect.cast(of, f"{kids[0]} {_BITS[type(node)]} {kids[1]}")
        case ShiftLeft() | ShiftRight():
            name = "p_shl" if isinstance(node, ShiftLeft) else "p_shr"
            return site.call(name, (of,), kids)
        case Eq(left, _) | Ne(left, _) | Lt(left, _) | Le(left, _):
            if kids[0] == kids[1] and not dtype_of(left).is_float:
                return site.dialect.literal(isinstance(node, Eq | Le), bool_)
            return f"({kids[0]} {_ORDERS[type(node)]} {kids[1]})"
        case Not():
            return f"(!{kids[0]})"
        case Select():
            return f"({kids[0]} ? {kids[1]} : {kids[2]})"
        case Cast(value, to):
            return _cast(kids[0], dtype_of(value), to, site)
        case Intrinsic(name, args):
            return _intrinsic(name, dtype_of(args[0]), kids, site)
        case _:
            raise CompilerBug(f"{node!r} is no operation on scalars.")


def _end(of: DType) -> str:
    return "" if of is f64 else "f"


def _rounded(text: str, of: DType, site: Site) -> str:
    """The value as its dtype holds it, after an operation in the dtype of registers."""
    return site.call(f"p_round_{of.name}", (), (text,)) if of.is_coded else text


def _arithmetic(node: Scalar, of: DType, kids: Sequence[str], site: Site) -> str:
    sign, wraps, logical = _ARITHMETIC[type(node)]
    if of.is_float:
        return _rounded(f"({kids[0]} {sign} {kids[1]})", of, site)
    if of is bool_:  # numpy's: or, and; a difference of bools is where they differ
        return site.dialect.cast(of, f"{kids[0]} {logical} {kids[1]}")
    if site.is_read(node):
        return site.call(wraps, (of,), kids)
    return f"({kids[0]} {sign} {kids[1]})"


def _floor(quotient: bool, of: DType, kids: Sequence[str], site: Site, easy: bool) -> str:
    name = "p_floordiv" if quotient else "p_floormod"
    if of.is_float:
        found = site.call(f"{name}_float", (of,), kids)
        return _rounded(found, of, site)
    if easy:
        return f"({kids[0]} {'/' if quotient else '%'} {kids[1]})"
    return site.call(name, (of,), kids)


def _extreme(word: str, of: DType, kids: Sequence[str], site: Site) -> str:
    if of.is_float:
        return site.call(f"p_{word}_{'f64' if of is f64 else 'f32'}", (), kids)
    if of is bool_:
        return f"({kids[0]} {'&&' if word == 'min' else '||'} {kids[1]})"
    return site.dialect.extreme(word, of, kids)


def _cast(value: str, source: DType, to: DType, site: Site) -> str:
    if source is to:
        return value
    if to is bool_:
        return f"({value} != 0)"
    if source.is_float and to.is_integer:
        low, high = to.bounds
        literal = site.dialect.literal
        limits = literal(float(low), source), literal(float(high), source)
        ends = literal(low, to), literal(high, to)
        return site.call("p_cast", (to, source), (value, *limits, *ends))
    return _rounded(site.dialect.cast(to, value), to, site)


def _intrinsic(name: str, of: DType, kids: Sequence[str], site: Site) -> str:
    if name in ("isnan", "isinf"):
        if not of.is_float:
            return "false"
        if name == "isnan":
            return f"({kids[0]} != {kids[0]})"
        return f"(fabs{_end(of)}({kids[0]}) == {site.dialect.literal(float('inf'), of)})"
    if name == "sign":
        return kids[0] if of is bool_ else site.call("p_sign", (of,), kids)
    if not of.is_float:
        return _of_integer(name, of, kids, site)
    if name == "rsqrt":
        root = _rounded(f"sqrt{_end(of)}({kids[0]})", of, site)
        return _rounded(f"({site.dialect.literal(1.0, of)} / {root})", of, site)
    if name not in _FUNCTIONS:
        raise CompilerBug(f"The intrinsic {name} has no text in the dialect {site.dialect.name}.")
    return _rounded(f"{_FUNCTIONS[name]}{_end(of)}({', '.join(kids)})", of, site)


def _of_integer(name: str, of: DType, kids: Sequence[str], site: Site) -> str:
    """Intrinsics that integers have as well."""
    if name in ("floor", "ceil", "round", "trunc") or (name == "abs" and of.kind != "int"):
        return kids[0]
    if name == "abs":
        return site.call("p_abs", (of,), kids)
    if name == "fmod" and of is not bool_:
        return site.call("p_fmod", (of,), kids)
    raise CompilerBug(f"The intrinsic {name} has no meaning for {of}.")
