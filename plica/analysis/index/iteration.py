"""Iteration maps: how the variables of a block follow from the loops around it.

A map takes each point of the loops where `predicate` holds to the values of the bindings. It is
`injective` if no two points coincide, and `surjective` if it reaches every point of the box
`extents`. Both are proved by decomposing the bindings into digits (`plica.analysis.index.digit`),
so they hold for symbolic extents; what is not proved is False. A decreasing binding such as `n - 1
- i` is counted from its end.

>>> from plica.ir.type.dim import dim_var
>>> from plica.ir.loop.scalar import index
>>> i, j, n = (dim_var(name) for name in "ijn")
>>> tiles = iteration_map(((i, (n + 3) // 4), (j, index(4))), (i * 4 + j,), (n,), i * 4 + j < n)
>>> tiles.injective, tiles.surjective
(True, True)
>>> back = iteration_map(((i, n),), (n - 1 - i,), (n,))
>>> back.bijective
True
>>> overlapping = iteration_map(((i, n), (j, index(3))), (i + j,), (n + 2,))
>>> overlapping.injective
False

Division: an iteration map in two, for the outer loops and for the inner ones.

Each binding becomes `outer × extent + inner` with `0 <= inner < extent`, where `inner` depends on
the inner loops only and `outer` on the others. One block over all loops can then become a block
over the outer loops that contains a block over the inner ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Set as AbstractSet
from functools import cached_property, lru_cache
from typing import Final, TypeAlias

from attrs import frozen

from plica.analysis.index.context import EMPTY, TRUE, conjunction, conjuncts
from plica.analysis.index.count import ONE, ZERO, at_least, ceiling, comparison, times
from plica.analysis.index.digit import Digit, Digits, DigitSum, DividedSum, compact, separable
from plica.analysis.index.prove import can_prove
from plica.core import free_vars, post_order
from plica.ir.loop.scalar import Add, FloorDiv, FloorMod, Mul, Scalar, ScalarVar, Sub
from plica.ir.type import known, normal_dim, polynomial, quotient, same_dim

Loops: TypeAlias = tuple[tuple[ScalarVar, Scalar], ...]

OTHER_WAYS: Final[tuple[DividedSum, ...]] = ("apart", "whole")
"""How sums that are divided are looked at where the plain way shows nothing."""


class IterationMap:
    """A map from loops to the values of bindings; `iteration_map` makes one."""

    def __init__(
        self,
        loops: Loops,
        bindings: tuple[Scalar, ...],
        extents: tuple[Scalar, ...],
        predicate: Scalar,
        way: DividedSum = "below",
    ) -> None:
        self.loops = loops
        self.bindings = bindings
        self.extents = extents
        self.predicate = predicate
        self._digits = Digits(dict(loops), conjuncts(predicate), way)
        self._besides = self._restrict()
        variables = frozenset([var for var, _ in loops])
        self.falling = tuple([_falls(binding, variables) for binding in bindings])
        """Which bindings are counted from their end, in `sums` too."""
        self.sums = tuple(
            [
                self._digits.sum_of(normal_dim(extent - 1 - binding) if falls else binding)
                for binding, extent, falls in zip(bindings, extents, self.falling, strict=True)
            ]
        )

    def _restrict(self) -> tuple[Scalar, ...]:
        """Take account of the predicate; what it says besides."""
        # Small ones first, and again what failed: a part's restriction is seen in the whole.
        left = sorted(conjuncts(self.predicate), key=_size)
        while left:
            open_still = [scalar for scalar in left if not self._digits.restrict(scalar)]
            if len(open_still) == len(left):
                break
            left = open_still
        return tuple(left)

    @cached_property
    def _explained(self) -> bool:
        """Whether the predicate states only what the digits already imply."""
        inside = EMPTY.loops(self.loops)
        return all(can_prove(beside, inside) for beside in self._besides)

    @property
    def quasi_affine(self) -> bool:
        """Whether every binding is a sum of digits of the loops."""
        return None not in self.sums

    def feeds(self, loop: ScalarVar) -> tuple[int, ...]:
        """The places of the bindings that depend on a loop."""
        return tuple([at for at, binding in enumerate(self.bindings) if loop in free_vars(binding)])

    def term(self, of: DigitSum) -> Scalar:
        """A sum of digits of this map as a term."""
        return self._digits.term(of)

    @cached_property
    def injective(self) -> bool:
        """Whether different points of the loops are shown to have different values."""
        values = self.recovered(tuple([ZERO for _ in self.bindings]))
        return all(var in values or self._digits.extents[var] is ONE for var, _ in self.loops)

    @cached_property
    def surjective(self) -> bool:
        """Whether every point of the box of extents is shown to be a value."""
        if not self._explained:
            return False
        used: list[Digit] = []
        for each, extent in zip(self.sums, self.extents, strict=True):
            chain = None if each is None or each.base is not ZERO else compact(each)
            if chain is None or not same_dim(times(*[d.extent for _, d in chain]), extent):
                return False
            used += [digit for _, digit in chain]
        digits = self._digits
        reached = set()
        for term, inside in reversed(digits.composites.items()):
            if any(digit.source is term for digit in used):
                chain = compact(inside) if inside.base is ZERO else None
                if chain is None:
                    return False
                used += [digit for _, digit in chain]
                reached.add(term)
        if not reached.issuperset(digits.restricted) or len(set(used)) != len(used):
            return False
        sources = [*digits.loops, *[term for term in digits.composites if term in reached]]
        return all(self._independent(source, used) for source in sources)

    @property
    def bijective(self) -> bool:
        """Whether each point of the box is the value of exactly one point of the loops."""
        return self.injective and self.surjective

    def inverse(self, values: tuple[Scalar, ...]) -> dict[ScalarVar, Scalar] | None:
        """The point of the loops whose bindings have these values; None unless injective."""
        if not self.injective:
            return None
        found = self.recovered(values)
        return {var: found.get(var, ZERO) for var, _ in self.loops}

    def _independent(self, source: Scalar, used: list[Digit]) -> bool:
        """Whether the digits used of a source take all their values, whatever the others are."""
        extent = self._digits.extents[source]
        mine = [digit for digit in used if digit.source is source]
        if len(mine) == 1 and mine[0].top:
            (digit,) = mine
            if digit.lower is ONE:
                return same_dim(digit.extent, extent)
            lower = known(digit.lower)
            return lower is not None and same_dim(digit.extent, ceiling(extent, digit.lower))
        low: Scalar = ONE
        while mine:
            gaps = [(gap, each) for each in mine if (gap := quotient(each.lower, low)) is not None]
            here = [each for gap, each in gaps if gap is ONE]
            if not here:  # digits between are not used: there is at least one value of them
                here = [each for gap, each in gaps if (known(gap) or 0) > 0]
                here.sort(key=lambda each: known(each.lower) or 0)
                if len(here) > 1 and known(here[0].lower) is None:
                    return False
            if not here:
                return False
            low = times(here[0].lower, here[0].extent)
            mine.remove(here[0])
        rest = quotient(extent, low)
        return rest is not None and (rest is ONE or (known(rest) or 0) > 0)

    def recovered(self, values: tuple[Scalar, ...]) -> dict[Scalar, Scalar]:
        """The sources that follow from the values of the bindings, as terms over these."""
        digits: dict[Digit, Scalar] = {}
        for at, (each, value) in enumerate(zip(self.sums, values, strict=True)):
            if each is not None:
                here = self.extents[at] - 1 - value if self.falling[at] else value
                _read_off(each, here, digits)
        found: dict[Scalar, Scalar] = {}
        for term, inside in reversed(self._digits.composites.items()):
            if (whole := self._assembled(term, digits)) is not None:
                found[term] = whole
                _read_off(inside, whole, digits)
        for var in self._digits.loops:
            if (whole := self._assembled(var, digits)) is not None:
                found[var] = whole
        return found

    def _assembled(self, source: Scalar, digits: dict[Digit, Scalar]) -> Scalar | None:
        """Reassembles a source from its digits; None if one is missing."""
        mine = {each.lower: each for each in reversed(digits) if each.source is source}
        extent = self._digits.extents[source]
        total: Scalar | None = None
        low: Scalar = ONE
        while low is ONE or not at_least(low, extent):
            digit = next((each for at, each in mine.items() if same_dim(at, low)), None)
            if digit is None:
                return None
            value = digits[digit]
            part = value if low is ONE else Mul(value, low)
            total = part if total is None else Add(total, part)
            del mine[digit.lower]
            if digit.top:
                return total
            low = times(low, digit.extent)
        return total


def _falls(binding: Scalar, variables: frozenset[ScalarVar]) -> bool:
    """Whether a binding falls in all variables, so that counted from its end it rises."""
    if not isinstance(binding, Add | Sub | Mul):
        return False
    told = [
        factor
        for atoms, factor in polynomial(binding).values()
        if any(not variables.isdisjoint(free_vars(atom)) for atom in atoms)
    ]
    return bool(told) and max(told) < 0


def _read_off(of: DigitSum, value: Scalar, digits: dict[Digit, Scalar]) -> None:
    """The digits of a sum from its value, where they do not overlap."""
    if (order := separable(of)) is None:
        return
    rest = value if of.base is ZERO else value - of.base
    for at in range(len(order) - 1, -1, -1):  # from the top: below it is less than its scale
        scale, digit = order[at]
        digits.setdefault(digit, rest if scale is ONE else FloorDiv(rest, scale))
        if at:
            rest = FloorMod(rest, scale)


def _size(of: Scalar) -> tuple[int, int]:
    pair = comparison(of)
    compared = of if pair is None else pair[0]
    return len(free_vars(compared)), len(post_order(compared))


def iteration_map(
    loops: Iterable[tuple[ScalarVar, Scalar]],
    bindings: Iterable[Scalar],
    extents: Iterable[Scalar],
    predicate: Scalar = TRUE,
) -> IterationMap:
    """The map of loops, outermost first, to bindings; remembered."""
    return _remembered(tuple(loops), tuple(bindings), tuple(extents), predicate)


@lru_cache(maxsize=2048)
def _remembered(
    loops: Loops, bindings: tuple[Scalar, ...], extents: tuple[Scalar, ...], predicate: Scalar
) -> IterationMap:
    found = IterationMap(loops, bindings, extents, predicate)
    if found.injective:
        return found
    # Some maps need divided sums to be split, others need them kept whole.
    for way in OTHER_WAYS:
        other = IterationMap(loops, bindings, extents, predicate, way)
        if other.injective:
            return other
    return found


# --- division ----------------------------------------------------------------------------------


@frozen(eq=False)
class BindingPart:
    """A binding in two: `outer * inner_extent + inner`."""

    outer: Scalar
    inner: Scalar
    outer_extent: Scalar
    inner_extent: Scalar


@frozen(eq=False)
class Division:
    """The bindings in two, and the conditions on the outer and on the inner loops."""

    parts: tuple[BindingPart, ...]
    outer_predicate: Scalar
    inner_predicate: Scalar


def divided(of: IterationMap, inner: AbstractSet[ScalarVar]) -> Division | None:
    """Splits the map in two; None if a binding or a condition mixes outer and inner loops, or a
    binding decreases."""
    if any(of.falling):
        return None
    parts = []
    for each, extent in zip(of.sums, of.extents, strict=True):
        part = None if each is None else _part(of, each, extent, inner)
        if part is None:
            return None
        parts.append(part)
    apart: tuple[list[Scalar], list[Scalar]] = ([], [])
    variables = {var for var, _ in of.loops}
    for condition in conjuncts(of.predicate):
        used = free_vars(condition) & variables
        if used & inner and used - inner:
            return None
        apart[bool(used & inner)].append(condition)
    return Division(tuple(parts), *map(conjunction, apart))


def _part(
    of: IterationMap, whole: DigitSum, extent: Scalar, inner: AbstractSet[ScalarVar]
) -> BindingPart | None:
    mine: list[tuple[Scalar, Digit]] = []
    rest: list[tuple[Scalar, Digit]] = []
    variables = {var for var, _ in of.loops}
    for scale, digit in whole.parts:
        used = free_vars(digit.source) & variables
        if used <= inner:
            mine.append((scale, digit))
        elif used & inner:
            return None
        else:
            rest.append((scale, digit))
    if (chain := compact(DigitSum(tuple(mine), ZERO))) is None:
        return None
    size = times(*[digit.extent for _, digit in chain])
    base = quotient(whole.base, size)
    scaled: list[tuple[Scalar, Digit]] = []
    for scale, digit in rest:
        if (new := quotient(scale, size)) is None:
            return None
        scaled.append((new, digit))
    if base is None:
        return None
    outside = quotient(extent, size) or ceiling(extent, size)
    outer = of.term(DigitSum(tuple(scaled), base))
    return BindingPart(outer, of.term(DigitSum(tuple(mine), ZERO)), outside, size)
