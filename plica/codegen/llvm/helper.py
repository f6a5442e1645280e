"""Helpers: small functions the generated code may call, in LLVM's text.

Conversions of narrow floats are written out bit by bit, so that no compiler library is needed;
where the machine converts f16 itself, two instructions replace them.  Each is written for one value
and is straight text (but for integer powers): for several lanes at once it is made wide.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from plica.codegen.llvm.dialect import literal
from plica.codegen.target import Target
from plica.core.diagnostic import CompilerBug
from plica.ir.loop.formula import turns
from plica.ir.type.dtype import DTYPES, DType, f32, f64
from plica.runtime.late import late

if TYPE_CHECKING:
    from plica.codegen.llvm.formula import text as formula
    from plica.ir.type.float_code import float_code
else:
    formula = late("plica.codegen.llvm.formula:text")
    float_code = late("plica.ir.type.float_code:float_code")

_BF16: Final = """\
define internal float @plica.round.bf16(float %x) alwaysinline {
  %bits = bitcast float %x to i32
  %high = lshr i32 %bits, 16
  %odd = and i32 %high, 1
  %half = add i32 %odd, 32767
  %sum = add i32 %bits, %half
  %cut = and i32 %sum, -65536
  %near = bitcast i32 %cut to float
  %nan = fcmp uno float %x, 0.0
  %r = select i1 %nan, float %x, float %near
  ret float %r
}
define internal i16 @plica.pack.bf16(float %x) alwaysinline {
  %bits = bitcast float %x to i32
  %high = lshr i32 %bits, 16
  %nan = fcmp uno float %x, 0.0
  %quiet = or i32 %high, 64
  %kept = select i1 %nan, i32 %quiet, i32 %high
  %r = trunc i32 %kept to i16
  ret i16 %r
}
define internal float @plica.unpack.bf16(i16 %x) alwaysinline {
  %wide = zext i16 %x to i32
  %bits = shl i32 %wide, 16
  %r = bitcast i32 %bits to float
  ret float %r
}
"""

_F16: Final = """\
define internal float @plica.round.f16(float %x) alwaysinline {
  %h = fptrunc float %x to half
  %r = fpext half %h to float
  ret float %r
}
define internal i16 @plica.pack.f16(float %x) alwaysinline {
  %h = fptrunc float %x to half
  %r = bitcast half %h to i16
  ret i16 %r
}
define internal float @plica.unpack.f16(i16 %x) alwaysinline {
  %h = bitcast i16 %x to half
  %r = fpext half %h to float
  ret float %r
}
"""

# Of any other format, by its numbers (`plica.ir.type.float_code`).
_CODED: Final = """\
define internal i{w} @plica.pack.{n}(float %x) alwaysinline {{
  %whole = bitcast float %x to i32
  %top = lshr i32 %whole, {down}
  %sign = and i32 %top, {c.sign}
  %size = call float @llvm.fabs.f32(float %x)
  %bits = bitcast float %size to i32
  %low = lshr i32 %bits, {c.cut}
  %odd = and i32 %low, 1
  %half = add i32 %odd, {half}
  %sum = add i32 %bits, %half
  %kept = lshr i32 %sum, {c.cut}
  %normal = sub i32 %kept, {rebias}
  %moved = fadd float %size, {magic}
  %counted = bitcast float %moved to i32
  %small = sub i32 %counted, {c.magic_bits}
  %tiny = icmp ult i32 %bits, {c.normal}
  %a = select i1 %tiny, i32 %small, i32 %normal
  %big = icmp ugt i32 %a, {c.greatest}
  %b = select i1 %big, i32 {c.overflow}, i32 %a
  %nan = fcmp uno float %x, 0.0
  %c = select i1 %nan, i32 {c.nan}, i32 %b
  {signed}
  %r = trunc i32 %d to i{w}
  ret i{w} %r
}}
define internal float @plica.unpack.{n}(i{w} %x) alwaysinline {{
  %wide = zext i{w} %x to i32
  %sign = and i32 %wide, {c.sign}
  %size = and i32 %wide, {size}
  %moved = shl i32 %size, {c.cut}
  %normal = add i32 %moved, {c.rebias}
  %near = bitcast i32 %normal to float
  %count = uitofp i32 %size to float
  %small = fmul float %count, {step}
  %infinite = or i32 %moved, 2139095040
  %far = bitcast i32 %infinite to float
  %tiny = icmp ult i32 %size, {least}
  %big = icmp ugt i32 %size, {c.greatest}
  %a = select i1 %tiny, float %small, float %near
  %b = select i1 %big, float %far, float %a
  %bits = bitcast float %b to i32
  %top = shl i32 %sign, {down}
  {whole}
  %r = bitcast i32 %all to float
  ret float %r
}}
define internal float @plica.round.{n}(float %x) alwaysinline {{
  %code = call i{w} @plica.pack.{n}(float %x)
  %r = call float @plica.unpack.{n}(i{w} %code)
  ret float %r
}}
"""

# The sign of a code and of what it means; where 0 has none, the code of -0 is nan.
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

# From f64 one rounding must do: the f32 between is rounded to odd, which keeps what matters.
_ODD: Final = """\
define internal float @plica.odd(double %x) alwaysinline {
  %f = fptrunc double %x to float
  %back = fpext float %f to double
  %size = call double @llvm.fabs.f64(double %x)
  %other = call double @llvm.fabs.f64(double %back)
  %over = fcmp ogt double %other, %size
  %inexact = fcmp one double %back, %x
  %bits = bitcast float %f to i32
  %less = sub i32 %bits, 1
  %down = select i1 %over, i32 %less, i32 %bits
  %odd = or i32 %down, 1
  %kept = select i1 %inexact, i32 %odd, i32 %down
  %r = bitcast i32 %kept to float
  ret float %r
}
"""

_POWER: Final = """\
define internal i{n} @plica.power.i{n}(i{n} %base, i{n} %exponent) {{
entry:
  br label %test
test:
  %r = phi i{n} [ 1, %entry ], [ %r.next, %again ]
  %b = phi i{n} [ %base, %entry ], [ %b.next, %again ]
  %e = phi i{n} [ %exponent, %entry ], [ %e.next, %again ]
  %done = icmp eq i{n} %e, 0
  br i1 %done, label %end, label %again
again:
  %bit = and i{n} %e, 1
  %odd = icmp ne i{n} %bit, 0
  %times = mul i{n} %r, %b
  %r.next = select i1 %odd, i{n} %times, i{n} %r
  %b.next = mul i{n} %b, %b
  %e.next = lshr i{n} %e, 1
  br label %test
end:
  ret i{n} %r
}}
"""

# The algorithm of numpy (and of Python): the quotient that goes with a remainder that has the sign
# of the divisor.
_FLOOR: Final = """\
define internal {t} @plica.floormod.{s}({t} %a, {t} %b) alwaysinline {{
  %m = frem {t} %a, %b
  %moved = fadd {t} %m, %b
  %none = fcmp oeq {t} %m, 0.0
  %m.neg = fcmp olt {t} %m, 0.0
  %b.neg = fcmp olt {t} %b, 0.0
  %differ = xor i1 %m.neg, %b.neg
  %zero = call {t} @llvm.copysign.{s}({t} 0.0, {t} %b)
  %x = select i1 %differ, {t} %moved, {t} %m
  %y = select i1 %none, {t} %zero, {t} %x
  %by.zero = fcmp oeq {t} %b, 0.0
  %r = select i1 %by.zero, {t} %m, {t} %y
  ret {t} %r
}}
define internal {t} @plica.floordiv.{s}({t} %a, {t} %b) alwaysinline {{
  %plain = fdiv {t} %a, %b
  %m = frem {t} %a, %b
  %rest = fsub {t} %a, %m
  %d = fdiv {t} %rest, %b
  %some = fcmp une {t} %m, 0.0
  %m.neg = fcmp olt {t} %m, 0.0
  %b.neg = fcmp olt {t} %b, 0.0
  %differ = xor i1 %m.neg, %b.neg
  %down = and i1 %some, %differ
  %less = fsub {t} %d, 1.0
  %q = select i1 %down, {t} %less, {t} %d
  %floor = call {t} @llvm.floor.{s}({t} %q)
  %gap = fsub {t} %q, %floor
  %far = fcmp ogt {t} %gap, 0.5
  %up = fadd {t} %floor, 1.0
  %near = select i1 %far, {t} %up, {t} %floor
  %zero = call {t} @llvm.copysign.{s}({t} 0.0, {t} %plain)
  %none = fcmp oeq {t} %q, 0.0
  %x = select i1 %none, {t} %zero, {t} %near
  %by.zero = fcmp oeq {t} %b, 0.0
  %r = select i1 %by.zero, {t} %plain, {t} %x
  ret {t} %r
}}
"""


_TURN: Final = """\
define internal double @plica.turn.{part}(i32 %place) alwaysinline {{
  %at = getelementptr inbounds double, ptr @plica.turns.{part}, i32 %place
  %r = load double, ptr %at, align 8
  ret double %r
}}
"""

_TURNS: Final = """\
define internal <{n} x double> @plica.turn.{part}.v{n}(<{n} x i32> %place) alwaysinline {{
  %at = getelementptr inbounds double, ptr @plica.turns.{part}, <{n} x i32> %place
  %r = call <{n} x double> @llvm.masked.gather.v{n}f64.v{n}p0(<{n} x ptr> align 8 %at, \
<{n} x i1> splat (i1 true), <{n} x double> poison)
  ret <{n} x double> %r
}}
"""


def text(used: Iterable[tuple[str, int]], target: Target, contract: bool) -> str:
    """The definitions of helpers, each for so many lanes, in a fixed order.

    `contract` allows a product and a sum to be rounded once, where the machine does so.
    """
    found: list[str] = []
    wanted = sorted(set(used))
    fused = contract and target.has_fma
    waves = sorted({lanes for name, lanes in wanted if name in ("math.sin", "math.cos")})
    for part, table in zip(("high", "low"), turns() if waves else (), strict=False):
        numbers = ", ".join(f"double {literal(each, f64)}" for each in table)
        kind = f"[{len(table)} x double]"
        found.append(f"@plica.turns.{part} = private unnamed_addr constant {kind} [{numbers}]\n")
        found += [(_TURNS if n else _TURN).format(part=part, n=n) for n in waves]
    found += [widened(_text(name, target, fused), lanes) for name, lanes in wanted]
    return "\n".join(found)


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
            return _FLOOR.format(t={"f32": "float", "f64": "double"}[which], s=which)
        case "math":
            return formula(which, fused, target.has_scale)
        case _ if family in DTYPE_NAMES:
            return coded(DType(family))
        case _:
            raise CompilerBug(f"There is no helper {name}.")


DTYPE_NAMES: Final = frozenset(each.name for each in DTYPES if each.is_narrow)


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
    """Straight text for one value made one for so many lanes, each type and constant by itself.

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
