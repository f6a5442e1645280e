"""Bounds: what is known statically about an index.

>>> from plica.ir.loop.tensor import axis
>>> i = axis("i")
>>> interval(i * 4 + 3, {i: (0, 9)}, {}), interval(i % 3, {i: (0, 9)}, {})
((3, 39), (0, 2))
>>> here = KnownBounds()
>>> here.facts += facts_of(i - 2 >= 0)
>>> here.is_natural(i - 1)
True
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from attrs import frozen

from plica.core import Term, all_of, fold_into, free_vars, parts_first
from plica.ir.loop import scalar as sc
from plica.ir.loop.scalar_row import hull
from plica.ir.type import DType, Polynomial, from_polynomial, i64, is_size, known, polynomial

Interval: TypeAlias = tuple[int, int]

MAX_FACTS: Final = 64  # how many facts are kept for a term; knowing fewer is safe


def interval(
    root: sc.Scalar, ranges: Mapping[Term, Interval], memo: dict[sc.Scalar, Interval]
) -> Interval:
    """The least and greatest value an integer term may have; `memo` is for these ranges only."""

    def result(node: sc.Scalar) -> Interval:
        return _here(node, [memo[kid] for kid in _operands(node)], ranges)

    return fold_into(memo, root, _operands, result)


@frozen(eq=False)
class Bounds:
    """A program that computes the intervals of terms, operands first.

    Those of literals are always the same.
    """

    steps: tuple[tuple[sc.Scalar, LinearForm | None, tuple[sc.Scalar, ...]], ...]
    literals: Mapping[sc.Scalar, Interval]


def bounds(roots: Iterable[sc.Scalar]) -> Bounds:
    """Compiles the interval computation of terms, to be run again for many ranges."""
    order = parts_first(_operands, *roots)
    computed = [node for node in order if not isinstance(node, sc.Lit)]
    steps = tuple([(node, linear(node), _operands(node)) for node in computed])
    literals: dict[sc.Scalar, Interval] = {
        node: _here(node, [], {}) for node in order if isinstance(node, sc.Lit)
    }
    return Bounds(steps, literals)


def fill(of: Bounds, ranges: Mapping[Term, Interval], memo: dict[sc.Scalar, Interval]) -> None:
    """Find the intervals of terms that are not known yet, as `interval` would."""
    memo.update(of.literals)
    for node, form, kids in of.steps:
        if node in memo:
            continue
        if form is not None:
            memo[node] = _of_sum(form, [memo[kid] for kid in kids])
        elif node.__class__ is sc.ScalarVar and node in ranges:
            memo[node] = ranges[node]
        else:
            memo[node] = _here(node, [memo[kid] for kid in kids], ranges)


LinearForm: TypeAlias = tuple[int, tuple[int, ...], tuple[sc.Scalar, ...]]
"""A sum: its constant, the coefficients of its other parts, and the parts."""

MAX_PARTS_OF_SUM: Final = 64  # this many parts of a sum are looked at; a longer one is a sum of two


@lru_cache(maxsize=8192)
def linear(node: sc.Scalar) -> LinearForm | None:
    """An index as a linear form of other parts, or None if it is no sum.

    >>> from plica.ir.loop.tensor import axis
    >>> i, j = axis("i"), axis("j")
    >>> number, counts, parts = linear((i * 4 + j) * 3 - (j + 5))
    >>> number, counts, parts == (i, j)
    (-5, (12, 2), True)

    A remainder is less than its divisor.

    >>> linear(i - i // 4 * 4) == (0, (1,), (i % 4,))
    True
    """
    if not isinstance(node, sc.Add | sc.Sub | sc.Mul) or not _is_index(node):
        return None
    number, counts = 0, dict[sc.Scalar, int]()
    stack: list[tuple[sc.Scalar, int]] = [(node, 1)]
    for _ in range(MAX_PARTS_OF_SUM):
        part, times = stack.pop()
        match part:
            case sc.Lit(value, _):
                number += times * int(value)
            case sc.Add(left, right):
                stack += [(right, times), (left, times)]
            case sc.Sub(left, right):
                stack += [(right, -times), (left, times)]
            case sc.Mul(other, sc.Lit(value, _)) | sc.Mul(sc.Lit(value, _), other):
                stack.append((other, times * int(value)))
            case _ if part is node:
                return None  # a product of two that are not known
            case _:
                counts[part] = counts.get(part, 0) + times
        if not stack:
            _join_remainders(counts)
            there = {each: count for each, count in counts.items() if count}
            small = all(abs(count) < -_WHOLE[0] for count in there.values())
            return (number, tuple(there.values()), tuple(there)) if small else None
    return None


def _join_remainders(counts: dict[sc.Scalar, int]) -> None:
    """Make remainders of the parts of a sum: `x - x // 4 * 4` is `x % 4`."""
    for part in [each for each in counts if isinstance(each, sc.FloorDiv)]:
        assert isinstance(part, sc.FloorDiv)
        by = known(part.right)
        if by and (count := counts.get(part.left, 0)) and counts[part] == -count * by:
            del counts[part], counts[part.left]
            left = sc.FloorMod(part.left, part.right)
            counts[left] = counts.get(left, 0) + count


def _of_sum(form: LinearForm, kids: Sequence[Interval]) -> Interval:
    """The interval of a sum."""
    low = high = form[0]
    for count, (least, most) in zip(form[1], kids, strict=True):
        if count >= 0:
            low += count * least
            high += count * most
        else:
            low += count * most
            high += count * least
    return (low, high) if low >= _WHOLE[0] and high <= _WHOLE[1] else _WHOLE


_WHOLE: Final = i64.bounds


def _operands(node: sc.Scalar) -> tuple[sc.Scalar, ...]:
    if (form := linear(node)) is not None:
        return form[2]
    match node:
        case (
            sc.Add(left, right)
            | sc.Sub(left, right)
            | sc.Mul(left, right)
            | sc.FloorDiv(left, right)
            | sc.FloorMod(left, right)
            | sc.Min(left, right)
            | sc.Max(left, right)
            | sc.BitAnd(left, right)
            | sc.BitOr(left, right)
            | sc.ShiftLeft(left, right)
            | sc.ShiftRight(left, right)
        ) if sc.dtype_of(node).is_integer:
            return left, right
        case sc.Select(_, then, orelse) if sc.dtype_of(node).is_integer:
            return then, orelse
        case sc.Cast(value, to) if to.is_integer and sc.dtype_of(value).kind != "float":
            return (value,)
        case _:
            return ()


def _here(node: sc.Scalar, kids: list[Interval], ranges: Mapping[Term, Interval]) -> Interval:
    of = sc.dtype_of(node)
    if of.is_float:
        return (0, 0)  # nobody asks: an index is an integer
    if (form := linear(node)) is not None:
        return _of_sum(form, kids)
    whole = of.bounds
    found: Interval = whole
    match node, kids:
        case sc.Lit(value, _), _:
            found = (int(value), int(value))
        case sc.ScalarVar(), _:
            found = ranges.get(node, whole)
        case sc.Select(), [one, two]:
            found = hull(one, two)  # type: ignore[assignment]  # of integers
        case sc.Cast(), [only]:
            found = only
        case _, [one, two]:
            row = sc.row_of(node)
            of_row = None if row is None or row.range is None else row.range(one, two)
            found = whole if of_row is None else of_row  # type: ignore[assignment]  # of integers
    return found if whole[0] <= found[0] and found[1] <= whole[1] else whole


@lru_cache(maxsize=1024)  # copies of an unrolled loop ask again
def facts_of(condition: sc.Scalar) -> tuple[Polynomial, ...]:
    """Polynomials that are non-negative where the condition holds."""
    found: list[Polynomial] = []
    stack = [condition]
    while stack and len(found) < MAX_FACTS:
        node = stack.pop()
        match node:
            case sc.And(left, right):
                stack += [right, left]
            case sc.Le(left, right) if _is_index(left):
                found.append(polynomial(right - left))
            case sc.Lt(left, right) if _is_index(left):
                found.append(polynomial(right - left - 1))
            case sc.Eq(left, right) if _is_index(left):
                found += [polynomial(right - left), polynomial(left - right)]
    return tuple(found)


def _is_index(node: sc.Scalar) -> bool:
    of: DType = sc.dtype_of(node)
    return of.kind == "int" and of.bits == 64


MAX_FACTS_TRIED: Final = 16  # how many conditions around a place are made use of
DIM_RANGE: Final = (0, 2**40)  # what is known of a dim: no array is larger in any direction


def open_range(dim: sc.ScalarVar, sizes: Iterable[sc.Scalar]) -> Interval:
    """The interval of a dim if the sizes of some arrays are non-negative.

    >>> from plica.ir.type.dim import dim_var
    >>> n = dim_var("n")
    >>> open_range(n, (n * 2 - 1, n * 4, n // 2 - 9))[0]
    1
    """
    least = DIM_RANGE[0]
    for size in sizes:
        parts = {key: count for key, (_, count) in polynomial(size).items()}
        number = parts.pop(frozenset(), 0)
        if parts.keys() == {frozenset({(dim, 1)})} and (times := parts[frozenset({(dim, 1)})]) > 0:
            least = max(least, -(number // times))
    return least, DIM_RANGE[1]


class KnownBounds:
    """The facts at a place in a kernel, from the enclosing statements.

    The intervals of enclosing loop variables and bound variables, and the polynomials that
    enclosing conditions make non-negative.

    >>> from plica.ir.loop.tensor import axis
    >>> known, i, j = KnownBounds(), axis("i"), axis("j")
    >>> known.bound(i, (0, 3)), known.bound(j, (0, 15))
    (None, None)
    >>> known.is_natural(sc.index(39) - (i * 10 + j))
    False
    >>> known.facts.append(polynomial(sc.index(9) - j))
    >>> known.is_natural(sc.index(39) - (i * 10 + j))
    True
    """

    def __init__(self) -> None:
        self.facts: list[Polynomial] = []
        self.ranges: dict[Term, Interval] = {}
        self._intervals: dict[sc.Scalar, Interval] = {}

    def bound(self, var: sc.ScalarVar, bounds: Interval) -> None:
        """A variable has a value within some bounds."""
        self.ranges[var] = bounds
        self._intervals.clear()

    def unbound(self, var: sc.ScalarVar) -> None:
        """It has none any more."""
        del self.ranges[var]
        self._intervals.clear()

    def interval(self, term: sc.Scalar) -> Interval:
        """The least and greatest value an integer may have here."""
        found = self._intervals.get(term)
        return interval(term, self.ranges, self._intervals) if found is None else found

    def prepare(self, of: Bounds) -> None:
        """Find the intervals of terms that will be asked for."""
        fill(of, self.ranges, self._intervals)

    def divides_naturals(self, node: sc.FloorDiv | sc.FloorMod) -> bool:
        """Whether neither side of a quotient is negative, nor the right one 0."""
        if not sc.dtype_of(node).is_integer:
            return False
        return self.interval(node.left)[0] >= 0 and self.interval(node.right)[0] > 0

    def is_inside(
        self, term: sc.Scalar, count: int | sc.Scalar, more: Sequence[Polynomial] = ()
    ) -> bool:
        """Whether the conditions that hold here, and some more, show an index to be below a count.

        An index whose interval is inside needs no condition.
        """
        low, high = self.interval(term)
        facts = [*self.facts, *more]
        if not isinstance(count, int):
            return (low >= 0 or self.is_natural(term, facts)) and self.is_natural(
                count - 1 - term, facts
            )
        if low >= 0 and high < count:
            return True
        if not facts and (low < 0 or high >= count):
            return False
        return (low >= 0 or self.is_natural(term, facts)) and (
            high < count or self.is_natural(sc.index(count - 1) - term, facts)
        )

    def is_natural(self, term: sc.Scalar, facts: Sequence[Polynomial] | None = None) -> bool:
        """Whether an index is non-negative: subtracts facts until the rest is non-negative without
        them.

        A quotient times its divisor differs from the dividend by less than the divisor, also if
        only a fact mentions it: `i < m + m // 2` implies that `64 * i + 63` is below `96 * m`. A
        minimum is split into its two cases if treating it as an atom is not enough.
        """
        told = list(reversed(self.facts if facts is None else facts))[:MAX_FACTS_TRIED]
        whole = polynomial(term)
        if self._follows(whole, [*told, *_of_quotients(whole)]):
            return True
        divided = [quotient for fact in _about(whole, told) for quotient in _of_quotients(fact)]
        every = [*told, *_of_quotients(whole), *divided]
        if divided and self._follows(whole, every, (_most_times, _least_times)):
            return True
        cases = _cases(whole)
        return len(cases) > 1 and all(
            self._follows(each, [*more, *told, *_of_quotients(each)]) for each, more in cases
        )

    def _follows(
        self,
        whole: Polynomial,
        told: Sequence[Polynomial],
        often: Sequence[Callable[[Polynomial, Polynomial], int]] | None = None,
    ) -> bool:
        """Whether the facts imply that a polynomial is non-negative, each subtracted a bounded
        number of times."""
        if self._least(whole) >= 0:
            return True
        told = _about(whole, told)
        for times_of in often or (_times, _most_times):
            for first in told:  # the innermost tells most, but any may be the one to begin with
                rest = dict(whole)
                for fact in [first, *[each for each in told if each is not first]]:
                    times = times_of(rest, fact)
                    for key, (atoms, count) in fact.items() if times else ():
                        rest[key] = (atoms, rest.get(key, (atoms, 0))[1] - times * count)
                    if times and self._least(rest) >= 0:
                        return True
        return False

    def _least(self, of: Polynomial) -> int:
        """A number that a polynomial is not less than."""
        total = 0
        for key, (_, count) in of.items():
            low, high = count, count
            for atom, power in key:
                bounds = self._bounds(atom)
                for _ in range(power):
                    corners = [a * b for a in (low, high) for b in bounds]
                    low, high = min(corners), max(corners)
            total += low
        return total

    def _bounds(self, of: sc.Scalar) -> Interval:
        """The interval of an index part. Array sizes are checked before use, so a term of sizes
        alone, without subtraction, is non-negative."""
        low, high = self.interval(of)
        is_checked = low < 0 and all(
            self.ranges.get(var, (0, 0))[1] == DIM_RANGE[1] for var in free_vars(of)
        )
        return (0, max(0, high)) if is_checked and is_size(of) else (low, high)


def _about(whole: Polynomial, told: Sequence[Polynomial]) -> list[Polynomial]:
    """The facts that share a term with a polynomial, directly or through other facts; subtracting
    any other is useless."""
    terms = {key for key in whole if key}
    chosen = [False] * len(told)
    before = -1
    while before != (before := sum(chosen)):
        for number, fact in enumerate(told):
            if not chosen[number] and not terms.isdisjoint(fact):
                chosen[number] = True
                terms.update([key for key in fact if key])
    return [fact for fact, is_chosen in zip(told, chosen, strict=True) if is_chosen]


def _of_quotients(of: Polynomial) -> list[Polynomial]:
    """Polynomials that are non-negative for every dividend, for the quotients and remainders in a
    polynomial."""
    found: list[Polynomial] = []
    for node in dict.fromkeys(atom for atoms, _ in of.values() for atom in atoms):
        match node:
            case sc.FloorDiv(left, sc.Lit(by)) if by > 0:
                rest = polynomial(left - node * int(by))
                found += [rest, polynomial(sc.index(int(by) - 1) - left + node * int(by))]
            case sc.FloorMod(left, sc.Lit(by)) if by > 0:
                whole = left // int(by) * int(by)
                found += [polynomial(left - whole - node), polynomial(whole + node - left)]
    return found


def _cases(whole: Polynomial) -> list[tuple[Polynomial, list[Polynomial]]]:
    """The cases of a polynomial's first minimum or maximum: the polynomial with each operand in its
    place, and the facts of that case."""
    for key, (_, count) in whole.items():
        match [*key]:
            case [(sc.Min(left, right) | sc.Max(left, right) as choice, 1)]:
                rest = {other: each for other, each in whole.items() if other != key}
                gap = left - right if isinstance(choice, sc.Max) else right - left
                return [
                    (polynomial(from_polynomial(rest) + left * count), [polynomial(gap)]),
                    (
                        polynomial(from_polynomial(rest) + right * count),
                        [polynomial(sc.index(0) - gap)],
                    ),
                ]
            case _:
                pass
    return [(whole, [])]


def within(var: sc.ScalarVar, extent: sc.Scalar) -> list[Polynomial]:
    """Polynomials that are non-negative inside a loop, besides its variable."""
    found: list[Polynomial] = []
    stack = [extent]
    while stack:
        term = stack.pop()
        match term:
            case sc.Min(left, right):
                stack += [right, left]
            case sc.Max(left, sc.Lit(value, _)) | sc.Max(sc.Lit(value, _), left) if value <= 0:
                stack.append(left)  # the loop runs, so the extent is more than that
            case sc.Lit():
                pass  # the bounds of the variable say it already
            case _:
                found.append(polynomial(term - var - 1))
                found += _quotients(term)
    return found


def _quotients(of: sc.Scalar) -> list[Polynomial]:
    """The facts about the quotients of a term, such as `n - 8 * (n // 8)` for `n // 8`."""
    quotients = [node for node in all_of(sc.FloorDiv, of) if (known(node.right) or 0) > 0]
    return [polynomial(node.left - node.right * node) for node in quotients]


def _common(rest: Polynomial, fact: Polynomial) -> Iterator[int]:
    """For each common term how often a fact can be subtracted until it vanishes, or 0."""
    for key, (_, count) in fact.items():
        if key and key in rest:
            often, odd = divmod(rest[key][1], count) if count else (0, 0)
            yield 0 if odd else max(0, often)


def _most_times(rest: Polynomial, fact: Polynomial) -> int:
    """How often a fact can be subtracted until the last common term vanishes."""
    return max(_common(rest, fact), default=0)


def _least_times(rest: Polynomial, fact: Polynomial) -> int:
    """How often a fact can be subtracted until the first common term vanishes."""
    return min(filter(None, _common(rest, fact)), default=0)


def _times(rest: Polynomial, fact: Polynomial) -> int:
    """How often a fact can be subtracted so that a term of the rest vanishes."""
    return next(_common(rest, fact), 0)
