"""Formulas: the f32 functions that Plica defines itself, for every carrier.

Each is an argument reduction and a polynomial without branches, with an error of at most 4 ulp for
every f32. Formulas are generic over a number *carrier*: LLVM text (`plica.codegen.llvm.formula`)
yields code, and arrays (`plica.ir.loop.array_formula`) yield the meaning used by interpreters, so
both have the same bits wherever products are rounded before they are added. The polynomials are
minimax fits over the reduced interval, lowest power first.

    exp exp2 expm1 log log2 log1p erf  sin cos tan asin acos atan  sinh cosh tanh asinh acosh atanh
    pow
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeVar

from plica.runtime.late import late

HALVES: Final = 12582912.0
"""1.5 * 2^23: adding it leaves an integer, rounded to even, in the last bits of an f32."""

RAISED: Final = HALVES + 254
"""The same, and twice the bias of exponents: the last 9 bits hold the sum of two biased ones."""

HALVES_64: Final = 6755399441055744.0  # the same for an f64
LOG2_E: Final = 1.4426950408889634
LN2_HIGH: Final = 0.693359375  # few bits, so that its product with an exponent is exact
LN2_LOW: Final = -2.12194440054690582767e-4
QUARTER: Final = 1.5707963267948966  # a quarter turn
QUARTER_PARTS: Final = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
"""The same as a sum of f32s."""

MAX_ANGLE_BY_PARTS: Final = 32768.0
"""Angles up to this are less than 2^15 quarter turns, and subtracting products with the rounded
parts leaves an error below 1 ulp."""

# fmt: off
EXP      = (0.5, 0.16666573286056519, 0.041666362434625626, 0.008363775908946991,
            0.0013942160876467824)                    # (exp(r) - 1 - r) / r^2,   |r| <= ln(2) / 2
POWER    = (1.0, 0.9999997019767761, 0.4999914765357971, 0.16667650640010834,
            0.041898176074028015, 0.008289499208331108)             # exp(r),     |r| <= ln(2) / 2
EXP2     = (0.6931471824645996, 0.24022650718688965, 0.05550410971045494, 0.009618054144084454,
            0.0013333450770005584, 0.00015462613373529166, 1.5311234164983034e-05)
#                                                       (2^r - 1) / r,            |r| <= 1/2
LOG      = (0.3333333730697632, -0.24999818205833435, 0.19999302923679352, -0.16679681837558746,
            0.14312967658042908, -0.1219417080283165, 0.10659778118133545, -0.12852804362773895,
            0.12364424020051956)                      # (log(1 + f) - f + f^2/2) / f^3, |f| <= 1/3
LOG2     = (-0.7213475704193115, 0.48089659214019775, -0.36066684126853943, 0.288692444562912,
            -0.24077461659908295, 0.20201343297958374, -0.17428547143936157, 0.20197665691375732,
            -0.19194746017456055)                     # (log2(1 + f) - f log2(e)) / f^2, |f| <= 1/3
ERF_NEAR = (1.128379225730896, -0.37612634897232056, 0.11283694207668304, -0.02685927040874958,
            0.005200634244829416, -0.0008137437398545444, 8.345225069206208e-05)
#                                                       erf(x) / x in x^2,        |x| <= 0.93
ERF_FAR  = (-0.00017324120562989265, 1.129508137702942, 0.6333602070808411, 0.10826580971479416,
            -0.02511044405400753, 0.0041677444241940975, -0.00043379643466323614,
            2.103899350913707e-05)                    # -log(1 - erf(x)),         0.91 <= x <= 4
SIN      = (-0.1666666716337204, 0.008333331905305386, -0.00019840039021801203,
            2.724385922192596e-06)                    # (sin(r) - r) / r^3 in r^2, |r| <= pi/4
COS      = (0.0416666679084301, -0.00138888880610466, 2.4800561732263304e-05,
            -2.7295888571643445e-07)                  # (cos(r) - 1 + r^2/2) / r^4 in r^2
# fmt: on

Bitwise = Literal["and", "or", "xor", "shl", "lshr", "ashr"]
Order = Literal["olt", "ogt", "oeq", "sgt", "ne"]
"""LLVM's words: ordered comparisons of floats, signed ones of integers."""

N = TypeVar("N", bound="CarriedNumber")


