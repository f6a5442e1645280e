"""Recursive matches: the matches of a recursive pattern, one for each term where an alternative
fits.

    recursive("sum", lambda again: either(again + again, x))      on (a + b) + c
    five matches: (a + b) + c, a + b, a, b, c
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from typing import Any, Generic, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from attrs import frozen

from plica.core.term import Term, leaf_key

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
