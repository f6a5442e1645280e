"""Loop contexts: the facts at a place in a kernel, from the enclosing statements.

>>> from plica.ir.loop.tensor import axis
>>> around, i = LoopContext(Lanes(LlvmWriter())), axis("i")
>>> around.bind(i, LaneValue("%i"), (0, 3))
>>> around.interval(i * 4 + 3), around.vars[i].text
((3, 15), '%i')
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import frozen

from plica.analysis.constant_bound import Interval, KnownBounds
from plica.codegen.llvm.dialect import LLVM
from plica.codegen.llvm.lane import TRUE, Lanes, LaneValue, constant
from plica.codegen.llvm.writer import LlvmWriter
from plica.core import CompilerBug, Name, Term, free_vars
from plica.ir.loop.scalar import Scalar, ScalarVar
from plica.ir.type import Polynomial

__all__ = ["LlvmWriter", "LoopContext", "OpenLoop", "RegionOutside"]

FAR: Final = 2**60
"""Numbers less than this may be added and subtracted without a thought for overflow."""


class RegionOutside(CompilerBug):
    """An instruction might access memory not proved to be its own; it is not emitted.

    A bug of who chose the kernel; of one that is tried for several at once, an answer.
    """

    def __init__(self, name: Name) -> None:
        super().__init__(f"A region of {name} may be outside of it.")


@frozen
class OpenLoop:
    """An open loop: its closing labels, and the scope before it."""

    var: ScalarVar
    count: str
    step: int
    labels: Sequence[str]
    mark: int


class LoopContext(KnownBounds):
    """The facts at the current place."""

    def __init__(self, lanes: Lanes) -> None:
        super().__init__()
        self.lanes = lanes
        self.vars: dict[ScalarVar, LaneValue] = {}
        self.boxes: dict[ScalarVar, tuple[str, Interval]] = {}
        """The register of each variable, and its interval over all copies of a loop."""
        self.version = 0  # how often one of these was another than before
        self._about: dict[object, tuple[tuple[Term, ...], tuple[Polynomial, ...]]] = {}
        """The variables in indices and facts, kept alive with the facts so that identities are not
        reused."""
        self._shown: dict[object, bool] = {}
        """Whether indices were shown to be inside, by facts and by bounds of variables."""
        self.lane: ScalarVar | None = None  # the variable of the vectorized loop
        self.mask = TRUE  # which of its lanes take part
        self.padding = TRUE  # which of them there are, where the others only fill a register

    # --- loops ---------------------------------------------------------------------------------

    def bind(
        self, var: ScalarVar, value: LaneValue, bounds: Interval, every: Interval | None = None
    ) -> None:
        """Give a variable its value, which is within some bounds, in `every` copy of a loop within
        these."""
        if var in self.vars:
            raise CompilerBug(f"The variable {var.name} is bound twice.")
        self.vars[var] = value
        box = value.text, every or bounds
        if self.boxes.get(var) != box:
            self.boxes[var] = box
            self.version += 1
        self.bound(var, bounds)

    def rebind(
        self, variables: Sequence[ScalarVar], numbers: Sequence[int], bounds: Interval | None = None
    ) -> None:
        """Give variables of unrolled loops their numbers in another copy."""
        for var, number in zip(variables, numbers, strict=True):
            self.vars[var] = constant(number)
            self.bound(var, bounds or (number, number))

    def unbind(self, var: ScalarVar) -> None:
        """Forget a variable."""
        del self.vars[var]
        self.unbound(var)

    def open(self, var: ScalarVar, extent: LaneValue, bounds: Interval, step: int = 1) -> OpenLoop:
        """Begins a loop with a number of iterations; the result closes it."""
        if extent.number is not None and 1 <= extent.number <= step:
            self.bind(var, constant(0), (0, max(0, bounds[1] - 1)))
            return OpenLoop(var, "", step, (), self.lanes.mark())
        return self.begin(var, "0", self.lanes.scalar(extent), bounds, step)

    def begin(
        self, var: ScalarVar, first: str, end: str, bounds: Interval, step: int = 1
    ) -> OpenLoop:
        """Begin a loop from one number up to another, of iterations within some bounds."""
        w, mark = self.lanes.w, self.lanes.mark()
        body, after, next_, done = w.labels("body", "after", "%next", "done")
        before = w.block
        w.enter()
        if bounds[0] > 0:
            w.do(f"br label %{body}")
        else:  # there may be nothing to do
            some = w.let(f"icmp sgt i64 {end}, {first}")
            w.do(f"br i1 {some}, label %{body}, label %{done}")
        w.start(body)
        now = w.let(LLVM.loop.format(first=first, before=before, next=next_, after=after))
        self.bind(var, LaneValue(now), (0, max(0, bounds[1] - 1)))
        return OpenLoop(var, end, step, (body, after, next_, done), mark)

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
            w.leave()
        self.unbind(loop.var)
        self.lanes.release(loop.mark)

    def spread(
        self, var: ScalarVar, first: LaneValue, count: int, padding: LaneValue = TRUE
    ) -> None:
        """Begin to do everything in a given number of lanes, in which the variable counts from
        `first`.

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

    def is_inside(self, term: Scalar, count: int | Scalar, more: Sequence[Polynomial] = ()) -> bool:
        """Whether an index is below a count; facts that hold in all copies of a loop are proved
        once."""
        facts = (*self.facts, *more)
        told = tuple(map(id, facts))
        about = self._about.get((term, count, told))
        if about is None:  # of the bounds of other variables nothing depends
            named = free_vars(term) | (frozenset() if isinstance(count, int) else free_vars(count))
            atoms = [atom for fact in facts for parts, _ in fact.values() for atom in parts]
            named = named.union(*map(free_vars, atoms))
            about = self._about[term, count, told] = tuple(named), facts
        here = [(var, self.ranges[var]) for var in about[0] if var in self.ranges]
        copies = [(var, self._in_copies(var, each)) for var, each in here]
        for ranges in (copies, here):
            key = (term, count, told, *ranges)
            if (shown := self._shown.get(key)) is None:
                every = KnownBounds()
                every.ranges = dict(ranges)
                shown = self._shown[key] = every.is_inside(term, count, facts)
            if shown:
                return True
        return False

    def _in_copies(self, var: Term, here: Interval) -> Interval:
        """The interval of a variable over all copies of a loop, of which this is one."""
        _, (low, high) = self.boxes.get(var, ("", here))  # type: ignore[call-overload]  # a variable
        return (low, high) if low <= here[0] and here[1] <= high else here

    def is_near(self, term: Scalar, found: Sequence[LaneValue]) -> bool:
        """Whether the parts of an index are so small that no sum of them overflows."""
        low, high = self.interval(term)
        return low > -FAR and high < FAR and all(abs(each.plus) < FAR for each in found)
