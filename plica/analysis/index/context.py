"""Contexts: what is known about the variables of an index term, as an immutable value.

    Context ::= Context(ranges, facts)
    Range   ::= Range(var, start, stop)       start <= var < stop, both index terms

>>> from plica.ir.type.dim import dim_var
>>> i, n = dim_var("i"), dim_var("n")
>>> inside = EMPTY.loop(i, n).where(n < 100)
>>> inside.where(n < 100) is inside, len(inside.facts)
(True, 1)

Contexts are passed as arguments, never stored globally. The order of ranges matters: canonical
terms list their variables in this order.

Index terms over variables are integers of any size: a program whose dims or indices overflow 64
bits has no memory to address.  Values loaded from data may be anything of their dtype.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from attrs import frozen

from plica.core import Term, fold_into, free_vars
from plica.ir.loop import scalar as sc
from plica.ir.type import bool_

WRITTEN = "rewrite.index.context"  # the path that its terms are written down under

MAX_FACTS: Final = 32
"""Further facts are forgotten: a deep nest of conditions must not make each step slower."""


@frozen(eq=False)
class Range(Term):
    """`start <= var < stop`."""

    var: sc.ScalarVar
    start: sc.Scalar
    stop: sc.Scalar


@frozen(eq=False)
class Context(Term):
    """Ranges of variables, outermost first, and conditions that hold."""

    ranges: tuple[Range, ...] = ()
    facts: tuple[sc.Scalar, ...] = ()

    def loop(self, var: sc.ScalarVar, extent: sc.Like, start: sc.Like = 0) -> Context:
        """The context inside a loop: `start <= var < start + extent`. Earlier facts about `var`
        refer to another variable and are dropped."""
        return _looped(self, var, sc.index(start), sc.index(extent))

    def loops(self, extents: Iterable[tuple[sc.ScalarVar, sc.Scalar]]) -> Context:
        """The context inside several loops from 0 on, outermost first."""
        inner = self
        for var, extent in extents:
            inner = inner.loop(var, extent)
        return inner

    def within(self, var: sc.ScalarVar, low: sc.Like, high: sc.Like) -> Context:
        """`low <= var <= high`."""
        inner = self.without((var,))
        stop = high + 1 if isinstance(high, sc.Scalar) else sc.index(high + 1)
        return Context((*inner.ranges, Range(var, sc.index(low), stop)), inner.facts)

    def where(self, *conditions: sc.Scalar) -> Context:
        """Inside a branch: the conditions hold as well.

        A condition that reads memory holds only until the memory is written.
        """
        facts = dict.fromkeys(self.facts)
        for condition in conditions:
            facts.update(dict.fromkeys(conjuncts(condition)))
        kept = tuple(facts)[:MAX_FACTS]
        return self if kept == self.facts else Context(self.ranges, kept)

    def unless(self, condition: sc.Scalar) -> Context:
        """Inside the other branch: the condition does not hold."""
        return self.where(negated(condition))

    def without(self, variables: Iterable[Term]) -> Context:
        """The context where these names mean something else."""
        hidden = frozenset(variables)
        if hidden.isdisjoint(free_vars(self)):
            return self
        ranges = tuple([each for each in self.ranges if free_vars(each).isdisjoint(hidden)])
        facts = tuple([fact for fact in self.facts if free_vars(fact).isdisjoint(hidden)])
        return Context(ranges, facts)

    def concerning(self, term: Term) -> Context:
        """The context less what says nothing of a term: loops of some iterations over variables
        that neither the term nor anything else here mentions.

        The result is the same in both contexts, and fewer contexts need tables.
        """
        return self if len(self.ranges) < 2 else _concerning(self, free_vars(term))

    def conditions(self) -> tuple[sc.Scalar, ...]:
        """Everything the context says, as conditions."""
        said: list[sc.Scalar] = []
        for each in self.ranges:
            said += [sc.Le(each.start, each.var), sc.Lt(each.var, each.stop)]
        return (*said, *self.facts)


@lru_cache(maxsize=1024)
def _looped(around: Context, var: sc.ScalarVar, begin: sc.Scalar, size: sc.Scalar) -> Context:
    """The context inside a loop, memoised: passes over a kernel ask for the same ones
    repeatedly."""
    stop = size if begin is ZERO else begin + size
    inner = around.without((var,))
    return Context((*inner.ranges, Range(var, begin, stop)), inner.facts)


@lru_cache(maxsize=4096)
def _concerning(context: Context, mentioned: frozenset[Term]) -> Context:
    loose = [each for each in context.ranges if each.var not in mentioned and _runs(each)]
    if not loose:
        return context
    others = [each for each in context.ranges if each not in loose]
    wanted = frozenset[Term]().union(*map(free_vars, (*others, *context.facts)))
    kept = [each for each in context.ranges if each not in loose or each.var in wanted]
    return Context(tuple(kept), context.facts)


def _runs(of: Range) -> bool:
    """Whether a loop between numbers has an iteration."""
    match of.start, of.stop:
        case sc.Lit(first), sc.Lit(stop):
            return first < stop
        case _:
            return False


EMPTY: Final = Context()
ZERO: Final = sc.index(0)
TRUE: Final = sc.Lit(True, bool_)
FALSE: Final = sc.Lit(False, bool_)

NAMED: Final = Context((), (TRUE,))
"""The empty context, in which variables are ordered by name (`simplify`)."""


def conjunction(conditions: Iterable[sc.Scalar]) -> sc.Scalar:
    """The condition that all of these hold; `True` for none."""
    whole: sc.Scalar = TRUE
    for condition in conditions:
        whole = condition if whole is TRUE else sc.And(whole, condition)
    return whole


def conjuncts(condition: sc.Scalar) -> tuple[sc.Scalar, ...]:
    """The conditions that together are `condition`, each once, in order; none for `True`."""
    found: dict[sc.Scalar, None] = {}
    seen: set[sc.Scalar] = set()
    stack = [condition]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        match node:
            case sc.And(left, right):
                stack += [right, left]
            case sc.Not(value) if (contrary := _pushed(value)) is not node:
                stack.append(contrary)
            case _ if node is not TRUE:
                found[node] = None
    return tuple(found)


def _pushed(of: sc.Scalar) -> sc.Scalar:
    """The negation; comparisons of floats keep `not`, because of NaN."""
    return (
        negated(of)
        if isinstance(of, sc.Eq | sc.Ne | sc.Lt | sc.Le | sc.Not | sc.Or)
        else sc.Not(of)
    )


def negated(condition: sc.Scalar) -> sc.Scalar:
    """The negation, with `not` pushed inwards as far as possible."""
    memo: dict[tuple[sc.Scalar, bool], sc.Scalar] = {}  # by whether the contrary is meant

    def parts(job: tuple[sc.Scalar, bool]) -> list[tuple[sc.Scalar, bool]]:
        match job:
            case sc.Not(value), flip:
                return [(value, not flip)]
            case ((sc.And(left, right) | sc.Or(left, right)), True):
                return [(left, True), (right, True)]
            case _:
                return []

    def result(job: tuple[sc.Scalar, bool]) -> sc.Scalar:
        inside = [memo[part] for part in parts(job)]
        node, flip = job
        match node:
            case sc.Not():
                return inside[0]
            case _ if not flip:
                return node
            case sc.And():
                return sc.Or(*inside)
            case sc.Or():
                return sc.And(*inside)
            case sc.Lt(left, right) if not sc.dtype_of(left).is_float:  # nan is not above
                return sc.Le(right, left)
            case sc.Le(left, right) if not sc.dtype_of(left).is_float:
                return sc.Lt(right, left)
            case sc.Eq(left, right):
                return sc.Ne(left, right)
            case sc.Ne(left, right):
                return sc.Eq(left, right)
            case sc.Lit(truth):
                return FALSE if truth else TRUE
            case _:
                return sc.Not(node)

    return fold_into(memo, (condition, True), parts, result)
