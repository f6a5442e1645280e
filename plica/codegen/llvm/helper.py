"""Helpers: small functions the generated code may call, in LLVM's text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from plica.codegen.llvm.dialect import literal
from plica.codegen.llvm.pool import llvm_text
from plica.codegen.target import Target
from plica.core import CompilerBug
from plica.ir.loop.formula import MAX_ANGLE_BY_PARTS
from plica.ir.type import DTYPES, DType, f32, f64
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.codegen.llvm.formula import text as formula
    from plica.codegen.llvm.tile_product import text as tile_product
    from plica.ir.loop.array_formula import turns
    from plica.ir.type.float_code import float_code

_BF16: Final = llvm_text("bf16")
_F16: Final = llvm_text("f16")

# Of any other format, by its numbers (`plica.ir.type.float_code`).
_CODED: Final = llvm_text("coded")

# The sign of a code and of its value; without signed zeros, the code of -0 is NaN.
_SIGNED: Final = {
    "signed": ("%d = or i32 %c, %sign", "%all = or i32 %bits, %top"),
    "signless": (
        """\
%zero = icmp eq i32 %c, 0
  %e = or i32 %c, %sign
  %d = select i1 %zero, i32 0, i32 %e""",
        """\
%lost = icmp eq i32 %wide, {c.nan}
  %sum = or i32 %bits, %top
  %all = select i1 %lost, i32 2143289344, i32 %sum""",
    ),
}

# From f64 there must be a single rounding: the intermediate f32 is rounded to odd, which preserves
# it.
_ODD: Final = llvm_text("odd")
_POWER: Final = llvm_text("power")

# The algorithm of numpy and Python: the quotient that matches a remainder with the sign of the
# divisor.
_FLOOR: Final = llvm_text("floor")
# The remainder of any two f32: multiples of the divisor by powers of two are subtracted, largest
# first. In f64 their product with a 28-bit quotient, and the remainder, are exact.
_FMOD: Final = llvm_text("fmod")
_TURN: Final = llvm_text("turn")
_TURNS: Final = llvm_text("turns")
_JOIN: Final = llvm_text("join")
_JOINS: Final = llvm_text("joins")
WAVES: Final = frozenset(("math.sin", "math.cos", "math.tan"))


def text(used: Iterable[tuple[str, int]], target: Target, contract: bool) -> str:
    """The definitions of helpers, each for a given number of lanes, in a fixed order.

    `contract` allows a product and a sum to be rounded once, where the machine does so.
    """
    found: list[str] = []
    asked = set(used)
    wanted = sorted(asked | {("fmod.f32", lanes) for name, lanes in asked if name == "floor.f32"})
    fused = contract and target.has_fma
    waves = sorted({lanes for name, lanes in wanted if name in WAVES})
    for part, table in zip(("high", "low"), turns() if waves else (), strict=False):
        numbers = ", ".join(f"double {literal(each, f64)}" for each in table)
        kind = f"[{len(table)} x double]"
        found.append(f"@plica.turns.{part} = private unnamed_addr constant {kind} [{numbers}]\n")
        first = literal(table[0], f64)  # of all but large numbers
        found += [(_TURNS if n else _TURN).format(part=part, n=n, first=first) for n in waves]
    for name, lanes in wanted:
        if fused and name in WAVES:
            found += _in_parts(name.removeprefix("math."), lanes, target)
        else:
            found.append(widened(_text(name, target, fused), lanes))
    return "\n".join(found)


def _in_parts(name: str, lanes: int, target: Target) -> list[str]:
    """A function whose angles are mostly small: what large ones need is skipped where all are."""
    near, far = (
        formula(name, True, target.has_scale, target.has_extremes, ".near"),
        formula(name, True, target.has_scale, target.has_extremes, ".far"),
    )
    joined = _JOINS if lanes else _JOIN
    both = joined.format(name=name, n=lanes, most=literal(MAX_ANGLE_BY_PARTS, f32))
    return [widened(near, lanes), widened(far, lanes), both]


def _text(name: str, target: Target, fused: bool) -> str:
    """A helper for one value."""
    family, _, which = name.partition(".")
    match family:
        case "bf16":
            return _BF16
        case "f16":
            return _F16 if target.has_half else coded(DType(family))
        case "odd":
            return _ODD
        case "power":
            return _POWER.format(n=which.removeprefix("i"))
        case "floor":
            kind, rest = {
                "f32": ("float", "call float @plica.fmod.f32(float %a, float %b)"),
                "f64": ("double", "frem double %a, %b"),
            }[which]
            return _FLOOR.format(t=kind, s=which, rest=rest)
        case "fmod":
            return _FMOD
        case "tiles":
            return tile_product(which)
        case "math":
            return formula(which, fused, target.has_scale, target.has_extremes)
        case _ if family in DTYPE_NAMES:
            return coded(DType(family))
        case _:
            raise CompilerBug(f"There is no helper {name}.")


DTYPE_NAMES: Final = frozenset(dtype.name for dtype in DTYPES if dtype.is_narrow)


def coded(of: DType) -> str:
    """The conversions of a narrow float, by the numbers of its format."""
    code = float_code(of)
    own = "signed" if code.has_minus_zero else "signless"
    return _CODED.format(
        c=code, n=of.name, w=8 * of.bytes, signed=_SIGNED[own][0],
        whole=_SIGNED[own][1].format(c=code), down=32 - code.bits, half=(1 << (code.cut - 1)) - 1,
        rebias=code.rebias >> code.cut, magic=literal(code.magic, f32), size=code.sign - 1,
        step=literal(code.step, f32), least=1 << code.fraction,
    )  # fmt: skip


_TOKEN: Final = re.compile(
    r"\b(?P<type>float|double|half|i1|i8|i16|i32|i64)\b"
    r"|(?P<own>@plica\.[\w.]+)|(?P<llvm>@llvm\.[\w.]+)|(?P<name>%[\w.]+)"
    r"|(?<=[ (])(?P<number>-?\d[\w.+-]*)(?=[,)\n])"
)


def widened(text: str, lanes: int) -> str:
    """Straight text for one value made one for a given number of lanes, each type and constant by
    itself.

    >>> print(widened("  %y = call float @llvm.fabs.f32(float 1.0)\\n", 4), end="")
      %y = call <4 x float> @llvm.fabs.v4f32(<4 x float> splat (float 1.0))
    """
    if not lanes:
        return text
    kind = ""

    def wide(token: re.Match[str]) -> str:
        nonlocal kind
        found = token.group()
        match token.lastgroup:
            case "type":
                kind = found
                return f"<{lanes} x {found}>"
            case "own":
                return f"{found}.v{lanes}"
            case "llvm":
                return re.sub(r"\.(?=[fi]\d+)", f".v{lanes}", found)
            case "number":
                return f"splat ({kind} {found})"
            case _:
                return found

    return _TOKEN.sub(wide, text)
