"""Verdicts: what is known about a rule.

Verdict ::= Proved(how) | Tested(cases, note) | Untested(why) | Refuted(counterexample)

Only the first two are good: a rule that was never tried may be anything.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import attrs

from plica.core import Term, post_order
from plica.ir.graph.expression import Apply
from plica.runtime.notebook import ShownAsText


@attrs.frozen
class Proved(ShownAsText):
    """The two sides are equal at every point; `how` says by what.

    `laws` are taken for granted; the `certificate` is scripts in SMT-LIB, each unsatisfiable.
    """

    rule: str
    how: str
    laws: tuple[str, ...] = ()
    certificate: tuple[str, ...] = ()
    theorems: tuple[str, ...] = ()  # laws of the prover's normal forms that were used

    def to_data(self) -> dict[str, Any]:
        return {
            "rule": self.rule, "verdict": "proved", "how": self.how, "laws": list(self.laws),
            "certificate": list(self.certificate), "theorems": list(self.theorems),
        }  # fmt: skip

    def __str__(self) -> str:
        given = f", given {' and '.join(self.laws)}" if self.laws else ""
        by = f"; {', '.join(self.theorems)}" if self.theorems else ""
        return f"{self.rule}: proved, {self.how}{given}{by}"


@attrs.frozen
class Tested(ShownAsText):
    """The two sides agreed on that many instances; some overflowed and are counted apart.

    `sets` are the data sets that they were compared on, several for each instance.
    """

    __test__ = False  # its name makes pytest think it is a test

    rule: str
    cases: int
    overflowed: int = 0
    note: str = ""
    sets: int = 0

    def to_data(self) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "verdict": "tested",
            "cases": self.cases,
            "overflowed": self.overflowed,
            "note": self.note,
            "sets": self.sets,
        }

    def __str__(self) -> str:
        apart = f", {self.overflowed} overflowed" if self.overflowed else ""
        return f"{self.rule}: tested on {self.cases} instances{apart}" + (
            f", {self.note}" if self.note else ""
        )


@attrs.frozen
class Untested(ShownAsText):
    """Nothing is known: no instance was tried."""

    rule: str
    why: str

    def to_data(self) -> dict[str, Any]:
        return {"rule": self.rule, "verdict": "untested", "cases": 0, "note": self.why}

    def __str__(self) -> str:
        return f"{self.rule}: untested, {self.why}"


@attrs.frozen
class Counterexample:
    """A smallest instance on which the sides differ, with the values of its inputs."""

    left: Term
    right: Term | None
    inputs: tuple[tuple[str, Any], ...]
    left_value: Any
    right_value: Any
    reason: str
    pytest: str

    @property
    def nodes(self) -> int:
        """The operators of the left side."""
        return operators(self.left)


@attrs.frozen
class Refuted(ShownAsText):
    """The two sides differ."""

    rule: str
    counterexample: Counterexample

    def to_data(self) -> dict[str, Any]:
        example = self.counterexample
        return {
            "rule": self.rule,
            "verdict": "refuted",
            "reason": example.reason,
            "left": str(example.left),
            "right": str(example.right),
            "pytest": example.pytest,
        }

    def __str__(self) -> str:
        example = self.counterexample
        given = [f"{name} = {_small(value)}" for name, value in example.inputs]
        told = any(each in example.reason for each in given) or not all(map(_is_small, given))
        where = "" if told or not given else f", where {' and '.join(given)}"
        return f"{self.rule}: refuted, {example.reason}{where}{self.hint}"

    @property
    def hint(self) -> str:
        """What may save the rule, where only whole numbers were seen to refute it."""
        if self.counterexample.left_value is None:
            return ""  # nothing was computed
        kinds = {getattr(getattr(value, "dtype", None), "kind", "") for _, value in
                 self.counterexample.inputs}  # fmt: skip
        if not kinds or not kinds <= {"i", "u", "b"}:
            return ""
        return f"; if it is meant for floats alone, say so: hole({self._first!r}, dtypes=…)"

    @property
    def _first(self) -> str:
        return self.counterexample.inputs[0][0]


def _small(value: Any) -> str:  # Any: an array, or a tuple of some
    return " ".join(str(value).split())


def _is_small(text: str) -> bool:
    return len(text) <= 40


Verdict: TypeAlias = Proved | Tested | Untested | Refuted


def is_good(verdict: Verdict) -> bool:
    """Whether something speaks for the rule and nothing against it."""
    return isinstance(verdict, Proved | Tested)


def operators(term: Term) -> int:
    """The number of distinct operator nodes in a term."""

    return sum(1 for node in post_order(term) if isinstance(node, Apply))
