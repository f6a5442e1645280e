"""Parametric traces: one schedule for all sizes, learnt from traces that were tuned for some.

    learnt = learn([(trace, kernel), …])     traces of programs of several sizes
    learnt.on(kernel)                        transported to another size, with a report
    learn(tuned, near=kernel).on(kernel)     learnt from programs of that form, the nearest first

Traces of one skeleton (the same steps on the same handles) differ in the factors of their splits.
Each factor becomes a function of the extent of its loop that fits all of them: the largest divisor
up to a number, a fixed count of parts, the whole extent, or a constant.  Where none fits all, the
divisor that is nearest to what was tuned is taken: to what was tuned for the nearest program, where
it is said for which one the trace is learnt.

>>> learnt_size([(56, 28), (28, 28), (14, 14)])
SizeRule(kind='divisor', number=28)
>>> learnt_size([(64, 16), (128, 32)]), learnt_size([(64, 16), (128, 32)]).at(256)
(SizeRule(kind='parts', number=4), 64)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log
from typing import Literal, TypeAlias

from attrs import evolve, frozen

from plica.core import Term, map_bottom_up, post_order
from plica.core.collector import paused
from plica.ir.loop.statement import For
from plica.ir.type import known
from plica.runtime.error import Diagnostic, InputError
from plica.schedule.adapt import divisor
from plica.schedule.handle import Handle
from plica.schedule.instruction import Instruction
from plica.schedule.normalise import used
from plica.schedule.primitive.split import Split
from plica.schedule.replay import begin, kernel_of, states
from plica.schedule.trace import Program, Step, Trace, check_traces
from plica.schedule.transport import Sizes, Transported, transport

RuleKind: TypeAlias = Literal["divisor", "parts", "whole", "constant"]


@frozen
class SizeRule:
    """A factor of a split as a function of the extent of its loop."""

    kind: RuleKind
    number: int

    def at(self, extent: int) -> int:
        """The factor for an extent."""
        match self.kind:
            case "divisor":
                return divisor(extent, self.number)
            case "parts":
                return max(1, extent // self.number)
            case "whole":
                return extent
            case "constant":
                return self.number

    def __str__(self) -> str:
        words = {
            "divisor": f"the largest divisor up to {self.number}",
            "parts": f"the extent / {self.number}",
            "whole": "the extent",
            "constant": str(self.number),
        }
        return words[self.kind]


Factors: TypeAlias = tuple[SizeRule | None, ...]


@frozen(eq=False)
class ParametricTrace:
    """A trace whose splits have factors that follow from extents; `learnt` says from how many
    traces, of how many that were given."""

    trace: Trace
    rules: tuple[tuple[int, Factors], ...]
    learnt: int
    given: int

    def on(self, program: Program, kernel: str | None = None) -> Transported:
        """The program scheduled by the trace, with the factors for its extents."""
        sizes: dict[int, Sizes] = {number: _sizes(factors) for number, factors in self.rules}
        return transport(self.trace, program, kernel, sizes=sizes)

    def __str__(self) -> str:
        lines = [f"learnt from {self.learnt} of {self.given} traces, {len(self.trace)} steps"]
        for number, factors in self.rules:
            words = ["what is left" if factor is None else str(factor) for factor in factors]
            lines.append(f"step {number}: split by {', '.join(words)}")
        return "\n".join(lines)


def learn(
    tuned: Sequence[tuple[Trace, Program]], near: Program | None = None
) -> ParametricTrace:  # fmt: skip
    """The parametric trace of one skeleton among traces; an `InputError` where none is given.

    It is the most frequent one, or that of the trace which was tuned for the program nearest to
    `near`, by the extents of its loops; programs with other loops are further than any with these.
    """
    if not tuned:
        message, expected = "There is nothing to learn from.", "traces with their programs"
        raise InputError(Diagnostic("input-type", message, None, expected, "none"))
    check_traces(*[trace for trace, _ in tuned])
    groups: dict[tuple[object, ...], list[tuple[Trace, Program]]] = {}
    for trace, program in tuned:
        plain = literal(trace)
        groups.setdefault(skeleton(plain), []).append((plain, program))
    if near is None:
        alike = max(groups.values(), key=len)
    else:
        wanted = extents(near)
        for group in groups.values():
            group.sort(key=lambda each: apart(extents(each[1]), wanted))
        alike = min(groups.values(), key=lambda group: apart(extents(group[0][1]), wanted))
    seen: dict[int, list[tuple[int, tuple[int | None, ...]]]] = {}
    with paused():
        for trace, program in alike:
            for number, extent, factors in splits_of(trace, program):
                seen.setdefault(number, []).append((extent, factors))
    rules = [(number, _factors(each, near is not None)) for number, each in seen.items()]
    return ParametricTrace(alike[0][0], tuple(rules), len(alike), len(tuned))


def extents(program: Program) -> tuple[int, ...]:
    """The extents of the loops of a program, from the first to the last; 1 is an open one."""
    loops = [node for node in post_order(kernel_of(program)[2]) if isinstance(node, For)]
    return tuple([known(loop.extent) or 1 for loop in loops])


def apart(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    """How far extents are from others: the sum of the logarithms of their ratios."""
    if len(one) != len(other):
        return inf
    return sum(abs(log(a / b)) for a, b in zip(one, other, strict=True))


def literal(trace: Trace) -> Trace:
    """The trace with decided numbers written into the splits that use them."""
    decided = trace.decisions()

    def written(what: Instruction) -> Instruction:
        if not isinstance(what, Split):
            return what
        factors = tuple([
            decided[factor.step][factor.output] if isinstance(factor, Handle) else factor
            for factor in what.factors
        ])  # fmt: skip
        return evolve(what, factors=factors)

    steps = [Step(written(step.instruction), step.decision) for step in trace.steps]
    return used(Trace(tuple(steps)))


def skeleton(trace: Trace) -> tuple[object, ...]:
    """The steps without the factors of splits and without decisions: traces that have one skeleton
    differ in sizes alone."""

    def bare(node: Term) -> Term:
        if isinstance(node, Split):
            return evolve(node, factors=tuple([None if f is None else 1 for f in node.factors]))
        return node

    return tuple([map_bottom_up(bare, step.instruction) for step in trace.steps])


def splits_of(trace: Trace, program: Program) -> list[tuple[int, int, tuple[int | None, ...]]]:
    """The splits of loops of known extent: the number of the step, the extent, the factors."""
    root = kernel_of(program)[2]
    before = [begin(root), *states(trace, root)]
    found: list[tuple[int, int, tuple[int | None, ...]]] = []
    for number, (step, state) in enumerate(zip(trace.steps, before, strict=False)):
        if isinstance(what := step.instruction, Split):
            extent = known(state.scene.loop(what.loop).node.extent)
            if extent is not None:
                found.append((number, extent, tuple(what.numbers(state.scene))))
    return found


def _factors(seen: Sequence[tuple[int, tuple[int | None, ...]]], ordered: bool) -> Factors:
    """The rule of each factor; an inner one is learnt from what those inside it leave."""
    count = len(seen[0][1])
    rest = [extent for extent, _ in seen]
    size_rules: list[SizeRule | None] = [None] * count
    for at in reversed(range(count)):
        values = [factors[at] for _, factors in seen]
        pairs = [(e, f) for e, f in zip(rest, values, strict=True) if f is not None]
        if len(pairs) == len(seen):
            size_rules[at] = learnt_size(pairs, ordered)
            rest = [max(1, e // f) for e, f in pairs]
    return tuple(size_rules)


def learnt_size(seen: Sequence[tuple[int, int]], ordered: bool = False) -> SizeRule:
    """The rule for pairs of an extent and the factor that was tuned for it; where none fits all,
    the first of `ordered` ones decides."""
    factors = [factor for _, factor in seen]
    rules = [
        SizeRule("divisor", max(factors)), SizeRule("parts", max(1, seen[0][0] // factors[0])),
        SizeRule("whole", 0), SizeRule("constant", factors[0]),
    ]  # fmt: skip
    for rule in rules:
        if all(rule.at(extent) == factor for extent, factor in seen):
            return rule
    if ordered:
        return SizeRule("divisor", factors[0])
    divisors = [SizeRule("divisor", each) for each in sorted(set(factors))]
    return min(divisors, key=lambda each: _distance(each, seen))


def _distance(rule: SizeRule, seen: Sequence[tuple[int, int]]) -> float:
    return sum(abs(log(rule.at(extent) / max(1, factor))) for extent, factor in seen)


def _sizes(factors: Factors) -> Sizes:
    def at(extent: int) -> tuple[int | None, ...]:
        rest, found = extent, list[int | None]()
        for rule in reversed(factors):
            factor = None if rule is None else rule.at(rest)
            found.append(factor)
            rest = rest if factor is None else max(1, rest // factor)
        return tuple(reversed(found))

    return at
