"""Recursive patterns: a step that says `again`, and where it ends.

    recursive("chain", lambda again: either(relu(again), tanh(again)), ends=exp(x))

matches `exp(a)`, `relu(exp(a))`, `tanh(relu(exp(a)))` and so on. Each iteration takes the first
alternative that matches, those of the step before the end. Holes of the step are matched anew in
each iteration, and `m.chain` holds the iterations; holes of `ends` are ordinary, and can be used by
a right side that is a term. A pattern is a finite term in which `again` is a name, so printing
terminates.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Var
>>> from plica.ir.type.term import tensor
>>> from plica.rewrite.match import match
>>> from plica.rewrite.pattern import either, holes
>>> a, b, c = (Var(Name(name), tensor((2,), "f32")) for name in "abc")
>>> (x,) = holes("x")
>>> found = match(recursive("sum", lambda again: either(again + again, x)), (a + b) + (c + b))
>>> sorted(str(turn.x.name) for turn in found.sum if "x" in turn.filling)
['a', 'b', 'c']
>>> found.sum.fold(lambda turn, inside: sum(inside) or 1)      # b counts twice
4

Recursive matches: the matches of a recursive pattern, one for each term where an alternative
fits.

    recursive("sum", lambda again: either(again + again, x))      on (a + b) + c
    five matches: (a + b) + c, a + b, a, b, c
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence, Set
from typing import Any, Final, Generic, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import attrs
from attrs import frozen

from plica.core import RuleRefused, Term, post_order, rebuild
from plica.core.term import leaf_key
from plica.ir.graph.expression import Expr
from plica.rewrite import pattern as pt
from plica.runtime.error import Diagnostic, Place

ITERATION_COUNTS: Final = (1, 2, 0, 3, 4)
"""The numbers of iterations to expand in an instance, simplest first."""


def recursive(name: str, step: Callable[[Any], Any], ends: Any = None) -> Any:
    """Matches `step`, in which `again` refers to the whole pattern, or `ends`.

    `m.name` are the iterations, outermost first: `turn.x` is a hole's filling in that iteration,
    and `m.name.fold(f)` calls `f(turn, inner results)` once for each distinct one.
    """
    called: object = step  # whatever a user gives
    if not callable(called):
        hint = "lambda again: either(relu(again), x)"
        raise _refused(pt.word(name), "has a function for its step", "a function", repr(step), hint)
    again = pt.Again(pt.word(name))
    body = step(again)
    for each in (body,) if ends is None else (body, ends):
        if not isinstance(each, Expr):
            raise _refused(again.name, "is made of expressions", "a pattern", repr(each))
    made = pt.Recursive(again.name, body, () if ends is None else (ends,))
    for reason in _wrong(made, again):
        raise reason
    return made


def _wrong(made: pt.Recursive, again: pt.Again) -> Iterator[RuleRefused]:
    """Why something can be no recursive pattern."""
    name = made.name
    for end in made.ends:
        if any(isinstance(node, pt.Again) for node in post_order(end)):
            yield _refused(name, "ends in what does not go on", "no again in ends", "again")
    ways = pt.alternatives(made.step)
    if again in ways:
        found = "again alone, which is the same term for ever"
        yield _refused(name, "takes a step", "an operator around again", found)
    if not any(_goes_on(way, again) for way in ways):
        hint = "Without it an ordinary pattern does."
        yield _refused(name, "says again somewhere in its step", "again", repr(made.step), hint)
    if not made.ends and all(_goes_on(way, again) for way in ways):
        hint = f'either(..., x), or recursive("{name}", ..., ends=x)'
        yield _refused(name, "ends", "an alternative without again, or ends=", "none", hint)
    if any(isinstance(node, pt.Again) and node is not again for node in pt.once(made.step)):
        yield _refused(name, "says again of itself only", f"the again of {name}", "that of another")
    if any(type(node).binds for term in (made.step, *made.ends) for node in post_order(term)):
        yield _refused(name, "binds no variables", "operators around holes", "a let or a function")
    twice = pt.hole_names(made.step) & frozenset[str]().union(*map(pt.hole_names, made.ends))
    if twice - {name}:
        yield _shared(name, twice - {name}, None)


def _goes_on(way: Term, again: pt.Again) -> bool:
    return again in post_order(way)


def _refused(
    name: str, message: str, expected: str, found: str, hint: str | None = None
) -> RuleRefused:
    told = f"The recursive pattern {name} {message}."
    return RuleRefused(Diagnostic("bad-rule", told, None, expected, found, hint))


def _shared(name: str, holes: frozenset[str], place: Place | None) -> RuleRefused:
    message = f"Holes of the step of {name} are filled anew on each turn, so nothing else has them."
    hint = "A hole of ends= is the same on all turns; or compare the turns in when=."
    found = ", ".join(sorted(holes))
    return RuleRefused(Diagnostic("bad-rule", message, place, "holes of its own", found, hint))


def check_recursions(left: Term, place: Place | None) -> None:
    """Refuses a left side whose recursive patterns share holes of their steps, or occur under
    binders."""
    if not (recursives := pt.recursions(left)):
        return
    taken = pt.bound_names(left)
    for each in recursives:
        own = pt.hole_names(each.step) - {each.name}
        if own & taken:
            raise _shared(each.name, own & taken, place)
        if each.name in taken:
            message = f"The left side has two things of the name {each.name}."
            raise RuleRefused(Diagnostic("bad-rule", message, place, "another name", each.name))
        taken |= own | {each.name}
    if any(type(node).binds for node in post_order(left)):
        message = f"The recursive pattern {recursives[0].name} stands beside bound variables."
        expected = "operators around holes"
        raise RuleRefused(Diagnostic("bad-rule", message, place, expected, "a let or a function"))


def unrolled(pattern: Term, choose: Callable[[Any], Any]) -> Term:
    """An ordinary pattern: some iterations of each recursion expanded, with renamed holes.
    Recursion over a pattern, of a few iterations."""
    if not pt.recursions(pattern):
        return pattern
    return _Unrolling(choose).part(pattern)


class _Unrolling:
    """Iterations are numbered in order."""

    def __init__(self, choose: Callable[[Any], Any]) -> None:
        self.choose, self.numbers = choose, itertools.count()
        self.made: dict[pt.Recursive, Term] = {}

    def part(self, node: Term) -> Term:
        """A part of the pattern that is matched once."""
        if isinstance(node, pt.Recursive):
            if node not in self.made:
                self.made[node] = self.turn(node, self.choose(ITERATION_COUNTS))
            return self.made[node]
        return rebuild(node, tuple(map(self.part, node._children)))

    def turn(self, of: pt.Recursive, left: int) -> Term:
        """A turn with a given number of others inside."""
        again = pt.Again(of.name)
        ways = pt.alternatives(of.step)
        if left:
            step = self.choose([way for way in ways if _goes_on(way, again)])
        else:
            stops = [way for way in ways if not _goes_on(way, again)]
            ends = [way for end in of.ends for way in pt.alternatives(end)]
            step = self.choose([*stops, *ends])
            if step in ends:
                return self.part(step)
        return self._step(step, of, left, next(self.numbers))

    def _step(self, node: Term, of: pt.Recursive, left: int, number: int) -> Term:
        if isinstance(node, pt.Again):
            return self.turn(of, left - 1)
        if isinstance(node, pt.Recursive):
            return self.turn(node, self.choose(ITERATION_COUNTS))
        if isinstance(node, pt.Hole | pt.Rest):
            return attrs.evolve(node, name=f"{node.name}_{number}")
        return rebuild(node, tuple(self._step(kid, of, left, number) for kid in node._children))


# --- recursive matches -------------------------------------------------------------------------


M = TypeVar("M")
R = TypeVar("R")
# Any: a hole's filling is a term, the value of an attribute, or the match of a recursion.
Filling: TypeAlias = dict[str, Any]
Matcher: TypeAlias = Callable[[Any, Filling], bool]
NOWHERE = -1  # the number of the alternative at a term that none fits


@frozen(eq=False)
class RecursiveMatches(Generic[M]):
    """The iterations of a recursion, outer before inner; a term that occurs twice is one iteration.

    An iteration is a match: `turn.x` fills the hole `x` there. `terms` are their terms, `inside`
    the terms matched by `again`, `patterns` the alternatives taken.
    """

    terms: tuple[Term, ...]
    turns: tuple[M, ...]
    inside: tuple[tuple[Term, ...], ...]
    patterns: tuple[Term, ...]

    def __len__(self) -> int:
        return len(self.turns)

    def __iter__(self) -> Iterator[M]:
        return iter(self.turns)

    def __getitem__(self, at: int) -> M:
        return self.turns[at]

    def fold(self, f: Callable[[M, tuple[R, ...]], R]) -> R:
        """Folds the iterations: `f` of each one and its inner results, once for each
        distinct one."""
        done: dict[Term, R] = {}
        for term, turn, inside in zip(
            reversed(self.terms), reversed(self.turns), reversed(self.inside), strict=True
        ):
            done[term] = f(turn, tuple([done[each] for each in inside]))
        return done[self.terms[0]]


def _same(one: Any, other: Any) -> bool:
    """Whether a hole that is used twice can be both."""
    return one is other or leaf_key(one) == leaf_key(other)


class RecursiveMatcher(Generic[M]):
    """Binds a name to the iterations of a recursion; holes in `whole` are equal in all of them."""

    def __init__(
        self,
        name: str,
        steps: Sequence[tuple[Term, Matcher]],
        whole: Set[str],
        turn_of: Callable[[Filling], M],
    ) -> None:
        self.name, self.steps, self.whole, self.turn_of = name, steps, whole, turn_of
        self._chosen: WeakKeyDictionary[Term, int] = WeakKeyDictionary()

    def __call__(self, term: Any, filling: Filling) -> bool:
        """Whether the recursion matches a term; extends the filling."""
        if not isinstance(term, Term) or self._decided(term) == NOWHERE:
            return False
        if self.name in filling:
            return bool(filling[self.name].terms[0] is term)
        found = self._gathered(term)
        for own in found.values():
            for hole in self.whole & own.keys():
                if not _same(filling.setdefault(hole, own[hole]), own[hole]):
                    return False
        filling[self.name] = RecursiveMatches(
            tuple(found),
            tuple([self.turn_of(own) for own in found.values()]),
            tuple([own[self.name] for own in found.values()]),
            tuple([self.steps[self._chosen[node]][0] for node in found]),
        )
        return True

    def _decided(self, root: Term) -> int:
        """The number of the alternative that fits."""
        stack = [root]
        while stack:
            node = stack[-1]
            missing = () if node in self._chosen else self._choose(node)
            stack.extend(missing)
            if not missing:
                stack.pop()
        return self._chosen[root]

    def _choose(self, node: Term) -> tuple[Term, ...]:
        """Choose the first alternative that fits, or say what must be decided before."""
        for number in range(len(self.steps)):
            if (filling := self._filled(node, number)) is None:
                continue
            parts: tuple[Term, ...] = filling[self.name]
            if missing := tuple([part for part in parts if part not in self._chosen]):
                return missing
            if all(self._chosen[part] != NOWHERE for part in parts):
                self._chosen[node] = number
                return ()
        self._chosen[node] = NOWHERE
        return ()

    def _filled(self, node: Term, number: int) -> Filling | None:
        filling: Filling = {}
        if not self.steps[number][1](node, filling):
            return None
        return {self.name: (), **filling}

    def _gathered(self, root: Term) -> dict[Term, Filling]:
        """What fills the holes on each turn, a turn before those inside it."""
        order: list[Term] = []
        found: dict[Term, Filling] = {}
        stack: list[tuple[Term, bool]] = [(root, False)]
        while stack:
            node, leaving = stack.pop()
            if leaving:
                order.append(node)
            elif node not in found:
                filling = self._filled(node, self._chosen[node])
                assert filling is not None  # it was, when it was decided
                found[node] = filling
                stack.append((node, True))
                stack.extend((part, False) for part in reversed(filling[self.name]))
        return {node: found[node] for node in reversed(order)}