class CarriedNumber(ABC):
    """A value of f32, f64, i32 or bool in its carrier, which says how to `do` each operation.

    A plain number on the right of an operation has the type of the left.
    """

    @abstractmethod
    def do(self: N, word: str, *others: N) -> N:
        """An operation on this number and others, by its name."""

    @abstractmethod
    def number(self: N, value: float) -> N:
        """A constant of the same type."""

    @abstractmethod
    def whole(self: N, value: int) -> N:
        """A constant of i32."""

    def _like(self: N, other: N | float) -> N:
        return other if isinstance(other, CarriedNumber) else self.number(other)

    def __add__(self: N, other: N | float) -> N:
        return self.do("add", self._like(other))

    def __sub__(self: N, other: N | float) -> N:
        return self.do("sub", self._like(other))

    def __mul__(self: N, other: N | float) -> N:
        return self.do("mul", self._like(other))

    def __truediv__(self: N, other: N | float) -> N:
        return self.do("div", self._like(other))

    def bitwise(self: N, word: Bitwise, other: N | int) -> N:
        """A bitwise operation on integers; `ashr` is the arithmetic shift."""
        return self.do(word, self._like(other))

    def is_(self: N, order: Order, other: N | float) -> N:
        """A comparison; false for NaN."""
        return self.do(order, self._like(other))

    def choose(self: N, then: N, orelse: N | float) -> N:
        """`then` if this condition holds, otherwise `orelse`."""
        return self.do("select", then, then._like(orelse))

    def bits(self: N) -> N:
        """The bits of an f32, as an i32."""
        return self.do("bits")

    def real(self: N) -> N:
        """The f32 with these bits."""
        return self.do("real")

    def to_float(self: N) -> N:
        """An i32 as an f32."""
        return self.do("to_float")

    def widened(self: N) -> N:
        """An f32 as an f64."""
        return self.do("widened")

    def narrowed(self: N) -> N:
        """An f64 rounded to an f32."""
        return self.do("narrowed")

    def low_word(self: N) -> N:
        """The low half of the bits of an f64, as an i32."""
        return self.do("low_word")

    def size(self: N) -> N:
        """Without its sign."""
        return self.do("size")

    def with_sign(self: N, other: N) -> N:
        """With the sign of another."""
        return self.do("with_sign", other)

    def root(self: N) -> N:
        """The square root of an f32."""
        return self.do("root")

    def turn(self: N, part: Literal["high", "low"]) -> N:
        """The entry of the table `turns` for an exponent."""
        return self.do(f"turn_{part}")

    def fused(self: N, factor: N, term: N | float) -> N | None:
        """`self * factor + term` with one rounding, or None if the carrier rounds twice."""
        return None

    def scaled(self: N, exponent: N) -> N | None:
        """`self * 2 ** exponent` in one instruction, or None if there is none."""
        return None

    def at_most(self: N, bound: float) -> N:
        """The minimum; NaN is propagated."""
        return self.is_("ogt", bound).choose(self.number(bound), self)

    def at_least(self: N, bound: float) -> N:
        """The maximum; NaN is propagated."""
        return self.is_("olt", bound).choose(self.number(bound), self)


def fma(a: N, b: N, c: N | float) -> N:
    """`a * b + c`, rounded once where the carrier can."""
    at_once = a.fused(b, c)
    return a * b + c if at_once is None else at_once


