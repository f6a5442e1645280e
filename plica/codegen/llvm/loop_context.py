"""Around: what is known at a place in a kernel from what stands around it.

Loops that are open and variables with a value, between which bounds they are; conditions that hold
there; and, in a vectorized loop, which lanes take part.

>>> from plica.ir.type.dim import polynomial
>>> from plica.ir.loop.tensor import axis
>>> around, i, j = LoopContext(Lanes(LlvmWriter())), axis("i"), axis("j")
>>> around.bind(i, LaneValue("%i"), (0, 3))
>>> around.bind(j, LaneValue("%j"), (0, 15))
>>> around.is_natural(index(39) - (i * 10 + j))
False
>>> around.facts.append(polynomial(index(9) - j))
>>> around.is_natural(index(39) - (i * 10 + j))
True
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import frozen

from plica.analysis.constant_bound import Bounds, Interval, fill, interval
from plica.codegen.llvm.lane import TRUE, Lanes, LaneValue, constant
from plica.codegen.llvm.writer import LlvmWriter
from plica.core.binding import free_vars
from plica.core.diagnostic import CompilerBug
from plica.core.fold import post_order
from plica.core.term import Term
from plica.ir.loop.scalar import FloorDiv, Lit, Max, Min, Scalar, ScalarVar, index
from plica.ir.type.dim import Polynomial, from_polynomial, is_size, known, polynomial

__all__ = ["LlvmWriter", "LoopContext", "OpenLoop", "index", "within"]

FACTS: Final = 16
"""How many conditions around a place are made use of."""

OPEN: Final = (0, 2**40)
"""What is known of a dim: no array is larger in any direction."""

FAR: Final = 2**60
"""Numbers less than this may be added and subtracted without a thought for overflow."""


@frozen
class OpenLoop:
    """A loop that is open: the labels that close it, and what was in reach before it."""

    var: ScalarVar
    count: str
    step: int
    labels: Sequence[str]
    mark: int


class LoopContext:
    """What is known here."""

    def __init__(self, lanes: Lanes) -> None:
        self.lanes = lanes
        self.vars: dict[ScalarVar, LaneValue] = {}
        self.lane: ScalarVar | None = None  # the variable of the vectorized loop
        self.mask = TRUE  # which of its lanes take part
        self.padding = TRUE  # which of them there are, where the others only fill a register
        self.facts: list[Polynomial] = []  # what is not negative, by the branches around
        self._ranges: dict[Term, Interval] = {}
        self._intervals: dict[Term, Interval] = {}

    # --- loops ---------------------------------------------------------------------------------

    def bind(self, var: ScalarVar, value: LaneValue, bounds: Interval) -> None:
        """Give a variable its value, which is within some bounds."""
        if var in self.vars:
            raise CompilerBug(f"The variable {var.name} is bound twice.")
        self.vars[var] = value
        self._ranges[var] = bounds
        self._intervals.clear()

    def unbind(self, var: ScalarVar) -> None:
        """Forget a variable."""
        del self.vars[var], self._ranges[var]
        self._intervals.clear()

    def open(self, var: ScalarVar, extent: LaneValue, bounds: Interval, step: int = 1) -> OpenLoop:
        """Begin a loop of so many iterations; what is returned closes it."""
        w = self.lanes.w
        mark = self.lanes.mark()
        _, most = bounds
        if extent.number is not None and 1 <= extent.number <= step:
            self.bind(var, constant(0), (0, max(0, most - 1)))
            return OpenLoop(var, "", step, (), mark)
        count = self.lanes.scalar(extent)
        body, after, next_, done = w.labels("body", "after", "%next", "done")
        before = w.block
        if bounds[0] > 0:
            w.do(f"br label %{body}")
        else:
            some = w.let(f"icmp sgt i64 {count}, 0")
            w.do(f"br i1 {some}, label %{body}, label %{done}")
        w.start(body)
        now = w.let(f"phi i64 [ 0, %{before} ], [ {next_}, %{after} ]")
        self.bind(var, LaneValue(now), (0, max(0, most - 1)))
        return OpenLoop(var, count, step, (body, after, next_, done), mark)

    def close(self, loop: OpenLoop) -> None:
        """End a loop."""
        w = self.lanes.w
        if loop.labels:
            body, after, next_, done = loop.labels
            w.do(f"br label %{after}")
            w.start(after)
            w.do(f"{next_} = add nuw nsw i64 {self.vars[loop.var].text}, {loop.step}")
            more = w.let(f"icmp slt i64 {next_}, {loop.count}")
            w.do(f"br i1 {more}, label %{body}, label %{done}")
            w.start(done)
        self.unbind(loop.var)
        self.lanes.release(loop.mark)

    def spread(
        self, var: ScalarVar, first: LaneValue, count: int, padding: LaneValue = TRUE
    ) -> None:
        """Begin to do everything in so many lanes, in which the variable counts from `first`.

        With `padding`, only in some of them, to which alone the bounds of the variable apply.
        """
        if self.lane is not None:
            raise CompilerBug(f"The vectorized loop {var.name} is inside {self.lane.name}.")
        self.vars[var] = first._replace(step=1 if count > 1 else 0)
        self.lane, self.lanes.count = var, count if count > 1 else 0
        self.mask = self.padding = padding

    def gather(self) -> None:
        """End what `spread` began."""
        self.lane, self.lanes.count = None, 0
        self.mask = self.padding = TRUE

    # --- bounds --------------------------------------------------------------------------------

    def interval(self, term: Scalar) -> Interval:
        """The least and greatest value an integer may have here."""
        found = self._intervals.get(term)
        return interval(term, self._ranges, self._intervals) if found is None else found

    def prepare(self, of: Bounds) -> None:
        """Find the intervals of terms that will be asked for."""
        fill(of, self._ranges, self._intervals)

    def is_near(self, term: Scalar, found: Sequence[LaneValue]) -> bool:
        """Whether the parts of an index are so small that no sum of them overflows."""
        low, high = self.interval(term)
        return low > -FAR and high < FAR and all(abs(each.plus) < FAR for each in found)

    def is_inside(self, term: Scalar, count: int | Scalar, more: Sequence[Polynomial] = ()) -> bool:
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
            high < count or self.is_natural(index(count - 1) - term, facts)
        )

    def is_natural(self, term: Scalar, facts: Sequence[Polynomial] | None = None) -> bool:
        """Whether an index cannot be negative: what is left of it without facts cannot.

        The lesser of two is one of them, where it is not more than the other.
        """
        told = list(reversed(self.facts if facts is None else facts))[:FACTS]
        cases = _cases(polynomial(term))
        return all(self._follows(whole, [*more, *told]) for whole, more in cases)

    def _follows(self, whole: Polynomial, told: Sequence[Polynomial]) -> bool:
        """Whether facts say that a polynomial is not negative."""
        if self._least(whole) >= 0:
            return True
        for first in told:  # the innermost tells most, but any may be the one to begin with
            rest = dict(whole)
            for fact in [first, *[each for each in told if each is not first]]:
                times = _times(rest, fact)
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

    def _bounds(self, of: Scalar) -> Interval:
        """Between what a part of an index is: a size of an array is checked before it is used, so
        what is made of sizes alone, none taken from another, has no wrong sign."""
        low, high = self.interval(of)
        is_checked = low < 0 and all(self._ranges.get(each) == OPEN for each in free_vars(of))
        return (0, max(0, high)) if is_checked and is_size(of) else (low, high)


def _cases(whole: Polynomial) -> list[tuple[Polynomial, list[Polynomial]]]:
    """A polynomial with one of two in the place of the lesser or greater of them, and what is not
    negative where it is so."""
    for key, (_, count) in whole.items():
        match [*key]:
            case [(Min(left, right) | Max(left, right) as choice, 1)]:
                rest = {other: each for other, each in whole.items() if other != key}
                gap = left - right if isinstance(choice, Max) else right - left
                return [
                    (polynomial(from_polynomial(rest) + left * count), [polynomial(gap)]),
                    (
                        polynomial(from_polynomial(rest) + right * count),
                        [polynomial(index(0) - gap)],
                    ),
                ]
            case _:
                pass
    return [(whole, [])]


def within(var: ScalarVar, extent: Scalar) -> list[Polynomial]:
    """What is not negative in a loop, besides its variable."""
    found: list[Polynomial] = []
    stack = [extent]
    while stack:
        term = stack.pop()
        match term:
            case Min(left, right):
                stack += [right, left]
            case Max(left, Lit(value, _)) | Max(Lit(value, _), left) if value <= 0:
                stack.append(left)  # the loop runs, so the extent is more than that
            case Lit():
                pass  # the bounds of the variable say it already
            case _:
                found.append(polynomial(term - var - 1))
                found += _quotients(term)
    return found


def _quotients(of: Scalar) -> list[Polynomial]:
    """What is not negative of a term with `n // 8` in it: `n - 8 * (n // 8)`."""
    return [
        polynomial(node.left - node.right * node)
        for node in post_order(of)
        if isinstance(node, FloorDiv) and (known(node.right) or 0) > 0
    ]


def _times(rest: Polynomial, fact: Polynomial) -> int:
    """How often a fact can be taken away so that something of the rest goes with it."""
    for key, (_, count) in fact.items():
        if key and key in rest:
            left = rest[key][1]
            return left // count if count and left % count == 0 and left // count > 0 else 0
    return 0
