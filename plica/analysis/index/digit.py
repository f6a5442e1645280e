"""Digits: an index term as a sum of scaled digits of loop variables.

    Sum   ::= base + scale × Digit + scale × Digit + …
    Digit ::= (source // lower) % extent            without the % where `top`

A source is a loop variable, or a sum that is divided further, identified by its term. Splitting a
loop yields a sum of two digits, fusing two loops yields two digits of one source, so every index
that schedules produce is such a sum, for symbolic extents too.

>>> from plica.ir.type.dim import dim_var
>>> i, j, f, m = (dim_var(name) for name in "ijfm")
>>> digits = Digits({i: sc.index(3), j: m, f: m * 4})
>>> [str(digit.source.name) for _, digit in digits.sum_of((i * m + j) // m).parts]
['i']
>>> digits.sum_of(f // m * m + f % m) == digits.sum_of(f)
True
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

from plica.analysis.index import count
from plica.analysis.index.knowledge import ARITHMETIC
from plica.core import fold_into, free_vars
from plica.ir.loop import scalar as sc
from plica.ir.type import known, normal_dim, polynomial, quotient, same_dim

DividedSum: TypeAlias = Literal["below", "apart", "whole"]
"""Which part of a divided sum becomes a source: the remainder, each separable part, or the whole
sum if it counts from 0 without gaps."""

MAX_PARTS: Final = 64  # a sum of more digits than this is not looked into: no schedule makes one


class Digit(NamedTuple):
    """`(source // lower) % extent`; where `top`, nothing of the source is above it."""

    source: sc.Scalar
    lower: sc.Scalar
    extent: sc.Scalar
    top: bool

    def of(self, source: sc.Scalar) -> sc.Scalar:
        """The digit of another value of the source."""
        value = source if self.lower is count.ONE else sc.FloorDiv(source, self.lower)
        return value if self.top else sc.FloorMod(value, self.extent)


class DigitSum(NamedTuple):
    """A base and digits with their scales, in the order in which the digits were first seen."""

    parts: tuple[tuple[sc.Scalar, Digit], ...]
    base: sc.Scalar


class Digits:
    """Decomposes terms over loops into digits; sums that are divided further become sources."""

    def __init__(
        self,
        loops: Mapping[sc.ScalarVar, sc.Scalar],
        conditions: Iterable[sc.Scalar] = (),
        way: DividedSum = "below",
    ) -> None:
        self._way = way
        self.loops = {var: normal_dim(extent) for var, extent in loops.items()}
        self.extents: dict[sc.Scalar, sc.Scalar] = {}
        self.extents.update(self.loops.items())
        self.composites: dict[
            sc.Scalar, DigitSum
        ] = {}  # in the order they were made, inner ones first
        self.restricted: list[sc.Scalar] = []
        self._order: dict[Digit, int] = {}
        self._memo: dict[sc.Scalar, DigitSum | None] = {}
        self._vars = frozenset(loops)
        self._positive = count.positive_dims(self.loops.values(), conditions)

    def sum_of(self, term: sc.Scalar) -> DigitSum | None:
        """The term as a sum of digits, or None."""
        found = self._taken_apart(term)
        return None if found is None else self._with_restricted(found)

    def restrict(self, condition: sc.Scalar) -> bool:
        """Assumes a condition; returns whether it could be used."""
        if (pair := count.comparison(condition)) is None:
            return False
        found, below = self.sum_of(pair[0]), normal_dim(pair[1])
        if found is None or found.base is not count.ZERO or not self.is_constant(below):
            return False
        if not found.parts:  # the condition has one value in all iterations
            return count.at_least(below, count.ONE)
        if (chain := compact(found)) is None:
            return False
        whole = len(chain) == 1 and chain[0][1].top and chain[0][1].lower is count.ONE
        source = chain[0][1].source if whole else self._source(found)
        if count.at_least(below, self.extents[source]):
            return True  # it says nothing new
        if not count.at_least(self.extents[source], below):
            return False
        if source in self.composites and source not in self.restricted:
            self.restricted.append(source)
        self.extents[source] = below
        self._memo.clear()
        return True

    def is_constant(self, term: sc.Scalar) -> bool:
        """Whether a term has one value in all iterations, and does not look at memory."""
        free = free_vars(term)
        return free.isdisjoint(self._vars) and not any(isinstance(v, sc.Buffer) for v in free)

    def _taken_apart(self, term: sc.Scalar) -> DigitSum | None:
        memo = self._memo

        def parts(node: sc.Scalar) -> tuple[sc.Scalar, ...]:
            if not isinstance(node, ARITHMETIC) or self.is_constant(node):
                return ()
            return node.left, node.right

        def digits(node: sc.Scalar) -> DigitSum | None:
            if isinstance(node, sc.ScalarVar) and node in self._vars:
                return self._digit(Digit(node, count.ONE, self.extents[node], True))
            if self.is_constant(node):
                return DigitSum((), normal_dim(node))
            if isinstance(node, ARITHMETIC):
                return self._operation(node, memo[node.left], memo[node.right])
            return None

        return fold_into(memo, term, parts, digits)

    def _operation(
        self, node: sc.Scalar, left: DigitSum | None, right: DigitSum | None
    ) -> DigitSum | None:
        if left is None or right is None or len(left.parts) + len(right.parts) > MAX_PARTS:
            return None
        match node:
            case sc.Add():
                return self._plus(left, right, count.ONE)
            case sc.Sub():
                return self._plus(left, right, sc.index(-1))
            case sc.Mul():
                if right.parts:
                    left, right = right, left
                if right.parts:
                    return None
                return self._plus(DigitSum((), count.ZERO), left, right.base)
            case _:
                if right.parts or right.base is count.ZERO or not count.is_natural(right.base):
                    return None
                whole = isinstance(node, sc.FloorDiv)
                return self._divided(self._with_restricted(left), right.base, whole=whole)

    def _plus(self, a: DigitSum, b: DigitSum, factor: sc.Scalar) -> DigitSum:
        scales = {digit: scale for scale, digit in a.parts}
        for scale, digit in b.parts:
            total = count.plus(scales.get(digit, count.ZERO), count.times(factor, scale))
            scales[digit] = total
        return self._sum(scales, count.plus(a.base, count.times(factor, b.base)))

    def _sum(self, scales: dict[Digit, sc.Scalar], base: sc.Scalar) -> DigitSum:
        """The sum, with neighbouring digits of one source made one."""
        scales = {digit: scale for digit, scale in scales.items() if scale is not count.ZERO}
        for digit in scales:
            self._order.setdefault(digit, len(self._order))
        if len(scales) > 1:
            self._join(scales)
        order = sorted(scales, key=self._order.__getitem__)
        return DigitSum(tuple([(scales[digit], digit) for digit in order]), base)

    def _join(self, scales: dict[Digit, sc.Scalar]) -> None:
        pending = list(scales)
        while pending:
            upper = pending.pop()
            if upper not in scales or upper.lower is count.ONE:
                continue
            for under in list(scales):
                if under.top or under.source is not upper.source:
                    continue
                if same_dim(count.times(under.lower, under.extent), upper.lower) and same_dim(
                    count.times(scales[under], under.extent), scales[upper]
                ):
                    scale = scales.pop(under)
                    del scales[upper]
                    joined = self._slice(upper.source, under.lower, upper, under.extent)
                    self._order.setdefault(joined, len(self._order))
                    scales[joined] = count.plus(scales.get(joined, count.ZERO), scale)
                    pending.append(joined)
                    pending.extend(scales)
                    break

    def _slice(self, source: sc.Scalar, lower: sc.Scalar, upper: Digit, under: sc.Scalar) -> Digit:
        if not upper.top:
            return Digit(source, lower, count.times(under, upper.extent), False)
        extent = self.extents[source]
        return Digit(source, lower, quotient(extent, lower) or count.ceiling(extent, lower), True)

    def _digit(self, digit: Digit) -> DigitSum:
        if digit.extent is count.ONE:
            return DigitSum((), count.ZERO)
        return self._sum({digit: count.ONE}, count.ZERO)

    def _divided(self, of: DigitSum, by: sc.Scalar, *, whole: bool) -> DigitSum | None:
        """`of // by` or `of % by`: (by·h + r) // by = h + r // by, (by·h + r) % by = r % by."""
        if (
            self._way == "whole"
            and len(of.parts) > 1
            and of.base is count.ZERO
            and compact(of) is not None
        ):
            return self._part(of, by, whole=whole)
        high, low = _split_parts(of, by)
        base, rest = quotient(of.base, by), count.ZERO
        if base is None:
            base, rest = count.ZERO, of.base
        upper, under = self._sum(high, base), self._sum(low, rest)
        if not under.parts:
            if of.parts and not self._is_positive(by):
                return None
            if not whole:
                return DigitSum((), normal_dim(rest % by))
            return DigitSum(upper.parts, count.plus(upper.base, normal_dim(rest // by)))
        if (last := reach(under)) is None:
            return None
        if count.at_least(by, count.plus(last, count.ONE)):
            return upper if whole else under
        if (inner := self._part(under, by, whole=whole)) is None:
            return None
        return self._plus(upper, inner, count.ONE) if whole else inner

    def _part(self, of: DigitSum, by: sc.Scalar, *, whole: bool) -> DigitSum | None:
        """`of // by` or `of % by` as a digit of the source of `of`, or of `of` itself."""
        found = self._above(of, by, whole=whole) if self._way == "apart" else None
        if found is not None:
            return found
        digit = self._only(of)
        fits = quotient(digit.extent, by)
        if fits is None and not digit.top:
            digit = self._whole(of)
        if fits is None and not self._is_positive(by):
            return None  # where by is 0 the parts do not make the whole
        if not whole:
            return self._digit(Digit(digit.source, digit.lower, by, False))
        above = count.ceiling(digit.extent, by) if fits is None else fits
        return self._digit(Digit(digit.source, count.times(digit.lower, by), above, digit.top))

    def _above(self, of: DigitSum, by: sc.Scalar, *, whole: bool) -> DigitSum | None:
        """`(s·h + r) // (s·t)` as `h // t`, `(s·h + r) % (s·t)` as `s·(h % t) + r`, for r < s.

        None if the parts of a sum are not of the form h and r.
        """
        for step, _ in of.parts:
            times_ = quotient(by, step)
            if step is count.ONE or times_ is None or of.base is not count.ZERO:
                continue
            high, low = _split_parts(of, step)
            under = self._sum(low, count.ZERO)
            last = reach(under)
            if last is None or not count.at_least(step, count.plus(last, count.ONE)):
                continue
            upper = self._divided(self._sum(high, count.ZERO), times_, whole=whole)
            if upper is None or whole:
                return upper
            return self._plus(under, upper, step)
        return None

    def _is_positive(self, by: sc.Scalar) -> bool:
        """Whether a divisor is at least 1 in every iteration."""
        return free_vars(by) <= self._positive or count.at_least(by, count.ONE)

    def _only(self, of: DigitSum) -> Digit:
        """The sum as one digit, turning it into a source if necessary."""
        if len(of.parts) == 1 and of.parts[0][0] is count.ONE and of.base is count.ZERO:
            return of.parts[0][1]
        return self._whole(of)

    def _whole(self, of: DigitSum) -> Digit:
        term = self._source(of)
        return Digit(term, count.ONE, self.extents[term], True)

    def _source(self, of: DigitSum) -> sc.Scalar:
        term = self.term(of)
        if isinstance(term, sc.ScalarVar):  # a restricted digit that is a variable is that variable
            return term
        if term not in self.composites:
            last = reach(of)
            assert last is not None  # only sums of which this is known are divided or restricted
            self.composites[term] = of
            self.extents[term] = count.plus(last, count.ONE)
        return term

    def term(self, of: DigitSum) -> sc.Scalar:
        """The sum as a term."""
        scalar: sc.Scalar | None = None if of.base is count.ZERO else of.base
        for scale, digit in reversed(of.parts):
            value = digit.of(digit.source)
            part = value if scale is count.ONE else sc.Mul(value, scale)
            scalar = part if scalar is None else sc.Add(part, scalar)
        return count.ZERO if scalar is None else scalar

    def _cut(self, scales: dict[Digit, sc.Scalar], wanted: Digit) -> None:
        """Take apart a digit of which another is the upper part."""
        for whole in [each for each in scales if each.source is wanted.source]:
            size = quotient(wanted.lower, whole.lower)
            if size is not None and size is not count.ONE and whole.top and wanted.top:
                scale = scales.pop(whole)
                under = Digit(whole.source, whole.lower, size, False)
                self._order.setdefault(under, len(self._order))
                scales[under] = count.plus(scales.get(under, count.ZERO), scale)
                scales[wanted] = count.times(scale, size)
                return

    def _with_restricted(self, of: DigitSum) -> DigitSum:
        """The sum with each restricted part of it as one digit."""
        for term in self.restricted:
            inside = self.composites[term]
            scales = {digit: scale for scale, digit in of.parts}
            for _, digit in inside.parts:
                if digit not in scales:
                    self._cut(scales, digit)
            unit = next(digit for scale, digit in inside.parts if scale is count.ONE)
            factor = scales.get(unit)
            if factor is None or not all(
                digit in scales and same_dim(scales[digit], count.times(factor, scale))
                for scale, digit in inside.parts
            ):
                continue
            for _, digit in inside.parts:
                del scales[digit]
            scales[Digit(term, count.ONE, self.extents[term], True)] = factor
            of = self._sum(scales, of.base)
        return of


def compact(of: DigitSum) -> tuple[tuple[sc.Scalar, Digit], ...] | None:
    """The parts from the smallest up, where each scale is all that the smaller ones reach."""
    left, scale = list(of.parts), count.ONE
    order: list[tuple[sc.Scalar, Digit]] = []
    while left:
        fitting = [each for each in left if same_dim(each[0], scale)]
        if len(fitting) != 1:
            return None
        left.remove(fitting[0])
        order.append(fitting[0])
        scale = count.times(scale, fitting[0][1].extent)
    return tuple(order)


def separable(of: DigitSum) -> tuple[tuple[sc.Scalar, Digit], ...] | None:
    """The parts from the smallest up, where each scale is more than the smaller ones reach."""
    if (exact := compact(of)) is not None:
        return exact
    order = sorted(of.parts, key=lambda part: _size(part[0]))
    last: sc.Scalar = count.ZERO
    for scale, digit in order:
        if not count.is_natural(scale) or not count.at_least(scale, count.plus(last, count.ONE)):
            return None
        last = count.plus(last, count.times(scale, count.plus(digit.extent, sc.index(-1))))
    return tuple(order)


def reach(of: DigitSum) -> sc.Scalar | None:
    """The greatest value of a sum whose least is its base, and not negative; or None."""
    if not count.is_natural(of.base):
        return None
    last = of.base
    for scale, digit in of.parts:
        if not count.is_natural(scale):
            return None
        last = count.plus(last, count.times(scale, count.plus(digit.extent, sc.index(-1))))
    return last


def _size(scale: sc.Scalar) -> tuple[int, int]:
    """A key by which scales that divide one another are in order."""
    terms = polynomial(scale).values()
    degree = max((len(atoms) for atoms, _ in terms), default=0)
    number = known(scale)
    return degree, number if number is not None else sum(c for _, c in terms)


def _split_parts(of: DigitSum, by: sc.Scalar) -> tuple[dict[Digit, sc.Scalar], ...]:
    """The parts of a sum that a number divides, divided by it, and the others."""
    high: dict[Digit, sc.Scalar] = {}
    low: dict[Digit, sc.Scalar] = {}
    for scale, digit in of.parts:
        if (divided := quotient(scale, by)) is None:
            low[digit] = scale
        else:
            high[digit] = divided
    return high, low
