"""SMT-LIB: the equality of two scalars as a script whose `unsat` is a proof.

Scalars are encoded in one of two theories of floats.  `ieee` is IEEE 754 with all its roundings,
infinities, zeros of both signs and one nan; `reals` is real arithmetic where the left side is
defined (no division by zero, no root below zero).  Integers are bit vectors, which wrap around;
where only sums, differences and products occur they are unbounded integers, which is enough:
what holds in Z holds modulo 2^n.  Functions of the C library are unknown functions, of which
`AXIOMS` says a little.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from fractions import Fraction
from typing import Final, Literal, TypeAlias

import attrs

from plica.core import post_order
from plica.ir.loop import scalar as sc
from plica.ir.type import DType, bf16, bool_, f64
from plica.rewrite.prove.axiom import (
    AXIOMS,
    DOMAIN_AXIOM,
    EXPONENTIALS,
    IEEE_AXIOMS,
    PRODUCT_AXIOM,
    TOTAL,
)
from plica.rewrite.prove.smt_number import (
    FORMATS,
    chain,
    float_constant,
    float_format,
    on_bits,
    power_of,
    real_text,
    resized,
    truncated_real,
)

FloatTheory: TypeAlias = Literal["ieee", "reals"]

RING: Final = (sc.Add, sc.Sub, sc.Mul)


class Unencodable(Exception):
    """Why a scalar has no script in a theory."""


@attrs.frozen
class EqualityScript:
    """A script, and the laws of library functions that it states."""

    text: str
    axioms: tuple[str, ...]
    complete: bool  # whether `sat` tells the sides apart: no function in it is unknown


def query(
    left: sc.Scalar,
    right: sc.Scalar,
    floats: FloatTheory,
    *,
    signless: bool,
    partial: Set[sc.Scalar] = frozenset(),
) -> EqualityScript:
    """A script that is unsatisfiable only if the sides are equal wherever the left is defined.

    With `signless` zeros of both signs are equal.  The unknown numbers in `partial` are undefined
    in some cases.
    """
    encoder = _Encoder(floats, _is_ring(floats, left, right), partial)
    a, b = encoder.encoded(left), encoder.encoded(right)
    needed, owed = encoder.defined(left), encoder.defined(right)
    dtype = sc.dtype_of(left)
    equal = f"(= {a} {b})"
    if signless and dtype.is_float and floats == "ieee":
        equal = f"(or {equal} (fp.eq {a} {b}))"
    goal = _all([*owed, equal])
    lines = ["(set-logic ALL)", *encoder.declarations, *encoder.definitions]
    lines += [f"(assert {each})" for each in (*encoder.facts, *needed)]
    lines += [f"(assert (not {goal}))", "(check-sat)"]
    text = "\n".join(lines) + "\n"
    return EqualityScript(text, tuple(dict.fromkeys(encoder.axioms)), not encoder.has_unknowns)


def _all(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"(and {' '.join(parts)})"


def _is_ring(floats: FloatTheory, *terms: sc.Scalar) -> bool:
    """Whether integers are only added, subtracted and multiplied, and cast as they come."""
    for node in (each for term in terms for each in post_order(term)):
        if not isinstance(node, sc.Scalar):
            continue
        if isinstance(node, sc.Cast):
            plain = isinstance(node.value, sc.ScalarVar | sc.Lit) or not (
                sc.dtype_of(node.value).is_integer
            )
            rounds = floats == "ieee" and sc.dtype_of(node.value).is_integer
            if not plain or node.dtype.is_integer or rounds:
                return False
        elif isinstance(node, (sc.Lit, sc.ScalarVar, *RING)):
            continue
        elif any(isinstance(k, sc.Scalar) and sc.dtype_of(k).is_integer for k in node._children):
            return False
    return True


class _Encoder:
    """Both sides as definitions over declared unknowns."""

    def __init__(self, floats: FloatTheory, ring: bool, partial: Set[sc.Scalar]) -> None:
        self.floats, self.ring, self.partial = floats, ring, partial
        self.declarations: list[str] = []
        self.definitions: list[str] = []
        self._own: list[str] = []
        self._defined: dict[sc.Scalar, tuple[str, ...]] = {}
        self.facts: list[str] = []
        self.axioms: list[str] = []
        self._names: dict[sc.Scalar, str] = {}
        self.has_unknowns = False
        self._functions: set[str] = set()
        self._exponents: dict[str, dict[str, None]] = {}

    def encoded(self, term: sc.Scalar) -> str:
        """The name of a term, which is defined with all its parts."""
        for node in post_order(term):
            if isinstance(node, sc.Scalar) and node not in self._names:
                self._names[node] = self._encode(node)
        return self._names[term]

    def _encode(self, node: sc.Scalar) -> str:
        sort = self.sort(sc.dtype_of(node))
        if isinstance(node, sc.ScalarVar):
            name = f"{node.name.hint}_{node.name.index}"
            self.declarations.append(f"(declare-fun {name} () {sort})")
            if node in self.partial and self.floats == "reals":
                self.declarations.append(f"(declare-fun defined_{name} () Bool)")
                self._defined[node] = (f"defined_{name}",)
            return name
        if isinstance(node, sc.Lit):
            return self.literal(node)
        kids = [kid for kid in node._children if isinstance(kid, sc.Scalar)]
        self._own = []
        text = self.operation(node, [self._names[kid] for kid in kids], sc.dtype_of(kids[0]))
        self._defined[node] = self._where(node, kids)
        return self._define(sort, text)

    def _define(self, sort: str, text: str) -> str:
        name = f"t{len(self.definitions)}"
        self.definitions.append(f"(define-fun {name} () {sort} {text})")
        return name

    def defined(self, term: sc.Scalar) -> tuple[str, ...]:
        """What must hold for a term of reals to be defined."""
        return self._defined.get(term, ())

    def _where(self, node: sc.Scalar, kids: Sequence[sc.Scalar]) -> tuple[str, ...]:
        """Where a term is defined: its parts are, of a choice the one that is chosen."""
        if not isinstance(node, sc.Select):
            parts = [each for kid in kids for each in self.defined(kid)]
            return tuple(dict.fromkeys([*parts, *self._own]))
        condition, then, orelse = kids
        sides = [_all(self.defined(side) or ("true",)) for side in (then, orelse)]
        if sides == ["true", "true"]:
            return self.defined(condition)
        chosen = f"(ite {self._names[condition]} {sides[0]} {sides[1]})"
        return (*self.defined(condition), self._define("Bool", chosen))

    def sort(self, of: DType) -> str:
        if of is bool_:
            return "Bool"
        if of.is_integer:
            return "Int" if self.ring else f"(_ BitVec {of.bits})"
        if self.floats == "reals":
            return "Real"
        return "(_ FloatingPoint {} {})".format(*FORMATS[float_format(of).name])

    def literal(self, node: sc.Lit) -> str:
        """A number, exactly."""
        of, value = node.dtype, node.value
        if of is bool_:
            return "true" if value else "false"
        if of.is_integer:
            if self.ring:
                return real_text(Fraction(value), whole=True)
            return f"(_ bv{int(value) % (1 << of.bits)} {of.bits})"
        if self.floats == "reals":
            if not math.isfinite(value):
                raise Unencodable("infinities and nan are no reals")
            return real_text(Fraction(value))
        return float_constant(float(value), of)

    # --- operations -------------------------------------------------------------------------------

    def operation(self, node: sc.Scalar, kids: list[str], of: DType) -> str:
        """One operation on encoded operands, of which the first has that dtype."""
        match node:
            case sc.Select():
                return f"(ite {' '.join(kids)})"
            case sc.And() | sc.Or():
                return f"({'and' if isinstance(node, sc.And) else 'or'} {' '.join(kids)})"
            case sc.Not():
                return f"(not {kids[0]})"
            case sc.Cast(value, dtype):
                return self.cast(kids[0], sc.dtype_of(value), dtype, value)
        if isinstance(node, sc.Eq | sc.Ne | sc.Lt | sc.Le):
            return self.comparison(node, kids, of)
        name = node.name if isinstance(node, sc.Intrinsic) else type(node).__name__
        if of is bool_:
            return self.on_bools(name, kids)
        if of.is_integer:
            return self.on_integers(name, kids, of, node)
        return (
            self.on_ieee(name, kids, of, node)
            if self.floats == "ieee"
            else self.on_reals(name, kids, node)
        )

    def comparison(self, node: sc.Scalar, kids: list[str], of: DType) -> str:
        a, b = kids
        floating = of.is_float and self.floats == "ieee"
        if isinstance(node, sc.Eq | sc.Ne):
            equal = f"(fp.eq {a} {b})" if floating else f"(= {a} {b})"
            return equal if isinstance(node, sc.Eq) else f"(not {equal})"
        strict = isinstance(node, sc.Lt)
        if of is bool_:
            return f"(and (not {a}) {b})" if strict else f"(or (not {a}) {b})"
        if of.is_integer and not self.ring:
            word = ("bvs" if of.kind == "int" else "bvu") + ("lt" if strict else "le")
        else:
            word = ("fp.lt" if strict else "fp.leq") if floating else ("<" if strict else "<=")
        return f"({word} {a} {b})"

    def on_bools(self, name: str, kids: list[str]) -> str:
        if name in _BOOL_WORDS:
            return f"({_BOOL_WORDS[name]} {' '.join(kids)})"
        return kids[0] if name in ("abs", "sign") else self.unknown(name, kids, bool_, bool_)

    def on_integers(self, name: str, kids: list[str], of: DType, node: sc.Scalar) -> str:
        """Bit vectors; unbounded integers where only a ring is asked of them."""
        if self.ring:
            return f"({_RING_WORDS[name]} {' '.join(kids)})"
        a, b = (*kids, "")[:2]
        found = on_bits(name, a, b, of, power_of(node))
        return self.unknown(name, kids, of, sc.dtype_of(node)) if found is None else found

    def on_ieee(self, name: str, kids: list[str], of: DType, node: sc.Scalar) -> str:
        """IEEE 754, rounded to nearest even."""
        if of.row.is_storage:
            raise Unencodable(f"arithmetic on {of}")
        a, b = (*kids, "")[:2]
        if name in _IEEE:
            return f"({_IEEE[name]} {' '.join(kids)})"
        one, zero, nan = (float_constant(each, of) for each in (1.0, 0.0, math.nan))
        match name:
            case "Mul" | "Div":
                return self.signed(name, kids, of, node)
            case "Sub":
                minus = float_constant(-0.0, of)
                return f"(fp.neg {b})" if a == minus else f"(fp.sub RNE {a} {b})"
            case "Min" | "Max":
                sign = "or" if name == "Min" else "and"
                less = f"(fp.lt {a} {b})" if name == "Min" else f"(fp.lt {b} {a})"
                minus = float_constant(-0.0, of)
                zeros = f"(ite ({sign} (fp.isNegative {a}) (fp.isNegative {b})) {minus} {zero})"
                ordered = (
                    f"(ite (and (fp.isZero {a}) (fp.isZero {b})) {zeros} (ite {less} {a} {b}))"
                )
                return f"(ite (or (fp.isNaN {a}) (fp.isNaN {b})) {nan} {ordered})"
            case "sign":
                moved = f"(ite (fp.isNegative {a}) (fp.neg {one}) {one})"
                return f"(ite (fp.isNaN {a}) {nan} (ite (fp.isZero {a}) {zero} {moved}))"
            case "rsqrt":
                return f"(fp.div RNE {one} (fp.sqrt RNE {a}))"
            case "copysign":
                return f"(ite {self.sign_bit(node, b)} (fp.neg (fp.abs {a})) (fp.abs {a}))"
            case "Pow" if power_of(node) == 0:
                return one
            case "Pow" if power_of(node) == 1:
                return a
        return self.unknown(name, kids, of, sc.dtype_of(node))

    def signed(self, name: str, kids: list[str], of: DType, node: sc.Scalar) -> str:
        """A product or quotient of floats: a sign, and an unknown function of the magnitudes.

        Both are symmetric about zero, as rounding to nearest is; solvers are slow at multipliers.
        """
        a, b = kids
        left, right = (f"(fp.abs {child})" for child in kids)
        size = f"(fp.abs {self.unknown(name, [left, right], of, of)})"
        assert isinstance(node, sc.Pair)
        if isinstance(node.right, sc.Lit) and abs(node.right.value) == 1:
            size = left
        elif name == "Mul" and isinstance(node.left, sc.Lit) and abs(node.left.value) == 1:
            size = right
        elif name == "Mul":
            word = f"{name}_{of.name}"
            self.facts.append(f"(= ({word} {left} {right}) ({word} {right} {left}))")
        signed = f"(ite (xor (fp.isNegative {a}) (fp.isNegative {b})) (fp.neg {size}) {size})"
        nan = float_constant(math.nan, of)
        return f"(ite (or (fp.isNaN {a}) (fp.isNaN {b})) {nan} {signed})"

    def sign_bit(self, node: sc.Scalar, encoded: str) -> str:
        """The sign bit of a float; that of a nan is another unknown."""
        assert isinstance(node, sc.Intrinsic)
        if not isinstance(node.args[1], sc.ScalarVar):
            raise Unencodable("the sign of a nan that was computed")
        name = f"{encoded}_sign"
        if name not in self._functions:
            self._functions.add(name)
            self.declarations.append(f"(declare-fun {name} () Bool)")
        return f"(ite (fp.isNaN {encoded}) {name} (fp.isNegative {encoded}))"

    def on_reals(self, name: str, kids: list[str], node: sc.Scalar) -> str:
        """Real arithmetic, with what it takes to be defined."""
        a, b, c = (*kids, "", "")[:3]
        if name in _REALS:
            needed, text = _REALS[name]
            if needed:
                self.needs(needed.format(a=a, b=b))
            down = f"(to_real (to_int {a}))"
            return text.format(a=a, b=b, c=c, down=down, up=f"(to_int (+ {a} 0.5))")
        match name:
            case "trunc":
                return truncated_real(a)
            case "fmod":
                self.needs(f"(distinct {b} 0.0)")
                return f"(- {a} (* {b} {truncated_real(f'(/ {a} {b})')}))"
            case "sqrt" | "rsqrt":
                self.needs(f"({'>=' if name == 'sqrt' else '>'} {a} 0.0)")
                root = self.root(a)
                return root if name == "sqrt" else f"(/ 1.0 {root})"
            case "expm1":
                return f"(- {self.library('exp', a)} 1.0)"
            case "log" | "log1p":
                inner = a if name == "log" else f"(+ 1.0 {a})"
                self.needs(f"(> {inner} 0.0)")
                return self.library("log", inner)
            case "Pow" if (power := power_of(node)) is not None and 0 <= power <= 8:
                return "1.0" if power == 0 else chain("*", a, power)
            case "Pow" if power_of(node) == -1:
                self.needs(f"(distinct {a} 0.0)")
                return f"(/ 1.0 {a})"
            case "copysign":
                raise Unencodable("the sign of zero is no matter of reals")
        if name in TOTAL:
            return self.library(name, a)
        sorts = " ".join(["Real"] * len(kids))
        self.declare(f"defined_{name}", f"({sorts})", "Bool")
        self.needs(f"(defined_{name} {' '.join(kids)})")
        return self.library(name, *kids)

    def needs(self, condition: str) -> None:
        """What must hold for this operation on reals to be defined."""
        self._own.append(condition)

    def root(self, of: str) -> str:
        text = self.library("sqrt", of)
        self.facts.append(f"(=> (>= {of} 0.0) (and (>= {text} 0.0) (= (* {text} {text}) {of})))")
        return text

    def library(self, name: str, *kids: str) -> str:
        """A library function of reals, and what is known of it at this argument.

        By a name of its own: solvers have laws for `sin` and `exp`, which no verdict would name.
        """
        word = f"{name}_real"
        self.declare(word, f"({' '.join(['Real'] * len(kids))})", "Real")
        if name in AXIOMS and len(kids) == 1:
            law, fact = AXIOMS[name]
            self.axioms.append(law.format(f=name))
            self.facts.append(fact.format(f=word, x=kids[0]))
            if f"defined_{name}" in self._functions:
                self.facts.append(DOMAIN_AXIOM.format(f=name, x=kids[0]))
        if name in EXPONENTIALS:
            for other in self._exponents.setdefault(name, {}):
                law, fact = PRODUCT_AXIOM
                self.axioms.append(law.format(f=name))
                self.facts.append(fact.format(f=word, x=other, y=kids[0]))
            self._exponents[name][kids[0]] = None
        return f"({word} {' '.join(kids)})"

    def unknown(self, name: str, kids: list[str], of: DType, result: DType) -> str:
        """A function of which only that is known that it is one."""
        word = f"{name}_{of.name}"
        self.declare(word, f"({' '.join([self.sort(of)] * len(kids))})", self.sort(result))
        if name in IEEE_AXIOMS and of.is_float:
            law, fact = IEEE_AXIOMS[name]
            self.axioms.append(law.format(f=name))
            self.facts.append(fact.format(f=word, x=kids[0]))
        return f"({word} {' '.join(kids)})"

    def declare(self, name: str, takes: str, gives: str) -> None:
        self.has_unknowns = True
        if name not in self._functions:
            self._functions.add(name)
            self.declarations.append(f"(declare-fun {name} {takes} {gives})")

    # --- casts ------------------------------------------------------------------------------------

    def cast(self, text: str, of: DType, to: DType, value: sc.Scalar) -> str:
        """A number in another dtype."""
        if of is to:
            return text
        if of is bool_:
            one, zero = (self.literal(sc.Lit(each, to)) for each in (1, 0))
            return f"(ite {text} {one} {zero})"
        if to is bool_:
            if of.is_float and self.floats == "ieee":
                return f"(not (fp.isZero {text}))"
            return f"(distinct {text} {self.literal(sc.Lit(0, of))})"
        if of.is_integer and to.is_integer:
            return resized(text, of, to)
        if self.floats == "reals":
            if of.is_float and to.is_float:
                return text
            if of.is_integer and self.ring:
                return f"(to_real {text})"
            raise Unencodable("casts between bit vectors and reals")
        if to.row.is_storage:
            raise Unencodable(f"casts to {to}")
        if to.is_float:
            return text if of.is_float and float_format(of) is to else self.rounded(text, of, to)
        return self.truncated(text, of, to)

    def rounded(self, text: str, of: DType, to: DType) -> str:
        """To a float, to nearest even; to bf16 by way of f32."""
        if self.ring and of.is_integer:
            raise Unencodable("casts of unbounded integers")
        if to is bf16 and of is f64:
            text = f"((_ to_fp 8 24) RNE {text})"
        elif to is bf16 and of.is_integer:
            text, of = f"((_ to_fp{'' if of.kind == 'int' else '_unsigned'} 8 24) RNE {text})", bf16
        eb, sb = FORMATS[to.name]
        word = "to_fp_unsigned" if of.kind == "uint" else "to_fp"
        return f"((_ {word} {eb} {sb}) RNE {text})"

    def truncated(self, text: str, of: DType, to: DType) -> str:
        """From a float to an integer: towards zero, saturating, and nan gives 0."""
        if self.ring:
            raise Unencodable("casts to unbounded integers")
        low, high = to.bounds
        top, bottom = (float_constant(float(each), of) for each in (high + 1, low))
        word = "fp.to_sbv" if to.kind == "int" else "fp.to_ubv"
        least, most, zero = (self.literal(sc.Lit(int(each), to)) for each in (low, high, 0))
        inside = f"((_ {word} {to.bits}) RTZ {text})"
        clipped = (
            f"(ite (fp.geq {text} {top}) {most} (ite (fp.leq {text} {bottom}) {least} {inside}))"
        )
        return f"(ite (fp.isNaN {text}) {zero} {clipped})"


_RING_WORDS: Final = {"Add": "+", "Sub": "-", "Mul": "*"}
_BOOL_WORDS: Final = {
    "Min": "and", "BitAnd": "and", "Mul": "and", "Max": "or", "BitOr": "or", "Add": "or",
    "BitXor": "xor", "Sub": "xor",
}  # fmt: skip
_REALS: Final = {
    "Add": ("", "(+ {a} {b})"), "Sub": ("", "(- {a} {b})"), "Mul": ("", "(* {a} {b})"),
    "Div": ("(distinct {b} 0.0)", "(/ {a} {b})"), "fma": ("", "(+ (* {a} {b}) {c})"),
    "Min": ("", "(ite (<= {a} {b}) {a} {b})"), "Max": ("", "(ite (<= {a} {b}) {b} {a})"),
    "abs": ("", "(ite (< {a} 0.0) (- {a}) {a})"),
    "sign": ("", "(ite (= {a} 0.0) 0.0 (ite (< {a} 0.0) (- 1.0) 1.0))"),
    "isnan": ("", "false"), "isinf": ("", "false"), "floor": ("", "{down}"),
    "ceil": ("", "(- (to_real (to_int (- {a}))))"),
    "round": ("", "(to_real (ite (and (= (to_real {up}) (+ {a} 0.5)) (= (mod {up} 2) 1)) "
                  "(- {up} 1) {up}))"),
}  # fmt: skip
"""Operations on reals: what it takes to be defined, and the term."""
_IEEE: Final = {
    "Add": "fp.add RNE", "sqrt": "fp.sqrt RNE", "abs": "fp.abs", "isnan": "fp.isNaN",
    "isinf": "fp.isInfinite",
    "fma": "fp.fma RNE", "floor": "fp.roundToIntegral RTN", "ceil": "fp.roundToIntegral RTP",
    "round": "fp.roundToIntegral RNE", "trunc": "fp.roundToIntegral RTZ",
}  # fmt: skip
