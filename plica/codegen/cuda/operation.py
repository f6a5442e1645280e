"""Operations in CUDA C++: one term over the texts of its operands.

What the language does otherwise than `plica.ir.scalar` says is a function of the prelude.  Integers
that come from memory wrap around; index terms never do, so they are plain.

>>> from plica.ir.scalar import ScalarVar
>>> from plica.core.name import Name
>>> i = ScalarVar(Name("i"), i32)
>>> operation(i // 4, ["i", "4"], str, lambda _: True, False)
'(i / 4)'
>>> operation(i // 4, ["i", "4"], str, lambda _: False, False)
'p_floordiv<int>(i, 4)'
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from plica.codegen.cuda.word import in_register, literal
from plica.core.diagnostic import CompilerBug
from plica.ir.dtype import DType, bool_, f64, i32
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

__all__ = ["i32", "operation"]

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

Help = Callable[[str], str]


def operation(
    node: Scalar,
    kids: Sequence[str],
    help_: Help,
    natural: Callable[[Scalar], bool],
    reads: bool,
) -> str:
    """The text of a term; `reads` says that it depends on memory, so integers may be any."""
    of = dtype_of(node)
    match node:
        case Add() | Sub() | Mul():
            return _arithmetic(node, of, kids, help_, reads)
        case Div():
            return _rounded(f"({kids[0]} / {kids[1]})", of, help_)
        case FloorDiv(left, right) | FloorMod(left, right):
            easy = not reads and isinstance(right, Lit) and right.value > 0 and natural(left)
            return _floor(isinstance(node, FloorDiv), of, kids, help_, easy)
        case Min() | Max():
            return _extreme("min" if isinstance(node, Min) else "max", of, kids, help_)
        case Pow():
            if of.is_float:
                return _rounded(f"pow{_end(of)}({kids[0]}, {kids[1]})", of, help_)
            return f"{help_('p_power')}<{in_register(of)}>({kids[0]}, {kids[1]})"
        case And() | Or():
            return f"({kids[0]} {'&&' if isinstance(node, And) else '||'} {kids[1]})"
        case BitAnd() | BitOr() | BitXor():
            return _as(of, f"{kids[0]} {_BITS[type(node)]} {kids[1]}")
        case ShiftLeft() | ShiftRight():
            name = "p_shl" if isinstance(node, ShiftLeft) else "p_shr"
            return f"{help_(name)}<{in_register(of)}>({kids[0]}, {kids[1]})"
        case Eq() | Ne() | Lt() | Le():
            return f"({kids[0]} {_ORDERS[type(node)]} {kids[1]})"
        case Not():
            return f"(!{kids[0]})"
        case Select():
            return f"({kids[0]} ? {kids[1]} : {kids[2]})"
        case Cast(value, to):
            return _cast(kids[0], dtype_of(value), to, help_)
        case Intrinsic(name, args):
            return _intrinsic(name, dtype_of(args[0]), kids, help_)
        case _:
            raise CompilerBug(f"{node!r} is no operation on scalars.")


def _as(of: DType, value: str) -> str:
    """A value as one of a dtype; the name of a type may be several words."""
    kind = in_register(of)
    return f"({kind})({value})" if " " in kind else f"{kind}({value})"


def _end(of: DType) -> str:
    return "" if of is f64 else "f"


def _rounded(text: str, of: DType, help_: Help) -> str:
    """The value as its dtype holds it, after an operation in the wider type of registers."""
    return f"{help_(f'p_round_{of.name}')}({text})" if of.is_coded else text


def _arithmetic(node: Scalar, of: DType, kids: Sequence[str], help_: Help, reads: bool) -> str:
    sign, wraps, logical = _ARITHMETIC[type(node)]
    if of.is_float:
        return _rounded(f"({kids[0]} {sign} {kids[1]})", of, help_)
    if of is bool_:  # numpy's: or, and; a difference of bools is where they differ
        return f"bool({kids[0]} {logical} {kids[1]})"
    if reads:
        return f"{help_(wraps)}<{in_register(of)}>({kids[0]}, {kids[1]})"
    return f"({kids[0]} {sign} {kids[1]})"


def _floor(quotient: bool, of: DType, kids: Sequence[str], help_: Help, easy: bool) -> str:
    name = "p_floordiv" if quotient else "p_floormod"
    if of.is_float:
        found = f"{help_(f'{name}_float')}<{in_register(of)}>({kids[0]}, {kids[1]})"
        return _rounded(found, of, help_)
    if easy:
        return f"({kids[0]} {'/' if quotient else '%'} {kids[1]})"
    return f"{help_(name)}<{in_register(of)}>({kids[0]}, {kids[1]})"


def _extreme(word: str, of: DType, kids: Sequence[str], help_: Help) -> str:
    if of.is_float:
        name = help_(f"p_{word}_{'f64' if of is f64 else 'f32'}")
        return f"{name}({kids[0]}, {kids[1]})"
    if of is bool_:
        return f"({kids[0]} {'&&' if word == 'min' else '||'} {kids[1]})"
    return (
        f"{word}({kids[0]}, {kids[1]})"
        if of.bits >= 32
        else (f"({kids[0]} {'<' if word == 'min' else '>'} {kids[1]} ? {kids[0]} : {kids[1]})")
    )


def _cast(value: str, source: DType, to: DType, help_: Help) -> str:
    if source is to:
        return value
    if to is bool_:
        return f"({value} != 0)"
    if source.is_float and to.is_integer:
        kind = in_register(to)
        low, high = to.bounds
        limits = f"{literal(float(low), source)}, {literal(float(high), source)}"
        ends = f"{literal(low, to)}, {literal(high, to)}"
        return f"{help_('p_cast')}<{kind}, {in_register(source)}>({value}, {limits}, {ends})"
    return _rounded(_as(to, value), to, help_)


def _intrinsic(name: str, of: DType, kids: Sequence[str], help_: Help) -> str:
    if name in ("isnan", "isinf"):
        if not of.is_float:
            return "false"
        if name == "isnan":
            return f"({kids[0]} != {kids[0]})"
        return f"(fabs{_end(of)}({kids[0]}) == {literal(float('inf'), of)})"
    if name == "sign":
        return kids[0] if of is bool_ else f"{help_('p_sign')}<{in_register(of)}>({kids[0]})"
    if not of.is_float:
        return _of_integer(name, of, kids, help_)
    if name == "rsqrt":
        root = _rounded(f"sqrt{_end(of)}({kids[0]})", of, help_)
        return _rounded(f"({literal(1.0, of)} / {root})", of, help_)
    if name not in _FUNCTIONS:
        raise CompilerBug(f"The intrinsic {name} has no code for threads.")
    return _rounded(f"{_FUNCTIONS[name]}{_end(of)}({', '.join(kids)})", of, help_)


def _of_integer(name: str, of: DType, kids: Sequence[str], help_: Help) -> str:
    """Intrinsics that integers have as well."""
    if name in ("floor", "ceil", "round", "trunc") or (name == "abs" and of.kind != "int"):
        return kids[0]
    if name == "abs":
        return f"{help_('p_abs')}<{in_register(of)}>({kids[0]})"
    if name == "fmod" and of is not bool_:
        return f"{help_('p_fmod')}<{in_register(of)}>({kids[0]}, {kids[1]})"
    raise CompilerBug(f"The intrinsic {name} has no meaning for {of}.")