def polynomial(x: N, coefficients: Sequence[float]) -> N:
    found = x.number(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        found = fma(found, x, coefficient)
    return found


def _nearest(x: N, times: float = 1.0) -> tuple[N, N]:
    """The nearest integer n to a small number times a constant, and the bits of n + `RAISED`."""
    moved = x + RAISED if times == 1.0 else fma(x, x.number(times), RAISED)
    return moved - RAISED, moved.bits()


def _exponent(raised: N) -> N:
    """The integer encoded in these bits, including its bias."""
    return raised - 0x4B4000FE


def biased(exponent: N) -> N:
    """The bits that encode an integer."""
    return exponent + 0x4B4000FE


def power_of_two(exponent: N) -> N:
    return (exponent + 127).bitwise("shl", 23).real()


def scaled(x: N, raised: N) -> N:
    """`x * 2 ** n` in two steps: neither 2^128 nor 2^-140 is a number to multiply by.

    Uses one instruction if the machine has it. The exponent is split into two biased halves; the
    bits above are shifted out.
    """
    if (at_once := x.scaled(_exponent(raised))) is not None:
        return at_once
    half = raised.bitwise("lshr", 1)
    first, second = (each.bitwise("shl", 23).real() for each in (half, raised - half))
    return x * first * second


def reduced(x: N) -> tuple[N, N]:
    """`(exp(r) - 1, n)` where x is `r + n log(2)`."""
    r, raised = _rest(x)
    return fma(r * r, polynomial(r, EXP), r), _exponent(raised)


def _rest(x: N) -> tuple[N, N]:
    """`(r, n)` where x is `r + n log(2)` and |r| <= log(2) / 2; n as `_nearest` gives it."""
    whole, raised = _nearest(x, LOG2_E)
    high = fma(whole, x.number(-LN2_HIGH), x)
    return fma(whole, x.number(-LN2_LOW), high), raised


def _exp_above(x: N) -> N:
    r, raised = _rest(x)
    return scaled(polynomial(r, POWER), raised)


def _unless_below(least: float, x: N, of: Callable[[N], N]) -> N:
    """A function that is 0 below a number, where it is not computed: products that underflow take
    a hundred cycles, and masked scores are far below."""
    below, zero = x.is_("olt", least), x.number(0.0)
    return below.choose(zero, of(below.choose(zero, x)))


def _exp2_above(x: N) -> N:
    whole, raised = _nearest(x)
    r = x - whole
    return scaled(fma(r, polynomial(r, EXP2), 1.0), raised)


def expm1_inside(x: N) -> N:
    """Half of exp(x) - 1, for -60 <= x <= 89; a half since 2^128 is too much."""
    less_one, n = reduced(x)
    half = power_of_two(n - 1)
    return fma(half, less_one, half - 0.5)


def _expm1(x: N) -> N:
    half = expm1_inside(x.at_most(89.0).at_least(-20.0))
    return x.size().is_("olt", 2.0**-24).choose(x, half + half)


def parts(x: N, low: N) -> tuple[N, N]:
    """`(f, e)` where x, which is positive, is `(1 + f) * 2 ** e` and |f| <= 1/3.

    `low` is what e must be less by, where x was made normal beforehand.
    """
    bits = x.bits()
    exponent = (bits - 0x3F2AAAAB).bitwise("ashr", 23)
    f = (bits - exponent.bitwise("shl", 23)).real() - 1.0
    return f, (exponent - low).to_float()


def normal(x: N) -> tuple[N, N]:
    """x, times 2^23 where it is subnormal; and the exponent of that factor."""
    tiny = x.is_("olt", 2.0**-126)
    return tiny.choose(x * 2.0**23, x), tiny.choose(x.whole(23), 0)


def _where_logarithm(x: N, found: N) -> N:
    """The logarithm of positive finite numbers, and its values at 0, infinity and all others."""
    inside = x.is_("olt", float("inf")).choose(found, x)  # infinity and nan are their own
    zero = x.is_("oeq", 0.0).choose(x.number(float("-inf")), inside)
    return x.is_("olt", 0.0).choose(x.number(float("nan")), zero)


def _log_parts(f: N, e: N, more: N | None = None) -> N:
    """`log((1 + f) * 2 ** e)`, plus a little more."""
    square = f * f
    tail = fma(polynomial(f, LOG), f, -0.5)
    small = e * LN2_LOW if more is None else fma(e, f.number(LN2_LOW), more)
    return fma(e, f.number(LN2_HIGH), f + fma(square, tail, small))


def _log2(x: N) -> N:
    f, e = parts(*normal(x))
    rest = fma(f, f.number(LOG2_E), f * f * polynomial(f, LOG2))
    return _where_logarithm(x, e + rest)


def log1p(x: N) -> N:
    u = x + 1.0
    lost = (x - (u - 1.0)) / u
    found = _where_logarithm(u, _log_parts(*parts(u, x.whole(0)), lost))
    return x.size().is_("olt", 2.0**-24).choose(x, found)


def _tanh(x: N) -> N:
    size = x.size().at_most(9.1)
    half = expm1_inside(size + size)
    return (half / (half + 1.0)).with_sign(x)


def _erf(x: N) -> N:
    size = x.size()
    near = x * polynomial(x * x, ERF_NEAR)
    inside = size.at_most(4.0)
    less_one, n = reduced(inside.number(0.0) - polynomial(inside, ERF_FAR))
    power = power_of_two(n)
    far = (inside.number(1.0) - power) - power * less_one
    return size.is_("olt", 0.92).choose(near, far.with_sign(x))


def _turned(x: N) -> tuple[N, N]:
    """`(r, n)` with x equal to `r + n` quarter turns and |r| <= pi/4; n counts modulo 4."""
    raised = x.bits().bitwise("lshr", 23).bitwise("and", 255) - 150
    place = raised.is_("sgt", 0).choose(raised, 0)
    wide = x.widened()
    high = wide * place.turn("high")
    moved = high + HALVES_64
    low = wide * place.turn("low")
    r = ((high - (moved - HALVES_64)) + low) * QUARTER
    return r.narrowed(), moved.low_word()


def _waves(r: N) -> tuple[N, N]:
    """Sine and cosine of at most half a quarter turn."""
    square = r * r
    sine = fma(square * r, polynomial(square, SIN), r)
    cosine = fma(square * square, polynomial(square, COS), fma(square, r.number(-0.5), 1.0))
    return sine, cosine


def _turned_near(x: N) -> tuple[N, N]:
    """The same for angles up to `MAX_ANGLE_BY_PARTS`, by fused multiply-adds."""
    moved = fma(x, x.number(1 / QUARTER), HALVES)
    n, r = moved - HALVES, x
    for part in QUARTER_PARTS:
        r = fma(n, x.number(-part), r)
    return r, moved.bits()


def _wave(x: N, shift: int, turned: Callable[[N], tuple[N, N]] = _turned) -> N:
    r, n = turned(x)
    sine, cosine = _waves(r)
    place = n + shift
    odd = place.bitwise("and", 1).is_("ne", 0)
    sign = place.bitwise("and", 2).bitwise("shl", 30)
    return odd.choose(cosine, sine).bits().bitwise("xor", sign).real()


def _its_own_near_zero(x: N, found: N) -> N:
    return x.size().is_("olt", 2.0**-12).choose(x, found)


def _slope(x: N, turned: Callable[[N], tuple[N, N]] = _turned) -> N:
    r, n = turned(x)
    sine, cosine = _waves(r)
    odd = n.bitwise("and", 1).is_("ne", 0)
    return odd.choose(cosine * -1.0, sine) / odd.choose(sine, cosine)


def _sin_near(x: N) -> N:
    return _its_own_near_zero(x, _wave(x, 0, _turned_near))


def _tan_near(x: N) -> N:
    return _its_own_near_zero(x, _slope(x, _turned_near))


FORMULAS: Final[dict[str, Callable[[Any], Any]]] = {  # Any: the numbers of one carrier
    "exp": lambda x: _unless_below(-104.0, x, lambda inside: _exp_above(inside.at_most(89.0))),
    "exp2": lambda x: _unless_below(-151.0, x, lambda inside: _exp2_above(inside.at_most(129.0))),
    "expm1": _expm1,
    "log": lambda x: _where_logarithm(x, _log_parts(*parts(*normal(x)))),
    "log2": _log2,
    "log1p": log1p,
    "tanh": _tanh,
    "erf": _erf,
    "sin": lambda x: _its_own_near_zero(x, _wave(x, 0)),
    "cos": lambda x: _wave(x, 1),
    "tan": lambda x: _its_own_near_zero(x, _slope(x)),
    "asin": late("plica.ir.loop.arc_formula:asin"),
    "acos": late("plica.ir.loop.arc_formula:acos"),
    "atan": late("plica.ir.loop.arc_formula:atan"),
    "sinh": late("plica.ir.loop.arc_formula:sinh"),
    "cosh": late("plica.ir.loop.arc_formula:cosh"),
    "asinh": late("plica.ir.loop.arc_formula:asinh"),
    "acosh": late("plica.ir.loop.arc_formula:acosh"),
    "atanh": late("plica.ir.loop.arc_formula:atanh"),
}
"""By the name of the intrinsic."""

NEAR_FORMULAS: Final[dict[str, Callable[[Any], Any]]] = {
    "sin": _sin_near, "cos": lambda x: _wave(x, 1, _turned_near), "tan": _tan_near,
}  # fmt: skip
"""Those that are shorter for small angles, on carriers that round a product and a sum once."""

PAIR_FORMULAS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "pow": late("plica.ir.loop.power_formula:power")
}
"""Those of two numbers."""
